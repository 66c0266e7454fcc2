"""The draft modes in the menu bar, so that everything is reached by the keyboard."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction, QActionGroup

from rdchat.inference.api.requests import Mode
from rdchat.services.chat.draft_control import DraftControl


class DraftMenu(QObject):
    """Keeps the mode actions in step with the settings.

    Args:
        drafting: The settings.
        actions: A checkable action for each mode.
        explain: Called where a mode is chosen that is not to be had; shows why.
        parent: The Qt parent.
    """

    def __init__(
        self,
        drafting: DraftControl,
        actions: Mapping[Mode, QAction],
        explain: Callable[[], None],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._drafting, self._actions, self._explain = drafting, actions, explain
        group = QActionGroup(self)
        for mode, action in actions.items():
            action.setData(mode)
            group.addAction(action)
        group.triggered.connect(self._choose)
        drafting.changed.connect(self._refresh)
        self._refresh()

    def _choose(self, action: QAction) -> None:
        mode = Mode(action.data())
        self._drafting.change(replace(self._drafting.settings, mode=mode))
        option = self._drafting.option(mode)
        if option is not None and not option.available:
            self._explain()

    def _refresh(self) -> None:
        chosen = self._drafting.settings.mode
        for mode, action in self._actions.items():
            action.setEnabled(self._drafting.ready)
            action.setChecked(mode is chosen)
