"""Tooltips, labels and message boxes that show a text as it is.

In all of these Qt takes a text that looks like HTML for rich text, and opens the files that it names, on the main
thread: a pipe hangs the window, `/dev/zero` ends the process. Names of models, files and chats come from strangers, so
every text passes through here; `tests/ui/look/test_plain_text_only.py` holds the user interface to it.
"""

from html import escape

from PySide6.QtCore import QPoint, QRect, Qt, QUrl
from PySide6.QtGui import QAction, QTextCharFormat
from PySide6.QtWidgets import QGraphicsItem, QLabel, QMessageBox, QTextBrowser, QToolTip, QWidget

_LINE, _MOST_LINES = 80, 50  # of a tooltip: characters of a line that is not broken; lines
_MOST, _MOST_OF_BUTTON = 2000, 200  # characters
_MARKUP = '<p style="white-space: {}">{}</p>'


def cut(text: str, most: int = _MOST) -> str:
    """Return the beginning of a text that nobody reads to its end: to lay out a megabyte takes a second."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def tip_text(text: str) -> str:
    """Return what Qt is to be given so that a tooltip shows the text: as it is, its long lines broken.

    Qt takes nothing for HTML that has neither `<` nor `&`, and breaks the lines of rich text only.
    """
    lines = cut(text).split("\n")
    text = "\n".join([*lines[:_MOST_LINES], "…"] if len(lines) > _MOST_LINES else lines)
    wide = any(len(line) > _LINE for line in lines)
    if not wide and "<" not in text and "&" not in text:
        return text
    return _MARKUP.format("pre-wrap" if wide else "pre", escape(text))


def set_tip(item: QWidget | QAction | QTextCharFormat | QGraphicsItem, text: str) -> None:
    """Give something a tooltip; an empty one takes it away."""
    item.setToolTip(tip_text(text))


def show_tip(place: QPoint, text: str, widget: QWidget, area: QRect | None = None) -> None:
    """Show a tooltip at once; an empty one hides what is shown.

    Args:
        place: On the screen.
        text: What it says.
        widget: What it is about.
        area: The part of the widget that it is about: where the pointer leaves it, the tooltip goes. None: the widget.
    """
    QToolTip.showText(place, tip_text(text), widget, area or QRect())


def button_text(text: str) -> str:
    """Return what a button or a menu is to be given so that it shows the text: Qt takes `&` for the mark of a key."""
    return cut(text, _MOST_OF_BUTTON).replace("&", "&&")


class PlainLabel(QLabel):
    """A label that shows its text as it is."""

    def __init__(self, text: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.PlainText)  # before there is a text
        self.setText(text)


class OfflineBrowser(QTextBrowser):
    """A text browser that fetches nothing, ever: neither images nor style sheets, from the network or the disk."""

    def loadResource(self, kind: int, name: QUrl | str) -> object:
        return None


def message_box(
    icon: QMessageBox.Icon, text: str, detail: str = "", *, title: str = "rdchat", parent: QWidget | None = None
) -> QMessageBox:
    """Return a message box that shows its texts as they are.

    Args:
        icon: What kind of message it is.
        text: In one line.
        detail: More about it.
        title: Of the window.
        parent: The window that it is about.
    """
    box = QMessageBox(icon, title, "", parent=parent)
    box.setTextFormat(Qt.TextFormat.PlainText)  # of the detail too; before there is a text
    box.setText(text)
    box.setInformativeText(detail)
    return box
