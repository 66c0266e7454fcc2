"""A stranger's text, whole and as it is: arguments of a call, a command, the error output of a program."""

import re

from PySide6.QtCore import Qt
from PySide6.QtGui import QTextOption
from PySide6.QtWidgets import QPlainTextEdit

from rdchat.ui.style.labels import visible_text
from rdchat.ui.style.theme import SMALL, Theme

# Laying out a longer line blocks the window.
_LONG_LINE = re.compile(r"(.{2000})(?=.)")


class CodeField(QPlainTextEdit):
    """Shows a text that can be copied, with what is invisible made visible; one of many lines scrolls.

    Args:
        theme: The appearance to follow.
        name: Its name for screen readers.
        max_lines: The lines that it shows at once.
    """

    def __init__(self, theme: Theme, name: str, max_lines: int) -> None:
        super().__init__(readOnly=True, undoRedoEnabled=False, tabChangesFocus=True)
        self.setAccessibleName(name)
        self.setFont(theme.code_font())
        self.setWordWrapMode(QTextOption.WrapMode.WrapAnywhere)
        # So that the order of characters is that of the text, also where it begins with another script.
        self.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        flags = Qt.TextInteractionFlag
        self.setTextInteractionFlags(flags.TextSelectableByMouse | flags.TextSelectableByKeyboard)
        self._max_lines = max_lines
        self._lengths = [0]

    def show_text(self, text: str) -> None:
        """Show another text."""
        shown = _LONG_LINE.sub(r"\1\n", visible_text(text))
        if shown != self.toPlainText():
            self.setPlainText(shown)
            self._lengths = [len(line) for line in shown.split("\n")]

    def fit(self, width: int) -> None:
        """Take the height that the text needs at a width, as far as the limit of lines."""
        letters = max((width - 3 * SMALL) // max(self.fontMetrics().averageCharWidth(), 1), 1)
        lines = sum(max(-(-length // letters), 1) for length in self._lengths)
        self.setFixedHeight(min(lines, self._max_lines) * self.fontMetrics().lineSpacing() + 2 * SMALL)
