"""Widgets and functions that show plain text: labels, tooltips, message boxes, code; and the definitions of figures.

Qt treats a text that looks like HTML as rich text and opens the files that it names, on the main thread: a pipe hangs
the window, `/dev/zero` ends the process. Names of models, files and chats come from strangers, so every text passes
through here; `tests/ui/style/test_hostile_names.py` checks that. The definitions are in `resources/definitions.toml`.

Two timers that all windows use are at the end: `single_shot` and `Throttle`.
"""

import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Mapping
from html import escape
from importlib import resources

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QRectF, QSize, Qt, QTimer, QUrl
from PySide6.QtGui import QAction, QHelpEvent, QPainter, QPaintEvent, QPalette, QTextCharFormat, QTextOption
from PySide6.QtWidgets import (
    QGraphicsItem,
    QLabel,
    QMessageBox,
    QPlainTextEdit,
    QSizePolicy,
    QTextBrowser,
    QToolTip,
    QWidget,
)

from rdchat.ui.style.consent_pause import ConsentPause
from rdchat.ui.style.theme import SMALL, Theme, control_font, paint_card, set_role

# The longest line of a tooltip that is not wrapped, in characters, and the most lines of one.
_LINE = 80
_MAX_LINES = 50
# The longest text, and the longest text on a button, in characters.
_MAX = 2000
_MAX_OF_BUTTON = 200
# Characters that `str.isprintable` accepts, but that cannot be seen.
_INVISIBLE = set("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffc\U0001d159")
# Variation selectors: they choose the look of the character before them, and are invisible themselves.
_VARIATIONS = re.compile(r"[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_MARKUP = '<p style="white-space: {}">{}</p>'
_TEXTS = tomllib.loads(resources.files("rdchat.ui").joinpath("resources/definitions.toml").read_text(encoding="utf-8"))
STAGES: Mapping[str, tuple[str, str]] = _TEXTS.pop("Stages")
"""The name and the definition of each row of the time ledger."""
LEDGER_COLUMNS: Mapping[str, str] = _TEXTS.pop("Ledger columns")
DRAFT_SETTINGS: Mapping[str, str] = _TEXTS.pop("Draft settings")
TOKEN_FACTS: Mapping[str, str] = _TEXTS.pop("Token")
MODES: Mapping[str, str] = _TEXTS.pop("Modes")
REQUEST_PHASES: Mapping[str, str] = _TEXTS.pop("Request phases")
LEGENDS: Mapping[str, str] = _TEXTS.pop("Legends")
ENDS: Mapping[str, tuple[str, str]] = _TEXTS.pop("Ends")
SAMPLING: Mapping[str, tuple[str, str]] = _TEXTS.pop("Sampling")
TRAINING: Mapping[str, Mapping[str, str]] = _TEXTS.pop("Training")
# Each reason why a reply ends, one a line.
_ENDED = "".join(f"\n{text}: {reason}" for text, reason in ENDS.values())
DEFINITIONS: Mapping[str, str] = {**_TEXTS, "Ended": f"Why the reply ended.{_ENDED}"}
"""The definition of each figure: all tables of the file that are not named above."""
# The shortest time between two calls of a `Throttle`: figures that change faster cannot be read.
_INTERVAL_MS = 100
# `CodeField` breaks lines after 2000 characters, since laying out a longer one blocks the window.
_LONG_LINE = re.compile(r"(.{2000})(?=.)")


def cut(text: str, limit: int = _MAX) -> str:
    """Return the beginning of a long text: laying out a megabyte takes a second."""
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip(' ,')}…"


def tip_text(text: str) -> str:
    """Return a tooltip that shows the text as it is, with long lines wrapped.

    Qt wraps rich text only, so a wide text becomes HTML with its own characters escaped. So does one with `<` or `&`,
    which Qt might take for HTML.
    """
    lines = cut(text).split("\n")
    text = "\n".join([*lines[:_MAX_LINES], "…"] if len(lines) > _MAX_LINES else lines)
    wide = any(len(line) > _LINE for line in lines)
    if not wide and "<" not in text and "&" not in text:
        return text
    return _MARKUP.format("pre-wrap" if wide else "pre", escape(text))


def set_tip(item: QWidget | QAction | QTextCharFormat | QGraphicsItem, text: str) -> None:
    """Set a tooltip; an empty text removes it."""
    item.setToolTip(tip_text(text))


