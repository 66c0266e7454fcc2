"""Draws what a text shows besides its characters: panels and headers of code, bars of quotes, rules, and scroll bars.

Code and tables that are wider than the column scroll, each by itself: the document has them at their full width, and
Qt's text edit gets a horizontal offset while it draws one of them or handles an event there.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from pygments.lexers import get_all_lexers
from PySide6.QtCore import QPoint, QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPalette, QWheelEvent
from PySide6.QtWidgets import QScrollBar, QTextEdit, QWidget

from rdchat.ui.style import (
    MEDIUM,
    RADIUS,
    SMALL,
    TIGHT,
    CopyButton,
    IconButton,
    Theme,
    ask_to_save_content,
    discard,
    row,
    small_text,
)
from rdchat.ui.transcript.markdown.blocks import Block, Kind
from rdchat.ui.transcript.markdown.document_writer import CodeSpan, DocumentWriter
from rdchat.ui.transcript.markdown.text_formats import (
    CODE_PAD,
    QUOTE_INDENT,
    code_header_height,
    column_step,
    list_indent,
)

BAR_HEIGHT = 10
# How far an arrow key scrolls, in pixels.
_KEY_STEP = 40
# Further wide parts are cut off at the edge; they can still be copied.
_MAX_SCROLL_BARS = 100
# The distance from the edge of what is scrolled into view, in pixels.
_HIT_MARGIN = 24
# The digits before the muted colour of the handle are its opacity.
_STYLE = """
QScrollBar { background: transparent; border: none; }
QScrollBar::handle { background: #6e%s; border-radius: 3px; margin: 2px 0; min-width: 28px; }
QScrollBar::handle:hover { background: #c8%s; }
QScrollBar::handle:focus { background: %s; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }
"""
# Lists and quotes nested more deeply have no bar.
_MAX_BARS = 40
# Further code blocks have no header, because each header is a widget with buttons.
_MAX_HEADERS = 100
# The name and the suffix of languages that Pygments does not know, or names in another way than people do.
_LANGUAGES = {
    "console": ("Console", ".txt"), "csv": ("CSV", ".csv"), "r": ("R", ".r"), "sh": ("Shell", ".sh"),
    "shell": ("Shell", ".sh"), "svg": ("SVG", ".svg"), "text": ("Text", ".txt"), "txt": ("Text", ".txt"),
    "yml": ("YAML", ".yml"), "zsh": ("Zsh", ".zsh"),
}  # fmt: skip
# Languages whose files have a fixed name.
_FILE_NAMES = {"dockerfile": "Dockerfile", "docker": "Dockerfile", "makefile": "Makefile", "make": "Makefile"}
# The code may name its file in its first line: "# app/main.py", "// index.js", "<!-- page.html -->".
_OWN_NAME = re.compile(
    r"\s*(?:#|//|--|/\*|<!--|;|%)\s*(?:file(?:name)?:\s*)?(?:[\w.-]+/)*([\w-][\w.-]*\.\w{1,8})\s*(?:\*/|-->)?\s*$"
)
# Or it is named behind the fence: "app.py", "python:app.py", "title=app.py".
_FENCE_NAME = re.compile(r"(?:.*[:/=])?\"?([\w-][\w.-]*\.\w{1,8})\"?$")


@dataclass(frozen=True, slots=True)
class WidePart:
    """A code block or a table, which may be wider than the column.

    Attributes:
        name: The name of its bar, for screen readers.
        area: The rectangle in the viewport where it is drawn.
        width: Its full width.
        bar: The top of its bar, in the viewport.
        mirrored: Whether it begins at the right.
    """

    name: str
    area: QRect
    width: int
    bar: int
    mirrored: bool = False


class ScrollBar(QScrollBar):
    """The thin scroll bar of a wide part. Its value is by how many pixels the part is moved to the left."""

    def __init__(self, part: WidePart, theme: Theme, parent: QWidget) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self._theme = theme
        self.setSingleStep(_KEY_STEP)
        # The right arrow key moves to the right.
        self.setInvertedControls(False)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self.setAccessibleName(part.name)
        self._recolor()
        theme.changed.connect(self._recolor)
        # So `show_part` takes a new bar for one that is at its beginning, on either side.
        self.setMaximum(0)
        self.show_part(part)
        self.show()

    def show_part(self, part: WidePart) -> None:
        """Scroll this part from now on."""
        self.part = part
        area = part.area
        self.setPageStep(max(1, area.width()))
        # A part from right to left that grows still shows its beginning, which is at the right.
        begins = part.mirrored and self.value() == self.maximum()
        self.setRange(0, max(0, part.width - area.width()))
        if begins:
            self.setValue(self.maximum())
        self.setGeometry(area.left() + SMALL, part.bar, area.width() - 2 * SMALL, BAR_HEIGHT)

    def _recolor(self) -> None:
        muted = self._theme.colors.muted.name()[1:]
        self.setStyleSheet(_STYLE % (muted, muted, self._theme.colors.accent.name()))


class HorizontalScrolling:
    """Scrolls the wide parts of one text edit; the index of a part's first block is its key."""

    def __init__(self, edit: QTextEdit, theme: Theme) -> None:
        self._edit = edit
        self._theme = theme
        self._bars: dict[int, ScrollBar] = {}
        # Whether the text edit is moved now; `shifted` sets and clears it.
        self._shifting = False
        edit.horizontalScrollBar().rangeChanged.connect(self._stay_unscrolled)
        edit.selectionChanged.connect(self._draw_shifted)

    def set_parts(self, parts: dict[int, WidePart], first: int) -> None:
        """Give the parts that are wider than their area a bar, and remove the bars of those that are not.

        Args:
            parts: Parts by the index of their first block. Some of them may stand before `first`.
            first: Parts from this block on that are missing in `parts` are gone; those before it are unchanged.
        """
        wide = {key: part for key, part in parts.items() if part.width > part.area.width()}
        for key in [key for key in self._bars if key not in wide and (key >= first or key in parts)]:
            discard(self._bars.pop(key))
        for key, part in wide.items():
            if key in self._bars:
                self._bars[key].show_part(part)
            elif len(self._bars) < _MAX_SCROLL_BARS:
                bar = ScrollBar(part, self._theme, self._edit.viewport())
                self._bars[key] = bar
                bar.valueChanged.connect(lambda _value, bar=bar: self._edit.viewport().update(bar.part.area))

    def offset_at(self, point: QPoint) -> int:
        """Return the scroll offset at a point of the viewport."""
        return next((bar.value() for bar in self._bars.values() if bar.part.area.contains(point)), 0)

    def _at_height(self, y: float) -> ScrollBar | None:
        """Return the bar of the part at a height of the viewport."""
        return next((bar for bar in self._bars.values() if bar.part.area.top() <= y <= bar.part.area.bottom()), None)

    def _draw_shifted(self) -> None:
        """Repaint scrolled parts: Qt only repaints where the selection would be without the offset."""
        for bar in self._bars.values():
            if bar.value():
                self._edit.viewport().update(bar.part.area)

    def _stay_unscrolled(self) -> None:
        """Keep the text edit from scrolling as a whole."""
        if not self._shifting:
            self._edit.horizontalScrollBar().setRange(0, 0)

    @contextmanager
    def shifted(self, offset: int) -> Iterator[None]:
        """Make the text edit draw its contents, and handle events, moved to the left by `offset`."""
        bar = self._edit.horizontalScrollBar()
        if not offset or self._shifting:
            yield
            return
        self._shifting = True
        blocked = bar.blockSignals(True)
        bar.setRange(0, offset)
        bar.setValue(offset)
        try:
            yield
        finally:
            bar.setRange(0, 0)
            bar.blockSignals(blocked)
            self._shifting = False

    def paint(self, event: QPaintEvent, draw: Callable[[QPaintEvent], None]) -> None:
        """Paint in strips with Qt's `draw`: the scrolled parts, and the rest between them.

        From the top, for each scrolled part: what is above it, the margin at its left, and the part itself, shifted.
        Last, what is below all of them.
        """
        bars = [bar for bar in self._bars.values() if bar.value() and bar.part.area.intersects(event.rect())]
        moved = sorted(((bar.part.area, bar.value()) for bar in bars), key=lambda part: part[0].y())
        if not moved:
            draw(event)
            return
        rect = event.rect()
        top = event.rect().top()
        for area, by in moved:
            if area.top() > top:
                draw(QPaintEvent(QRect(rect.left(), top, rect.width(), area.top() - top)))
            margin = QRect(0, area.top(), area.left(), area.height()) & rect
            if not margin.isEmpty():
                draw(QPaintEvent(margin))
            with self.shifted(by):
                draw(QPaintEvent(area & rect))
            top = area.bottom() + 1
        if top <= rect.bottom():
            draw(QPaintEvent(QRect(rect.left(), top, rect.width(), rect.bottom() + 1 - top)))

    def bring_into_view(self, rect: QRect) -> QRect:
        """Scroll a part until `rect`, given without any offset, is visible; return where it is drawn then."""
        bar = self._at_height(rect.center().y())
        if bar is None:
            return rect
        bar.setValue(min(bar.value(), rect.left() - bar.part.area.left() - _HIT_MARGIN))
        bar.setValue(max(bar.value(), rect.right() - bar.part.area.right() + _HIT_MARGIN))
        return rect.translated(-bar.value(), 0)

    def drag(self, point: QPointF) -> None:
        """Scroll the part at the pointer's height while a selection is dragged beyond its edge."""
        if bar := self._at_height(point.y()):
            bar.setValue(bar.value() + round(max(0.0, point.x() - bar.part.area.right())))
            bar.setValue(bar.value() - round(max(0.0, bar.part.area.left() - point.x())))

    def wheel(self, event: QWheelEvent) -> bool:
        """Scroll the part under the pointer if the wheel turns horizontally; return whether there is one."""
        by = event.pixelDelta() if not event.pixelDelta().isNull() else event.angleDelta() / 2
        bar = self._at_height(event.position().y())
        if bar is None or abs(by.x()) <= abs(by.y()) or not bar.part.area.contains(event.position().toPoint()):
            return False
        bar.setValue(bar.value() - by.x())
        return True


class CodeHeader(QWidget):
    """The language and the buttons of a code block, above its first line."""

    def __init__(self, theme: Theme, code: Callable[[], str], parent: QWidget) -> None:
        super().__init__(parent)
        self._label = small_text(theme, wraps=False)
        # As a child of the viewport it would have that one's colour.
        self._label.setForegroundRole(QPalette.ColorRole.WindowText)
        self.copy_button = CopyButton("Copy code", theme, code, self)
        self.wrap_button = IconButton("wrap", "Wrap long lines", theme, self)
        self.save_button = IconButton("save", "Save code as a file…", theme, self)
        buttons = self.wrap_button, self.save_button, self.copy_button
        row(self._label, None, *buttons, within=self, spacing=0, margins=(MEDIUM, 0, TIGHT, 0))

    def show_code(self, language: str, wraps: bool) -> None:
        """Show the language written after the fence, and let the button offer the opposite of `wraps`."""
        self._label.setText(_language(language)[0][:40] or "Code")
        name = "Don't wrap long lines" if wraps else "Wrap long lines"
        if self.wrap_button.accessibleName() != name:
            self.wrap_button.show_as("no_wrap" if wraps else "wrap", name)


def file_name(language: str, code: str) -> str:
    """Return the name in the code's first line or behind the fence, else one with the language's suffix."""
    own = _OWN_NAME.match(code[:300].partition("\n")[0]) or _FENCE_NAME.match(language)
    if own:
        return own[1]
    return _FILE_NAMES.get(language.lower()) or f"code{_language(language)[1]}"


@lru_cache(256)
def _language(written: str) -> tuple[str, str]:
    """Return the name of a language and the suffix of its files."""
    if known := _LANGUAGES.get(written.lower()):
        return known
    for name, aliases, patterns, _ in get_all_lexers(plugins=False):
        if written.lower() in aliases:
            return name, next((each[1:] for each in patterns if re.fullmatch(r"\*\.\w+", each)), ".txt")
    return written, ".txt"


class Decorations:
    """The decorations of one text edit, which shows its document from the top.

    Args:
        edit: The text edit.
        writer: Writes its document.
        scrolling: Scrolls wide code and tables.
        theme: The appearance to follow.
        wrap_code: Called with the number of a code block if the person wants its lines broken, or not any more.
    """

    def __init__(
        self,
        edit: QTextEdit,
        writer: DocumentWriter,
        scrolling: HorizontalScrolling,
        theme: Theme,
        wrap_code: Callable[[int], object],
    ) -> None:
        self._edit = edit
        self._writer = writer
        self._scrolling = scrolling
        self._theme = theme
        self._wrap_code = wrap_code
        self._headers: dict[int, CodeHeader] = {}

    @property
    def _width(self) -> int:
        return self._edit.viewport().width()

    # --- painting

    def paint(self, painter: QPainter, area: QRectF) -> None:
        """Draw the panels of code, the bars of quotes, and rules, where they are in an area."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(self._theme.colors.border)
        painter.setBrush(self._theme.colors.code)
        for span in self._writer.code_spans.values():
            panel = self._panel(span)
            if panel.intersects(area):
                painter.drawRoundedRect(panel.adjusted(0.5, 0.5, -0.5, -0.5), RADIUS - 2, RADIUS - 2)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._theme.colors.border)
        self._paint_bars_and_rules(painter, area)

    def _paint_bars_and_rules(self, painter: QPainter, area: QRectF) -> None:
        blocks = self._writer.blocks
        for index, block in enumerate(blocks):
            if block.kind is Kind.TABLE or not (block.quotes or block.kind is Kind.RULE):
                continue
            text_block = self._writer.text_block(index)
            rect = self._edit.document().documentLayout().blockBoundingRect(text_block)
            look = text_block.blockFormat()
            if not rect.adjusted(0, -look.topMargin() - CODE_PAD, self._width, 0).intersects(area):
                continue
            above = blocks[index - 1].quotes if index else 0
            mirrored = text_block.textDirection() is Qt.LayoutDirection.RightToLeft
            for depth, offset in enumerate(self._bar_offsets(block)):
                left = self._edit.document().textWidth() - offset - 3 if mirrored else offset
                # The bar begins where that of the block above ends, so that there is no gap.
                top = rect.top() - (look.topMargin() + CODE_PAD / 2 if depth < above else 0)
                painter.drawRoundedRect(QRectF(left, top, 3, rect.bottom() - top), 1.5, 1.5)
            if block.kind is Kind.RULE:
                start = look.indent()
                painter.drawRect(QRectF(start, rect.center().y(), self._width - start, 1))

    def _bar_offsets(self, block: Block) -> list[int]:
        """Return how far from the paragraph's edge the bars of the quotes around a block stand."""
        left = 0
        bars = []
        for letter in block.nesting[:_MAX_BARS]:
            if letter == "q":
                bars.append(left)
            left += QUOTE_INDENT if letter == "q" else list_indent(self._theme)
        return bars

    def _panel(self, span: CodeSpan) -> QRectF:
        """Return the rectangle of a code block, its header included."""
        layout = self._edit.document().documentLayout()
        first = layout.blockBoundingRect(self._writer.text_block(span.first))
        last = layout.blockBoundingRect(self._writer.text_block(span.last))
        left = self._writer.formats.left(self._writer.blocks[span.first])
        top = first.top() - code_header_height(self._theme)
        return QRectF(left, top, self._width - left, last.bottom() + CODE_PAD - top)

    @property
    def room_below(self) -> int:
        """The room that the last block needs below its text."""
        blocks = self._writer.blocks
        return CODE_PAD if blocks and blocks[-1].code >= 0 else 0

    # --- headers and scroll bars

    @property
    def min_width(self) -> int:
        """The width that the widest header needs."""
        return max((header.sizeHint().width() for header in self._headers.values()), default=0)

    def lay_out(self, first: int = 0) -> None:
        """Place headers and scroll bars, but for those of blocks that end before the block `first`.

        Such a code block is placed all the same if it has no header and may have one now.
        """
        spans = self._writer.code_spans
        parts = dict[int, WidePart]()
        for number in [number for number in self._headers if number not in spans]:
            self._headers.pop(number).deleteLater()
        for number, span in spans.items():
            if span.last >= first or (number not in self._headers and len(self._headers) < _MAX_HEADERS):
                panel = self._panel(span).toRect()
                parts[span.first] = self._wide_code(span, panel)
                if number in self._headers or len(self._headers) < _MAX_HEADERS:
                    self._move_header(number, span, panel)
        for index in self._writer.tables:
            if index >= first:
                parts[index] = self._wide_table(index)
        self._scrolling.set_parts(parts, first)

    def _move_header(self, number: int, span: CodeSpan, panel: QRect) -> None:
        if number not in self._headers:
            self._headers[number] = self._make_header(number)
        header = self._headers[number]
        header.show_code(span.language, number in self._writer.wrapped)
        top = TIGHT // 2
        height = code_header_height(self._theme) - TIGHT // 2
        header.setGeometry(panel.left(), panel.top() + top, panel.width(), height)

    def _make_header(self, number: int) -> CodeHeader:
        header = CodeHeader(self._theme, lambda: self._writer.code_text(number), self._edit.viewport())
        header.save_button.clicked.connect(lambda: self._save_code(number))
        header.wrap_button.clicked.connect(lambda: self._wrap_code(number))
        header.show()
        return header

    def _save_code(self, number: int) -> None:
        code = self._writer.code_text(number)
        name = file_name(self._writer.code_spans[number].language, code)
        text = code if code.endswith("\n") else f"{code}\n"
        ask_to_save_content(self._edit.window(), "Save code", name, [], lambda: text)

    def _wide_code(self, span: CodeSpan, panel: QRect) -> WidePart:
        area = panel.adjusted(1, code_header_height(self._theme) - 1, -1, -1)
        longest = self._writer.text_block(span.longest)
        line = longest.layout().lineAt(0)
        text_width = line.naturalTextWidth() + line.x() if line.isValid() else 0.0
        needed = text_width + 2 * CODE_PAD if longest.blockFormat().nonBreakableLines() else 0.0
        return WidePart("Scroll code sideways", area, round(needed), panel.bottom() - BAR_HEIGHT)

    def _wide_table(self, index: int) -> WidePart:
        table = self._writer.tables[index]
        left = self._writer.formats.left(self._writer.blocks[index])
        look = table.format().toTableFormat()
        # Qt gives the position of the first cell's text, and a size that includes the margins
        frame = self._edit.document().documentLayout().frameBoundingRect(table)
        top = frame.top() - SMALL - 2
        height = frame.height() - look.topMargin() - look.bottomMargin()
        mirrored = column_step(table) < 0
        area = QRect(0 if mirrored else left, round(top), self._width - left, round(height))
        widths = [length.rawValue() for length in look.columnWidthConstraints()]
        # Borders between columns are within these widths.
        return WidePart("Scroll table sideways", area, round(sum(widths)) + 2, area.bottom(), mirrored)
