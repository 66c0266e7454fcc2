"""How far the target follows drafts: chances of nodes, calibrated online on nodes whose parent was accepted.

All counts fade, so that the newest text counts most, and begin with a prior of a few made-up observations.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rdchat.inference.auto.curve import Floats
from rdchat.inference.auto.plan import LENGTHS, LONGEST, MOST_ROWS, WIDTHS
from rdchat.inference.drafting.lookup import Before, Guess

Ints = npt.NDArray[np.int64]

_FADE = 0.985  # of earlier observations, at each new one
_PRIOR = 4.0  # observations that the prior counts for
_MATCHES = (2, 3, 4, 5, 6, 8, 12, 16, 24)  # least lengths of an ending that occurred before, by class
# Prompt lookup's next token is right. Less than what 2,757 of them in replies of the default model showed (0.58 for the
# shortest ending if it occurred once, 0.69 and 0.29 below): a path believed too much costs more than one missed.
_MATCH_PRIORS = {
    Before.ONCE: (0.27, 0.39, 0.46, 0.58, 0.61, 0.7, 0.75, 0.85, 0.89),
    Before.ALIKE: (0.39, 0.7, 0.74, 0.79, 0.85, 0.89, 0.89, 0.91, 0.94),
    Before.VARIED: (0.07, 0.13, 0.2, 0.33, 0.34, 0.49, 0.53, 0.7, 0.83),
}
_CLASSES = [max(sum(match >= least for least in _MATCHES) - 1, 0) for match in range(_MATCHES[-1] + 1)]
_NODE_FADE = 0.96  # likewise of a recurrent draft's nodes: within a text they are followed alike
_NODE_WEIGHT = 2.0  # observations that what is believed of them beforehand counts for
_TRUST_WEIGHT, _TRUST_FADE = 4.0, 0.99  # of what comes true of that at this temperature
_NODE_PRIOR = 0.8  # a recurrent drafter is surer of itself than it should be on text that it was not trained on
_DRAFT_PRIOR = 0.84  # a draft model's token is the target's: 0.83 to 0.87 of the pair's in docs/benchmarks.md were
_DRAFT_PRIOR_TOKENS = 30.0  # that this counts for, among those of all texts
_DRAFT_FADE = 0.999  # of what was observed of them, at each new one
_RUNNER_UP = 0.85  # where it is not, n runner-ups miss it in (1 + n) ** -0.85 of the cases: likewise
_CHAIN_FADE = 0.95  # of what was observed of it, at each new token
_MARGINS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # least ones of a draft model's choice, by class
_MARGIN_PRIOR = (0.4, 0.55, 0.65, 0.8, 0.88, 0.95, 0.98, 0.99)  # it is the target's: likewise of 808
_MARGIN_WEIGHT = 8.0  # observations that this counts for
_UNTRIED = 0.995  # of it, that counts after a plain step
_LAST_RUNNER_UPS = 0.5  # of what was observed of its runner-ups, that counts in the next text
_DRAFT_WEIGHT = 0.08  # of a new draft among those before it
_MOST_WEIGHT = 0.3  # of one, where a shape was not seen for long
_USUAL_DRAFTS = 3  # that what texts usually come to counts for, among the first of a text
_PRIOR_DRAFTS = 50  # that what is known of a drafter beforehand counts for
_PRIOR_TEXTS = 2  # likewise: people ask other things than a model does
_TEXT_WEIGHT = 0.1  # of a text among those before it
_LARGEST_CHANGE = 2.0  # of the value of a shape that a draft tells nothing of
DRAFTED = np.array(LENGTHS) - 1  # tokens of the longest path below the root


class Rate:
    """What came of what was expected: a fading sum of each.

    Args:
        prior: Where nothing was observed.
        weight: Expectation that the prior counts for.
        fade: Share of earlier observations that stays, at each new one.
    """

    def __init__(self, prior: float, weight: float = _PRIOR, fade: float = _FADE) -> None:
        self._prior, self._weight, self._fade = prior, weight, fade
        self._expected = self._came = 0.0

    @property
    def value(self) -> float:
        return self.given(self._prior)

    def given(self, prior: float) -> float:
        """Return the value where something else is believed beforehand."""
        return (self._came + prior * self._weight) / (self._expected + self._weight)

    def learn(self, came: float, expected: float = 1.0) -> None:
        """Take an observation."""
        self._expected = self._expected * self._fade + expected
        self._came = self._came * self._fade + came

    def fade(self, share: float) -> None:
        """Keep a share of what was observed, so that the prior weighs more."""
        self._expected *= share
        self._came *= share


class LookupRates:
    """The chance that prompt lookup's next token is right, by what speaks for it.

    That is the length of the ending that occurred before, which each accepted token makes one longer; and whether the
    text went on alike wherever its last two tokens occurred.
    """

    def __init__(self) -> None:
        self._rates = {before: [Rate(prior) for prior in priors] for before, priors in _MATCH_PRIORS.items()}

    def path(self, guesses: Sequence[Guess]) -> Floats:
        """Return (tokens,) the chance that a path from prompt lookup is accepted up to each of its tokens."""
        return np.cumprod([self._rate(guess).value for guess in guesses])

    def learn(self, guess: Guess, token: int) -> None:
        """Take the token that followed, where the guess was of it."""
        self._rate(guess).learn(guess.token == token)

    def _rate(self, guess: Guess) -> Rate:
        return self._rates[guess.before][_CLASSES[min(guess.match, _MATCHES[-1])]]


class ChainRates:
    """The chance that a draft model's tokens are accepted; a runner-up may be, by depth, and ends the path.

    Before they are drafted, its first choices have one chance at all depths, each after accepted ones: of the pair in
    docs/benchmarks.md 0.83, 0.85, 0.87 and 0.87 of them were the target's, while from text to text it went from 0.55 to
    1.00. So a text begins with what all of them showed. Once they are drafted, each is believed by its margin over the
    second choice.
    """

    def __init__(self) -> None:
        self._usual = Rate(_DRAFT_PRIOR, _DRAFT_PRIOR_TOKENS, _DRAFT_FADE)  # in all texts
        self._first = Rate(_DRAFT_PRIOR, fade=_CHAIN_FADE)  # in this one
        self._beside = [Rate(0.0) for _ in range(LONGEST + 1)]  # where the first choice was not
        self._sure = [Rate(prior, _MARGIN_WEIGHT) for prior in _MARGIN_PRIOR]

    @property
    def chance(self) -> float:
        """That a first choice is accepted after accepted ones."""
        return self._first.given(self._usual.value)

    def chance_of(self, margin: float) -> float:
        """Return the same of a token that was drafted, by its margin; see `CandidateRanker.rank`."""
        return self._by_margin(margin).value

    def expected(self, steps: int, runner_ups: Sequence[int] = (), known: Sequence[float] = ()) -> float:
        """Return the expected accepted length of a draft of so many steps, with runner-ups beside them.

        Args:
            steps: Its depth.
            runner_ups: Beside each of its first choices.
            known: The chances of those that are drafted already.
        """
        total, reached = 0.0, 1.0
        for depth in range(steps):
            first = known[depth] if depth < len(known) else self.chance
            candidates = runner_ups[depth] if depth < len(runner_ups) else 0
            beside = self._beside[depth].given(1 - (1 + candidates) ** -_RUNNER_UP) if candidates else 0.0
            total += reached * (first + (1 - first) * beside)
            reached *= first
        return total

    def learn(self, margins: Sequence[float], chain: int, accepted: int, runner_ups: Sequence[int] = ()) -> None:
        """Take a draft.

        Args:
            margins: Of its first choices; see `CandidateRanker.rank`.
            chain: How many of its first choices were accepted.
            accepted: The accepted length; one more than `chain` where a runner-up was taken.
            runner_ups: How many there were beside each first choice.
        """
        for depth, margin in enumerate(margins[: chain + 1]):
            self._usual.learn(depth < chain)
            self._first.learn(depth < chain)
            self._by_margin(margin).learn(depth < chain)
        if chain < min(len(margins), len(runner_ups)) and runner_ups[chain]:
            self._beside[chain].learn(accepted > chain)

    def begin_text(self) -> None:
        """Go back to what texts usually show: another one may be followed better, or worse."""
        self._first.fade(0)
        for rate in self._beside:
            rate.fade(_LAST_RUNNER_UPS)

    def go_untried(self) -> None:
        """Forget a little of what this text showed, as a plain step is made: its next part may be followed better."""
        for rate in (self._first, *self._beside):
            rate.fade(_UNTRIED)

    def _by_margin(self, margin: float) -> Rate:
        return self._sure[max(sum(margin >= least for least in _MARGINS) - 1, 0)]


@dataclass(frozen=True, slots=True)
class ScoredNodes:
    """All nodes of a recurrent draft, level by level, each level best first; `NodePool` on the host.

    Attributes:
        tokens: (nodes,) token ids, the root first.
        parents: (nodes,) index of each node's parent; -1 for the root.
        scores: (nodes,) sum of the renormalised log-scores along the path; 0 for the root.
        level_size: Nodes of each level but the root's.
        levels: Number of levels below the root.
        width: Beams of the search.
    """

    tokens: Ints
    parents: Ints
    scores: Floats
    level_size: int
    levels: int
    width: int

    def level(self, depth: int) -> slice:
        """Return the nodes at a depth, from 1."""
        return slice(1 + (depth - 1) * self.level_size, 1 + depth * self.level_size)

    def children(self, node: int) -> Ints:
        """Return the nodes below a node."""
        return np.flatnonzero(self.parents == node)

    def probs(self) -> Floats:
        """Return (nodes,) each node's renormalised probability after its parent; 1 for the root."""
        steps: Floats = np.exp(self.scores - self.scores[np.maximum(self.parents, 0)])
        return steps

    def searched_with(self, width: int) -> npt.NDArray[np.bool_]:
        """Return (nodes,) bool: which nodes a search with fewer beams would have kept, as far as can be told."""
        kept = np.zeros(len(self.tokens), dtype=bool)
        kept[0] = True
        live = np.array([0])
        for depth in range(1, self.levels + 1):
            level = self.level(depth)
            grown = level.start + np.flatnonzero(np.isin(self.parents[level], live))
            grown = grown[: 2 * width if width > 1 else 1]
            kept[grown] = True
            live = grown[:width]
        return kept


