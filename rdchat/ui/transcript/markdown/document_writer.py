"""Writes blocks into a QTextDocument, and rewrites them from the first one that differs.

Each `Block` but a table is one block of the document; a table is a frame. Indices are those of the list of blocks, and
positions are in UTF-16 units, as Qt counts.
"""

from collections.abc import Iterable
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

from rdchat.ui.style import ALIGNMENTS, Theme, text_look
from rdchat.ui.transcript.markdown.blocks import Block, Cell, Kind, Run, columns_of, formulas_of
from rdchat.ui.transcript.markdown.text_formats import (
    FORMULAS,
    OBJECT,
    TextFormats,
    column_step,
    formula_format,
    is_drawn,
    is_right_to_left,
    run_of,
)


@dataclass(frozen=True, slots=True)
class CodeSpan:
    """A code block in the document, with the indices of its first, last and longest line among the blocks."""

    first: int
    last: int
    longest: int
    language: str


class DocumentWriter:
    """Makes a document equal to a list of blocks, and keeps where each block stands in it.

    Attributes:
        blocks: The blocks that are written.
        formats: The text formats of the theme.
        code_spans: The code blocks by their numbers.
        tables: The tables by the indices of their blocks.
        wrapped: The numbers of the code blocks whose long lines are broken.
        undrawn: The indices of the blocks with formulas that are not drawn yet.
    """

    def __init__(self, document: QTextDocument, theme: Theme, muted: bool) -> None:
        self._document = document
        self._theme = theme
        self._muted = muted
        self.blocks: list[Block] = []
        # Where the text of each block starts, in the document.
        self._starts: list[int] = []
        self.code_spans: dict[int, CodeSpan] = {}
        self.tables: dict[int, QTextTable] = {}
        self.wrapped: set[int] = set()
        self.undrawn: list[int] = []
        # Whether drawing a formula has failed, until `draw_formulas` reports it.
        self._some_cannot_be_drawn = False
        # The width that tables are fitted into, and the widths that each table's columns would have without it.
        self._column_width = 0.0
        self._preferred_widths: dict[int, list[float]] = {}
        self.restyle()

    def restyle(self) -> None:
        """Take fonts and colours from the theme, and start with an empty document."""
        for contents in (self.blocks, self._starts, self.code_spans, self.tables, self._preferred_widths, self.undrawn):
            contents.clear()
        self._document.clear()
        self.formats = TextFormats(self._theme, self._muted)
        self._document.setIndentWidth(1)
        self._document.setDefaultFont(self._theme.body_font())
        self._document.setDefaultTextOption(self.formats.text_option())

    def text_block(self, index: int) -> QTextBlock:
        """Return the document's block of a block that is not a table."""
        return self._document.findBlock(self._starts[index])

    def code_lines(self, number: int, begin: int = 0, end: int | None = None) -> list[str]:
        """Return the lines of a code block from a number on, up to the block at the index `end`.

        An overlong line comes in several parts.
        """
        span = self.code_spans[number]
        blocks = self.blocks[span.first + begin : span.last + 1 if end is None else end]
        return ["".join(run.text for run in block.runs) for block in blocks]

    def code_text(self, number: int) -> str:
        """Return the text of a code block."""
        lines = zip(self.blocks[self.code_spans[number].first :], self.code_lines(number), strict=False)
        return "".join(line if block.joined else f"\n{line}" for block, line in lines).removeprefix("\n")

    def spans(self) -> list[tuple[int, int]]:
        """Return the positions in the document at which each block begins and ends."""
        return [(start, self._end(index)) for index, start in enumerate(self._starts)]

    def _end(self, index: int) -> int:
        """Return the position at which a block ends; `_truncate` removes the document from there on."""
        following = index + 1
        if following == len(self.blocks):
            return self._document.characterCount() - 1
        # A line break stands between two paragraphs, and nothing beside a table.
        touches_table = Kind.TABLE in {self.blocks[index].kind, self.blocks[following].kind}
        return self._starts[following] - (0 if touches_table else 1)

    def write_blocks(self, first: int, blocks: list[Block], more: bool) -> None:
        """Make the blocks from `first` on equal to `blocks`.

        With `more` to come, old blocks behind those stay, as the next call may find them equal.
        """
        # The number of blocks that are written already.
        same = 0
        old = self.blocks
        while same < len(blocks) and first + same < len(old) and old[first + same] == blocks[same]:
            same += 1
        if same == len(blocks) and (more or first + same == len(old)):
            return
        cursor = QTextCursor(self._document)
        cursor.beginEditBlock()
        self._truncate(cursor, first + same)
        for block in blocks[same:]:
            self._append(cursor, block)
        if first == 0:
            self._leave_room_above()
        cursor.endEditBlock()

    def _leave_room_above(self) -> None:
        """Set the distance of the first block from the document's top."""
        frame = self._document.rootFrame()
        look = frame.frameFormat()
        room = self.formats.room_above(self.blocks[0] if self.blocks else None)
        if look.topMargin() != room:
            look.setTopMargin(room)
            frame.setFrameFormat(look)

    def _truncate(self, cursor: QTextCursor, count: int) -> None:
        """Remove all blocks but the first `count`."""
        if count >= len(self.blocks):
            return
        cursor.setPosition(self._end(count - 1) if count else 0)
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        del self.blocks[count:], self._starts[count:]
        if count - 1 in self.tables:
            self._leave_room_below_table(None)
        elif self.blocks:
            # Qt gives an empty block the format of the block that was removed after it
            cursor.setBlockFormat(self._block_format(self.blocks[-1], count - 1))
        self.undrawn = [index for index in self.undrawn if index < count]
        for index in [index for index in self.tables if index >= count]:
            del self.tables[index], self._preferred_widths[index]
        for number, span in list(self.code_spans.items()):
            if span.first >= count:
                del self.code_spans[number]
            elif span.last >= count:
                lines = range(span.first, count)
                longest = span.longest if span.longest < count else self._longest(lines)
                self.code_spans[number] = replace(span, last=count - 1, longest=longest)

    def _longest(self, lines: Iterable[int]) -> int:
        """Return the index of the longest of some lines of code."""
        return max(lines, key=lambda index: columns_of(self.blocks[index]))

    def _append(self, cursor: QTextCursor, block: Block) -> None:
        cursor.movePosition(QTextCursor.MoveOperation.End)
        index = len(self.blocks)
        after_table = index > 0 and self.blocks[-1].kind is Kind.TABLE
        if after_table:
            self._leave_room_below_table(block)
        if block.kind is Kind.TABLE:
            self._starts.append(cursor.position())
            if block.joined and after_table:
                # Qt puts an empty line between a table and its next rows, which are a table of their own: hide it.
                narrow = QTextBlockFormat()
                narrow.setLineHeight(0.01, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
                cursor.setBlockFormat(narrow)
            self._insert_table(cursor, block)
        else:
            block_format = self._block_format(block, index)
            # An empty block is there already.
            if index == 0 or after_table:
                cursor.setBlockFormat(block_format)
            else:
                cursor.insertBlock(block_format, self.formats.char_format(block, Run("")))
            self._starts.append(cursor.position())
            self._insert_runs(cursor, block, index)
        self.blocks.append(block)
        if block.code >= 0:
            span = self.code_spans.get(block.code) or CodeSpan(index, index, index, block.language)
            longest = self._longest((span.longest, index))
            self.code_spans[block.code] = replace(span, last=index, longest=longest)

    def _leave_room_below_table(self, below: Block | None) -> None:
        """Set the distance of the last table from the block below it."""
        table = self.tables[len(self.blocks) - 1]
        look = table.format().toTableFormat()
        room = self.formats.room_below_table(below)
        if look.bottomMargin() != room:
            look.setBottomMargin(room)
            table.setFormat(look)

    def _block_format(self, block: Block, index: int) -> QTextBlockFormat:
        above = self.blocks[index - 1] if index else None
        return self.formats.block_format(block, above, block.code in self.wrapped)

    def _insert_runs(self, cursor: QTextCursor, block: Block, index: int) -> None:
        for run in (Run(f"{block.marker}\t"), *block.runs) if block.marker else block.runs:
            look = self.formats.char_format(block, run)
            if not run.maths:
                cursor.insertText(run.text.replace("\n", "\u2028"), look)
                continue
            formula = formula_format(run, look)
            cursor.insertText(OBJECT, formula)
            if not is_drawn(formula) and index not in self.undrawn[-1:]:
                self.undrawn.append(index)

    def _insert_table(self, cursor: QTextCursor, block: Block) -> None:
        index = len(self.blocks)
        if not _are_known(block):
            # The columns are measured now: even if the formulas are drawn until the cells are filled, measure again.
            self.undrawn.append(index)
        self._measure_columns(index, block)
        mirrored = self._is_mirrored(block)
        step = -1 if mirrored else 1
        look = self.formats.table_format(block, self.blocks[-1] if self.blocks else None, mirrored=mirrored)
        look.setColumnWidthConstraints(self._column_lengths(index, block)[::step])
        table = cursor.insertTable(len(block.rows), len(block.alignments), look)
        alignments = [each or ("right" if mirrored else "") for each in block.alignments[::step]]
        for row, cells in enumerate(block.rows):
            for column, cell in enumerate(cells[::step]):
                header = row == 0 and not block.joined
                self._fill_cell(table.cellAt(row, column), cell, alignments[column], header)
        self.tables[index] = table
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.setBlockFormat(QTextBlockFormat())

    def _is_mirrored(self, block: Block) -> bool:
        """Return whether a new table runs from the right, as its text does; rows that go on with one run as it does."""
        above = self.tables.get(len(self.blocks) - 1) if block.joined else None
        if above is not None:
            return column_step(above) < 0
        return is_right_to_left(run for row in block.rows for cell in row for run in cell)

    def _measure_columns(self, index: int, block: Block) -> None:
        """Set the preferred widths of a table's columns; rows that go on with a table have its widths."""
        above = self._preferred_widths.get(index - 1, []) if block.joined else []
        fits = len(above) == len(block.alignments)
        self._preferred_widths[index] = above if fits else self.formats.column_widths(block)

    def _column_lengths(self, index: int, block: Block) -> list[QTextLength]:
        """Return the widths that fit a table into the column, less the indent and the table's borders."""
        widths = self._preferred_widths[index]
        return self.formats.column_lengths(widths, self._column_width - self.formats.left(block) - len(widths) - 2)

    def fit_tables(self, width: float) -> bool:
        """Fit the tables into the column's width; return whether any of them changed."""
        if width == self._column_width:
            return False
        self._column_width = width
        changed = [self._fit_table(index) for index in self.tables]
        return any(changed)

    def _fit_table(self, index: int) -> bool:
        table = self.tables[index]
        look = table.format().toTableFormat()
        lengths = self._column_lengths(index, self.blocks[index])[:: column_step(table)]
        if look.columnWidthConstraints() == lengths:
            return False
        look.setColumnWidthConstraints(lengths)
        table.setFormat(look)
        return True

    def draw_formulas(self) -> tuple[int | None, bool]:
        """Show the formulas of a block once drawing each of them was tried.

        Returns:
            The block's index, or None if none is ready; and, once no block waits, whether any formula cannot be drawn.
        """
        index = next((index for index in self.undrawn if _are_known(self.blocks[index])), None)
        if index is None:
            return None, False
        self.undrawn.remove(index)
        end = self._end(index)
        cursor = QTextCursor(self._document)
        cursor.beginEditBlock()
        formula = self._document.find(OBJECT, self._starts[index])
        while not formula.isNull() and formula.position() <= end:
            run = run_of(formula.charFormat())
            self._some_cannot_be_drawn |= FORMULAS.cannot_draw(run.maths, run.display)
            formula.setCharFormat(formula_format(run, formula.charFormat()))
            formula = self._document.find(OBJECT, formula)
        cursor.endEditBlock()
        if index in self.tables:
            self._measure_columns(index, self.blocks[index])
            self._fit_table(index)
        if self.undrawn:
            return index, False
        failed = self._some_cannot_be_drawn
        self._some_cannot_be_drawn = False
        return index, failed

    def toggle_wrapping(self, number: int) -> None:
        """Break a code block's long lines, or let them run on again."""
        self.wrapped ^= {number}
        span = self.code_spans[number]
        cursor = QTextCursor(self.text_block(span.first))
        cursor.setPosition(self.text_block(span.last).position(), QTextCursor.MoveMode.KeepAnchor)
        look = QTextBlockFormat()
        look.setNonBreakableLines(number not in self.wrapped)
        cursor.mergeBlockFormat(look)

    def _fill_cell(self, cell: QTextTableCell, runs: Cell, alignment: str, header: bool) -> None:
        cursor = cell.firstCursorPosition()
        look = QTextBlockFormat()
        if alignment in ALIGNMENTS:
            # Otherwise, left is right in a cell whose text runs from the right.
            look.setAlignment(ALIGNMENTS[alignment] | Qt.AlignmentFlag.AlignAbsolute)
        cursor.setBlockFormat(look)
        self._insert_runs(cursor, Block(Kind.TABLE, runs, level=int(header)), len(self.blocks))
        if header:
            cell.setFormat(text_look(ground=self._theme.colors.code))


def _are_known(block: Block) -> bool:
    """Whether drawing was tried for each formula of a block; the first one that is new is asked for."""
    return all(FORMULAS.is_known(run.maths, run.display) for run in formulas_of(block))
