"""Tooltips, labels and message boxes that show text as it is, text for the clipboard, and places in text as Qt counts.

Qt takes a text that looks like HTML for rich text and opens the files that it names, on the main thread: a pipe hangs
the window, `/dev/zero` ends the process. Names of models, files and chats come from strangers, so every text passes
through here; `tests/ui/look/test_plain_text_only.py` checks that.
"""

import re
from bisect import bisect_left
from html import escape

from PySide6.QtCore import QPoint, QRect, Qt, QUrl
from PySide6.QtGui import QAction, QTextCharFormat
from PySide6.QtWidgets import QGraphicsItem, QLabel, QMessageBox, QTextBrowser, QToolTip, QWidget

_LINE, _MOST_LINES = 80, 50  # of a tooltip: characters of a line that is not broken; lines
_MOST, _MOST_OF_BUTTON = 2000, 200  # characters
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # but tab and line feed
_MARKUP = '<p style="white-space: {}">{}</p>'


def cut(text: str, most: int = _MOST) -> str:
    """Return the beginning of a long text: laying out a megabyte takes a second."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def tip_text(text: str) -> str:
    """Return a tooltip that shows the text as it is, with long lines wrapped.

    Qt takes no text without `<` and `&` for HTML, and wraps rich text only.
    """
    lines = cut(text).split("\n")
    text = "\n".join([*lines[:_MOST_LINES], "…"] if len(lines) > _MOST_LINES else lines)
    wide = any(len(line) > _LINE for line in lines)
    if not wide and "<" not in text and "&" not in text:
        return text
    return _MARKUP.format("pre-wrap" if wide else "pre", escape(text))


def set_tip(item: QWidget | QAction | QTextCharFormat | QGraphicsItem, text: str) -> None:
    """Set a tooltip; an empty text removes it."""
    item.setToolTip(tip_text(text))


def show_tip(place: QPoint, text: str, widget: QWidget, area: QRect | None = None) -> None:
    """Show a tooltip at once; an empty text hides the present one.

    Args:
        place: The position on the screen.
        text: The text.
        widget: The widget of the tooltip.
        area: The part of the widget; the tooltip disappears when the pointer leaves it. None: the whole widget.
    """
    QToolTip.showText(place, tip_text(text), widget, area or QRect())


def button_text(text: str) -> str:
    """Return a text for a button or a menu entry, where Qt takes `&` for the mark of a key."""
    return cut(text, _MOST_OF_BUTTON).replace("&", "&&")


def without_controls(text: str) -> str:
    """Return a text without control characters: pasted into a terminal, they could run a model's code."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def utf16_length(text: str) -> int:
    """Return the length of a text in UTF-16 units, which Qt counts."""
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)


def utf16_spans(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans of a text, begin and end of each, in UTF-16 units."""
    if text.isascii() or not spans:
        return spans
    wide = [place for place, character in enumerate(text) if character > "\uffff"]
    return [(begin + bisect_left(wide, begin), end + bisect_left(wide, end)) for begin, end in spans]


class PlainLabel(QLabel):
    """A label that shows its text as it is."""

    def __init__(self, text: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.PlainText)  # before there is a text
        self.setText(text)


class OfflineBrowser(QTextBrowser):
    """A text browser that never loads images or style sheets, neither from the network nor from the disk."""

    def loadResource(self, kind: int, name: QUrl | str) -> object:
        return None


def message_box(
    icon: QMessageBox.Icon, text: str, detail: str = "", *, title: str = "rdchat", parent: QWidget | None = None
) -> QMessageBox:
    """Return a message box that shows its texts as they are; one with a parent is deleted once it is closed.

    Args:
        icon: The kind of message.
        text: The message, in one line.
        detail: More text below it.
        title: The title of the box.
        parent: The window of the box.
    """
    box = QMessageBox(icon, title, "", parent=parent)
    box.setTextFormat(Qt.TextFormat.PlainText)  # of the detail too; before there is a text
    box.setText(text)
    box.setInformativeText(detail)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose, parent is not None)
    return box
