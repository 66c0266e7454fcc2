"""The window's actions with their keys, and the menu bar that lists them."""

from collections.abc import Sequence

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QApplication, QMenuBar

from rdchat.inference.api.requests import Mode
from rdchat.ui.look.plain_text import set_tip

_Keys = str | QKeySequence.StandardKey
_Standard = QKeySequence.StandardKey


class WindowActions(QObject):
    """Every action of the menu bar. The window connects them; `edit` acts on whatever has the focus."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.new_chat = self._action("New chat", _Standard.New)
        self.open_folder = self._action("Open model folder…", _Standard.Open)
        self.models = self._action("Models…", "Ctrl+Shift+M", tip="Find, download and remove models")
        self.attach = self._action("Attach files…", "Ctrl+Shift+U", tip="Bring files into the chat")
        self.export_chat = self._action("Export chat…", "Ctrl+Shift+E", tip="Write this chat into a file")
        self.export_all = self._action("Export all chats…")
        self.import_chats = self._action("Import chats…", tip="Take chats from rdchat, ChatGPT, LM Studio or Jan")
        self.back_up = self._action("Back up…", tip="Write all chats and the settings into one file")
        self.restore = self._action("Restore…", tip="Take a backup in the place of what is here")
        self.close_window = self._action("Close window", _Standard.Close)
        self.quit = self._action("Quit rdchat", _Standard.Quit, role=QAction.MenuRole.QuitRole)
        self.preferences = self._action("Preferences…", "Ctrl+,", role=QAction.MenuRole.PreferencesRole)
        self.new_folder = self._action("New folder", "Ctrl+Shift+N")
        self.quote = self._action("Quote selection", "Ctrl+'", tip="Put what is selected in a message into yours")
        self.find = self._action("Find in chat", _Standard.Find)
        self.find_next = self._action("Find next", _Standard.FindNext)
        self.find_previous = self._action("Find previous", _Standard.FindPrevious)
        self.search = self._action("Search chats", "Ctrl+Alt+F")
        self._add_message_actions()
        self.options = self._action("Chat options…", "Ctrl+Shift+O")
        self.rename = self._action("Rename chat")
        self.pin = self._action("Pin chat")
        self.move = self._action("Move to folder")
        self.duplicate = self._action("Duplicate chat", "Ctrl+D")
        self.archive = self._action("Archive chat", "Ctrl+Alt+A")
        self.delete = self._action("Delete chat")
        self.write = self._action("Go to message field", "Ctrl+L")
        self.sidebar = self._action("Sidebar", "Ctrl+Alt+S", checkable=True, tip="Show or hide the conversations")
        self.show_archive = self._action("Archive", checkable=True)
        self.show_bin = self._action("Bin", checkable=True)
        self.panel = self._action("Speed panel", "Ctrl+Alt+P", checkable=True, tip="Show or hide the speed panel")
        self.tokens = self._action("Tokens and drafts", "Ctrl+Shift+T", tip="Show how the last reply came about")
        self.ledger = self._action("Time ledger…", "Ctrl+Alt+L")
        self.draft_modes = {
            mode: self._action(mode.words, f"Ctrl+Alt+{place}", checkable=True)
            for place, mode in enumerate(Mode, start=1)
        }
        self.draft_settings = self._action(
            "Draft settings", "Ctrl+Shift+D", tip="Go to the speed panel's draft settings"
        )
        self.race = self._action("Race…", "Ctrl+Alt+R", tip="Drafting against plain decoding, side by side")
        self.benchmark = self._action("Benchmark…", "Ctrl+Alt+B", tip="Measure ways of drafting on many prompts")
        self.larger = self._action("Larger text", _Standard.ZoomIn)
        self.smaller = self._action("Smaller text", _Standard.ZoomOut)
        self.usual = self._action("Usual text size", "Ctrl+0")
        self.full_screen = self._action("Full screen", _Standard.FullScreen)
        self.minimize = self._action("Minimise", "Ctrl+M")
        self.about = self._action("About rdchat", role=QAction.MenuRole.AboutRole)
        self.show_log = self._action("Show log")
        self.edit = self._edit_actions()

    def _add_message_actions(self) -> None:
        self.stop = self._action("Stop reply", "Esc", "Ctrl+.")
        self.copy_reply = self._action("Copy last reply", "Ctrl+Shift+C")
        self.regenerate = self._action("Regenerate last reply", "Ctrl+R")
        self.regenerate_with = self._action(
            "Regenerate with…", "Ctrl+Shift+R", tip="Another model, temperature or system prompt for one reply"
        )
        self.restore_message = self._action(
            "Restore deleted message", tip="Bring back what was deleted from this chat last"
        )
        self.restore_message.setEnabled(False)

    def _action(
        self,
        text: str,
        *keys: _Keys,
        role: QAction.MenuRole = QAction.MenuRole.NoRole,
        checkable: bool = False,
        tip: str = "",
    ) -> QAction:
        action = QAction(text, self, checkable=checkable)
        action.setShortcuts([key for wanted in keys for key in _sequences(wanted)])
        action.setMenuRole(role)
        action.setIconVisibleInMenu(False)
        shown = action.shortcut().toString(QKeySequence.SequenceFormat.NativeText)
        set_tip(action, f"{tip or text.rstrip('…')} ({shown})" if shown else tip or text)
        return action

    def _edit_actions(self) -> list[QAction | None]:
        actions: list[QAction | None] = []
        for text, key, slot in (
            ("Undo", _Standard.Undo, "undo"),
            ("Redo", _Standard.Redo, "redo"),
            (None, None, None),
            ("Cut", _Standard.Cut, "cut"),
            ("Copy", _Standard.Copy, "copy"),
            ("Paste", _Standard.Paste, "paste"),
            ("Select all", _Standard.SelectAll, "selectAll"),
        ):
            if text is None or key is None or slot is None:
                actions.append(None)
                continue
            action = self._action(text, key)
            if key is _Standard.Undo:
                self.undo = action  # the window undoes more than typing
            else:
                action.triggered.connect(lambda _checked=False, slot=slot: _call_focused(slot))
            actions.append(action)
        return actions


def fill_menu_bar(bar: QMenuBar, actions: WindowActions) -> None:
    """List the actions in the order a Mac app has them; None is a separator."""
    menus: tuple[tuple[str, Sequence[QAction | None]], ...] = (
        (
            "&File",
            (
                actions.new_chat,
                actions.new_folder,
                actions.attach,
                None,
                actions.open_folder,
                actions.models,
                None,
                actions.import_chats,
                actions.export_chat,
                actions.export_all,
                None,
                actions.back_up,
                actions.restore,
                None,
                actions.close_window,
                actions.quit,
            ),
        ),
        (
            "&Edit",
            (
                *actions.edit,
                actions.quote,
                None,
                actions.find,
                actions.find_next,
                actions.find_previous,
                actions.search,
                None,
                actions.preferences,
            ),
        ),
        (
            "&Chat",
            (
                actions.stop,
                actions.regenerate,
                actions.regenerate_with,
                actions.copy_reply,
                actions.restore_message,
                None,
                actions.options,
                actions.write,
                None,
                actions.rename,
                actions.pin,
                actions.move,
                actions.duplicate,
                None,
                actions.archive,
                actions.delete,
            ),
        ),
        (
            "&Draft",
            (*actions.draft_modes.values(), None, actions.draft_settings, None, actions.race, actions.benchmark),
        ),
        (
            "&View",
            (
                actions.sidebar,
                actions.show_archive,
                actions.show_bin,
                None,
                actions.panel,
                actions.tokens,
                actions.ledger,
                None,
                actions.larger,
                actions.smaller,
                actions.usual,
                None,
                actions.full_screen,
            ),
        ),
        ("&Window", (actions.minimize,)),
        ("&Help", (actions.show_log, actions.about)),
    )
    for name, entries in menus:
        menu = bar.addMenu(name)
        for entry in entries:
            if entry is None:
                menu.addSeparator()
            else:
                menu.addAction(entry)


def _sequences(wanted: _Keys) -> list[QKeySequence]:
    return [QKeySequence(wanted)] if isinstance(wanted, str) else QKeySequence.keyBindings(wanted)


def _call_focused(slot: str) -> None:
    act = getattr(QApplication.focusWidget(), slot, None)  # text fields of every kind name these slots alike
    if callable(act):
        act()
