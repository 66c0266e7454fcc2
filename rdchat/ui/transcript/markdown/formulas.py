"""Shows formulas in a document as pictures, which a child process draws; each is one character of the text."""

from functools import lru_cache
from math import ceil

from PySide6.QtCore import QObject, QRect, QRectF, QSizeF, Qt
from PySide6.QtGui import (
    QFont,
    QFontInfo,
    QFontMetrics,
    QFontMetricsF,
    QPainter,
    QPyTextObject,
    QTextCharFormat,
    QTextDocument,
    QTextFormat,
)

from rdchat.chat.formulas.formula_drawer import INK, UNITS, Formula, FormulaDrawer
from rdchat.ui.style.theme import draw_svg
from rdchat.ui.transcript.markdown.blocks import Run
from rdchat.work.job import Job, SerialThread

OBJECT = "\ufffc"
_KIND = QTextFormat.ObjectTypes.UserObject.value + 1
_TEX, _DISPLAY, _SOURCE, _SIZE, _DRAWN, _WIDTH, _HEIGHT = (
    QTextFormat.Property.UserProperty.value + number for number in range(1, 8)
)
# The formulas' font looks smaller than the system's.
_ENLARGED = 1.06
_MAX_DEPTH = 120
# The pixels of the column that the indentation of a formula may take.
_MARGINS = 60
_MAX_PICTURES = 4000

Key = tuple[str, bool]  # TeX, and whether it stands on its own


class FormulaLibrary:
    """Pictures of formulas by their TeX. A text asks for them, and polls until they are drawn.

    Args:
        drawer: Draws one; used on the library's own thread alone.
    """

    def __init__(self, drawer: FormulaDrawer | None = None) -> None:
        self._drawer = drawer or FormulaDrawer()
        self._thread = SerialThread("formulas")
        self._jobs: dict[Key, Job[Formula | None]] = {}
        self._closed = False

    def is_known(self, tex: str, display: bool) -> bool:
        """Whether drawing it was tried; ask for it if it is new."""
        key = tex, display
        if key not in self._jobs and not self._closed:
            if len(self._jobs) > _MAX_PICTURES:
                del self._jobs[next(iter(self._jobs))]
            self._jobs[key] = self._thread.do(lambda job: self._drawer.draw(tex, display, job.check))
        return not self._closed and self._jobs[key].ended

    def find(self, tex: str, display: bool) -> Formula | None:
        """Return a formula's picture; None before it is drawn, or if it cannot be."""
        return self._jobs[tex, display].result() if self.is_known(tex, display) else None

    def cannot_draw(self, tex: str, display: bool) -> bool:
        """Whether drawing it was tried and failed."""
        return (tex, display) in self._jobs and self.is_known(tex, display) and self.find(tex, display) is None

    def close(self) -> None:
        """End the drawing. Idempotent."""
        self._closed = True
        for job in self._jobs.values():
            job.cancel()
        self._thread.close()
        self._drawer.close()


FORMULAS = FormulaLibrary()
"""One for all texts: a picture is the same in each of them."""


def formula_format(run: Run, text: QTextCharFormat) -> QTextCharFormat:
    """Return the format of the character that stands for a formula among text of a format."""
    look = QTextCharFormat()
    look.setObjectType(_KIND)
    look.setForeground(text.foreground())
    look.setProperty(_TEX, run.maths)
    look.setProperty(_DISPLAY, run.display)
    look.setProperty(_SOURCE, run.text)
    look.setProperty(_SIZE, QFontInfo(text.font()).pixelSize() * _ENLARGED)
    formula = FORMULAS.find(run.maths, run.display)
    look.setProperty(_DRAWN, formula is not None)
    font = text.font()
    if formula:
        # Qt lets such a character hang below the baseline by as much as its font does
        scale = look.doubleProperty(_SIZE) / UNITS
        # A formula alone in its line, as in a table, has the height of its neighbours.
        metrics_of_text = QFontMetrics(font)
        font = font_of_descent(max(metrics_of_text.descent(), ceil(formula.depth * scale)))
        width = formula.width * scale
        height = float(max(metrics_of_text.ascent(), ceil(formula.ascent * scale)) + QFontMetrics(font).descent())
    else:
        metrics = QFontMetricsF(font)
        width = metrics.horizontalAdvance(run.text)
        height = metrics.height()
    look.setFont(font)
    look.setProperty(_WIDTH, width)
    # Both are floats, because `doubleProperty` returns 0 for a whole number.
    look.setProperty(_HEIGHT, height)
    look.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignBaseline)
    return look


def is_drawn(look: QTextCharFormat) -> bool:
    """Whether a formula's character shows the formula, not its source."""
    return look.boolProperty(_DRAWN)


def run_of(look: QTextCharFormat) -> Run:
    """Return the formula that a character stands for."""
    display = look.boolProperty(_DISPLAY)
    return Run(str(look.property(_SOURCE) or OBJECT), maths=str(look.property(_TEX) or ""), display=display)


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
        return QSizeF(look.doubleProperty(_WIDTH), look.doubleProperty(_HEIGHT)) * _shrink(document, look)

    def drawObject(
        self, painter: QPainter, rect: QRectF | QRect, document: QTextDocument, position: int, look: QTextFormat
    ) -> None:
        rect = QRectF(rect)
        text = look.toCharFormat()
        run = run_of(text)
        formula = FORMULAS.find(run.maths, run.display) if is_drawn(text) else None
        color = text.foreground().color()
        if formula is None:
            painter.setFont(text.font())
            painter.setPen(color)
            painter.drawText(rect, Qt.AlignmentFlag.AlignVCenter, run.text)
            return
        scale = look.doubleProperty(_SIZE) / UNITS * _shrink(document, look)
        baseline = rect.bottom() - QFontMetrics(text.font()).descent()
        height = (formula.ascent + formula.depth) * scale
        area = QRectF(rect.left(), baseline - formula.ascent * scale, formula.width * scale, height)
        svg = formula.svg.replace(INK, color.name()).encode()
        ratio = painter.device().devicePixelRatioF()
        painter.drawPixmap(area.topLeft(), draw_svg(svg, area.size(), ratio, room=1))


def _shrink(document: QTextDocument, look: QTextFormat) -> float:
    """Return the factor that makes a formula fit into the column."""
    room = document.textWidth() - _MARGINS
    return min(1.0, room / look.doubleProperty(_WIDTH)) if room > 0 and look.doubleProperty(_WIDTH) > 0 else 1.0