def show_tip(position: QPoint, text: str, widget: QWidget, area: QRect | None = None) -> None:
    """Show a tooltip at once; an empty text hides the present one.

    Args:
        position: The position on the screen.
        text: The text.
        widget: The widget of the tooltip.
        area: The part of the widget; the tooltip disappears when the pointer leaves it. None: all of the widget.
    """
    QToolTip.showText(position, tip_text(text), widget, area or QRect())


def button_text(text: str) -> str:
    """Return a text for a button or a menu entry, where Qt takes `&` for the mark of a key."""
    return cut(text, _MAX_OF_BUTTON).replace("&", "&&")


def visible_text(text: str) -> str:
    """Return a text with `⟨U+202E⟩` and the like for all that cannot be seen, or that changes the order of others."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(f"⟨U+{ord(each):04X}⟩" if _is_hidden(each) else each for each in text)


def _is_hidden(letter: str) -> bool:
    return letter != "\n" and (not letter.isprintable() or letter in _INVISIBLE or bool(_VARIATIONS.match(letter)))


def utf16_spans(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans of a text, begin and end of each, in UTF-16 units."""
    if text.isascii() or not spans:
        return spans
    wide = [index for index, character in enumerate(text) if character > "\uffff"]
    return [(begin + bisect_left(wide, begin), end + bisect_left(wide, end)) for begin, end in spans]


class PlainLabel(QLabel):
    """A label that shows its text as it is, but only the beginning of a very long one (`cut`)."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        # Before there is a text, which Qt might else take for HTML.
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setText(text)

    def setText(self, text: str) -> None:
        super().setText(cut(text))


class OfflineBrowser(QTextBrowser):
    """A text browser that never loads images or style sheets, neither from the network nor from the disk."""

    def loadResource(self, kind: int, name: QUrl | str) -> object:
        return None


def message_box(
    icon: QMessageBox.Icon, text: str, detail: str = "", *, title: str = "rdchat", parent: QWidget | None = None
) -> QMessageBox:
    """Return a message box that shows its texts as they are; one with a parent is deleted once it is closed.

    Its buttons count after a pause for reading, also those that are added later.

    Args:
        icon: The kind of message.
        text: The message, in one line.
        detail: More text below it.
        title: The title of the box.
        parent: The window of the box.
    """
    box = QMessageBox(icon, title, "", parent=parent)
    # Native alerts crash on macOS 27 for some, and hand on each press.
    box.setOption(QMessageBox.Option.DontUseNativeDialog)
    # This also holds for the detail; it comes first, as in `PlainLabel`.
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.setText(text)
    box.setInformativeText(detail)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose, parent is not None)
    ConsentPause(box)
    return box


class ThemedLabel(PlainLabel):
    """A label in one of the theme's colours.

    Args:
        theme: The appearance to follow.
        text: Plain text, in which `<` is an ordinary character.
        color: The name of a colour of `Colors`.
        points_more: How much larger the font is than that of controls.
        bold: Whether the text is semi-bold.
        tabular: Whether all digits have one width.
        wraps: Whether a long text takes several lines.
        selectable: Whether the mouse can select text.
    """

    def __init__(
        self,
        theme: Theme,
        text: str = "",
        color: str = "text",
        points_more: float = 0,
        *,
        bold: bool = False,
        tabular: bool = False,
        wraps: bool = False,
        selectable: bool = False,
    ) -> None:
        super().__init__(text)
        self.setWordWrap(wraps)
        if selectable:
            self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._theme = theme
        self._color = color
        self.setFont(control_font(points_more, bold, tabular))
        self._recolor()
        theme.changed.connect(self._recolor)

    def set_color(self, color: str) -> None:
        """Change to another colour of `Colors`."""
        self._color = color
        self._recolor()

    def show_text(self, text: str, color: str = "") -> None:
        """Show a text, perhaps in another colour of `Colors`; an empty text hides the label."""
        if color:
            self.set_color(color)
        self.setText(text)
        self.setVisible(bool(text))

    def _recolor(self) -> None:
        set_role(self, QPalette.ColorRole.WindowText, getattr(self._theme.colors, self._color))


def small_text(
    theme: Theme,
    text: str = "",
    color: str = "muted",
    *,
    tabular: bool = False,
    wraps: bool = True,
    selectable: bool = False,
) -> ThemedLabel:
    """Return a label in a small font; see `ThemedLabel`."""
    return ThemedLabel(theme, text, color, -1, tabular=tabular, wraps=wraps, selectable=selectable)


class ElidedLabel(ThemedLabel):
    """One line that is cut at its end or in its middle where it does not fit; the tooltip then shows the full text."""

    def __init__(
        self,
        theme: Theme,
        text: str = "",
        color: str = "text",
        points_more: float = 0,
        *,
        bold: bool = False,
        middle: bool = False,
    ) -> None:
        super().__init__(theme, text, color, points_more, bold=bold)
        self._mode = Qt.TextElideMode.ElideMiddle if middle else Qt.TextElideMode.ElideRight
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)

    def event(self, event: QEvent) -> bool:
        if (
            isinstance(event, QHelpEvent)
            and event.type() is QEvent.Type.ToolTip
            and not self.toolTip()
            and self.fontMetrics().horizontalAdvance(self.text()) > self.contentsRect().width()
        ):
            show_tip(event.globalPos(), self.text(), self)
            return True
        return super().event(event)

    def sizeHint(self) -> QSize:
        # It takes the room that is left.
        return self.minimumSizeHint()

    def minimumSizeHint(self) -> QSize:
        return QSize(self.fontMetrics().averageCharWidth() * 4, super().minimumSizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(self.palette().color(QPalette.ColorRole.WindowText))
        area = self.contentsRect()
        painter.drawText(area, self.alignment(), self.fitting_text(area.width()))

    def fitting_text(self, width: int) -> str:
        """Return the text cut to a width."""
        return self.fontMetrics().elidedText(self.text(), self._mode, width)


class Ground(QWidget):
    """A widget filled with one of the theme's colours."""

    def __init__(self, theme: Theme, color: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._color = color

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), getattr(self._theme.colors, self._color))


