"""Texts about tokens, rounds and trees, and the styles in which each drafter's tokens are drawn."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from PySide6.QtGui import QTextCharFormat

from rdchat.chat.reply_trace import ReplyTrace, TracedToken
from rdchat.inference.api.requests import EARLIER_REPLIES, SHAPE, Mode
from rdchat.ui.style import formatting

NO_CHARACTER = "·"
"""Stands for half a character, and for the token that ends a reply."""
LINE_BREAK = "⏎"
_SPELT = str.maketrans({" ": "␣", "\n": LINE_BREAK, "\t": "⇥", "\r": "␍"})
# The description of a tree is read aloud, so it has no more nodes than these.
_MAX_NODES = 24


class DrafterStyle(NamedTuple):
    """How the tokens of a drafter are described and drawn.

    Attributes:
        name: The source of its tokens.
        role: Their colour, a field of `Colors`.
        line: Characters that look like its line.
        underline: Its line below a token.
        dashes: Its line in a tree, in widths of the line; empty for a solid one.
    """

    name: str
    role: str
    line: str
    underline: QTextCharFormat.UnderlineStyle
    dashes: tuple[float, ...] = ()


_Underline = QTextCharFormat.UnderlineStyle
STYLES = {
    "": DrafterStyle("The model itself", "text", "", _Underline.NoUnderline),
    "speculative": DrafterStyle(Mode.SPECULATIVE.label, "speculative", "──", _Underline.SingleUnderline),
    "drafter": DrafterStyle(Mode.DRAFTER.label, "drafter", "╌╌", _Underline.DashUnderline, (3.0, 1.8)),
    "lookup": DrafterStyle(f"{Mode.LOOKUP.label}, this chat", "lookup", "┈┈", _Underline.DotLine, (1.0, 1.4)),
    EARLIER_REPLIES: DrafterStyle(
        f"{Mode.LOOKUP.label}, earlier replies", "replies", "╌┈", _Underline.DashDotLine, (3.0, 1.4, 1.0, 1.4)
    ),
    SHAPE: DrafterStyle("Answer format", "shape", "╍╍", _Underline.DashDotDotLine, (6.0, 2.0)),
}


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that was drafted at one position.

    Attributes:
        log_prob: Its log probability by the target, before temperature and filters.
        taken: Whether it is the reply's next token.
    """

    text: str
    drafter: str
    log_prob: float
    taken: bool


def spelt(text: str) -> str:
    """Return a token's text with visible spaces and line breaks; a dot if it has no character of its own."""
    return text.translate(_SPELT) or NO_CHARACTER


def probability(log_prob: float | None) -> str:
    """Return a probability such as `62 %`, `3.4 %` or `0.02 %`; a dash for None."""
    if log_prob is None:
        return formatting.NONE
    percent = min(math.exp(log_prob), 1.0) * 100
    unit = "\N{NARROW NO-BREAK SPACE}%"
    if percent < 0.01:
        return f"< 0.01{unit}"
    return f"{percent:.{0 if percent >= 9.95 else 1 if percent >= 0.95 else 2}f}{unit}"


def position_text(token: TracedToken) -> str:
    """Return the position of a token in its round."""
    if token.position:
        return f"{token.position} of the draft"
    return "After the draft" if token.round else formatting.NONE


def token_text(trace: ReplyTrace, index: int) -> str:
    """Describe one token in a sentence, for screen readers."""
    token = trace.tokens[index]
    parts = [f"Token {index + 1} of {len(trace.tokens)}, {token.text.strip() or spelt(token.text)}"]
    if token.log_prob is not None:
        parts.append(f"probability {probability(token.log_prob)}")
    parts.append(f"{STYLES[token.drafter].name}, position {token.position}" if token.drafter else STYLES[""].name)
    if token.round:
        parts.append(f"draft {token.round} of {len(trace.rounds)}")
    return ", ".join(parts)


def round_text(trace: ReplyTrace, number: int) -> str:
    """Return `Draft 12 of 60: 3 of 4 drafted tokens kept`."""
    traced = trace.rounds[number - 1]
    accepted = sum(token.position > 0 for token in trace.tokens[traced.first : traced.first + traced.count])
    head = f"Draft {number} of {len(trace.rounds)}"
    if traced.tree is None:
        return f"{head}: {formatting.counted(accepted, 'drafted token')} kept"
    depth = max(depths(traced.tree.parents))
    if not depth:
        return f"{head}: {empty_text(trace).lower().rstrip('.')}"
    nodes = len(traced.tree.tokens) - 1
    if nodes == depth:
        return f"{head}: {accepted} of {formatting.counted(depth, 'drafted token')} kept"
    return f"{head}: {formatting.counted(accepted, 'token')} kept; the longest branch had {depth}, the tree {nodes}"


def empty_text(trace: ReplyTrace) -> str:
    """Return why a step has no draft: prompt lookup is the one drafter that may find nothing."""
    others = {drafter for each in trace.rounds if each.tree for drafter in each.tree.drafters}
    others -= {"", Mode.LOOKUP.value, EARLIER_REPLIES, SHAPE}
    return "Nothing was drafted." if others else "No earlier text to copy from."


def alternatives(trace: ReplyTrace, index: int) -> list[Alternative]:
    """Return the tokens drafted at the position of a token, the likeliest first, and the token itself."""
    token = trace.tokens[index]
    traced = trace.round_of(index)
    if traced is None or traced.tree is None:
        return []
    tree = traced.tree
    step = index - traced.first
    taken = token.token_id
    parent = tree.path[min(step, len(tree.path) - 1)]
    rows = [
        Alternative(tree.texts[node], tree.drafters[node], tree.log_probs[node], tree.tokens[node] == taken)
        for node in range(1, len(tree.tokens))
        if tree.parents[node] == parent
    ]
    if rows and not any(each.taken for each in rows) and token.log_prob is not None:
        text = tree.correction_text if taken == tree.correction else token.text
        rows.append(Alternative(text, "", token.log_prob, True))
    return sorted(rows, key=lambda each: -each.log_prob)


def tree_text(trace: ReplyTrace, number: int) -> str:
    """Describe a round's tree for screen readers: which tokens were accepted, which were not."""
    tree = trace.rounds[number - 1].tree
    if tree is None:
        return round_text(trace, number)
    on_path = set(tree.path)
    nodes = [
        f"{spelt(tree.texts[node])}, {probability(tree.log_probs[node])}, "
        f"{STYLES[tree.drafters[node]].name}, {'accepted' if node in on_path else 'rejected'}"
        for node in range(1, len(tree.tokens))
    ]
    own = f"then from the model itself: {spelt(tree.correction_text)}, {probability(tree.correction_log_prob)}"
    return f"{round_text(trace, number)}. {formatting.listed(nodes, _MAX_NODES, '; ')}; {own}."


def depths(parents: Sequence[int]) -> list[int]:
    """Return each node's distance from the root, whose parent is -1."""
    distances: list[int] = []
    for parent in parents:
        distances.append(0 if parent < 0 else distances[parent] + 1)
    return distances
