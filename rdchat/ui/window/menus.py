"""The table of commands: names, texts, keys, when each is enabled, and what it calls."""

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtGui import QAction, QKeySequence

from rdchat import paths
from rdchat.inference.api.requests import Mode
from rdchat.services.order.chat_order import Place
from rdchat.ui.look.focus import show_in_front
from rdchat.ui.look.opening import show_folder
from rdchat.ui.look.theme import DEFAULT_TEXT
from rdchat.ui.window.about import about_box
from rdchat.ui.window.actions import Command, Menu

if TYPE_CHECKING:
    from rdchat.ui.window.commands import Commands
    from rdchat.ui.window.main_window import MainWindow

_Standard, _Role = QKeySequence.StandardKey, QAction.MenuRole


def menus(window: "MainWindow", do: "Commands") -> list[Menu]:
    """Return the menus in the order of a Mac app."""
    return [
        ("&File", _file(window, do)),
        ("&Edit", _edit(window, do)),
        ("&Chat", _chat(window, do)),
        ("&Draft", _draft(window, do)),
        ("&View", _view(window, do)),
        ("&Window", [Command("minimize", "Minimise", window.showMinimized, "Ctrl+M")]),
        (
            "&Help",
            [
                Command("show_log", "Show log", partial(show_folder, paths.log_path())),
                Command("about", "About rdchat", lambda: about_box(window).open(), role=_Role.AboutRole),
            ],
        ),
    ]


def _file(window: "MainWindow", do: "Commands") -> list[Command | None]:
    return [
        Command("new_chat", "New chat", do.new_chat, _Standard.New),
        Command("new_folder", "New folder", do.new_folder, "Ctrl+Shift+N"),
        Command("attach", "Attach files…", window.conversation.files.choose, "Ctrl+Shift+U"),
        None,
        Command("open_folder", "Open model folder…", do.choose_model, _Standard.Open),
        Command("models", "Models…", lambda: show_in_front(window.windows.models), "Ctrl+Shift+M"),
        None,
        Command("import_chats", "Import chats…"),
        Command("export_chat", "Export chat…", None, "Ctrl+Shift+E", enabled=do.has_chat),
        Command("export_all", "Export all chats…"),
        None,
        Command("back_up", "Back up…"),
        Command("restore", "Restore…"),
        None,
        Command("close_window", "Close window", do.close_front, _Standard.Close),
        Command("quit", "Quit rdchat", do.quit, _Standard.Quit, role=_Role.QuitRole),
    ]


def _edit(window: "MainWindow", do: "Commands") -> list[Command | None]:
    find_bar = window.conversation.find_bar
    return [
        Command("undo", "Undo", do.undo, _Standard.Undo),
        Command("redo", "Redo", partial(do.edit, "redo"), _Standard.Redo),
        None,
        Command("cut", "Cut", partial(do.edit, "cut"), _Standard.Cut),
        Command("copy", "Copy", partial(do.edit, "copy"), _Standard.Copy),
        Command("paste", "Paste", partial(do.edit, "paste"), _Standard.Paste),
        Command("select_all", "Select all", partial(do.edit, "selectAll"), _Standard.SelectAll),
        Command("quote", "Quote selection", window.conversation.quote_selection, "Ctrl+'"),
        None,
        Command("find", "Find in chat", do.find, _Standard.Find),
        Command("find_next", "Find next", partial(find_bar.step, 1), _Standard.FindNext),
        Command("find_previous", "Find previous", partial(find_bar.step, -1), _Standard.FindPrevious),
        Command("search", "Search chats", do.search, "Ctrl+Alt+F"),
        None,
        Command(
            "preferences",
            "Preferences…",
            lambda: show_in_front(window.preferences),
            "Ctrl+,",
            role=_Role.PreferencesRole,
        ),
    ]


