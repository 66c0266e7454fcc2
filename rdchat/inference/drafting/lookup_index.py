"""An index of where a text's ending occurred before, updated token by token, and the drafts that follow. No MLX here.

Saxena 2023, "Prompt Lookup Decoding", copies what followed one earlier place. Here all earlier places vote, as in
suffix decoding (Oliaro et al. 2024, arXiv 2411.04975): those with longer matches count more, and the tree of what
followed them has a chance at each node.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import cycle, islice

from rdchat.inference.api.requests import EarlierReplies, Place
from rdchat.inference.drafting.lookup_estimate import LONGEST_MATCH, LookupEstimate

DEEPEST = 32  # most tokens of a path below the root
SEPARATOR = -1  # between texts of `Occurrences`; never a token
_RUNS = (6, 2, 1)  # tokens of an ending that are looked up, longest first
_PLACES = 16  # most places that vote


def max_nodes(draft_tokens: int) -> int:
    """Return the most nodes of a draft by prompt lookup alone, the root not counted."""
    return max(draft_tokens, min(4 * draft_tokens, DEEPEST))


@dataclass(frozen=True, slots=True)
class LookupTree:
    """What may come next. The root is node 0 and not listed; parents precede children, likelier siblings come first."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)  # from 1
    chances: list[float] = field(default_factory=list)  # that the path is accepted up to the node; they never rise
    earlier: list[bool] = field(default_factory=list)  # whether earlier replies spoke for the node, more than the chat

    @classmethod
    def chain(cls, tokens: Sequence[int], chance: float) -> "LookupTree":
        """Return a chain whose tokens have each this chance to be accepted after the one before."""
        count = len(tokens)
        chances = [chance**depth for depth in range(1, count + 1)]
        return cls(list(tokens), list(range(count)), list(range(1, count + 1)), chances, [False] * count)

    def cut(self, nodes: int) -> "LookupTree":
        """Return the first nodes: of a tree from `LookupIndex.draft` the likeliest."""
        return LookupTree(*(column[:nodes] for column in self._columns))

    def first_subtree(self) -> "LookupTree":
        """Return what may come after the likeliest first token; the chances still contain that token's."""
        inside, found = {1: 0}, LookupTree()
        for node, parent in enumerate(self.parents, start=1):
            if parent in inside:
                inside[node] = len(inside)
                token, _, depth, chance, earlier = (column[node - 1] for column in self._columns)
                row = (token, inside[parent], depth - 1, chance, earlier)
                for column, value in zip(found._columns, row, strict=True):
                    column.append(value)
        return found

    def depth_first(self) -> "LookupTree":
        """Return the tree numbered depth-first, so that the likeliest path is contiguous in the caches' rows."""
        children: list[list[int]] = [[] for _ in range(1 + len(self.parents))]
        for node, parent in enumerate(self.parents, start=1):
            children[parent].append(node)
        order, waiting = list[int](), children[0][::-1]
        while waiting:
            order.append(waiting.pop())
            waiting += reversed(children[order[-1]])
        numbers = {0: 0} | {node: number for number, node in enumerate(order, start=1)}
        found = LookupTree(*([column[node - 1] for node in order] for column in self._columns))
        return replace(found, parents=[numbers[parent] for parent in found.parents])

    @property
    def _columns(self) -> tuple[list, ...]:  # type: ignore[type-arg]
        return self.tokens, self.parents, self.depths, self.chances, self.earlier


class Occurrences:
    """Where runs of 6, 2 and 1 tokens ended in a growing text; each place leads to the one before, newest first.

    Args:
        tokens: The text so far.

    Attributes:
        tokens: The text.
    """

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self.tokens = list(tokens)
        self._noted = 0  # runs that end at or before this index are in `_last`
        # For each run its last end that has a successor, and for each end, from 1, the end before of the same run.
        self._last: list[dict[tuple[int, ...], int]] = [{} for _ in _RUNS]
        self._before: list[list[int]] = [[] for _ in _RUNS]

    def find(self, ending: Sequence[int], most: int = _PLACES) -> list[tuple[int, int]]:
        """Return places where an ending stood.

        Args:
            ending: The last tokens of a text, which may be this one; `LONGEST_MATCH` are enough.
            most: Places wanted.

        Returns:
            Of each place the index of the token after it, and its match. Those found by longer runs come first.
        """
        self.update()
        found: dict[int, int] = {}
        for run, last, before in zip(_RUNS, self._last, self._before, strict=True):
            if len(ending) < run:
                continue
            place = last.get(tuple(ending[-run:]), 0)
            while place and len(found) < most:
                if place not in found:
                    found[place] = self._match(place, ending, run)
                place = before[place - 1]
        return list(found.items())

    def _match(self, place: int, ending: Sequence[int], match: int) -> int:
        tokens, most = self.tokens, min(LONGEST_MATCH, place, len(ending))
        while match < most and tokens[place - 1 - match] == ending[-1 - match]:
            match += 1
        return match

    def update(self) -> None:
        """Index the runs that end before the last token, which has no successor yet. `find` does it too."""
        tokens = self.tokens
        for end in range(self._noted + 1, len(tokens)):
            for run, last, before in zip(_RUNS, self._last, self._before, strict=True):
                key = tuple(tokens[max(end - run, 0) : end])
                before.append(last.get(key, 0))
                last[key] = end
        self._noted = max(self._noted, len(tokens) - 1)


