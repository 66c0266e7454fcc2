"""Paints the backgrounds of code and the bars of quotes, and measures code blocks, tables and formulas."""

from PySide6.QtCore import QCoreApplication, QRect, QRectF, Qt
from PySide6.QtGui import QPainter, QTextDocument

from rdchat.ui.look.theme import RADIUS, SMALL, Theme
from rdchat.ui.transcript.markdown.blocks import Block, Kind
from rdchat.ui.transcript.markdown.document_writer import CodeSpan, DocumentWriter
from rdchat.ui.transcript.markdown.horizontal_scrolling import BAR_HEIGHT, WidePart
from rdchat.ui.transcript.markdown.text_formats import CODE_PAD, QUOTE_INDENT, code_header_height, list_indent

_MOST_BARS = 40  # of nested quotes
_BAR_BELOW_TEXT = 4  # so that it does not touch the letters


class Backgrounds:
    """Knows the places of one document's parts, in a viewport that shows it from its top."""

    def __init__(self, document: QTextDocument, writer: DocumentWriter, theme: Theme) -> None:
        self._document, self._writer, self._theme = document, writer, theme

    def paint(self, painter: QPainter, area: QRectF, width: int) -> None:
        """Draw the grounds of code, the bars of quotes, and rules, as far as they are in an area."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(self._theme.colors.border)
        painter.setBrush(self._theme.colors.code)
        for span in self._writer.code_spans.values():
            ground = self.code(span, width)
            if ground.intersects(area):
                painter.drawRoundedRect(ground.adjusted(0.5, 0.5, -0.5, -0.5), RADIUS - 2, RADIUS - 2)
        painter.setPen(Qt.PenStyle.NoPen)
        self._paint_bars(painter, area, width)

    def _paint_bars(self, painter: QPainter, area: QRectF, width: int) -> None:
        painter.setBrush(self._theme.colors.border)
        blocks = self._writer.blocks()
        for index, each in enumerate(blocks):
            if each.kind is Kind.TABLE or not (each.quotes or each.kind is Kind.RULE):
                continue
            block = self._writer.text_block(index)
            rect = self._document.documentLayout().blockBoundingRect(block)
            look = block.blockFormat()
            if not rect.adjusted(0, -look.topMargin() - CODE_PAD, width, 0).intersects(area):
                continue
            above = blocks[index - 1].quotes if index else 0
            for depth, left in enumerate(self._bars(each)):
                top = rect.top() - (look.topMargin() + CODE_PAD / 2 if depth < above else 0)  # no gap between bars
                bar = QRectF(left, top, 3, rect.bottom() - top)
                painter.drawRoundedRect(bar, 1.5, 1.5)
            if each.kind is Kind.RULE:
                painter.drawRect(QRectF(look.leftMargin(), rect.center().y(), width - look.leftMargin(), 1))

    def _bars(self, block: Block) -> list[int]:
        """Return where the bars of the quotes stand that a block is in."""
        if not block.nesting:
            return [depth * QUOTE_INDENT for depth in range(min(block.quotes, _MOST_BARS))]
        left, bars = 0, []
        for each in block.nesting[:_MOST_BARS]:
            if each == "q":
                bars.append(left)
            left += QUOTE_INDENT if each == "q" else list_indent(self._theme)
        return bars

    def code(self, span: CodeSpan, width: int) -> QRectF:
        """Return the ground of a code block, its header included."""
        layout = self._document.documentLayout()
        first = layout.blockBoundingRect(self._writer.text_block(span.first))
        last = layout.blockBoundingRect(self._writer.text_block(span.last))
        left = self._writer.left(self._writer.blocks()[span.first])
        top = first.top() - code_header_height(self._theme)
        return QRectF(left, top, width - left, last.bottom() + CODE_PAD - top)

    # --- what may be wider than the column

    def wide_parts(self, width: int, first: int) -> dict[int, WidePart]:
        """Return what may be wider than its place and does not end before the block `first`, by its first block."""
        spans = [span for span in self._writer.code_spans.values() if span.last >= first]
        parts = {span.first: self._wide_code(span, width) for span in spans}
        for rows in self._tables():
            if rows[-1] >= first:
                parts[rows[0]] = self._wide_table(rows, width)
        for index, needed in self._writer.formulas.items():
            # most are known to be narrow: asking the layout of each took 20 ms for 400 of them
            if index >= first and (needed is None or needed > self._room(index, width)):
                parts[index] = self._wide_formula(index, width)
        return parts

    def room_below(self, width: int) -> int:
        """Return how much room the last block needs below its text."""
        last = len(self._writer.blocks()) - 1
        wide = last in self._writer.formulas and (self._writer.formulas[last] or 0.0) > self._room(last, width)
        return CODE_PAD if wide or (last >= 0 and self._writer.blocks()[last].code >= 0) else 0

    def _room(self, index: int, width: int) -> int:
        """Return how wide a formula may be that surely fits into its block."""
        return width - self._writer.left(self._writer.blocks()[index]) - 2 * list_indent(self._theme)

    def _wide_formula(self, index: int, width: int) -> WidePart:
        block = self._writer.text_block(index)
        rect = self._document.documentLayout().blockBoundingRect(block).toRect()
        layout, left = block.layout(), round(block.blockFormat().leftMargin())
        area = QRect(left, rect.top(), width - left, rect.height())
        lines = (layout.lineAt(number) for number in range(layout.lineCount()))
        needed = round(max((line.naturalTextWidth() for line in lines), default=0.0))
        below = 0 if self._writer.blocks()[index].kind is Kind.MATHS else _BAR_BELOW_TEXT
        return WidePart(_tr("Scroll formula sideways"), area, needed, area.bottom() - 1 + below)

    def _wide_code(self, span: CodeSpan, width: int) -> WidePart:
        ground = self.code(span, width).toRect()
        header = code_header_height(self._theme)
        area = ground.adjusted(1, header - 1, -1, -1)
        longest = self._writer.text_block(span.longest)
        line = longest.layout().lineAt(0)
        text = line.naturalTextWidth() + line.x() if line.isValid() else 0.0
        needed = text + 2 * CODE_PAD if longest.blockFormat().nonBreakableLines() else 0.0
        return WidePart(_tr("Scroll code sideways"), area, round(needed), ground.bottom() - BAR_HEIGHT)

    def _tables(self) -> list[list[int]]:
        """Return the places of each table's parts."""
        tables: list[list[int]] = []
        for index in self._writer.tables:
            if tables and self._writer.blocks()[index].joined and tables[-1][-1] == index - 1:
                tables[-1].append(index)
            else:
                tables.append([index])
        return tables

    def _wide_table(self, parts: list[int], width: int) -> WidePart:
        table, bottom_table = self._writer.tables[parts[0]], self._writer.tables[parts[-1]]
        layout = self._document.documentLayout()
        first = layout.blockBoundingRect(table.cellAt(0, 0).firstCursorPosition().block())
        bottom, right = first.bottom(), first.right()
        for column in range(table.columns()):
            lowest = bottom_table.cellAt(bottom_table.rows() - 1, column)
            last = layout.blockBoundingRect(lowest.lastCursorPosition().block())
            bottom, right = max(bottom, last.bottom()), max(right, last.right())
        edge = SMALL + 2  # a cell's padding and border
        left = round(first.left()) - edge
        area = QRect(left, round(first.top()) - edge, width - left, round(bottom - first.top()) + 2 * edge)
        return WidePart(_tr("Scroll table sideways"), area, round(right) + edge - left, area.bottom())


def _tr(text: str) -> str:
    return QCoreApplication.translate("Backgrounds", text)
