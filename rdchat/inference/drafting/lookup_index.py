"""An index of where a text's ending occurred before, updated token by token, and the drafts that follow. No MLX here.

A match is an earlier place where the last tokens of the text stand, with the tokens that followed it. Saxena 2023,
"Prompt Lookup Decoding", copies what followed one match. Here all matches vote for the next token, as in suffix
decoding (Oliaro et al. 2024, arXiv 2411.04975): longer ones count more, and the tree of what followed them has a chance
at each node, learnt from what was accepted. An n-gram table gets the votes for "none of the matches", and shares
them out.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import cycle, islice, takewhile

from rdchat.inference.api import EarlierReplies, LookupMatch, NodeSource
from rdchat.inference.drafting.ngram_table import LONGEST_RUN, NgramTable

# Number of tokens that are compared before two positions; longer matches count as this long.
LONGEST_MATCH = 32
# Classes of matches, by their minimum length.
_MATCHES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
# Chance that the token after the longest, newest match is right, by class, in the chat and in earlier replies; see
# docs/adr/0026.
_IN_CHAT = (0.22, 0.5, 0.62, 0.68, 0.74, 0.76, 0.82, 0.82, 0.86, 0.9, 0.95)
_IN_REPLIES = (0.15, 0.3, 0.45, 0.55, 0.62, 0.66, 0.74, 0.82, 0.86, 0.9, 0.95)
# Weight of a vote in earlier replies: those that agree are often copies of one another.
_ALIKE = 0.5
# Weight of these chances, in observations, and the share that earlier observations keep at each new one.
_WEIGHT = 20.0
_FADE = 0.998
# Maximum of a chance.
_SUREST = 0.99
# The class of each length of a match.
_CLASSES = [sum(match >= min_length for min_length in _MATCHES[1:]) for match in range(LONGEST_MATCH + 1)]
# Maximum tokens of a path below the root.
DEEPEST = 32
# Stands between texts of `Occurrences`; it is never a token. Tokens of images are lower.
SEPARATOR = -1
# What may be offered: a foreign file may have larger ids, which arrays of tokens cannot hold.
_IDS = range(2**31)
# Tokens of an ending that are looked up, longest first.
_RUNS = (6, 2, 1)
_MAX_MATCHES = 16
_SOURCES = (NodeSource.CHAT, NodeSource.REPLIES, NodeSource.NGRAMS)


class Rate:
    """A ratio of observed to expected counts, such as accepted to drafted tokens; old observations fade.

    Args:
        prior: The ratio before any observation.
        weight: Expected count that the prior stands for.
        fade: Share of earlier observations that is kept at each new one.
    """

    def __init__(self, prior: float, weight: float = 4.0, fade: float = 0.985) -> None:
        self._prior = prior
        self._weight = weight
        self._fade = fade
        self._expected = 0.0
        self._observed = 0.0

    @property
    def value(self) -> float:
        return self.given(self._prior)

    def given(self, prior: float) -> float:
        """Return the ratio with another prior."""
        return (self._observed + prior * self._weight) / (self._expected + self._weight)

    def learn(self, observed: float, expected: float = 1.0) -> None:
        """Add an observation."""
        self._expected = self._expected * self._fade + expected
        self._observed = self._observed * self._fade + observed

    def keep_share(self, share: float) -> None:
        """Keep this share of the observations."""
        self._expected *= share
        self._observed *= share


class LookupEstimate:
    """The odds that the token after an earlier match comes next, by the length of the match.

    Each match votes for its token with these odds, and 1 is the vote for none of them. So the chance of a token is the
    sum of its votes over the sum of all votes and 1. Of one match in the chat that is the chance learnt; matches that
    agree raise it, others lower it. Matches in earlier replies count half.

    Attributes:
        ngrams: How often the likeliest token of an n-gram table came, over how often the table expected it.
    """

    def __init__(self) -> None:
        self.ngrams = Rate(1.0, _WEIGHT, _FADE)
        self._rates = [[Rate(prior, _WEIGHT, _FADE) for prior in priors] for priors in (_IN_CHAT, _IN_REPLIES)]

    def odds(self) -> tuple[list[float], list[float]]:
        """Return the votes of matches in this chat and in earlier replies, by their length, 0 to `LONGEST_MATCH`."""
        chat, replies = ([_odds(rate.value) for rate in rates] for rates in self._rates)
        return [chat[each] for each in _CLASSES], [_ALIKE * replies[each] for each in _CLASSES]

    def learn(self, match: int, earlier: bool, right: bool) -> None:
        """Learn whether the token after the longest match came.

        Args:
            match: Tokens that agree.
            earlier: Whether the match is in an earlier reply.
            right: Whether its token came.
        """
        self._rates[earlier][_CLASSES[match]].learn(float(right))


class NgramModel:
    """What an n-gram table expects in one reply.

    Its chances get the noise of the reply's sampling, as a head's do. They also get a factor, since a text may have
    more or fewer common n-grams than usual: how often the likeliest token came, over how often the table expected it.
    It is learnt in this text, and over all texts (`of_texts`).

    Args:
        table: The table.
        temperature: The reply's; with 0 there is no noise.
        noise: Returns the Gumbel noise of an absolute position and a token.
    """

    def __init__(
        self, table: NgramTable, temperature: float = 0.0, noise: Callable[[int, int], float] = lambda *_: 0.0
    ) -> None:
        self._table = table
        self._temperature = temperature
        self._noise = noise
        self._of_text = Rate(1.0)

    def chances(self, ending: Sequence[int], position: int, of_texts: Rate) -> dict[int, float]:
        """Return tokens with their chances.

        Args:
            ending: The last tokens of the text.
            position: Absolute position of the token that follows them.
            of_texts: The factor over texts, from which that of this text starts.
        """
        expected = self._expected(ending, position)
        factor = min(self._of_text.given(of_texts.value), 1 / (sum(expected.values()) or 1.0))
        return {token: factor * chance for token, chance in expected.items()}

    def learn(self, ending: Sequence[int], position: int, token: int, of_texts: Rate) -> None:
        """Learn which token followed; arguments as for `chances`."""
        expected = self._expected(ending, position)
        if expected:
            likeliest = max(expected, key=expected.__getitem__)
            for rate in (self._of_text, of_texts):
                rate.learn(float(token == likeliest), expected[likeliest])

    def _expected(self, ending: Sequence[int], position: int) -> dict[int, float]:
        """Return the table's chances with the noise of a position, without the factor.

        The reply gets the token with the largest sum of its log-probability and the temperature times its noise. What
        the table has for that log-probability is as uncertain at each temperature, so the noise alone is scaled, and
        chances become the table's own as the temperature falls. Above 1, where any token may win, they are flattened
        instead.
        """
        chances = self._table.chances(ending)
        if not self._temperature:
            return chances
        flatter = max(self._temperature, 1.0)
        known = min(self._temperature, 1.0)
        weights = {
            token: chance ** (1 / flatter) * math.exp(known * self._noise(position, token))
            for token, chance in chances.items()
        }
        total = sum(weights.values()) + max(1 - sum(chances.values()), 0.0)
        return {token: weight / total for token, weight in weights.items()}


def _odds(chance: float) -> float:
    """Return the odds of a chance, which is limited."""
    chance = min(chance, _SUREST)
    return chance / (1 - chance)


def max_nodes(draft_tokens: int) -> int:
    """Return the maximum number of nodes of a draft by prompt lookup alone, the root not counted."""
    return max(draft_tokens, min(4 * draft_tokens, DEEPEST))


@dataclass(frozen=True, slots=True)
class LookupTree:
    """A tree of tokens that may come next.

    The root is node 0 and not listed; parents precede children, likelier siblings come first.

    Attributes:
        tokens: Token of each node.
        parents: Number of each node's parent; 0 for the root.
        depths: Depth of each node, from 1.
        chances: Chance that the path is accepted up to the node; chances never rise.
        sources: What has the most votes for each node: the chat, earlier replies, or n-grams.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)
    sources: list[NodeSource] = field(default_factory=list)

    @classmethod
    def chain(cls, tokens: Sequence[int], chance: float) -> "LookupTree":
        """Return a chain whose tokens have each this chance to be accepted after the one before."""
        count = len(tokens)
        chances = [chance**depth for depth in range(1, count + 1)]
        return cls(list(tokens), list(range(count)), list(range(1, count + 1)), chances, [NodeSource.CHAT] * count)

    def cut(self, nodes: int) -> "LookupTree":
        """Return the first nodes: of a tree from `LookupIndex.draft_tree` the likeliest."""
        return LookupTree(*(column[:nodes] for column in self._columns))

    def first_subtree(self) -> "LookupTree":
        """Return what may come after the likeliest first token; the chances still contain that token's.

        It is for a draft that begins one token later, as the target is computing the first one already.
        """
        inside = {1}
        order = list[int]()
        for node, parent in enumerate(self.parents, start=1):
            if parent in inside:
                inside.add(node)
                order.append(node)
        subtree = self._with_nodes(order, root=1)
        return replace(subtree, depths=[depth - 1 for depth in subtree.depths])

    def depth_first(self) -> "LookupTree":
        """Return the tree numbered depth-first, so that the likeliest path is contiguous in the caches' rows."""
        children: list[list[int]] = [[] for _ in range(1 + len(self.parents))]
        for node, parent in enumerate(self.parents, start=1):
            children[parent].append(node)
        order = list[int]()
        waiting = children[0][::-1]
        while waiting:
            order.append(waiting.pop())
            waiting += reversed(children[order[-1]])
        return self._with_nodes(order, root=0)

    def _with_nodes(self, order: Sequence[int], root: int) -> "LookupTree":
        """Return some nodes in an order; their parents are among them, or `root`. Depths stay."""
        numbers = {root: 0} | {node: number for number, node in enumerate(order, start=1)}
        nodes = LookupTree(*([column[node - 1] for node in order] for column in self._columns))
        return replace(nodes, parents=[numbers[parent] for parent in nodes.parents])

    @property
    def _columns(self) -> tuple[list, ...]:  # type: ignore[type-arg]
        """All fields, in order."""
        return self.tokens, self.parents, self.depths, self.chances, self.sources

    def path_to(self, node: int, limit: int) -> list[int]:
        """Return the last tokens, at most `limit`, of the path to a node."""
        backwards = list[int]()
        while node and len(backwards) < limit:
            backwards.append(self.tokens[node - 1])
            node = self.parents[node - 1]
        return backwards[::-1]


