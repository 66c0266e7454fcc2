"""A quiet line inside a message, with at most one thing to do about it."""

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QColor, QPalette
from PySide6.QtWidgets import QWidget

from rdchat.ui.look.buttons import TextButton
from rdchat.ui.look.plain_text import PlainLabel
from rdchat.ui.look.theme import SMALL, Theme, control_font


class StatusLine(QWidget):
    """Words in a muted colour, or that of danger, and a button."""

    action_requested = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._failed = False
        self._label = PlainLabel(parent=self)
        self._label.setFont(control_font())
        self._label.setWordWrap(True)
        self._label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._button = TextButton("", theme, self)
        self._button.clicked.connect(self.action_requested)

    def say(self, text: str, action: str = "", failed: bool = False) -> None:
        """Show words; `action` names the button, empty for none."""
        self._failed = failed
        self._label.setText(text)
        self._button.setText(action)
        self._button.setAccessibleName(action)
        self._button.setVisible(bool(action))
        self.restyle()

    @property
    def text(self) -> str:
        return self._label.text()

    def layout_for(self, width: int) -> int:
        """Place words and button at a width, and return the height they need."""
        button = self._button.sizeHint() if self._button.text() else QSize()
        aside = button.width() + SMALL if self._button.text() else 0
        natural = self._label.fontMetrics().horizontalAdvance(self._label.text()) + 2
        words = max(1, min(natural, width - aside))
        height = max(self._label.heightForWidth(words), button.height())
        self._label.setGeometry(0, 0, words, height)
        self._button.setGeometry(words + SMALL, (height - button.height()) // 2, button.width(), button.height())
        return height

    def restyle(self) -> None:
        colors = self._theme.colors
        palette = QPalette()
        palette.setColor(QPalette.ColorRole.WindowText, QColor(colors.danger if self._failed else colors.muted))
        self._label.setPalette(palette)
        self._button.restyle()
