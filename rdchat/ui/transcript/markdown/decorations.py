"""Paints the decorations of a text: code panels with their headers, quote bars, rules and scroll bars."""

import re
from collections.abc import Callable
from functools import lru_cache

from pygments.lexers import get_all_lexers
from PySide6.QtCore import QObject, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QPainter, QPalette
from PySide6.QtWidgets import QTextEdit, QWidget

from rdchat.ui.style.buttons import CopyButton, IconButton
from rdchat.ui.style.labels import ThemedLabel
from rdchat.ui.style.layouts import row
from rdchat.ui.style.opening import ask_to_save_content
from rdchat.ui.style.theme import MEDIUM, RADIUS, SMALL, TIGHT, Theme
from rdchat.ui.transcript.markdown.blocks import Block, Kind
from rdchat.ui.transcript.markdown.document_writer import CodeSpan, DocumentWriter
from rdchat.ui.transcript.markdown.horizontal_scrolling import BAR_HEIGHT, HorizontalScrolling, WidePart
from rdchat.ui.transcript.markdown.text_formats import (
    CODE_PAD,
    QUOTE_INDENT,
    code_header_height,
    column_step,
    list_indent,
)

# Deeper nested quotes have no bar.
_MAX_BARS = 40
# Further code blocks have no header, because each header is a widget with buttons.
_MAX_HEADERS = 100
# These names and suffixes are missing in Pygments, or people write others.
_LANGUAGES = {
    "console": ("Console", ".txt"), "csv": ("CSV", ".csv"), "r": ("R", ".r"), "sh": ("Shell", ".sh"),
    "shell": ("Shell", ".sh"), "svg": ("SVG", ".svg"), "text": ("Text", ".txt"), "txt": ("Text", ".txt"),
    "yml": ("YAML", ".yml"), "zsh": ("Zsh", ".zsh"),
}  # fmt: skip
_NAMED = {"dockerfile": "Dockerfile", "docker": "Dockerfile", "makefile": "Makefile", "make": "Makefile"}
# The code may name its file in its first line: "# app/main.py", "// index.js", "<!-- page.html -->".
_OWN_NAME = re.compile(
    r"\s*(?:#|//|--|/\*|<!--|;|%)\s*(?:file(?:name)?:\s*)?(?:[\w.-]+/)*([\w-][\w.-]*\.\w{1,8})\s*(?:\*/|-->)?\s*$"
)
_FENCE_NAME = re.compile(r"(?:.*[:/=])?\"?([\w-][\w.-]*\.\w{1,8})\"?$")


class CodeHeader(QWidget):
    """The language and the buttons of a code block, above its first line."""

    def __init__(self, theme: Theme, code: Callable[[], str], parent: QWidget) -> None:
        super().__init__(parent)
        self._label = ThemedLabel(theme, "", "muted", -1)
        # The viewport below has another.
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
    return _NAMED.get(language.lower()) or f"code{_language(language)[1]}"


@lru_cache(256)
def _language(written: str) -> tuple[str, str]:
    """Return the name of a language and the suffix of its files."""
    if known := _LANGUAGES.get(written.lower()):
        return known
    for name, aliases, patterns, _ in get_all_lexers(plugins=False):
        if written.lower() in aliases:
            return name, next((each[1:] for each in patterns if re.fullmatch(r"\*\.\w+", each)), ".txt")
    return written, ".txt"


class Decorations(QObject):
    """The decorations of one text edit, which shows its document from the top.

    Args:
        edit: The text edit.
        writer: Writes its document.
        scrolling: Scrolls wide code and tables.
        theme: The appearance to follow.
    """

    # The person wants the code block of a number with or without broken lines.
    wrap_requested = Signal(int, bool)

    def __init__(self, edit: QTextEdit, writer: DocumentWriter, scrolling: HorizontalScrolling, theme: Theme) -> None:
        super().__init__(edit)
        self._edit = edit
        self._writer = writer
        self._scrolling = scrolling
        self._theme = theme
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
        self._paint_bars(painter, area)

    def _paint_bars(self, painter: QPainter, area: QRectF) -> None:
        blocks = self._writer.blocks
        for index, each in enumerate(blocks):
            if each.kind is Kind.TABLE or not (each.quotes or each.kind is Kind.RULE):
                continue
            block = self._writer.text_block(index)
            rect = self._edit.document().documentLayout().blockBoundingRect(block)
            look = block.blockFormat()
            if not rect.adjusted(0, -look.topMargin() - CODE_PAD, self._width, 0).intersects(area):
                continue
            above = blocks[index - 1].quotes if index else 0
            mirrored = block.textDirection() is Qt.LayoutDirection.RightToLeft
            for depth, offset in enumerate(self._bars(each)):
                left = self._edit.document().textWidth() - offset - 3 if mirrored else offset
                # There is no gap between bars.
                top = rect.top() - (look.topMargin() + CODE_PAD / 2 if depth < above else 0)
                painter.drawRoundedRect(QRectF(left, top, 3, rect.bottom() - top), 1.5, 1.5)
            if each.kind is Kind.RULE:
                start = look.indent()
                painter.drawRect(QRectF(start, rect.center().y(), self._width - start, 1))

    def _bars(self, block: Block) -> list[int]:
        """Return how far from the paragraph's edge the bars of the quotes around a block stand."""
        left = 0
        bars = []
        for each in block.nesting[:_MAX_BARS]:
            if each == "q":
                bars.append(left)
            left += QUOTE_INDENT if each == "q" else list_indent(self._theme)
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
        """Place headers and scroll bars, but for those of blocks that end before the block `first`."""
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
        writer = self._writer
        header = CodeHeader(self._theme, lambda: writer.code_text(number), self._edit.viewport())
        header.save_button.clicked.connect(lambda: self._save_code(number))
        header.wrap_button.clicked.connect(lambda: self.wrap_requested.emit(number, number not in writer.wrapped))
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
        text = line.naturalTextWidth() + line.x() if line.isValid() else 0.0
        needed = text + 2 * CODE_PAD if longest.blockFormat().nonBreakableLines() else 0.0
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
