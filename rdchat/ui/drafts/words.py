"""Tokens, rounds and trees in words, and how each drafter's tokens are drawn."""

import math
from dataclasses import dataclass

from rdchat.chat.reply_trace import ReplyTrace, TracedToken
from rdchat.inference.api.events import RoundTree
from rdchat.inference.api.requests import EARLIER_REPLIES, SHAPE, Mode
from rdchat.ui.style import formatting

NO_CHARACTER = "·"  # shown for half a character, and for the token that ends a reply
LINE_BREAK = "⏎"
_SPELT = str.maketrans({" ": "␣", "\n": LINE_BREAK, "\t": "⇥", "\r": "␍"})
_MAX_NODES = 24  # in a tree's description: nobody listens to a longer one
DASHES: dict[str, tuple[float, ...]] = {  # in widths of the line; empty for a solid one
    "": (),
    Mode.SPECULATIVE.value: (),
    Mode.DRAFTER.value: (3.0, 1.8),
    Mode.LOOKUP.value: (1.0, 1.4),
    EARLIER_REPLIES: (3.0, 1.4, 1.0, 1.4),
    SHAPE: (6.0, 2.0),
}
LINES = {  # the same in text
    "": "",
    Mode.SPECULATIVE.value: "──",
    Mode.DRAFTER.value: "╌╌",
    Mode.LOOKUP.value: "┈┈",
    EARLIER_REPLIES: "╌┈",
    SHAPE: "╍╍",
}


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that was drafted at one position."""

    text: str
    drafter: str
    log_prob: float  # by the target, before temperature and filters
    taken: bool  # whether it is the reply's next token


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


def token_text(trace: ReplyTrace, place: int) -> str:
    """Describe one token in a sentence, for screen readers."""
    token = trace.tokens[place]
    parts = [f"Token {place + 1} of {len(trace.tokens)}, {token.text.strip() or spelt(token.text)}"]
    if token.log_prob is not None:
        parts.append(f"probability {probability(token.log_prob)}")
    parts.append(f"{drafter_text(token.drafter)}, place {token.position}" if token.drafter else drafter_text(""))
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
    depth = max(depths(traced.tree))
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


def alternatives(trace: ReplyTrace, place: int) -> list[Alternative]:
    """Return the tokens drafted at the place of a token, the likeliest first, and the token itself."""
    token, traced = trace.tokens[place], trace.round_of(place)
    if traced is None or traced.tree is None:
        return []
    tree, step = traced.tree, place - traced.first
    taken, parent = token.token_id, tree.path[min(step, len(tree.path) - 1)]
    found = [
        Alternative(tree.texts[node], tree.drafters[node], tree.log_probs[node], tree.tokens[node] == taken)
        for node in range(1, len(tree.tokens))
        if tree.parents[node] == parent
    ]
    if found and not any(each.taken for each in found) and token.log_prob is not None:
        text = tree.correction_text if taken == tree.correction else token.text
        found.append(Alternative(text, "", token.log_prob, True))
    return sorted(found, key=lambda each: -each.log_prob)


def tree_text(trace: ReplyTrace, number: int) -> str:
    """Describe a round's tree for screen readers: which tokens were accepted, which were not."""
    tree = trace.rounds[number - 1].tree
    if tree is None:
        return round_text(trace, number)
    on_path = set(tree.path)
    said = [
        f"{spelt(tree.texts[node])}, {probability(tree.log_probs[node])}, "
        f"{drafter_text(tree.drafters[node])}, {'accepted' if node in on_path else 'rejected'}"
        for node in range(1, len(tree.tokens))
    ]
    more = f"; and {len(said) - _MAX_NODES} more" if len(said) > _MAX_NODES else ""
    own = f"then from the model itself: {spelt(tree.correction_text)}, {probability(tree.correction_log_prob)}"
    return f"{round_text(trace, number)}. {'; '.join(said[:_MAX_NODES])}{more}; {own}."


def depths(tree: RoundTree) -> list[int]:
    """Return each node's distance from the root."""
    found: list[int] = []
    for parent in tree.parents:
        found.append(0 if parent < 0 else found[parent] + 1)
    return found


def drafter_text(drafter: str) -> str:
    """Return where a token came from, such as `This chat`; an empty drafter is the target."""
    known = {
        "": "The model itself",
        Mode.LOOKUP.value: "This chat",
        EARLIER_REPLIES: "Earlier reply",
        SHAPE: "Answer format",
    }
    return known.get(drafter) or Mode(drafter).label