class LookupIndex:
    """Looks up a chat's ending in the chat itself, and in earlier replies.

    Args:
        tokens: The conversation so far.
        estimate: How far places are right; learns from every further token.
        earlier: Earlier replies, if they may be used.
    """

    def __init__(
        self, tokens: Iterable[int], estimate: LookupEstimate | None = None, earlier: EarlierReplies | None = None
    ) -> None:
        self._text = Occurrences(tokens)
        self._estimate = estimate or LookupEstimate()
        self._earlier = earlier
        self._found: list[Place] | None = None  # places for the present ending, once they were looked up

    def extend(self, tokens: Iterable[int]) -> None:
        """Add tokens at the end, and learn from the first if its place was looked up."""
        tokens = list(tokens)
        best: dict[bool, Place] = {}
        for place in self._found or ():
            if place.earlier not in best or place.match > best[place.earlier].match:
                best[place.earlier] = place
        for place in best.values() if tokens else ():
            self._estimate.learn(place.match, place.earlier, place.following[0] == tokens[0])
        self._text.tokens += tokens
        self._found = None

    def draft(self, nodes: int, deepest: int = DEEPEST, least: float = 0.0, chain: bool = False) -> LookupTree:
        """Return the likeliest tree of what may come next, likeliest nodes first.

        Args:
            nodes: Most nodes, the root not counted.
            deepest: Most tokens of a path.
            least: Least chance of a node.
            chain: Whether to return the likeliest chain.
        """
        tree, deepest = LookupTree(), min(deepest, DEEPEST)
        places, odds = self._places(), self._estimate.odds()
        if not places:
            return tree
        # Candidates: less their chance, a number that keeps the order, token, parent, the places behind it, and whether
        # earlier replies spoke for it more than the chat.
        waiting: list[tuple[float, int, int, int, list[Place], bool]] = []
        node, depth, chance, added = 0, 0, 1.0, 0
        while len(tree.tokens) < nodes:
            for token, share, theirs, earlier in _votes(places, depth, odds, chain) if depth < deepest else ():
                if chance * share >= least:
                    added += 1
                    heappush(waiting, (-chance * share, added, token, node, theirs, earlier))
            if not waiting:
                break
            less, _, token, parent, places, earlier = heappop(waiting)
            chance, node, depth = -less, len(tree.tokens) + 1, 1 + (tree.depths[parent - 1] if parent else 0)
            for column, value in zip(tree._columns, (token, parent, depth, chance, earlier), strict=True):
                column.append(value)
        return tree

    def _places(self) -> list[Place]:
        """Return the places where the ending stood, in the chat and in earlier replies."""
        if self._found is None:
            tokens = self._text.tokens
            ending = tokens[-LONGEST_MATCH:]
            self._found = [Place(match, _followed(tokens, place)) for place, match in self._text.find(ending)]
            if self._earlier is not None:
                self._found += self._earlier.places(ending)
        return self._found


def _followed(tokens: list[int], place: int) -> list[int]:
    """Return what followed a place; at the text's end it continues with itself, as a loop does."""
    found = tokens[place : place + DEEPEST]
    return found if len(found) == DEEPEST else list(islice(cycle(found), DEEPEST))


def _votes(
    places: list[Place], depth: int, odds: tuple[list[float], list[float]], chain: bool
) -> list[tuple[int, float, list[Place], bool]]:
    """Return the tokens that places have at a depth, with their chances, their places, and `LookupTree.earlier`."""
    votes: dict[int, list[float]] = {}  # of the chat, of earlier replies
    behind: dict[int, list[Place]] = {}
    total = 1.0
    for place in places:
        match, following, earlier = place
        if depth >= len(following):
            continue
        token, vote = following[depth], odds[earlier][min(match + depth, LONGEST_MATCH)]
        total += vote
        if token in votes:
            votes[token][earlier] += vote
            behind[token].append(place)
        else:
            votes[token] = [0.0, vote] if earlier else [vote, 0.0]
            behind[token] = [place]
    if chain and votes:
        likeliest = max(votes, key=lambda token: sum(votes[token]))
        votes = {likeliest: votes[likeliest]}
    return [
        (token, (chat + replies) / total, behind[token], replies > chat) for token, (chat, replies) in votes.items()
    ]