class Card(QWidget):
    """A widget with round corners and a line around it."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme

    def paintEvent(self, event: QPaintEvent) -> None:
        area = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        paint_card(self, area, self._theme.colors.raised, self._theme.colors.border)


class Popover(Ground):
    """A window with a line around it that a click beside it closes."""

    def __init__(self, theme: Theme, color: str, parent: QWidget | None = None) -> None:
        super().__init__(theme, color, parent)
        self.setWindowFlags(Qt.WindowType.Popup)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter = QPainter(self)
        painter.setPen(self._theme.colors.muted)
        painter.drawRect(self.rect().adjusted(0, 0, -1, -1))


class Separator(Ground):
    """A hairline in the theme's border colour."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "border")
        self.setFixedHeight(1)


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
        # Qt shows one for an indented line that is wrapped.
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        # Code reads from left to right, also where it begins with letters of another script.
        self.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        flags = Qt.TextInteractionFlag
        self.setTextInteractionFlags(flags.TextSelectableByMouse | flags.TextSelectableByKeyboard)
        self._max_lines = max_lines
        # Characters of each line, from which `fit` computes the height without laying the text out.
        self._lengths = [0]

    def show_code(self, text: str) -> None:
        """Show another text."""
        visible = _LONG_LINE.sub(r"\1\n", visible_text(text))
        if visible != self.toPlainText():
            self.setPlainText(visible)
            self._lengths = [len(line) for line in visible.split("\n")]

    def fit(self, width: int) -> None:
        """Take the height that the text needs at a width, as far as the limit of lines."""
        letters = max((width - 3 * SMALL) // max(self.fontMetrics().averageCharWidth(), 1), 1)
        lines = sum(max(-(-length // letters), 1) for length in self._lengths)
        self.setFixedHeight(min(lines, self._max_lines) * self.fontMetrics().lineSpacing() + 2 * SMALL)


def single_shot(parent: QObject, interval_ms: int, act: Callable[[], object]) -> QTimer:
    """Return a timer that calls `act` once, when the interval has passed since its last start."""
    timer = QTimer(parent, interval=interval_ms, singleShot=True)
    timer.timeout.connect(act)
    return timer


class Throttle(QObject):
    """Calls `act` at once for the first call of `note`, and at most ten times a second for those that follow.

    After the last call of `note` there is always one of `act`.
    """

    def __init__(self, parent: QObject, act: Callable[[], object]) -> None:
        super().__init__(parent)
        self._act = act
        self._noted = False
        self._timer = single_shot(self, _INTERVAL_MS, self._pass_on)

    def note(self) -> None:
        """Note that there is something new to show."""
        self._noted = True
        if not self._timer.isActive():
            self._pass_on()

    def _pass_on(self) -> None:
        if self._noted:
            self._noted = False
            self._timer.start()
            self._act()