def _chat(window: "MainWindow", do: "Commands") -> list[Command | None]:
    controller = do.controller
    return [
        Command("stop", "Stop reply", controller.stop, ("Esc", "Ctrl+."), enabled=do.busy),
        Command(
            "regenerate",
            "Regenerate last reply",
            do.regenerate,
            "Ctrl+R",
            enabled=do.can_regenerate,
            label=lambda: "Regenerate last reply" if do.has_reply() else "Get a reply",
        ),
        Command(
            "regenerate_with", "Regenerate with…", do.regenerate_with, "Ctrl+Shift+R", enabled=do.can_regenerate_with
        ),
        Command(
            "copy_reply",
            "Copy last reply",
            window.conversation.transcript.copy_last_reply,
            "Ctrl+Shift+C",
            enabled=do.has_reply,
        ),
        Command(
            "restore_message",
            "Restore deleted message",
            controller.text.restore_deleted,
            enabled=lambda: do.has_deleted,
        ),
        None,
        Command(
            "options",
            "Chat options…",
            lambda: window.header.open_options(),  # noqa: PLW0108  the header is built after the actions
            "Ctrl+Shift+O",
            tip="System prompt and sampling of this chat",
        ),
        Command("write", "Go to message field", window.conversation.composer.setFocus, "Ctrl+L"),
        None,
        _on_chat(do, "rename", "Rename chat"),
        _on_chat(do, "pin", "Pin chat"),
        Command("move", "Move to folder", submenu=do.move_menu, enabled=do.has_chat),
        _on_chat(do, "duplicate", "Duplicate chat", "Ctrl+D"),
        None,
        _on_chat(do, "archive", "Archive chat", "Ctrl+Alt+A"),
        _on_chat(do, "delete", "Delete chat"),
    ]


def _on_chat(do: "Commands", name: str, text: str, *keys: str) -> Command:
    """Return a command on the open chat, which the sidebar's context menu also has."""
    return Command(
        name,
        text,
        partial(do.run_chat_action, name),
        keys,
        enabled=do.has_chat,
        label=lambda: do.chat_action_text(name) or text,
    )


def _draft(window: "MainWindow", do: "Commands") -> list[Command | None]:
    drafting = do.controller.drafting

    def choose(mode: Mode, place: int) -> Command:
        return Command(
            f"draft_{mode.value}",
            mode.words,
            partial(do.choose_mode, mode),
            f"Ctrl+Alt+{place}",
            group="draft",
            enabled=lambda: drafting.ready,
            checked=lambda: drafting.settings.mode is mode,
        )

    return [
        *(choose(mode, place) for place, mode in enumerate(Mode, start=1)),
        None,
        Command("draft_settings", "Draft settings", do.show_drafting, "Ctrl+Shift+D"),
        None,
        Command("race", "Race…", do.open_race, "Ctrl+Alt+R"),
        Command("benchmark", "Benchmark…", lambda: show_in_front(window.windows.benchmark), "Ctrl+Alt+B"),
    ]


def _view(window: "MainWindow", do: "Commands") -> list[Command | None]:
    return [
        Command(
            "sidebar",
            "Sidebar",
            partial(window.toggle, window.sidebar),
            "Ctrl+Alt+S",
            tip="Show or hide the conversations",
            checked=lambda: not window.sidebar.isHidden(),
        ),
        _show_place(do, "show_archive", "Archive", Place.ARCHIVE),
        _show_place(do, "show_bin", "Bin", Place.BIN),
        None,
        Command(
            "panel",
            "Speed panel",
            partial(window.toggle, window.panel),
            "Ctrl+Alt+P",
            tip="Show or hide the speed panel",
            checked=lambda: not window.panel.isHidden(),
        ),
        Command("tokens", "Tokens and drafts", do.show_tokens, "Ctrl+Shift+T", enabled=do.has_reply),
        Command("ledger", "Time ledger…", lambda: show_in_front(window.windows.ledger), "Ctrl+Alt+L"),
        None,
        Command("larger", "Larger text", partial(do.change_text_size, 1), _Standard.ZoomIn),
        Command("smaller", "Smaller text", partial(do.change_text_size, -1), _Standard.ZoomOut),
        Command("usual", "Usual text size", partial(window.change, text_size=DEFAULT_TEXT), "Ctrl+0"),
        None,
        Command("full_screen", "Full screen", do.toggle_full_screen, _Standard.FullScreen),
    ]


def _show_place(do: "Commands", name: str, text: str, place: Place) -> Command:
    return Command(name, text, partial(do.toggle_place, place), checked=lambda: do.place is place)