def tree_values(drawn: ScoredNodes, chances: Floats) -> Floats:
    """Return the expected accepted length of a draft's best nodes, (widths, lengths, nodes), the root counted.

    A tree's value is the sum of its nodes' chances. A wide and long draft tells of all narrower and shorter ones; what
    it tells nothing of is not a number.
    """
    values = np.full((len(WIDTHS), len(LENGTHS), MOST_ROWS + 1), np.nan)
    best_first = np.argsort(-drawn.scores, kind="stable")
    depths = np.repeat(np.arange(drawn.levels + 1), [1, *[drawn.level_size] * drawn.levels])
    for w, width in enumerate(WIDTHS):
        if width > drawn.width:
            break
        kept = drawn.searched_with(width)
        for n, length in enumerate(LENGTHS):
            if length - 1 > drawn.levels:
                break
            sums = _sums(chances[best_first[(kept & (depths < length))[best_first]]])
            values[w, n] = np.pad(sums, (0, MOST_ROWS + 1 - len(sums)), mode="edge")
    return values


def value_by_nodes(drawn: ScoredNodes, chances: Floats) -> Floats:
    """Return the expected accepted length of a draft's best nodes, by their number up to `MOST_ROWS`, root counted."""
    return _sums(chances[np.argsort(-drawn.scores, kind="stable")])


