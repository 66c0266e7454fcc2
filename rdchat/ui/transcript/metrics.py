"""Distances inside a message, in device-independent pixels."""

from PySide6.QtGui import QFontMetrics

from rdchat.ui.theme import MEDIUM, TIGHT, Theme, control_font

INDENT = 24  # of a list level
QUOTE_INDENT = 16
CODE_PAD = MEDIUM


def code_header_height(theme: Theme) -> int:
    """Return the height of the bar over a code block that holds its language and the Copy button."""
    text = QFontMetrics(control_font(-1)).height()
    return max(text, round(theme.text_size * 1.2)) + 3 * TIGHT
