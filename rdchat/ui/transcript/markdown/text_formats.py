"""Makes Qt's text formats of blocks and runs, in the theme's fonts and colours, and draws formulas as pictures.

A formula is one character of the document, whose format has its TeX, its source and its size. A child process makes the
picture; until it is there, or if it cannot be made, the source is shown. Distances are in device-independent pixels.
"""

import unicodedata
from collections.abc import Iterable
from enum import IntEnum, auto
from functools import lru_cache
from math import ceil

from PySide6.QtCore import QObject, QRect, QRectF, QSizeF, Qt
from PySide6.QtGui import (
    QBrush,
    QFont,
    QFontInfo,
    QFontMetrics,
    QFontMetricsF,
    QPainter,
    QPyTextObject,
    QTextBlockFormat,
    QTextCharFormat,
    QTextDocument,
    QTextFormat,
    QTextFrameFormat,
    QTextLength,
    QTextOption,
    QTextTable,
    QTextTableFormat,
)

from rdchat.chat.rendering.formulas import INK, UNITS, Formula, FormulaDrawer
from rdchat.ui.style import MEDIUM, SMALL, TIGHT, Theme, control_font, draw_svg, set_tip
from rdchat.ui.transcript.markdown.blocks import Block, Cell, Kind, Run
from rdchat.work import Job, SerialThread

OBJECT = "\ufffc"
"""The character that stands for a formula."""
# Qt's number for the kind of object that the character is.
_KIND = QTextFormat.ObjectTypes.UserObject.value + 1
# Formulas are enlarged by this factor, because their font looks smaller than the system's.
_ENLARGED = 1.06
# The most that a formula hangs below the baseline.
_MAX_DEPTH = 120
# The width of the column that the indentation of a formula may take.
_MARGINS = 60
# The most pictures that are stored; the oldest goes first.
_MAX_PICTURES = 4000
QUOTE_INDENT = 16
CODE_PAD = MEDIUM
# The sizes of headings by level, relative to the body's.
_HEADING_SIZES = (1.5, 1.28, 1.12, 1.0, 1.0, 1.0)
# The margin above rows that continue a table: it removes the height of the empty line that Qt needs between them.
_JOINED_MARGIN = -4.0
# The height of a line of text and of code, in percent of the font's own.
_LINE_HEIGHT = 122.0
_CODE_LINE_HEIGHT = 116.0


class _Formula(IntEnum):
    """The properties of the character that stands for a formula, beside its font and colour."""

    TEX = QTextFormat.Property.UserProperty.value + 1
    DISPLAY = auto()
    SOURCE = auto()
    SCALE = auto()
    """Pixels for each unit of the picture; 0 while the source is shown in its place."""
    SIZE = auto()


class FormulaLibrary:
    """Pictures of formulas by their TeX. A text asks for them, and polls until they are drawn.

    Args:
        drawer: Draws one; used on the library's own thread alone.
    """

    def __init__(self, drawer: FormulaDrawer | None = None) -> None:
        self._drawer = drawer or FormulaDrawer()
        self._thread = SerialThread("formulas")
        # By TeX, and whether it stands on its own.
        self._jobs: dict[tuple[str, bool], Job[Formula | None]] = {}

    def is_known(self, tex: str, display: bool) -> bool:
        """Whether drawing it was tried; ask for it if it is new."""
        key = tex, display
        if key not in self._jobs:
            if len(self._jobs) > _MAX_PICTURES:
                del self._jobs[next(iter(self._jobs))]
            self._jobs[key] = self._thread.do(lambda job: self._drawer.draw_formula(tex, display, job.check_cancelled))
        return self._jobs[key].ended

    def find_picture(self, tex: str, display: bool) -> Formula | None:
        """Return a formula's picture; None before it is drawn, or if it cannot be."""
        return self._jobs[tex, display].result() if self.is_known(tex, display) else None

    def cannot_draw(self, tex: str, display: bool) -> bool:
        """Whether drawing it was tried and failed."""
        job = self._jobs.get((tex, display))
        return job is not None and job.ended and job.result() is None


FORMULAS = FormulaLibrary()
"""One for all texts: a picture is the same in each of them."""


