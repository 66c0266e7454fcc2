"""Fields of the draft controls: the wheel scrolls the panel past them, and they fit its width."""

from collections.abc import Callable, Iterable, Sequence, Set
from pathlib import Path

from PySide6.QtCore import QSignalBlocker, QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QCheckBox, QComboBox, QPushButton, QSizePolicy, QSpinBox

from rdchat.inference.api.model_card import ModelCard
from rdchat.ui.look.buttons import OpenMenu, add_action
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.opening import FileMode, ask_to_open
from rdchat.ui.look.plain_text import button_text, set_tip

_MOST_REASONS = 20  # in a tip
_MENU_ROOM = 36  # pixels of a button's frame and its menu arrow


class CalmComboBox(QComboBox):
    """A combo box that the wheel does not change while the panel scrolls under the pointer."""

    opened = Signal()

    def showPopup(self) -> None:
        self.opened.emit()
        super().showPopup()

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class CalmCheckBox(QCheckBox):
    """A check box whose signal is that of the other fields."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.edited = self.toggled

    def show_value(self, checked: bool) -> None:
        with QSignalBlocker(self):
            self.setChecked(checked)


class CalmSpinBox(QSpinBox):
    """A spin box that the wheel changes only where it has the focus."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__()
        self.setRange(low, high)
        self.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.setKeyboardTracking(False)  # of 12, the 1 is not a value
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setFixedWidth(60)
        self.edited = self.valueChanged

    def limit(self, high: int) -> None:
        """Set the highest value, without `edited`."""
        with QSignalBlocker(self):
            self.setMaximum(max(self.minimum(), high))

    def show_value(self, value: int) -> None:
        with QSignalBlocker(self):
            self.setValue(value)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()


class FolderPicker(QPushButton):
    """Shows the name of a chosen folder; its menu offers none, recent folders, installed drafters, and a dialog.

    Args:
        none: Shown if no folder is chosen.
        title: Of the dialog that asks for a folder.
        recent: Returns the folders or hub ids to offer.
        installed: Returns the drafters on this machine; those that cannot be used have a problem.
    """

    edited = Signal(object)  # a folder or hub id, or None
    opened = Signal()

    def __init__(
        self,
        none: str,
        title: str,
        recent: Callable[[], Iterable[str]],
        installed: Callable[[], Sequence[ModelCard]],
    ) -> None:
        super().__init__()
        self._none, self._title, self._recent, self._installed = none, title, recent, installed
        self._chosen: str | None = None
        self._explanation = ""
        self._shown: tuple[object, ...] = ()  # in the menu
        self._menu = OpenMenu(self._fill, self)
        self._menu.setToolTipsVisible(True)
        self._menu.aboutToShow.connect(self.opened)
        self.setMenu(self._menu)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.show_value(None)

    def sizeHint(self) -> QSize:
        return QSize(80, super().sizeHint().height())  # however long a name is

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def explain(self, words: str) -> None:
        """Show an explanation in the tooltip, below the chosen folder."""
        self._explanation = words
        self.show_value(self._chosen)

    def show_value(self, name: str | None) -> None:
        self._chosen = name
        self.setAccessibleDescription(name or self._none)
        set_tip(self, f"{name}\n\n{self._explanation}" if name else self._explanation)
        self._elide()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._elide()

    def _elide(self) -> None:
        words = self._none if self._chosen is None else Path(self._chosen).name
        room = self.width() - _MENU_ROOM
        self.setText(button_text(self.fontMetrics().elidedText(words, Qt.TextElideMode.ElideMiddle, room)))

    def refresh(self) -> None:
        """Show drafters that were found since the menu was opened."""
        if self._entries() != self._shown:
            self._menu.refresh()

    def _entries(self) -> tuple[object, ...]:
        return self._chosen, tuple(self._recent()), tuple(self._installed())

    def _fill(self) -> None:
        self._shown = self._entries()
        self._add(self._none, None)
        recent = dict.fromkeys([*([self._chosen] if self._chosen else []), *self._recent()])
        if recent:
            self._menu.addSection("Recent")
            for name in recent:
                self._add(Path(name).name, name)
        self._add_installed(set(recent))
        self._menu.addSeparator()
        self._menu.addAction("Choose folder…", self._choose_folder)

    def _choose_folder(self) -> None:
        ask_to_open(self, self._title, FileMode.Directory, lambda names: self.edited.emit(names[0]))

    def _add_installed(self, listed: Set[str]) -> None:
        """List the installed drafters by place; those that do not fit share a line, whose tooltip has the reasons."""
        found = self._installed()
        for place in dict.fromkeys(each.place for each in found):
            here = [each for each in found if each.place == place and each.model not in listed]
            fit = [each for each in here if not each.problem]
            unfit = [f"{each.name}: {each.problem}" for each in here if each.problem]
            if here:
                self._menu.addSection(button_text(place))
            for each in fit:
                self._add(f"{each.name}  ·  {each.kind.words}" if each.kind else each.name, each.model)
            if unfit:
                more = len(unfit) - _MOST_REASONS
                left_out = self._menu.addAction(f"{counted(len(unfit), 'drafter')} that cannot be used here")
                set_tip(left_out, "\n".join([*unfit[:_MOST_REASONS], *([f"and {more} more"] if more > 0 else [])]))
                left_out.setEnabled(False)

    def _add(self, words: str, name: str | None) -> None:
        add_action(self._menu, words, lambda: self.edited.emit(name), self._chosen == name, name or words)
