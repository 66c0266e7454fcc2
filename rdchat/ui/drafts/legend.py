"""How each drafter's tokens are drawn: a colour, and a kind of line for people who cannot see the colour."""

from collections import Counter

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QPen

from rdchat.chat.reply_trace import ReplyTrace
from rdchat.inference.api.requests import Mode
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, SMALL, TIGHT, Theme, control_font
from rdchat.ui.plots.drawing import Box, Drawing
from rdchat.ui.plots.plot_view import Chart

LINE_WIDTH = 1.6  # of the line below a drafted token, in pixels
DASHES: dict[str, tuple[float, ...]] = {  # in widths of the line; empty for a solid one
    "": (),
    Mode.SPECULATIVE.value: (),
    Mode.DRAFTER.value: (3.0, 1.8),
    Mode.LOOKUP.value: (1.0, 1.4),
}
_LINE_WORDS = {
    "": "not underlined",
    Mode.SPECULATIVE.value: "solid line",
    Mode.DRAFTER.value: "dashed line",
    Mode.LOOKUP.value: "dotted line",
}
_SAMPLE = "Abc"
_LINE = 22.0  # height of a line of the legend, in pixels


def drafter_words(drafter: str) -> str:
    """Return the drafter's name, such as `Prompt lookup`; an empty drafter is the target."""
    return Mode(drafter).words if drafter else "The model itself"


def ink(theme: Theme, drafter: str) -> QColor:
    """Return the colour of a drafter's tokens; the target's tokens have the colour of text."""
    color: QColor = getattr(theme.colors, drafter) if drafter else theme.colors.text
    return color


def line_pen(theme: Theme, drafter: str, width: float = LINE_WIDTH) -> QPen:
    """Return the pen that draws a drafter's lines: solid, dashed or dotted."""
    pen = QPen(ink(theme, drafter), width)
    pen.setCapStyle(Qt.PenCapStyle.FlatCap)
    if DASHES[drafter]:
        pen.setDashPattern(DASHES[drafter])
    return pen


class Legend(Chart):
    """A sample of each drafter's tokens with its name and number of tokens, on as many lines as needed.

    Drafters without a token are left out, the target is always shown.
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Legend")
        self._counts: Counter[str] = Counter()
        self.setFont(control_font(tabular=True))
        set_tip(
            self,
            "Tokens that were drafted and accepted are underlined in their drafter's colour. "
            "All others the model chose itself, one in each round. "
            "In the text, left and right go from token to token, up and down from round to round.",
        )

    def show_trace(self, trace: ReplyTrace) -> None:
        self._counts = Counter(token.drafter for token in trace.tokens)
        self.redraw("; ".join(f"{words}: {_LINE_WORDS[drafter]}" for drafter, words in self._entries()))

    def _entries(self) -> list[tuple[str, str]]:
        shown = [drafter for drafter in DASHES if not drafter or self._counts[drafter]]
        return [(drafter, f"{drafter_words(drafter)} {self._counts[drafter]:,}") for drafter in shown]

    def draw(self, drawing: Drawing) -> None:
        x, sample = 0.0, drawing.width_of(_SAMPLE)
        for drafter, words in self._entries():
            width = sample + SMALL + drawing.width_of(words)
            if x and x + width > drawing.width:
                x, drawing.height = 0.0, drawing.height + _LINE
            color, y = ink(self.theme, drafter).name(), drawing.height
            drawing.text(Box(x, y, sample + 1, _LINE - TIGHT), _SAMPLE, color, more=-1)
            if drafter:
                drawing.line([(x, y + 18), (x + sample, y + 18)], color, LINE_WIDTH, DASHES[drafter])
            drawing.text(Box(x + sample + SMALL, y, width, _LINE - TIGHT), words, "muted", more=-1)
            x += width + LARGE
        drawing.height += _LINE
