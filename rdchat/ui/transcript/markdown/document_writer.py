"""Writes blocks into a QTextDocument, from the first one that differs."""

from dataclasses import dataclass, replace

from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QTextBlock,
    QTextBlockFormat,
    QTextCursor,
    QTextDocument,
    QTextLength,
    QTextTable,
    QTextTableCell,
)

from rdchat.ui.style.theme import Theme
from rdchat.ui.transcript.markdown.blocks import Block, Cell, Kind, Run, columns_of, formulas_of
from rdchat.ui.transcript.markdown.formulas import FORMULAS, OBJECT, formula_format, is_drawn, run_of
from rdchat.ui.transcript.markdown.text_formats import TextFormats

_ALIGNMENTS = {
    "left": Qt.AlignmentFlag.AlignLeft,
    "center": Qt.AlignmentFlag.AlignHCenter,
    "right": Qt.AlignmentFlag.AlignRight,
}


@dataclass(frozen=True, slots=True)
class CodeSpan:
    """A code block in the document; its lines are numbered among the blocks."""

    first: int
    last: int
    longest: int
    language: str  # as it is written


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a block stands: its text starts at `start`; to remove it and all after it, cut at `cut`."""

    start: int
    cut: int


class DocumentWriter:
    """Keeps a document equal to a list of blocks."""

    def __init__(self, document: QTextDocument, theme: Theme, muted: bool = False) -> None:
        self._document = document
        self._theme = theme
        self._muted = muted
        self._blocks: list[Block] = []
        self._places: list[_Place] = []
        self.code_spans: dict[int, CodeSpan] = {}
        self.tables: dict[int, QTextTable] = {}  # by block
        self.wrapped: set[int] = set()  # code blocks whose long lines are broken
        self._undrawn: list[int] = []  # blocks with formulas that are not drawn yet
        self._failed = False  # some formulas cannot be drawn
        self._width = 0.0  # of the column
        self._columns: dict[int, list[float]] = {}  # by table, the preferred widths of its columns
        self.restyle()

    def restyle(self) -> None:
        """Take fonts and colours from the theme, and start with an empty document."""
        self._blocks.clear()
        self._places.clear()
        for known in (self.code_spans, self.tables, self._columns, self._undrawn):
            known.clear()
        self._document.clear()
        self._formats = TextFormats(self._theme, self._muted)
        self._document.setIndentWidth(1)
        self._document.setDefaultFont(self._theme.body_font())
        self._document.setDefaultTextOption(self._formats.text_option())

    def blocks(self) -> list[Block]:
        return self._blocks

    def text_block(self, index: int) -> QTextBlock:
        """Return the document's block of a block that is not a table."""
        return self._document.findBlock(self._places[index].start)

    def left(self, block: Block) -> int:
        """Return how far from the left a block stands."""
        return self._formats.left(block)

    def code_lines(self, number: int, begin: int = 0, end: int | None = None) -> list[str]:
        """Return the lines of a code block, an overlong one in several parts, or some of them up to a block's place."""
        span = self.code_spans[number]
        blocks = self._blocks[span.first + begin : span.last + 1 if end is None else end]
        return ["".join(run.text for run in block.runs) for block in blocks]

    def code_text(self, number: int) -> str:
        """Return the text of a code block."""
        lines = zip(self._blocks[self.code_spans[number].first :], self.code_lines(number), strict=False)
        return "".join(line if block.joined else f"\n{line}" for block, line in lines).removeprefix("\n")

    def spans(self) -> list[tuple[int, int]]:
        """Return where each block begins and ends in the document."""
        ends = [*(place.cut for place in self._places[1:]), self._document.characterCount() - 1]
        return [(place.start, end) for place, end in zip(self._places, ends[: len(self._places)], strict=True)]

    def update(self, first: int, blocks: list[Block], more: bool) -> None:
        """Make the blocks from `first` on equal to `blocks`; with `more` to come, equal ones beyond them may stay."""
        same = 0
        old = self._blocks
        while same < len(blocks) and first + same < len(old) and old[first + same] == blocks[same]:
            same += 1
        at = first + same
        if same == len(blocks) and (more or at == len(old)):
            return
        cursor = QTextCursor(self._document)
        cursor.beginEditBlock()
        self._truncate(cursor, at)
        for block in blocks[same:]:
            self._append(cursor, block)
        if first == 0:
            self._leave_room_above()
        cursor.endEditBlock()

    def _leave_room_above(self) -> None:
        frame = self._document.rootFrame()
        look, room = frame.frameFormat(), self._formats.room_above(self._blocks[0] if self._blocks else None)
        if look.topMargin() != room:
            look.setTopMargin(room)
            frame.setFrameFormat(look)

    def _truncate(self, cursor: QTextCursor, count: int) -> None:
        if count >= len(self._blocks):
            return
        cursor.setPosition(self._places[count].cut)
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        del self._blocks[count:], self._places[count:]
        if count - 1 in self.tables:
            self._leave_room_below_table(None)
        elif self._blocks:
            # Qt gives an empty block the format of the block that was removed after it
            cursor.setBlockFormat(self._block_format(self._blocks[-1], count - 1))
        self._undrawn = [index for index in self._undrawn if index < count]
        for index in [index for index in self.tables if index >= count]:
            del self.tables[index], self._columns[index]
        for number, span in list(self.code_spans.items()):
            if span.first >= count:
                del self.code_spans[number]
            elif span.last >= count:
                lines = range(span.first, count)
                longest = span.longest if span.longest < count else max(lines, key=self._columns_of)
                self.code_spans[number] = replace(span, last=count - 1, longest=longest)

    def _columns_of(self, index: int) -> int:
        return columns_of(self._blocks[index])

    def _append(self, cursor: QTextCursor, block: Block) -> None:
        cursor.movePosition(QTextCursor.MoveOperation.End)
        end = cursor.position()
        index = len(self._blocks)
        after_table = index > 0 and self._blocks[-1].kind is Kind.TABLE
        reuse = index == 0 or after_table  # an empty block stands there already
        if after_table:
            self._leave_room_below_table(block)
        if block.kind is Kind.TABLE:
            self._places.append(_Place(end, end))
            if block.joined and after_table:
                cursor.setBlockFormat(self._formats.seam())
            self._insert_table(cursor, block)
        else:
            block_format = self._block_format(block, index)
            if reuse:
                cursor.setBlockFormat(block_format)
            else:
                cursor.insertBlock(block_format, self._formats.char_format(block, Run("")))
            self._places.append(_Place(cursor.position(), end))
            self._insert_runs(cursor, block, index)
        self._blocks.append(block)
        if block.code >= 0:
            span = self.code_spans.get(block.code) or CodeSpan(index, index, index, block.language)
            longest = max(span.longest, index, key=self._columns_of)
            self.code_spans[block.code] = replace(span, last=index, longest=longest)

    def _leave_room_below_table(self, below: Block | None) -> None:
        """Set the distance of the last table from the block below it."""
        table = self.tables[len(self._blocks) - 1]
        look, room = table.format().toTableFormat(), self._formats.room_below_table(below)
        if look.bottomMargin() != room:
            look.setBottomMargin(room)
            table.setFormat(look)

    def _block_format(self, block: Block, index: int) -> QTextBlockFormat:
        above = self._blocks[index - 1] if index else None
        return self._formats.block_format(block, above, block.code in self.wrapped)

    def _insert_runs(self, cursor: QTextCursor, block: Block, index: int) -> None:
        for run in (Run(f"{block.marker}\t"), *block.runs) if block.marker else block.runs:
            look = self._formats.char_format(block, run)
            if not run.maths:
                cursor.insertText(run.text.replace("\n", "\u2028"), look)
                continue
            formula = formula_format(run, look)
            cursor.insertText(OBJECT, formula)
            if not is_drawn(formula) and index not in self._undrawn[-1:]:
                self._undrawn.append(index)

    def _insert_table(self, cursor: QTextCursor, block: Block) -> None:
        index = len(self._blocks)
        if not _are_known(block):
            self._undrawn.append(index)  # also if they are drawn by the time that their cells are filled
        self._columns[index] = self._preferred_widths(index, block)
        look = self._formats.table_format(block, self._blocks[-1] if self._blocks else None)
        look.setColumnWidthConstraints(self._column_lengths(index, block))
        table = cursor.insertTable(len(block.rows), len(block.alignments), look)
        for row, cells in enumerate(block.rows):
            for column, cell in enumerate(cells):
                header = row == 0 and not block.joined
                self._fill_cell(table.cellAt(row, column), cell, block.alignments[column], header)
        self.tables[index] = table
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.setBlockFormat(QTextBlockFormat())

    def _preferred_widths(self, index: int, block: Block) -> list[float]:
        above = self._columns.get(index - 1) if block.joined else None
        return above if above and len(above) == len(block.alignments) else self._formats.column_widths(block)

    def _column_lengths(self, index: int, block: Block) -> list[QTextLength]:
        wanted = self._columns[index]
        return self._formats.column_lengths(wanted, self._width - self._formats.left(block) - len(wanted) - 2)

    def fit_tables(self, width: float) -> bool:
        """Fit the tables into the column's width; return whether any of them changed."""
        if width == self._width:
            return False
        self._width = width
        return sum(self._fit_table(index) for index in self.tables) > 0

    def _fit_table(self, index: int) -> bool:
        table = self.tables[index]
        look, lengths = table.format().toTableFormat(), self._column_lengths(index, self._blocks[index])
        if look.columnWidthConstraints() == lengths:
            return False
        look.setColumnWidthConstraints(lengths)
        table.setFormat(look)
        return True

    @property
    def waits_for_formulas(self) -> bool:
        """Whether some formulas are not drawn yet."""
        return bool(self._undrawn)

    def draw_formulas(self) -> tuple[int | None, bool]:
        """Show the formulas of a block once drawing each of them was tried.

        Returns:
            The block's place, or None if none is ready; and, once no block waits, whether any formula cannot be drawn.
        """
        index = next((index for index in self._undrawn if _are_known(self._blocks[index])), None)
        if index is None:
            return None, False
        self._undrawn.remove(index)
        following = self._places[index + 1 : index + 2]
        end = following[0].cut if following else self._document.characterCount()
        cursor = QTextCursor(self._document)
        cursor.beginEditBlock()
        place = self._document.find(OBJECT, self._places[index].start)
        while not place.isNull() and place.position() <= end:
            run = run_of(place.charFormat())
            self._failed |= FORMULAS.cannot_draw(run.maths, run.display)
            place.setCharFormat(formula_format(run, place.charFormat()))
            place = self._document.find(OBJECT, place)
        cursor.endEditBlock()
        if index in self.tables:
            self._columns[index] = self._preferred_widths(index, self._blocks[index])
            self._fit_table(index)
        failed = self._failed and not self._undrawn
        self._failed = self._failed and not failed
        return index, failed

    def set_wrapped(self, number: int, wrapped: bool) -> None:
        """Break a code block's long lines, or let them run on."""
        (self.wrapped.add if wrapped else self.wrapped.discard)(number)
        span = self.code_spans[number]
        cursor = QTextCursor(self.text_block(span.first))
        cursor.setPosition(self.text_block(span.last).position(), QTextCursor.MoveMode.KeepAnchor)
        look = QTextBlockFormat()
        look.setNonBreakableLines(not wrapped)
        cursor.mergeBlockFormat(look)

    def _fill_cell(self, place: QTextTableCell, runs: Cell, alignment: str, header: bool) -> None:
        cursor = place.firstCursorPosition()
        look = QTextBlockFormat()
        if alignment in _ALIGNMENTS:
            look.setAlignment(_ALIGNMENTS[alignment])
        cursor.setBlockFormat(look)
        self._insert_runs(cursor, Block(Kind.TABLE, runs, level=int(header)), len(self._blocks))
        if header:
            place.setFormat(self._formats.header_cell_format())


def _are_known(block: Block) -> bool:
    """Whether drawing was tried for each formula of a block."""
    return all(FORMULAS.is_known(run.maths, run.display) for run in formulas_of(block))
