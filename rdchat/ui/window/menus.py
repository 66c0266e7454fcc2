"""The window's actions in one table (`menus`), from which the menu bar, the keys and the tooltips are made.

`Commands` carries them out. `WindowActions` makes a `QAction` of each `Command`, and keeps it up to date with the state
of the app: most signals of the controller lead to `refresh_soon`.
"""

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu, QMenuBar, QWidget

from rdchat.inference.api import Mode
from rdchat.services.app.start_request import StartRequest
from rdchat.ui.style import DEFAULT_TEXT, SideWindow, add_action, set_tip, show_in_front, single_shot
from rdchat.ui.window.commands import Commands
from rdchat.ui.window.palette import PaletteEntry

_Standard = QKeySequence.StandardKey
_Role = QAction.MenuRole
_WINDOW = "&Window"
# The draft modes that have an entry in the menu.
_LISTED_MODES = (Mode.AUTO, Mode.OFF)
_Key = str | QKeySequence.StandardKey


@dataclass(frozen=True, slots=True)
class Command:
    """One entry of the menu bar.

    Attributes:
        name: The attribute of `WindowActions` that has its action: `actions_.new_chat`.
        text: What the entry says, and the palette.
        run: Carries it out; None if another object connects the action.
        keys: Its shortcuts, each as Qt writes it or as one of Qt's standard keys.
        tip: The tooltip; if empty, the text is the tooltip.
        role: Where macOS puts it in place of its menu, such as Quit into the app's own.
        when: Returns whether it is enabled; None for always.
        checked: Returns whether it is checked; None if it cannot be.
        label: Returns the text, if that depends on the state.
        in_front: Whether it brings the main window to the front, because its effect is visible there.
        in_menu: Whether it is in the menu; the palette and its keys have it in any case.
    """

    name: str
    text: str
    run: Callable[[], object] | None = None
    keys: _Key | tuple[_Key, ...] = ()
    _: KW_ONLY
    tip: str = ""
    role: QAction.MenuRole = QAction.MenuRole.NoRole
    when: Callable[[], object] | None = None
    checked: Callable[[], bool] | None = None
    label: Callable[[], str] | None = None
    in_front: bool = False
    in_menu: bool = True