def _sums(chances: Floats) -> Floats:
    """Return what the first nodes are worth together, by their number; the root, which is the first, is worth none."""
    return np.concatenate([[0.0, 0.0], np.cumsum(chances[1:MOST_ROWS])])


def promises(drawn: ScoredNodes, text: Sequence[int]) -> Iterator[tuple[float, float]]:
    """Yield for each depth whether one of a draft's nodes was right, and the probability that it gave them together.

    Nodes whose parent was not right tell nothing.
    """
    probs, node = drawn.probs(), 0
    for token in text:
        children = drawn.children(node)
        if not children.size:
            return
        right = children[drawn.tokens[children] == token]
        yield float(right.size > 0), float(probs[children].sum())
        if not right.size:
            return
        node = int(right[0])


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What is known of a recurrent drafter before it is used: means over many texts.

    Attributes:
        rates: By depth, of what its probabilities promise, what comes true.
        values: (widths, lengths, nodes) the expected accepted length; see `tree_values`.
    """

    rates: tuple[float, ...]
    values: Floats


class NodeRates:
    """The chance that a recurrent drafter's node is accepted after its parent: its probability, set right by depth.

    Fewer nodes tell of greater depths, so each depth begins with what the one before shows. What is known beforehand is
    of greedy replies; how much of it comes true at another temperature is learnt over texts.

    Args:
        prior: By depth, of what its probabilities promise, what comes true where nothing was observed; depths beyond
            begin with what the one before shows.
    """

    def __init__(self, prior: Sequence[float] = (_NODE_PRIOR,)) -> None:
        self._prior = prior
        self._rates = [Rate(_NODE_PRIOR, _NODE_WEIGHT, _NODE_FADE) for _ in range(LONGEST)]
        self._trust = [Rate(1.0, _TRUST_WEIGHT, _TRUST_FADE) for _ in prior]  # of the prior, what comes true

    def chances(self, drawn: ScoredNodes) -> Floats:
        """Return (nodes,) the chance that each node lies on the accepted path; 1 for the root."""
        probs, chances = drawn.probs(), np.ones(len(drawn.tokens))
        rate, trust = _NODE_PRIOR, 1.0
        for depth in range(1, drawn.levels + 1):
            prior = rate
            if depth <= len(self._prior):
                trust = self._trust[depth - 1].given(trust)
                prior = self._prior[depth - 1] * trust
            level, rate = drawn.level(depth), self._rates[depth - 1].given(prior)
            chances[level] = chances[drawn.parents[level]] * np.minimum(probs[level] * rate, 1.0)
        return chances

    def learn(self, drawn: ScoredNodes, text: Sequence[int]) -> None:
        """Take the tokens that followed the root."""
        for depth, (came, promised) in enumerate(promises(drawn, text)):
            if depth < len(self._prior):
                self._trust[depth].learn(came, promised * self._prior[depth])
            self._rates[depth].learn(came, promised)


class DraftValues:
    """The expected accepted length of a recurrent drafter's tree, by its shape and size: a mean over recent drafts.

    A text begins with the mean of what all texts came to and what the last one did, since a conversation goes on, and
    its own first drafts count most. Shapes that a draft tells nothing of become better or worse as the largest of those
    does that it tells of.

    Args:
        prior: (widths, lengths, nodes) what texts usually come to; None where nothing is known.
    """

    def __init__(self, prior: Floats | None = None) -> None:
        known = prior is not None
        self._means = np.zeros((len(WIDTHS), len(LENGTHS), MOST_ROWS + 1)) if prior is None else prior.copy()
        self._drafts = np.full(self._means.shape[:2], float(_PRIOR_DRAFTS if known else 0))
        self._unseen = np.zeros_like(self._drafts)  # drafts since a shape was seen
        self._in_text = 0  # drafts
        self._texts = _PRIOR_TEXTS if known else 0  # in which there were drafts
        self._usual = self._means.copy()  # of those

    @property
    def drafts(self) -> float:
        """How many drafts the best known shape was seen in."""
        return float(self._drafts.max())

    def table(self) -> Floats:
        """Return the expected accepted length, (widths, lengths, nodes); minus infinity for what was not seen yet."""
        return np.where(self._drafts[..., None] > 0, self._means, -np.inf)

    def begin_text(self) -> None:
        """Go back half the way to what texts usually come to."""
        if self._in_text:
            self._texts += 1
            self._usual += (self._means - self._usual) * max(_TEXT_WEIGHT, 1 / self._texts)
            self._means = (self._means + self._usual) / 2
            self._in_text = 0

    def learn(self, drawn: ScoredNodes, chances: Floats) -> None:
        """Take a draft and the chances of its nodes."""
        values = tree_values(drawn, chances)
        told = np.isfinite(values[..., 0])
        self._in_text += 1
        self._unseen += 1
        self._drafts[told] += 1
        of_text = max(_DRAFT_WEIGHT, 1 / (_USUAL_DRAFTS + self._in_text))
        weights = np.minimum(1 - (1 - of_text) ** self._unseen[told], max(_MOST_WEIGHT, of_text))
        weights = np.maximum(weights, 1 / self._drafts[told])[:, None]
        self._unseen[told] = 0
        before = self._means[told]
        self._means[told] += weights * (values[told] - before)
        change = self._means[told][-1, -1] / before[-1, -1] if before[-1, -1] else 1.0
        scaled = self._means[~told] * min(max(change, 1 / _LARGEST_CHANGE), _LARGEST_CHANGE)
        self._means[~told] = np.minimum(scaled, np.broadcast_to(DRAFTED[:, None], self._means.shape)[~told])
