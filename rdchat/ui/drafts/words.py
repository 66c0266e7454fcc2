"""Tokens, rounds and trees in words, for the draft tree window. Pure functions."""

import math
from dataclasses import dataclass

from rdchat.chat.reply_trace import ReplyTrace, TracedRound, TracedToken
from rdchat.inference.api.events import RoundTree
from rdchat.ui.drafts.legend import drafter_words
from rdchat.ui.look import formatting

NO_CHARACTER = "·"  # shown for half a character, and for the token that ends a reply
LINE_BREAK = "⏎"
_SPELT = str.maketrans({" ": "␣", "\n": LINE_BREAK, "\t": "⇥", "\r": "␍"})
_MOST_NODES = 24  # in a tree's description: nobody listens to a longer one


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