class Occurrences:
    """Where runs of 6, 2 and 1 tokens ended in a growing text; each end leads to the one before, newest first.

    Args:
        tokens: The text so far.

    Attributes:
        tokens: The text.
    """

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self.tokens = list(tokens)
        # Runs that end at or before this index are in `_last`.
        self._noted = 0
        # For each length of runs: by run, its last end that has a successor; and for each end, from 1, the end before
        # it of the same run, 0 for none.
        self._last: list[dict[tuple[int, ...], int]] = [{} for _ in _RUNS]
        self._before: list[list[int]] = [[] for _ in _RUNS]

    def positions(self, ending: Sequence[int], limit: int = _MAX_MATCHES) -> list[tuple[int, int]]:
        """Return the positions where an ending stood.

        Args:
            ending: The last tokens of a text, which may be this one; `LONGEST_MATCH` are enough.
            limit: Maximum number of positions.

        Returns:
            The index of the token after each position, and the length of its match. Longer runs come first.
        """
        self.index_runs()
        lengths: dict[int, int] = {}
        for run, last, before in zip(_RUNS, self._last, self._before, strict=True):
            if len(ending) < run:
                continue
            end = last.get(tuple(ending[-run:]), 0)
            while end and len(lengths) < limit:
                if end not in lengths:
                    lengths[end] = self._length(end, ending, run)
                end = before[end - 1]
        return list(lengths.items())

    def _length(self, end: int, ending: Sequence[int], length: int) -> int:
        """Return how many tokens before `end` agree with an ending, of which `length` are known to agree."""
        tokens = self.tokens
        limit = min(LONGEST_MATCH, end, len(ending))
        while length < limit and tokens[end - 1 - length] == ending[-1 - length]:
            length += 1
        return length

    def index_runs(self) -> None:
        """Index the runs that end before the last token, which has no successor yet. `positions` does it too.

        A run before a part of an image is left out, since an image is never offered.
        """
        tokens = self.tokens
        for end in range(self._noted + 1, len(tokens)):
            is_text = tokens[end] >= 0
            for run, last, before in zip(_RUNS, self._last, self._before, strict=True):
                key = tuple(tokens[max(end - run, 0) : end])
                before.append(last.get(key, 0))
                if is_text:
                    last[key] = end
        self._noted = max(self._noted, len(tokens) - 1)


