"""Shows a Markdown text at its full height, draws it in short steps, and marks the words of a search in it.

`TextBody` takes the text through the modules of this package: `BlockStream` parses what is new, `DocumentWriter` writes
it into the document, then code is coloured and formulas are drawn. `TextView` is a text that draws itself, for windows
other than the transcript.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from functools import partial

from PySide6.QtCore import QEvent, QMimeData, QRect, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QTextCharFormat,
    QTextCursor,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QTextEdit, QWidget

from rdchat.chat.storage import WordMatcher
from rdchat.errors import without_controls
from rdchat.ui.style import OfflineBrowser, TextButton, Theme, column, open_page, text_look, utf16_spans
from rdchat.ui.transcript.markdown.block_stream import BlockStream
from rdchat.ui.transcript.markdown.blocks import Block, display_end, safe_text
from rdchat.ui.transcript.markdown.code_highlighter import CodeHighlighter
from rdchat.ui.transcript.markdown.copying import as_plain, cut_cells, cut_out, text_data
from rdchat.ui.transcript.markdown.decorations import Decorations, HorizontalScrolling
from rdchat.ui.transcript.markdown.document_writer import DocumentWriter
from rdchat.ui.transcript.markdown.parser import Parser
from rdchat.ui.transcript.markdown.text_formats import FormulaObject

# The most words that are marked in one text.
_MAX_HITS = 2000
# The characters of a long text that are shown at first, and those that each request adds.
FIRST_CHARACTERS = 60_000
MORE_CHARACTERS = 200_000
# Keys that scroll the transcript, not the caret of one text.
_SCROLL_KEYS = (Qt.Key.Key_PageUp, Qt.Key.Key_PageDown, Qt.Key.Key_Home, Qt.Key.Key_End)

SLICE_S = 0.008
"""Drawing time in a turn of the event loop, in seconds."""
LEXER_WAIT_MS = 50
"""Pause before a text that waits for a lexer or a formula is drawn on."""


def marked(edit: QTextEdit, begin: int, end: int, look: QTextCharFormat) -> QTextEdit.ExtraSelection:
    """Return a mark of a part of an edit's document, as far as there is one."""
    mark = QTextEdit.ExtraSelection()
    last = edit.document().characterCount() - 1
    mark.cursor = QTextCursor(edit.document())
    mark.format = look
    mark.cursor.setPosition(min(begin, last))
    mark.cursor.setPosition(min(end, last), QTextCursor.MoveMode.KeepAnchor)
    return mark


class HitMarks:
    """Finds the words of a search in a text edit's document, as far as it is drawn, and paints their background.

    Attributes:
        hits: The begin and end of each hit, as the document counts.
        current: The number of the hit that the reader is at; -1 for none.
    """

    def __init__(self, edit: QTextEdit, theme: Theme) -> None:
        self._edit = edit
        self._theme = theme
        self.matcher = WordMatcher("")
        self.hits: list[tuple[int, int]] = []
        self.current = -1

    def set_matcher(self, matcher: WordMatcher) -> None:
        """Mark other words; of a matcher without words, none."""
        if matcher is not self.matcher:
            self.matcher = matcher
            self.current = -1
            self.mark_drawn()

    def mark_drawn(self) -> None:
        """Mark what is drawn by now."""
        if not self.matcher and not self.hits:
            return
        text = self._edit.document().toPlainText() if self.matcher else ""
        self.hits = utf16_spans(text, self.matcher.spans(text, _MAX_HITS))
        if self.current >= len(self.hits):
            self.current = -1
        self._paint()

    def mark_parts(self, spans: Sequence[tuple[int, int]]) -> None:
        """Mark these parts of the document in place of a search's words; the next `mark_drawn` removes the marks."""
        self.hits = list(spans[:_MAX_HITS])
        self.current = -1
        self._paint()

    def go_to(self, number: int) -> QRect:
        """Mark one of `hits` as current, or none for -1; return where it stands in the edit."""
        self.current = number
        self._paint()
        if number < 0:
            return QRect()
        mark = marked(self._edit, *self.hits[number], QTextCharFormat())
        # Qt's mark owns its cursor.
        cursor = QTextCursor(mark.cursor)
        begin = QTextCursor(cursor)
        begin.setPosition(cursor.selectionStart())
        return self._edit.cursorRect(begin).united(self._edit.cursorRect(cursor))

    def _paint(self) -> None:
        colors = self._theme.colors
        look = text_look(colors.text, colors.hit)
        current = text_look(colors.text, colors.current_hit)
        looks = [current if number == self.current else look for number in range(len(self.hits))]
        marks = [marked(self._edit, *hit, look) for hit, look in zip(self.hits, looks, strict=True)]
        self._edit.setExtraSelections(marks)