class WindowActions(QObject):
    """The actions of the commands, each an attribute by its name.

    Args:
        bar: Lists the menus.
        menus: The commands of each menu by its title; None is a separator.
        window: The main window.
    """

    def __init__(self, bar: QMenuBar, menus: dict[str, list[Command | None]], window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self._menus = menus
        self._actions: dict[str, tuple[QAction, Command]] = {}
        self._changed = single_shot(self, 0, self.refresh)
        for title, commands in menus.items():
            menu = bar.addMenu(title)
            if title == _WINDOW:
                menu.aboutToShow.connect(partial(self._list_windows, menu))
            for command in commands:
                if command is None:
                    menu.addSeparator()
                else:
                    # Without an entry, its keys work in the window.
                    (menu if command.in_menu else window).addAction(self._add(command))
        self.refresh()

    def __getattr__(self, name: str) -> QAction:
        """Return the action of a command, up to date."""
        # Until the constructor has set `_actions`, reading it as an attribute would lead here again.
        entry = self.__dict__.get("_actions", {}).get(name)
        if entry is None:
            raise AttributeError(name)
        self.refresh_if_due()
        action: QAction = entry[0]
        return action

    def refresh_soon(self) -> None:
        """Call `refresh` on the next turn of the event loop, once for all changes of this turn."""
        # Starting it again would put it off as long as each turn brings a change.
        if not self._changed.isActive():
            self._changed.start()

    def refresh_if_due(self) -> None:
        """Call `refresh` now, if it waits for the next turn: a key or a caller comes first."""
        if self._changed.isActive():
            self.refresh()

    def refresh(self) -> None:
        """Enable, check and name all actions as suits the present state."""
        self._changed.stop()
        for action, command in self._actions.values():
            if command.when is not None:
                action.setEnabled(bool(command.when()))
            if command.checked is not None:
                action.setChecked(command.checked())
            if command.label is not None:
                action.setText(command.label())

    def entries(self) -> Iterator[PaletteEntry]:
        """Return what can be done now, for the command palette."""
        self.refresh()
        for title, commands in self._menus.items():
            for command in filter(None, commands):
                action = self._actions[command.name][0]
                if action.isEnabled() and command.name != "palette":
                    menu = title.replace("&", "") if command.in_menu else ""
                    detail = "  ".join(filter(None, (menu, _keys_text(action))))
                    yield PaletteEntry(
                        f"do {command.name}", action.text().rstrip("…"), detail, action.trigger, command.tip
                    )

    def _add(self, command: Command) -> QAction:
        """Make the action of a command."""
        action = QAction(command.text, self, checkable=command.checked is not None)
        keys = command.keys if isinstance(command.keys, tuple) else (command.keys,)
        action.setShortcuts([sequence for key in keys for sequence in _sequences(key)])
        # The side windows have no menu bar.
        action.setShortcutContext(Qt.ShortcutContext.ApplicationShortcut)
        action.setMenuRole(command.role)
        action.setIconVisibleInMenu(False)
        keys_text = _keys_text(action)
        tip = command.tip or command.text.rstrip("…")
        set_tip(action, f"{tip} ({keys_text})" if keys_text else command.tip or command.text)
        action.triggered.connect(lambda _checked: self._run(command))
        self._actions[command.name] = action, command
        return action

    def _list_windows(self, menu: QMenu) -> None:
        """List the open windows at the end of a menu; choosing one brings it to the front."""
        for old in menu.actions():
            # The entries of windows are children of the menu; the actions of commands are not.
            if old.parent() is menu:
                menu.removeAction(old)
                old.deleteLater()
        menu.addSeparator()
        for window in (self._window, *filter(QWidget.isVisible, self._window.findChildren(SideWindow))):
            add_action(menu, window.windowTitle(), partial(show_in_front, window), window.isActiveWindow())

    def _run(self, command: Command) -> None:
        """Carry out a command, if it is still enabled."""
        self.refresh_soon()
        if command.when is not None and not command.when():
            return  # Something has changed in this turn.
        if command.in_front and not self._window.isActiveWindow():
            show_in_front(self._window)
        if command.run is not None:
            command.run()


def _keys_text(action: QAction) -> str:
    return action.shortcut().toString(QKeySequence.SequenceFormat.NativeText)


def _sequences(key: _Key) -> list[QKeySequence]:
    return [QKeySequence(key)] if isinstance(key, str) else QKeySequence.keyBindings(key)


def menus(do: Commands) -> dict[str, list[Command | None]]:
    """Return the menus in the order of a Mac app."""
    windows = do.parts.windows
    return {
        "&File": _file(do),
        "&Edit": _edit(do),
        "&Chat": _chat(do),
        "&Drafting": _drafting(do),
        "&View": _view(do),
        _WINDOW: [Command("minimize", "Minimise", do.minimize, "Ctrl+M")],
        "&Help": [
            Command("guide", "Guide", lambda: show_in_front(windows.guide), tip="The window, the terminal and reports"),
            Command(
                "drafting_help",
                "What Is Drafting?",
                lambda: show_in_front(windows.drafting_help),
                _Standard.HelpContents,
            ),
            Command("shortcuts", "Keyboard Shortcuts", lambda: show_in_front(windows.shortcuts), "Ctrl+/"),
            None,
            Command(
                "about", "About rdchat", do.show_versions, tip="Versions, licences and the log", role=_Role.AboutRole
            ),
        ],
    }


def _file(do: Commands) -> list[Command | None]:
    windows = do.parts.windows
    is_stored = lambda: do.controller.chat.id is not None  # noqa: E731
    tip = "New temporary chat: rdchat stores nothing of it"
    return [
        Command("new_chat", "New Chat", do.new_chat, _Standard.New, label=do.new_chat_text, in_front=True),
        Command(
            "new_outside",
            "New Chat Outside the Folder",
            partial(do.new_chat, outside=True),
            when=do.new_chat_folder,
            in_front=True,
        ),
        Command("new_temporary", "New Temporary Chat", do.new_temporary, "Ctrl+Alt+N", tip=tip, in_front=True),
        Command("quick", "Quick Window", partial(do.carry_out, StartRequest(quick=True)), "Ctrl+Shift+J"),
        Command("new_folder", "New Folder", do.new_folder, "Ctrl+Shift+N", in_front=True),
        Command("new_project", "New Project…", do.edit_project, in_front=True),
        Command("attach", "Attach Files…", do.parts.conversation.files.choose_files, "Ctrl+Shift+U", in_front=True),
        None,
        Command("open_folder", "Open Model Folder…", do.choose_model, _Standard.Open),
        Command(
            "models",
            "Models…",
            lambda: show_in_front(windows.models),
            "Ctrl+Shift+M",
            tip="On this computer, downloads, drafters, other computers; find more",
        ),
        Command("train", "Train a Drafter…", do.parts.windows.show_training, in_menu=False),
        None,
        Command("import_chats", "Import Chats…"),
        Command("export_chat", "Export Chat…", None, "Ctrl+Shift+E", when=is_stored),
        Command("export_all", "Export All Chats…"),
        None,
        Command("back_up", "Back Up…"),
        Command("restore", "Restore…"),
        None,
        Command("close_window", "Close Window", do.close_front, _Standard.Close),
        Command("quit", "Quit rdchat", do.quit, _Standard.Quit, role=_Role.QuitRole),
    ]


def _edit(do: Commands) -> list[Command | None]:
    find_bar = do.parts.conversation.find_bar
    role = _Role.PreferencesRole
    return [
        Command("undo", "Undo", do.undo, _Standard.Undo),
        Command("redo", "Redo", partial(do.edit, "redo"), _Standard.Redo),
        None,
        Command("cut", "Cut", partial(do.edit, "cut"), _Standard.Cut),
        Command("copy", "Copy", partial(do.edit, "copy"), _Standard.Copy),
        Command("paste", "Paste", do.paste, _Standard.Paste),
        Command("select_all", "Select All", partial(do.edit, "selectAll"), _Standard.SelectAll),
        Command("quote", "Quote Selection", do.parts.conversation.quote_selection, "Ctrl+'", in_menu=False),
        None,
        Command("find", "Find in Chat", do.search_in_front, _Standard.Find),
        Command("find_next", "Find Next", partial(find_bar.go_to_match, 1), _Standard.FindNext, in_menu=False),
        Command(
            "find_previous", "Find Previous", partial(find_bar.go_to_match, -1), _Standard.FindPrevious, in_menu=False
        ),
        Command("search", "Search Chats", partial(do.search_in_front, in_chat=False), "Ctrl+Alt+F", in_front=True),
        None,
        Command("settings", "Settings…", partial(do.settings_requested.emit, ""), "Ctrl+,", role=role),
    ]


def _chat(do: Commands) -> list[Command | None]:
    conversation = do.parts.conversation
    tip = "System prompt, answer format and sampling of this chat"
    chats = do.controller.chats
    copy = conversation.transcript.copy_last_reply
    name = do.regenerate_text
    return [
        Command("stop", "Stop Reply", do.stop_in_front, ("Esc", "Ctrl+."), when=do.can_stop),
        Command("regenerate", name(), do.regenerate, "Ctrl+R", when=do.can_regenerate, label=name),
        Command(
            "regenerate_with",
            "Regenerate With…",
            do.regenerate_with,
            "Ctrl+Shift+R",
            when=do.can_regenerate_with,
            in_menu=False,
        ),
        Command("copy_reply", "Copy Last Reply", copy, "Ctrl+Shift+C", when=do.has_reply, in_menu=False),
        None,
        Command("options", "Chat Options…", None, "Ctrl+Shift+O", tip=tip, in_front=True),
        Command("write", "Go to Message Field", conversation.composer.setFocus, "Ctrl+L", in_front=True, in_menu=False),
        None,
        Command("next_chat", "Next Chat", partial(chats.open_near, 1), ("Ctrl+Alt+Down", "Ctrl+PgDown"), in_front=True),
        Command(
            "previous_chat", "Previous Chat", partial(chats.open_near, -1), ("Ctrl+Alt+Up", "Ctrl+PgUp"), in_front=True
        ),
        Command(
            "next_reply",
            "Next Chat with a New Reply",
            chats.open_new_reply,
            ("Ctrl+Alt+Shift+Down", "Ctrl+Shift+PgDown"),
            when=lambda: bool(chats.new_replies),
            in_front=True,
        ),
        None,
        _on_chat(do, "rename", "Rename Chat"),
        _on_chat(do, "pin", "Pin Chat"),
        _on_chat(do, "duplicate", "Duplicate Chat", "Ctrl+D", in_menu=False),
        None,
        _on_chat(do, "archive", "Archive Chat", "Ctrl+Alt+A"),
        _on_chat(do, "delete", "Delete Chat"),
    ]


def _on_chat(do: Commands, name: str, text: str, *keys: str, in_menu: bool = True) -> Command:
    """Return a command on the open chat, which the sidebar's context menu also has."""
    label = partial(do.chat_action_text, name, text)
    run = partial(do.run_chat_action, name)
    return Command(name, text, run, keys, when=do.has_chat, label=label, in_front=True, in_menu=in_menu)


def _drafting(do: Commands) -> list[Command | None]:
    def settings_text() -> str:
        """Name a mode that has no entry."""
        mode = do.controller.drafting.settings.mode
        chosen = "" if mode in _LISTED_MODES else f": {mode.label.title()}"
        return f"Drafting Settings{chosen}"

    return [
        *(_mode(do, mode, f"Ctrl+Alt+{number}") for number, mode in enumerate(Mode, start=1)),
        None,
        Command(
            "draft_settings",
            "Drafting Settings",
            do.drafting_requested.emit,
            "Ctrl+Shift+D",
            label=settings_text,
            in_front=True,
        ),
        None,
        Command(
            "benchmark",
            "Benchmark…",
            lambda: do.parts.windows.open_benchmark(do.parts.conversation.composer.text),
            ("Ctrl+Alt+B", "Ctrl+Alt+R"),
            tip="Measure what drafting gains, on one prompt or on several",
        ),
    ]


def _mode(do: Commands, mode: Mode, keys: str) -> Command:
    drafting = do.controller.drafting
    return Command(
        f"draft_{mode.value}",
        mode.label.title(),
        partial(do.choose_mode, mode),
        keys,
        when=lambda: drafting.ready,
        checked=lambda: drafting.settings.mode is mode,
        in_menu=mode in _LISTED_MODES,
    )


def _view(do: Commands) -> list[Command | None]:
    return [
        Command("palette", "Command Palette…", None, "Ctrl+K", tip="Find a command", in_front=True),
        None,
        _side(do, do.parts.sidebar, "sidebar", "Sidebar", "Ctrl+Alt+S", tip="Show or hide the chats"),
        None,
        _side(do, do.parts.panel, "panel", "Speed Panel", "Ctrl+Alt+P", tip="Show or hide the speed panel"),
        Command("tokens", "Tokens and Drafts", do.show_tokens, "Ctrl+Shift+T", when=do.has_tokens, tip="Draft trees"),
        Command(
            "ledger",
            "Time Ledger",
            lambda: show_in_front(do.parts.windows.ledger),
            "Ctrl+Alt+L",
            tip="Where the time of all replies went",
            in_menu=False,
        ),
        None,
        Command("larger", "Larger Text", partial(do.change_text_size, 1), _Standard.ZoomIn),
        Command("smaller", "Smaller Text", partial(do.change_text_size, -1), _Standard.ZoomOut),
        Command(
            "usual", "Actual Size", partial(do.controller.settings.change_values, text_size=DEFAULT_TEXT), "Ctrl+0"
        ),
        None,
        Command("full_screen", "Full Screen", do.turn_full_screen, _Standard.FullScreen),
    ]


def _side(do: Commands, side: QWidget, name: str, text: str, keys: str, *, tip: str) -> Command:
    is_visible = lambda: not side.isHidden()  # noqa: E731
    return Command(name, text, partial(do.side_toggled.emit, side), keys, tip=tip, checked=is_visible, in_front=True)
