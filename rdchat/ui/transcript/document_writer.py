"""Writes blocks into a QTextDocument, touching only what differs from what stands there."""

from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import (
    QBrush,
    QFont,
    QFontMetricsF,
    QTextBlock,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextFrameFormat,
    QTextLength,
    QTextOption,
    QTextTable,
    QTextTableFormat,
)

from rdchat.ui.theme import MEDIUM, SMALL, Theme
from rdchat.ui.transcript.blocks import Block, Cell, Kind, Run
from rdchat.ui.transcript.metrics import CODE_PAD, INDENT, QUOTE_INDENT, code_header_height

QUOTES = int(QTextFormat.Property.UserProperty) + 1  # block property: how many quotes it stands in
RULE = QUOTES + 1  # block property: a rule is drawn in its place

_HEADING_SIZES = (1.5, 1.28, 1.12, 1.0, 1.0, 1.0)
_LINE_HEIGHT, _CODE_LINE_HEIGHT = 122.0, 116.0  # percent of the font's own
_ALIGNMENTS = {
    "left": Qt.AlignmentFlag.AlignLeft,
    "center": Qt.AlignmentFlag.AlignHCenter,
    "right": Qt.AlignmentFlag.AlignRight,
}


@dataclass(frozen=True, slots=True)
class CodeSpan:
    """A code block in the document: places of its first and last line among the blocks."""

    first: int
    last: int
    language: str


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
        self.restyle()

    def restyle(self) -> None:
        """Take fonts and colours from the theme, and start with an empty document."""
        self._blocks.clear()
        self._places.clear()
        self.code_spans.clear()
        self._document.clear()
        self._body_font = self._theme.body_font()
        self._code_font = self._theme.code_font()
        colors = self._theme.colors
        self._text_color = colors.muted if self._muted else colors.text
        self._line = QFontMetricsF(self._body_font).height()
        self._document.setDefaultFont(self._body_font)
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        option.setTabStopDistance(QFontMetricsF(self._code_font).horizontalAdvance(" ") * 4)
        self._document.setDefaultTextOption(option)

    def blocks(self) -> list[Block]:
        return self._blocks

    def text_block(self, index: int) -> QTextBlock:
        """Return the document's block of a block that is not a table."""
        return self._document.findBlock(self._places[index].start)

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
        if same < len(blocks) and at < len(old) and _differ_in_runs(old[at], blocks[same]):
            self._truncate(cursor, at + 1)
            self._rewrite(cursor, at, blocks[same])
            same += 1
        else:
            self._truncate(cursor, at)
        for block in blocks[same:]:
            self._append(cursor, block)
        cursor.endEditBlock()

    def _truncate(self, cursor: QTextCursor, count: int) -> None:
        if count >= len(self._blocks):
            return
        cursor.setPosition(self._places[count].cut)
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        del self._blocks[count:], self._places[count:]
        if self._blocks and self._blocks[-1].kind is not Kind.TABLE:
            # Qt gives an empty block the format of the block that was removed after it
            cursor.setBlockFormat(self._block_format(self._blocks[-1], count == 1))
        for number, span in list(self.code_spans.items()):
            if span.first >= count:
                del self.code_spans[number]
            elif span.last >= count:
                self.code_spans[number] = replace(span, last=count - 1)

    def _append(self, cursor: QTextCursor, block: Block) -> None:
        cursor.movePosition(QTextCursor.MoveOperation.End)
        end = cursor.position()
        index = len(self._blocks)
        reuse = index == 0 or self._blocks[-1].kind is Kind.TABLE  # an empty block stands there already
        if block.kind is Kind.TABLE:
            self._places.append(_Place(end, end))
            self._insert_table(cursor, block)
        else:
            block_format = self._block_format(block, index == 0)
            if reuse:
                cursor.setBlockFormat(block_format)
            else:
                cursor.insertBlock(block_format, self._char_format(block, Run("")))
            self._places.append(_Place(cursor.position(), end))
            self._insert_runs(cursor, block, self._all_runs(block))
        self._blocks.append(block)
        if block.code >= 0:
            span = self.code_spans.get(block.code)
            self.code_spans[block.code] = CodeSpan(span.first if span else index, index, block.language)

    def _rewrite(self, cursor: QTextCursor, index: int, block: Block) -> None:
        """Replace the end of the last block's text, from the first character that differs."""
        old, new = self._all_runs(self._blocks[index]), self._all_runs(block)
        kept, length = 0, 0
        while kept < min(len(old), len(new)) and old[kept] == new[kept]:
            length += _length(new[kept])
            kept += 1
        rest = new[kept:]
        if kept < min(len(old), len(new)) and replace(old[kept], text=new[kept].text) == new[kept]:
            common = _common(old[kept].text, new[kept].text)
            length += _length(replace(old[kept], text=old[kept].text[:common]))
            rest = (replace(new[kept], text=new[kept].text[common:]), *new[kept + 1 :])
        cursor.setPosition(self._places[index].start + length)
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        self._insert_runs(cursor, block, rest)
        self._blocks[index] = block

    def _all_runs(self, block: Block) -> tuple[Run, ...]:
        return (Run(f"{block.marker}\t"), *block.runs) if block.marker else block.runs

    def _insert_runs(self, cursor: QTextCursor, block: Block, runs: tuple[Run, ...]) -> None:
        for run in runs:
            cursor.insertText(run.text.replace("\n", "\u2028"), self._char_format(block, run))

    def _block_format(self, block: Block, top: bool) -> QTextBlockFormat:
        look = QTextBlockFormat()
        code = block.kind is Kind.CODE
        line_height = _CODE_LINE_HEIGHT if code else _LINE_HEIGHT
        look.setLineHeight(line_height, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        left = block.indent * INDENT + block.quotes * QUOTE_INDENT
        above = 0.0 if top else self._space_above(block)
        if code:
            left += CODE_PAD
            look.setRightMargin(CODE_PAD)
            look.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
            above += 0 if block.tight else code_header_height(self._theme)
        if block.marker:
            look.setTextIndent(-INDENT)
            look.setTabPositions([QTextOption.Tab(INDENT, QTextOption.TabType.LeftTab)])
        look.setLeftMargin(left)
        look.setTopMargin(above)
        if block.quotes:
            look.setProperty(QUOTES, block.quotes)
        if block.kind is Kind.RULE:
            look.setProperty(RULE, True)
        return look

    def _space_above(self, block: Block) -> float:
        if block.kind is Kind.CODE:
            space = 0.0 if block.tight else 0.6
        elif block.kind is Kind.HEADING:
            space = 1.1 if block.level <= 2 else 0.9
        elif block.tight:
            space = 0.2 if block.indent else 0.0
        elif block.indent and block.marker and self._blocks and self._blocks[-1].indent:
            space = 0.4
        else:
            space = 0.6
        after_code = CODE_PAD if self._blocks and self._blocks[-1].kind is Kind.CODE else 0
        return round(space * self._line) + (0 if block.kind is Kind.CODE and block.tight else after_code)

    def _char_format(self, block: Block, run: Run) -> QTextCharFormat:
        look = QTextCharFormat()
        colors = self._theme.colors
        code = run.code or block.kind is Kind.CODE
        look.setFont(self._code_font if code else self._body_font)
        look.setForeground(colors.muted if block.quotes and not code else self._text_color)
        if block.kind is Kind.HEADING:
            look.setFontPointSize(self._theme.text_size * _HEADING_SIZES[block.level - 1])
            look.setFontWeight(QFont.Weight.DemiBold)
        if block.kind is Kind.TABLE and block.level:
            look.setFontWeight(QFont.Weight.DemiBold)
        if run.bold:
            look.setFontWeight(QFont.Weight.DemiBold)
        look.setFontItalic(run.italic)
        look.setFontStrikeOut(run.strike)
        if run.code:
            look.setBackground(colors.raised)
        if run.href:
            look.setAnchor(True)
            look.setAnchorHref(run.href)
            look.setForeground(colors.accent)
            look.setToolTip(run.href)
        if run.refused:
            look.setToolTip(QObject.tr("Not a link: only web and mail addresses are opened.\n%s") % run.refused[:200])
        return look

    def _insert_table(self, cursor: QTextCursor, block: Block) -> None:
        colors = self._theme.colors
        look = QTextTableFormat()
        look.setBorder(1)
        look.setBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
        look.setBorderBrush(QBrush(colors.border))
        look.setBorderCollapse(True)
        look.setCellPadding(SMALL)
        look.setCellSpacing(0)
        look.setTopMargin(round(0.6 * self._line) if self._blocks else 0)
        look.setLeftMargin(block.indent * INDENT + block.quotes * QUOTE_INDENT)
        look.setHeaderRowCount(1)
        look.setColumnWidthConstraints([QTextLength()] * len(block.alignments))
        table = cursor.insertTable(len(block.rows), len(block.alignments), look)
        for row, cells in enumerate(block.rows):
            for column, cell in enumerate(cells):
                self._fill_cell(table, row, column, cell, block.alignments[column])
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.setBlockFormat(QTextBlockFormat())

    def _fill_cell(self, table: QTextTable, row: int, column: int, runs: Cell, alignment: str) -> None:
        place = table.cellAt(row, column)
        cursor = place.firstCursorPosition()
        look = QTextBlockFormat()
        if alignment in _ALIGNMENTS:
            look.setAlignment(_ALIGNMENTS[alignment])
        cursor.setBlockFormat(look)
        self._insert_runs(cursor, Block(Kind.TABLE, level=1 if row == 0 else 0), runs)
        if row == 0:
            header = QTextCharFormat()
            header.setBackground(self._theme.colors.code)
            place.setFormat(header)


def _differ_in_runs(old: Block, new: Block) -> bool:
    return old.kind is not Kind.TABLE and replace(old, runs=new.runs) == new


def _common(one: str, other: str) -> int:
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    return next(place for place in range(shorter) if one[place] != other[place])


def _length(run: Run) -> int:
    """Return the run's length in the document, which counts UTF-16 units."""
    return len(run.text) + sum(character > "\uffff" for character in run.text)
