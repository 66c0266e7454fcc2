"""Tokens, rounds and trees in words, and how each drafter's tokens are drawn."""

import math
from collections import Counter
from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QPen

from rdchat.chat.reply_trace import ReplyTrace, TracedRound, TracedToken
from rdchat.inference.api.events import RoundTree
from rdchat.inference.api.requests import Mode
from rdchat.ui.look import formatting
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, SMALL, TIGHT, Theme, control_font
from rdchat.ui.plots.drawing import Box, Drawing
from rdchat.ui.plots.plot_view import Chart

NO_CHARACTER = "·"  # shown for half a character, and for the token that ends a reply
LINE_BREAK = "⏎"
_SPELT = str.maketrans({" ": "␣", "\n": LINE_BREAK, "\t": "⇥", "\r": "␍"})
_MOST_NODES = 24  # in a tree's description: nobody listens to a longer one
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


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that was drafted at one position."""

    text: str
    drafter: str
    probability: float  # by the target, before temperature and filters
    taken: bool  # whether it is the reply's next token


def spelt(text: str) -> str:
    """Return a token's text with visible spaces and line breaks; a dot if it has no character of its own."""
    return text.translate(_SPELT) or NO_CHARACTER


def probability(log_prob: float | None) -> str:
    """Return a probability such as `62 %`, `3.4 %` or `0.02 %`; a dash for None."""
    return formatting.NONE if log_prob is None else probability_of(math.exp(log_prob))


def probability_of(share: float) -> str:
    percent = min(share, 1.0) * 100
    unit = "\N{NARROW NO-BREAK SPACE}%"
    if percent < 0.01:
        return f"< 0.01{unit}"
    return f"{percent:.{0 if percent >= 9.95 else 1 if percent >= 0.95 else 2}f}{unit}"


def position_words(token: TracedToken) -> str:
    """Return the position of a token in its round."""
    if token.position:
        return f"{token.position} of the draft"
    return "After the draft" if token.round else formatting.NONE


def token_words(trace: ReplyTrace, place: int) -> str:
    """Describe one token in a sentence, for screen readers."""
    token = trace.tokens[place]
    parts = [f"Token {place + 1} of {len(trace.tokens)}, {token.text.strip() or spelt(token.text)}"]
    if token.log_prob is not None:
        parts.append(f"probability {probability(token.log_prob)}")
    parts.append(f"{drafter_words(token.drafter)}, place {token.position}" if token.drafter else drafter_words(""))
    if token.round:
        parts.append(f"round {token.round} of {len(trace.rounds)}")
    return ", ".join(parts)


def round_words(trace: ReplyTrace, number: int) -> str:
    """Return `Round 12 of 60: 3 of 4 drafted tokens accepted`."""
    traced = trace.rounds[number - 1]
    accepted = sum(token.position > 0 for token in tokens_of(trace, traced))
    head = f"Round {number} of {len(trace.rounds)}"
    if traced.tree is None:
        return f"{head}: {formatting.counted(accepted, 'drafted token')} accepted"
    depth = max(depths(traced.tree))
    if not depth:
        return f"{head}: nothing was drafted"
    nodes = len(traced.tree.tokens) - 1
    offered = "" if nodes == depth else f", {nodes} offered in all"
    return f"{head}: {accepted} of {formatting.counted(depth, 'drafted token')} accepted{offered}"


def alternatives(trace: ReplyTrace, place: int) -> list[Alternative]:
    """Return the tokens drafted at the place of a token, the likeliest first, and the token itself."""
    token, traced = trace.tokens[place], trace.round_of(place)
    if traced is None or traced.tree is None:
        return []
    tree, step = traced.tree, place - traced.first
    taken, parent = token.token_id, tree.path[min(step, len(tree.path) - 1)]
    found = [
        Alternative(tree.texts[node], tree.drafters[node], math.exp(tree.log_probs[node]), tree.tokens[node] == taken)
        for node in range(1, len(tree.tokens))
        if tree.parents[node] == parent
    ]
    if found and not any(each.taken for each in found) and token.log_prob is not None:
        text = tree.correction_text if taken == tree.correction else token.text
        found.append(Alternative(text, "", math.exp(token.log_prob), True))
    return sorted(found, key=lambda each: -each.probability)


def tree_words(trace: ReplyTrace, number: int) -> str:
    """Describe a round's tree for screen readers: which tokens were accepted, which were not."""
    tree = trace.rounds[number - 1].tree
    if tree is None:
        return round_words(trace, number)
    on_path = set(tree.path)
    said = [
        f"{spelt(tree.texts[node])}, {probability(tree.log_probs[node])}, "
        f"{drafter_words(tree.drafters[node])}, {'accepted' if node in on_path else 'rejected'}"
        for node in range(1, len(tree.tokens))
    ]
    more = f"; and {len(said) - _MOST_NODES} more" if len(said) > _MOST_NODES else ""
    own = f"then from the model itself: {spelt(tree.correction_text)}, {probability(tree.correction_log_prob)}"
    return f"{round_words(trace, number)}. {'; '.join(said[:_MOST_NODES])}{more}; {own}."


def tokens_of(trace: ReplyTrace, traced: TracedRound) -> list[TracedToken]:
    return trace.tokens[traced.first : traced.first + traced.count]


def depths(tree: RoundTree) -> list[int]:
    """Return each node's distance from the root."""
    found: list[int] = []
    for parent in tree.parents:
        found.append(0 if parent < 0 else found[parent] + 1)
    return found


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