def formula_format(run: Run, text: QTextCharFormat) -> QTextCharFormat:
    """Return the format of the character that stands for a formula among text of the format `text`.

    Its size is that of the picture, or of the source while there is no picture. `FormulaObject` draws it.
    """
    look = QTextCharFormat()
    look.setObjectType(_KIND)
    look.setForeground(text.foreground())
    look.setProperty(_Formula.TEX, run.maths)
    look.setProperty(_Formula.DISPLAY, run.display)
    look.setProperty(_Formula.SOURCE, run.text)
    font = text.font()
    scale = 0.0
    if formula := FORMULAS.find_picture(run.maths, run.display):
        scale = QFontInfo(font).pixelSize() * _ENLARGED / UNITS
        # A formula is at least as high as a line of text, also where it stands alone, as in a table.
        around = QFontMetrics(font)
        # Qt lets such a character hang below the baseline by as much as its font does.
        font = font_of_descent(max(around.descent(), ceil(formula.depth * scale)))
        height = max(around.ascent(), ceil(formula.ascent * scale)) + QFontMetrics(font).descent()
        size = QSizeF(formula.width * scale, height)
    else:
        metrics = QFontMetricsF(font)
        size = QSizeF(metrics.horizontalAdvance(run.text), metrics.height())
    look.setFont(font)
    look.setProperty(_Formula.SCALE, scale)
    look.setProperty(_Formula.SIZE, size)
    look.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignBaseline)
    return look


def is_drawn(look: QTextCharFormat) -> bool:
    """Whether a formula's character shows the formula, not its source."""
    return look.doubleProperty(_Formula.SCALE) > 0


def run_of(look: QTextCharFormat) -> Run:
    """Return the formula that a character stands for."""
    source = look.stringProperty(_Formula.SOURCE) or OBJECT
    display = look.boolProperty(_Formula.DISPLAY)
    return Run(source, maths=look.stringProperty(_Formula.TEX), display=display)


@lru_cache(maxsize=256)
def font_of_descent(descent: int) -> QFont:
    """Return a font that hangs below the baseline by so many pixels."""
    font = QFont()
    font.setPixelSize(_MAX_DEPTH)
    share = QFontMetricsF(font).descent() / _MAX_DEPTH
    # Sizes far below are not measured: each takes Qt up to a millisecond.
    lowest = max(1, int((min(descent, _MAX_DEPTH) - 2) / max(share, 0.05)))
    for size in range(lowest, 20 * _MAX_DEPTH):
        font.setPixelSize(size)
        if QFontMetrics(font).descent() >= min(descent, _MAX_DEPTH):
            break
    return font


class FormulaObject(QPyTextObject):
    """Draws the formulas of a document."""

    def __init__(self, document: QTextDocument, parent: QObject) -> None:
        super().__init__(parent)
        document.documentLayout().registerHandler(_KIND, self)

    def intrinsicSize(self, document: QTextDocument, position: int, look: QTextFormat) -> QSizeF:
        # Qt calls this with each layout of the paragraph, so it only reads.
        return _size(look) * _shrink(document, look)

    def drawObject(
        self, painter: QPainter, rect: QRectF | QRect, document: QTextDocument, position: int, look: QTextFormat
    ) -> None:
        rect = QRectF(rect)
        text = look.toCharFormat()
        run = run_of(text)
        color = text.foreground().color()
        formula = FORMULAS.find_picture(run.maths, run.display) if is_drawn(text) else None
        if formula is None:
            painter.setFont(text.font())
            painter.setPen(color)
            painter.drawText(rect, Qt.AlignmentFlag.AlignVCenter, run.text)
            return
        scale = look.doubleProperty(_Formula.SCALE) * _shrink(document, look)
        baseline = rect.bottom() - QFontMetrics(text.font()).descent()
        height = (formula.ascent + formula.depth) * scale
        area = QRectF(rect.left(), baseline - formula.ascent * scale, formula.width * scale, height)
        svg = formula.svg.replace(INK, color.name()).encode()
        ratio = painter.device().devicePixelRatioF()
        painter.drawPixmap(area.topLeft(), draw_svg(svg, area.size(), ratio, room=1))


def _size(look: QTextFormat) -> QSizeF:
    return QSizeF(look.property(_Formula.SIZE) or QSizeF())


def _shrink(document: QTextDocument, look: QTextFormat) -> float:
    """Return the factor that makes a formula fit into the column."""
    room = document.textWidth() - _MARGINS
    width = _size(look).width()
    return min(1.0, room / width) if room > 0 and width > 0 else 1.0


def list_indent(theme: Theme) -> int:
    """Return the indentation of a list level, wide enough for a number of two digits."""
    return round(theme.text_size * 1.85)


