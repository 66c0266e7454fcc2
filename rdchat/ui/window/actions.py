"""Makes the menu bar, the keys and the tooltips from a table of commands."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMenu, QMenuBar

from rdchat.ui.look.plain_text import set_tip

Key = str | QKeySequence.StandardKey


@dataclass(frozen=True, slots=True)
class Command:
    """One entry of the menu bar."""

    name: str  # its action is an attribute of `WindowActions` with this name
    text: str
    run: Callable[[], object] | None = None  # None: whoever carries it out connects the action
    keys: Key | tuple[Key, ...] = ()
    _: KW_ONLY
    tip: str = ""  # empty: the text is the tooltip
    role: QAction.MenuRole = QAction.MenuRole.NoRole
    submenu: QMenu | None = None
    group: str = ""  # of the commands with one group, one is checked
    enabled: Callable[[], bool] | None = None  # None: always
    checked: Callable[[], bool] | None = None  # None: not checkable
    label: Callable[[], str] | None = None  # the text that suits the state, where it changes


Menu = tuple[str, Sequence[Command | None]]
"""A menu's title and its commands; None is a separator."""


class WindowActions(QObject):
    """The actions of the commands, each an attribute by its name.

    Args:
        bar: Lists the menus.
        menus: The commands.
        parent: The window.
    """

    def __init__(self, bar: QMenuBar, menus: Sequence[Menu], parent: QObject) -> None:
        super().__init__(parent)
        self._groups: dict[str, QActionGroup] = {}
        self._actions: dict[str, tuple[QAction, Command]] = {}
        for title, commands in menus:
            menu = bar.addMenu(title)
            for command in commands:
                if command is None:
                    menu.addSeparator()
                else:
                    menu.addAction(self._add(command))
        self.refresh()

    def __getattr__(self, name: str) -> QAction:
        found = self.__dict__.get("_actions", {}).get(name)
        if found is None:
            raise AttributeError(name)
        action: QAction = found[0]
        return action

    def refresh(self) -> None:
        """Enable, check and name all actions as suits the present state."""
        for action, command in self._actions.values():
            if command.enabled is not None:
                action.setEnabled(command.enabled())
            if command.checked is not None:
                action.setChecked(command.checked())
            if command.label is not None:
                action.setText(command.label())

    def _add(self, command: Command) -> QAction:
        action = QAction(command.text, self, checkable=command.checked is not None)
        keys = command.keys if isinstance(command.keys, tuple) else (command.keys,)
        action.setShortcuts([sequence for key in keys for sequence in _sequences(key)])
        action.setMenuRole(command.role)
        action.setIconVisibleInMenu(False)
        shown = action.shortcut().toString(QKeySequence.SequenceFormat.NativeText)
        tip = command.tip or command.text.rstrip("…")
        set_tip(action, f"{tip} ({shown})" if shown else command.tip or command.text)
        if command.submenu is not None:
            action.setMenu(command.submenu)
        if command.group:
            group = self._groups.setdefault(command.group, QActionGroup(self))
            group.addAction(action)
        action.triggered.connect(lambda _checked: self._run(command))
        self._actions[command.name] = action, command
        return action

    def _run(self, command: Command) -> None:
        if command.run is not None:
            command.run()
        self.refresh()


def _sequences(key: Key) -> list[QKeySequence]:
    return [QKeySequence(key)] if isinstance(key, str) else QKeySequence.keyBindings(key)