class LookupIndex:
    """Looks up a chat's ending in the chat itself, and in earlier replies.

    Args:
        tokens: The conversation so far.
        estimate: How often matches are right; learns from every further token.
        earlier: Earlier replies, if they may be used.
        ngrams: What often follows the last tokens, by n-grams; None for nothing.
    """

    def __init__(
        self,
        tokens: Iterable[int],
        estimate: LookupEstimate | None = None,
        earlier: EarlierReplies | None = None,
        ngrams: NgramModel | None = None,
    ) -> None:
        self._text = Occurrences(tokens)
        self._estimate = estimate or LookupEstimate()
        self._earlier = earlier
        self._ngrams = ngrams
        # None until the present ending is looked up.
        self._matches: list[LookupMatch] | None = None

    def extend(self, tokens: Iterable[int]) -> None:
        """Add tokens at the end, and learn from the first if it was looked up."""
        tokens = list(tokens)
        # The first of the longest matches, in the chat and in earlier replies.
        longest: dict[bool, LookupMatch] = {}
        for match in self._matches or ():
            if match.earlier not in longest or match.length > longest[match.earlier].length:
                longest[match.earlier] = match
        for match in longest.values() if tokens else ():
            self._estimate.learn(match.length, match.earlier, match.following[0] == tokens[0])
        text = self._text.tokens
        for token in tokens:
            if self._ngrams is not None:
                self._ngrams.learn(text[-LONGEST_RUN:], len(text), token, self._estimate.ngrams)
            text.append(token)
        self._matches = None

    def draft_tree(
        self, nodes: int, deepest: int = DEEPEST, min_chance: float = 0.0, chain: bool = False
    ) -> LookupTree:
        """Return the likeliest tree of what may come next, likeliest nodes first.

        Args:
            nodes: Maximum number of nodes, the root not counted.
            deepest: Maximum tokens of a path.
            min_chance: Minimum chance of a node.
            chain: Whether to return the likeliest chain.
        """
        tree = LookupTree()
        deepest = min(deepest, DEEPEST)
        matches = self._find_matches()
        odds = self._estimate.odds()
        # A heap of candidates: minus the chance, a number by which equal ones stay in order, token, parent, the matches
        # that go on with the token, and the source.
        waiting: list[tuple[float, int, int, int, list[LookupMatch], NodeSource]] = []
        # The node that was added last, at first the root; `matches` are those that agree up to it.
        node = 0
        depth = 0
        chance = 1.0
        added = 0
        while len(tree.tokens) < nodes:
            if depth < deepest:
                ngrams = self._ngrams_after(tree, node, depth)
                for token, share, agreeing, source in _votes(matches, depth, odds, ngrams, chain):
                    if chance * share >= min_chance:
                        added += 1
                        heappush(waiting, (-chance * share, added, token, node, agreeing, source))
            if not waiting:
                break
            minus_chance, _, token, parent, matches, source = heappop(waiting)
            chance = -minus_chance
            node = len(tree.tokens) + 1
            depth = 1 + (tree.depths[parent - 1] if parent else 0)
            for column, value in zip(tree._columns, (token, parent, depth, chance, source), strict=True):
                column.append(value)
        return tree

    def _ngrams_after(self, tree: LookupTree, node: int, depth: int) -> dict[int, float]:
        """Return what often follows the path to a node at a depth, with chances."""
        if self._ngrams is None:
            return {}
        text = self._text.tokens
        path = tree.path_to(node, LONGEST_RUN)
        ending = [*text[max(len(text) + len(path) - LONGEST_RUN, 0) :], *path]
        return self._ngrams.chances(ending, len(text) + depth, self._estimate.ngrams)

    def _find_matches(self) -> list[LookupMatch]:
        """Return the matches of the ending, in the chat and in earlier replies."""
        if self._matches is None:
            tokens = self._text.tokens
            ending = tokens[-LONGEST_MATCH:]
            if ending and min(ending) < 0:
                # What stands behind the last image.
                ending = list(takewhile(lambda token: token >= 0, reversed(ending)))[::-1]
            self._matches = [
                LookupMatch(length, _followed(tokens, end)) for end, length in self._text.positions(ending)
            ]
            if self._earlier is not None:
                self._matches += self._earlier.matches(ending)
        return self._matches