def code_header_height(theme: Theme) -> int:
    """Return the height of the bar over a code block that holds its language and the Copy button."""
    text = QFontMetrics(control_font(-1)).height()
    return max(text, round(theme.text_size * 1.2)) + 3 * TIGHT


class TextFormats:
    """The formats of one appearance and text size."""

    def __init__(self, theme: Theme, muted: bool) -> None:
        self._theme = theme
        self._indent = list_indent(theme)
        self._body_font = theme.body_font()
        self._code_font = theme.code_font()
        self._text_color = theme.colors.muted if muted else theme.colors.text
        bold = QFont(self._body_font)
        bold.setWeight(QFont.Weight.DemiBold)
        self._metrics = QFontMetricsF(self._body_font)
        self._bold_metrics = QFontMetricsF(bold)
        self._code_metrics = QFontMetricsF(self._code_font)
        self._code_advance = self._code_metrics.horizontalAdvance(" ")

    def text_option(self) -> QTextOption:
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        option.setTabStopDistance(self._code_advance * 4)
        return option

    def block_format(self, block: Block, above: Block | None, wraps: bool) -> QTextBlockFormat:
        """Return the format of a block below another one; `wraps`: code whose long lines are broken."""
        look = QTextBlockFormat()
        code = block.kind is Kind.CODE
        line_height = _CODE_LINE_HEIGHT if code else _LINE_HEIGHT
        look.setLineHeight(line_height, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        left = float(self.left(block))
        space = self._space_above(block, above) if above else 0.0
        if code:
            left += CODE_PAD
            look.setNonBreakableLines(not wraps)
            look.setRightMargin(CODE_PAD)
            # Wrapped code hangs under its own line.
            hang = self._code_hang(block)
            left += hang
            look.setTextIndent(-hang)
            look.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
            space += code_header_height(self._theme) if above and not block.tight else 0
        if block.kind is Kind.MATHS:
            left += self._indent
            look.setNonBreakableLines(True)
            look.setLineHeight(100.0, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
            look.setBottomMargin(SMALL)
        if block.marker:
            look.setTextIndent(-self._indent)
            # In text from right to left, Qt exchanges tabs on the left with those on the right.
            tab = QTextOption.TabType.RightTab if is_right_to_left(block.runs) else QTextOption.TabType.LeftTab
            look.setTabPositions([QTextOption.Tab(self._indent, tab)])
        elif block.kind is Kind.TEXT and not block.runs and above and above.kind is Kind.CODE:
            # This is a blank line of the person's; the code block's own space is enough.
            look.setLineHeight(SMALL, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
        # An indent is mirrored in text from right to left; a margin would not be.
        look.setIndent(round(left))
        look.setTopMargin(space)
        return look

    def left(self, block: Block) -> int:
        """Return how far from the left a block stands."""
        return block.indent * self._indent + block.quotes * QUOTE_INDENT

    def room_above(self, first: Block | None) -> float:
        """Return the distance of the first block from the document's top: Qt drops that block's own upper margin."""
        return code_header_height(self._theme) if first and first.kind is Kind.CODE and not first.tight else 0.0

    def _code_hang(self, block: Block) -> float:
        """Return how far the wrapped parts of a line of code are indented: two columns more than its beginning."""
        text = block.runs[0].text if block.runs else ""
        spaces = len(text[:80]) - len(text[:80].lstrip(" "))
        return (spaces + 2) * self._code_advance

    def _space_above(self, block: Block, above: Block) -> float:
        """Return the distance of a block from the one above; the first case that applies counts.

        `space` is a multiple of the font's height. Below code, the panel's own edge is added.
        """
        if block.joined or (block.tight and block.kind is Kind.CODE):
            return 0.0
        if block.kind is Kind.CODE and above.kind is Kind.TEXT and not above.runs:
            return 0.0
        if block.kind is Kind.HEADING:
            space = 1.1 if block.level <= 2 else 0.9
        elif block.tight:
            space = 0.2 if block.indent else 0.0
        elif block.indent and block.marker and above.indent:
            space = 0.4
        else:
            space = 0.6
        return round(space * self._metrics.height()) + (CODE_PAD if above.kind is Kind.CODE else 0)

    def char_format(self, block: Block, run: Run) -> QTextCharFormat:
        """Return the format of a run in a block."""
        look = QTextCharFormat()
        colors = self._theme.colors
        code = run.code or run.undrawn or block.kind is Kind.CODE
        look.setFont(self._code_font if code else self._body_font)
        look.setForeground(colors.muted if block.quotes and not code else self._text_color)
        if block.kind is Kind.HEADING:
            look.setFontPointSize(self._body_font.pointSizeF() * _HEADING_SIZES[block.level - 1])
        # Headings and the head of a table have a level.
        if run.bold or block.level:
            look.setFontWeight(QFont.Weight.DemiBold)
        look.setFontItalic(run.italic)
        look.setFontStrikeOut(run.strike)
        if run.raised:
            look.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignSuperScript)
        if run.code:
            look.setBackground(colors.raised)
        if run.href:
            look.setAnchor(True)
            look.setAnchorHref(run.href)
            look.setForeground(colors.accent)
            set_tip(look, run.href)
        if run.undrawn:
            set_tip(look, "This formula cannot be drawn.")
        if run.refused:
            set_tip(look, f"Not a link: rdchat opens only web and mail addresses.\n{run.refused[:200]}")
        return look

    def table_format(self, block: Block, above: Block | None, *, mirrored: bool) -> QTextTableFormat:
        """Return the format of a table below a block; a `mirrored` one runs from right to left."""
        look = QTextTableFormat()
        if mirrored:
            look.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
            look.setAlignment(Qt.AlignmentFlag.AlignRight)
            # Qt leaves two pixels beside the last border.
            look.setRightMargin(self.left(block) - 2)
        else:
            look.setLeftMargin(self.left(block))
        look.setBorder(1)
        look.setBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
        look.setBorderBrush(QBrush(self._theme.colors.border))
        look.setBorderCollapse(True)
        look.setCellPadding(SMALL)
        look.setCellSpacing(0)
        look.setTopMargin(_JOINED_MARGIN if block.joined else self._space_above(block, above) if above else 0)
        look.setBottomMargin(self.room_below_table(None))
        look.setHeaderRowCount(0 if block.joined else 1)
        return look

    def cell_width(self, runs: Cell, header: bool) -> float:
        """Return the width of a table's cell whose lines are not broken, its padding included."""
        widest = 0.0
        width = 0.0
        for run in runs:
            metrics = self._code_metrics if run.code else self._bold_metrics if header or run.bold else self._metrics
            formula = FORMULAS.find_picture(run.maths, run.display) if run.maths else None
            if formula:
                width += formula.width / UNITS * metrics.height()
                continue
            first, *others = run.text.split("\n")
            width += metrics.horizontalAdvance(first)
            for line in others:
                widest = max(widest, width)
                width = metrics.horizontalAdvance(line)
        return ceil(max(widest, width)) + 2 * SMALL + 2

    def column_widths(self, block: Block) -> list[float]:
        """Return the widths of a table's columns whose lines are not broken."""
        widths = [0.0] * len(block.alignments)
        for index, row in enumerate(block.rows):
            for column, cell in enumerate(row):
                widths[column] = max(widths[column], self.cell_width(cell, header=index == 0))
        return widths

    def column_lengths(self, preferred: list[float], room: float) -> list[QTextLength]:
        """Return the widths of a table's columns: columns of long text shrink if the table would not fit into `room`.

        A column of up to 20 times the text's size keeps its width. Each wider one gets that, and the same share of what
        it would like beyond, so that the room is filled. A table that is still too wide scrolls.
        """
        comfortable = self._theme.text_size * 20
        narrow = [min(width, comfortable) for width in preferred]
        share = min(1.0, max(0.0, room - sum(narrow)) / max(1.0, sum(preferred) - sum(narrow)))
        widths = [low + (width - low) * share for low, width in zip(narrow, preferred, strict=True)]
        return [QTextLength(QTextLength.Type.FixedLength, round(width - 0.49)) for width in widths]

    def room_below_table(self, below: Block | None) -> float:
        """Return a table's distance from the block below: Qt drops the upper margin of a block after a table."""
        if below and below.kind is Kind.TABLE and below.joined:
            return 0.0
        header = code_header_height(self._theme) if below and below.kind is Kind.CODE and not below.tight else 0
        return round(0.6 * self._metrics.height()) + TIGHT + header


def column_step(table: QTextTable) -> int:
    """Return -1 for a table whose first column is the last one of the document: Qt has none from right to left."""
    return -1 if table.format().layoutDirection() is Qt.LayoutDirection.RightToLeft else 1


def is_right_to_left(runs: Iterable[Run]) -> bool:
    """Whether the first letter that has a direction goes from right to left, as Qt and Unicode take a paragraph's."""
    directions = (unicodedata.bidirectional(character) for run in runs for character in run.text)
    return next((each for each in directions if each in {"L", "R", "AL"}), "L") != "L"
