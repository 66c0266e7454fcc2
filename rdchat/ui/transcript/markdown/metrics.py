"""Distances inside a message, in device-independent pixels."""

from PySide6.QtGui import QFontMetrics

from rdchat.ui.look.theme import MEDIUM, TIGHT, Theme, control_font

QUOTE_INDENT = 16
CODE_PAD = MEDIUM


def list_indent(theme: Theme) -> int:
    """Return the indentation of a list level, wide enough for a number of two digits."""
    return round(theme.text_size * 1.85)


def code_header_height(theme: Theme) -> int:
    """Return the height of the bar over a code block that holds its language and the Copy button."""
    text = QFontMetrics(control_font(-1)).height()
    return max(text, round(theme.text_size * 1.2)) + 3 * TIGHT