def _followed(tokens: list[int], end: int) -> list[int]:
    """Return what followed a position; at the text's end it continues with itself, as a loop does."""
    following = tokens[end : end + DEEPEST]
    return following if len(following) == DEEPEST else list(islice(cycle(following), DEEPEST))


def _votes(
    matches: list[LookupMatch],
    depth: int,
    odds: tuple[list[float], list[float]],
    ngrams: dict[int, float],
    chain: bool,
) -> list[tuple[int, float, list[LookupMatch], NodeSource]]:
    """Return the tokens of matches at a depth and of n-grams, with their chances, their matches, and their source."""
    # By token: the votes of the chat, of earlier replies and of n-grams; and the matches that go on with it.
    votes: dict[int, list[float]] = {token: [0.0, 0.0, ngrams[token]] for token in ngrams if token in _IDS}
    agreeing: dict[int, list[LookupMatch]] = {token: [] for token in votes}
    # The vote for none of the matches.
    total = 1.0
    for match in matches:
        length, following, earlier = match
        if depth >= len(following) or following[depth] not in _IDS:
            continue
        token = following[depth]
        vote = odds[earlier][min(length + depth, LONGEST_MATCH)]
        total += vote
        votes.setdefault(token, [0.0, 0.0, 0.0])[earlier] += vote
        agreeing.setdefault(token, []).append(match)
    if chain and votes:
        likeliest = max(votes, key=lambda token: sum(votes[token]))
        votes = {likeliest: votes[likeliest]}
    return [
        (token, sum(shares) / total, agreeing[token], _SOURCES[shares.index(max(shares))])
        for token, shares in votes.items()
    ]
