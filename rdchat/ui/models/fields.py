"""A search field and combo boxes."""

from collections.abc import Iterable

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QComboBox, QLineEdit

from rdchat.ui.look.icons import line_icon
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import Theme

_ICON = 16
_MOST_LETTERS = 100


class SearchField(QLineEdit):
    """A field with a lens. Down goes to the results, Escape clears it."""

    results_requested = Signal()

    def __init__(self, theme: Theme, placeholder: str, name: str) -> None:
        super().__init__()
        self._theme = theme
        self.setPlaceholderText(placeholder)
        self.setAccessibleName(name)
        self.setClearButtonEnabled(True)
        self.setMaxLength(_MOST_LETTERS)
        self._icon = self.addAction(
            line_icon("search", theme.colors.muted, _ICON), QLineEdit.ActionPosition.LeadingPosition
        )
        theme.changed.connect(self._draw_icon)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.returnPressed.emit()  # the dialog would press a button
        elif event.key() == Qt.Key.Key_Down:
            self.results_requested.emit()
        elif event.key() == Qt.Key.Key_Escape and self.text():
            self.clear()
        else:
            super().keyPressEvent(event)

    def _draw_icon(self) -> None:
        self._icon.setIcon(line_icon("search", self._theme.colors.muted, _ICON))


def choice_box(name: str, tip: str, entries: Iterable[tuple[str, object]] = (), letters: int = 7) -> QComboBox:
    """Return a combo box.

    Args:
        name: For a screen reader.
        tip: Its tooltip.
        entries: Text and value of each choice.
        letters: Its least width, in letters.
    """
    box = QComboBox()
    box.setAccessibleName(name)
    set_tip(box, tip)
    box.setMinimumContentsLength(letters)
    for words, value in entries:
        box.addItem(words, value)
    return box