class Work(IntEnum):
    """What is left to draw of a text; it may wait for a lexer that another thread imports, or for a formula."""

    NONE = 0
    WAITING = 1
    READY = 2


class TextBody(OfflineBrowser):
    """Shows growing or finished text. Nothing is drawn before `take_step` is called, in bounded steps."""

    # The person has moved the caret to a rectangle in this widget.
    caret_moved = Signal(QRect)
    menu_requested = Signal(QContextMenuEvent)
    # The person has asked for more or less of the text; there may be more to draw.
    height_changed = Signal()

    def __init__(self, parser: Parser, theme: Theme, muted: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.parser = parser
        # The text as it was given, and the same made safe.
        self._source = ""
        self._text = ""
        self._final = False
        # How many characters may be shown, and where they end in the text.
        self._room = FIRST_CHARACTERS
        self._end = 0
        self._stream = BlockStream(parser)
        self.work = Work.NONE
        # Index of the first block that the last step changed.
        self._first_changed = 0
        # Whether there is text that the stream has not read.
        self._unread = False
        # The last argument of `natural_width`, and its result.
        self._natural: tuple[int, int] | None = None
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self.setOpenLinks(False)
        flags = Qt.TextInteractionFlag
        self.setTextInteractionFlags(flags.TextBrowserInteraction | flags.TextSelectableByKeyboard)
        self.document().setDocumentMargin(0)
        self._writer = DocumentWriter(self.document(), theme, muted)
        self.scrolling = HorizontalScrolling(self, theme)
        self._decorations = Decorations(self, self._writer, self.scrolling, theme, self._wrap_code)
        self._formulas = FormulaObject(self.document(), self)
        self._highlighter = CodeHighlighter(self.document())
        self.marks = HitMarks(self, theme)
        self._more = TextButton("", theme, self.show_more)
        self._more.setParent(self)
        self._more.hide()
        self.anchorClicked.connect(lambda address: open_page(address.toString()))
        self.cursorPositionChanged.connect(self._report_caret)

    # --- text

    def set_text(self, text: str, final: bool) -> None:
        """Set the complete text; if it continues the text before, only its end is parsed.

        `final`: it does not grow any more. After a final text, another one is parsed from its beginning.
        """
        if (text, final) == (self._source, self._final):
            return
        if self._final or not text.startswith(self._source):
            self._start_over()
            self._source = ""
            self._text = ""
        self._final = final
        self.append(text[len(self._source) :])

    def append(self, text: str) -> None:
        """Add text at the end; only that is parsed."""
        # A delivery may end between a carriage return and its line feed.
        added = text.removeprefix("\n") if self._source.endswith("\r") else text
        self._source += text
        self._text += safe_text(added)
        self._read_on()

    @property
    def is_empty(self) -> bool:
        """Whether there is no text."""
        return not self._source

    @property
    def tables(self) -> list[Block]:
        """The tables that are drawn, each as one block."""
        tables = list[Block]()
        for block in (self._writer.blocks[index] for index in self._writer.tables):
            if block.joined and tables:
                tables[-1] = replace(tables[-1], rows=(*tables[-1].rows, *block.rows))
            else:
                tables.append(block)
        return tables

    @property
    def hidden_characters(self) -> int:
        return len(self._text) - self._end

    def show_more(self) -> None:
        """Show more of a very long text."""
        self._room += MORE_CHARACTERS
        self._read_on()
        self.height_changed.emit()

    def _read_on(self) -> None:
        self._end = display_end(self._text, self._room)
        self._unread = True
        self.work = Work.READY
        self._more.setText(f"Show more ({self.hidden_characters:,} characters hidden)")
        self._more.setVisible(self.hidden_characters > 0)
        self.updateGeometry()

    def _start_over(self) -> None:
        self._stream = BlockStream(self.parser)
        self._highlighter.clear()
        self._unread = bool(self._text)
        self.work = Work.READY if self._text else Work.NONE

    def draw_until(self, deadline: float) -> Work:
        """Draw until the deadline, at least one step, and return what is left."""
        while self.work:
            if self.take_step(deadline) is not Work.READY or time.perf_counter() >= deadline:
                break
        return self.work

    @property
    def is_rendered(self) -> bool:
        return bool(self._writer.blocks) or not self._text

    def take_step(self, deadline: float) -> Work:
        """Do one bounded step and return what is left; code is coloured until `deadline` (`perf_counter`)."""
        self.work = self._read_step(deadline) if self._unread else self._finish(deadline)
        self.updateGeometry()
        return self.work

    def _read_step(self, deadline: float) -> Work:
        """Parse and write one step of the text, and ask for its code to be coloured."""
        text = self._text[: self._end]
        update = self._stream.advance(text, self._final and not self.hidden_characters)
        cursor = self.textCursor()
        anchor = cursor.anchor()
        position = cursor.position()
        self._first_changed = update.first
        self._writer.write_blocks(update.first, update.blocks, update.more)
        self._natural = None
        self._restore_selection(anchor, position)
        for number in update.closed:
            if span := self._writer.code_spans.get(number):
                first = self._writer.text_block(span.first)
                lines = self._writer.code_lines(number)
                self._highlighter.add_code(number, span.language, first, lines)
        if span := self._writer.code_spans.get(update.open_code):
            lines_from = partial(self._writer.code_lines, update.open_code, end=update.settled)
            self._highlighter.grow(update.open_code, span.language, self._writer.text_block(span.first), lines_from)
        self._decorations.lay_out(update.first)
        self.marks.mark_drawn()
        self._unread = update.more
        return Work.READY if update.more else self._finish(deadline)

    def _restore_selection(self, anchor: int, position: int) -> None:
        """Put the selection back that rewriting the last block, or appending at a caret, may have moved."""
        cursor = self.textCursor()
        if (cursor.anchor(), cursor.position()) == (anchor, position):
            return
        last = self.document().characterCount() - 1
        cursor.setPosition(min(anchor, last))
        cursor.setPosition(min(position, last), cursor.MoveMode.KeepAnchor)
        # The person did not move the caret.
        self.blockSignals(True)
        self.setTextCursor(cursor)
        self.blockSignals(False)

    def _finish(self, deadline: float) -> Work:
        """Show the formulas of one block that have been drawn by now, and colour code; return what is left to do.

        WAITING stands for what other threads have not found yet: colours of code, or pictures of formulas.
        """
        ready = self._highlighter.colour_lines(self._theme.colors, deadline)
        remaining = Work.READY if ready else Work.WAITING if self._highlighter.pending else Work.NONE
        if not self._writer.undrawn:
            return remaining
        index, failed = self._writer.draw_formulas()
        if index is None:
            return remaining or Work.WAITING
        self._natural = None
        self._decorations.lay_out(index)
        if failed:
            # Parse all again: a formula that cannot be drawn is text now.
            self._start_over()
        return Work.READY

    def restyle(self) -> None:
        """Draw everything again in the theme's present fonts and colours."""
        self._start_over()
        self._writer.restyle()
        self._natural = None
        self._decorations.lay_out()

    # --- size

    def heightForWidth(self, width: int) -> int:
        """Return the height the text takes at a width; a guess before it is rendered."""
        if not self._text:
            return 0
        if not self.is_rendered:
            line = self.fontMetrics().lineSpacing() * 1.3
            return round(line * (1 + self._end * self.fontMetrics().averageCharWidth() / width))
        document = self.document()
        fitted = self._writer.fit_tables(width)
        if document.textWidth() != width:
            document.setTextWidth(width)
        if fitted:
            self._decorations.lay_out()
        more = self._more.sizeHint().height() if self.hidden_characters else 0
        return round(document.size().height() + 0.49) + self._decorations.room_below + more

    def natural_width(self, limit: int) -> int:
        """Return the width of the longest line or header of code, up to a limit."""
        if not self.is_rendered:
            return limit
        # It is laid out once, not with each token of a reply below.
        if self._natural is None or self._natural[0] != limit:
            self.document().setTextWidth(limit)
            width = max(round(self.document().idealWidth() + 0.99), self._decorations.min_width)
            self._natural = limit, min(limit, width)
        return self._natural[1]

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._more.move(0, self.height() - self._more.sizeHint().height())
        self._more.adjustSize()
        # In the same width, the blocks above the changed ones stay where they are; another one moves all.
        self._decorations.lay_out(self._first_changed if event.size().width() == event.oldSize().width() else 0)

    def hasHeightForWidth(self) -> bool:
        return True

    def sizeHint(self) -> QSize:
        return self.size()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        self._decorations.paint(painter, QRectF(event.rect()))
        painter.end()
        self.scrolling.paint(event, super().paintEvent)

    # --- selecting and scrolling

    def selected_blocks(self) -> list[Block]:
        """Return the selection as blocks."""
        cursor = self.textCursor()
        for index, table in self._writer.tables.items():
            if cursor.hasSelection() and cursor.currentTable() == table:
                return [cut_cells(self._writer.blocks[index], table, cursor)]
        return cut_out(self._writer.blocks, self._writer.spans(), cursor.selectionStart(), cursor.selectionEnd())

    def _wrap_code(self, number: int) -> None:
        self._writer.toggle_wrapping(number)
        self.updateGeometry()
        self.height_changed.emit()
        self._decorations.lay_out()

    def createMimeDataFromSelection(self) -> QMimeData:
        """Copy plain text: rich text would carry the window's colours into other documents."""
        return text_data(without_controls(as_plain(self.selected_blocks())))

    def _report_caret(self) -> None:
        if self.hasFocus():
            self.caret_moved.emit(self.scrolling.bring_into_view(self.cursorRect()))

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        self.menu_requested.emit(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if not self.scrolling.wheel(event):
            # The transcript scrolls, not the message.
            event.ignore()

    def viewportEvent(self, event: QEvent) -> bool:
        """Handle the pointer where the text is drawn, also in a part that is scrolled."""
        if isinstance(event, QMouseEvent):
            if event.type() is QEvent.Type.MouseMove and event.buttons():
                self.scrolling.drag(event.position())
            point = event.position().toPoint()
        elif isinstance(event, QHelpEvent):
            point = event.pos()
        else:
            return super().viewportEvent(event)
        with self.scrolling.shifted(self.scrolling.offset_at(point)):
            return super().viewportEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        modifiers = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        # With Shift, these keys select.
        if event.key() in _SCROLL_KEYS and not modifiers:
            event.ignore()
        else:
            super().keyPressEvent(event)


class TextView(QWidget):
    """A text at its full height, drawn in slices, so that the window stays responsive. It fetches nothing."""

    drawn = Signal()

    def __init__(self, parser: Parser, theme: Theme, name: str) -> None:
        super().__init__()
        self.body = TextBody(parser, theme, parent=self)
        self.body.setAccessibleName(name)
        column(self.body, within=self)
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._draw)
        self.body.height_changed.connect(lambda: self._timer.start(0))
        theme.changed.connect(self._restyle)

    def set_text(self, text: str) -> None:
        """Show another text; an empty one shows nothing."""
        self.body.set_text(text, True)
        self._timer.start(0)

    def _draw(self) -> None:
        work = self.body.draw_until(time.perf_counter() + SLICE_S)
        if work is Work.NONE:
            self.drawn.emit()
        else:
            self._timer.start(0 if work is Work.READY else LEXER_WAIT_MS)

    def _restyle(self) -> None:
        self.body.restyle()
        self._timer.start(0)
