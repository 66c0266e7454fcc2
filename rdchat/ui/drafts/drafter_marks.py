"""How each drafter's tokens are marked: a colour, and a kind of line for eyes that do not see it."""

from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QColor, QPainter, QPen

from rdchat.inference.api.requests import Mode
from rdchat.ui.look.theme import Theme

DRAFTERS = (Mode.SPECULATIVE.value, Mode.DRAFTER.value, Mode.LOOKUP.value)
_LINES = {
    Mode.SPECULATIVE.value: Qt.PenStyle.SolidLine,
    Mode.DRAFTER.value: Qt.PenStyle.DashLine,
    Mode.LOOKUP.value: Qt.PenStyle.DotLine,
}
LINE_WORDS = {
    Mode.SPECULATIVE.value: "solid line",
    Mode.DRAFTER.value: "dashed line",
    Mode.LOOKUP.value: "dotted line",
}


def drafter_words(drafter: str) -> str:
    """Return `Prompt lookup`; the target is `The model itself`."""
    return Mode(drafter).words if drafter else "The model itself"


def ink(theme: Theme, drafter: str) -> QColor:
    """Return the colour of a drafter's tokens, that of text for the target's own."""
    color: QColor = getattr(theme.drafts, drafter) if drafter else theme.colors.text
    return color


def line_pen(theme: Theme, drafter: str, width: float = 1.6) -> QPen:
    """Return the pen that draws a drafter's lines: solid, dashed or dotted."""
    pen = QPen(ink(theme, drafter), width, _LINES.get(drafter, Qt.PenStyle.SolidLine))
    pen.setCapStyle(Qt.PenCapStyle.FlatCap)
    if drafter == Mode.DRAFTER.value:
        pen.setDashPattern([3.0, 1.8])
    elif drafter == Mode.LOOKUP.value:
        pen.setDashPattern([1.0, 1.4])
    return pen


def underline(painter: QPainter, theme: Theme, drafter: str, start: QPointF, width: float) -> None:
    """Draw the line below a drafted token."""
    painter.setPen(line_pen(theme, drafter))
    painter.drawLine(start, start + QPointF(width, 0))
