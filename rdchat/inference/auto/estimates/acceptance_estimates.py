"""How far the target follows a drafter head: chances of nodes, calibrated on nodes whose parent was accepted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rdchat.inference.auto.costs.cost_curve import Floats
from rdchat.inference.auto.estimates.lookup_and_chain_rates import ChainRates, LookupRates, Rate
from rdchat.inference.auto.plan import LENGTHS, LONGEST, MOST_ROWS, WIDTHS
from rdchat.inference.drafting.node_pool import HostPool, children, step_probs

_NODE_FADE = 0.96  # likewise of the nodes of a head's draft: within a text they are followed alike
_NODE_WEIGHT = 2.0  # observations that what is believed of them beforehand counts for
_TRUST_WEIGHT, _TRUST_FADE = 4.0, 0.99  # of what comes true of that at this temperature
_NODE_PRIOR = 0.8  # a drafter head is surer of itself than it should be on text that it was not trained on
_DRAFT_WEIGHT = 0.08  # of a new draft among those before it
_MOST_WEIGHT = 0.3  # of one, where none was as long for long
_USUAL_DRAFTS = 3  # that what texts usually come to counts for, among the first of a text
_PRIOR_DRAFTS = 50  # that what is known of a drafter beforehand counts for
_PRIOR_TEXTS = 2  # likewise: people ask other things than a model does
_TEXT_WEIGHT = 0.1  # of a text among those before it
_LARGEST_CHANGE = 2.0  # of the value of lengths that a draft tells nothing of
_CUT_GAIN, _CUT_WEIGHT = 0.1, 4.0  # tokens that cutting a draft is believed to save, and drafts that this counts for
_GOES_ON = 0.8  # of a draft model's tokens, those behind which it goes on
DRAFTED = np.array(LENGTHS) - 1  # tokens of the longest path below the root


def values_by_length(drawn: HostPool, chances: Floats) -> Floats:
    """Return the expected accepted length of a draft's best nodes, (lengths, nodes), the root counted.

    A tree's value is the sum of its nodes' chances. A long draft tells of all shorter ones; what it tells nothing of is
    not a number.
    """
    values = np.full((len(LENGTHS), MOST_ROWS + 1), np.nan)
    best_first = np.argsort(-drawn.scores, kind="stable")
    for n, length in enumerate(LENGTHS[: np.searchsorted(LENGTHS, drawn.levels + 1, side="right")]):
        shorter = best_first[best_first < 1 + (length - 1) * drawn.level_size]
        sums = _sums(chances[shorter])
        values[n] = np.pad(sums, (0, MOST_ROWS + 1 - len(sums)), mode="edge")
    return values


def value_by_nodes(drawn: HostPool, chances: Floats) -> Floats:
    """Return the expected accepted length of a draft's best nodes, by their number up to `MOST_ROWS`, root counted."""
    return _sums(chances[np.argsort(-drawn.scores, kind="stable")])


def _sums(chances: Floats) -> Floats:
    """Return what the first nodes are worth together, by their number; the root, which is the first, is worth none."""
    return np.concatenate([[0.0, 0.0], np.cumsum(chances[1:MOST_ROWS])])


def promises(drawn: HostPool, text: Sequence[int]) -> Iterator[tuple[float, float]]:
    """Yield for each depth whether one of a draft's nodes was right, and the probability that it gave them together.

    Nodes whose parent was not right tell nothing.
    """
    probs, node = step_probs(drawn), 0
    for token in text:
        below = children(drawn, node)
        if not below.size:
            return
        right = below[drawn.tokens[below] == token]
        yield float(right.size > 0), float(probs[below].sum())
        if not right.size:
            return
        node = int(right[0])


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What is known of a drafter head before it is used: means over many texts.

    Attributes:
        rates: By depth, of what its probabilities promise, what comes true.
        values: (widths, lengths, nodes) the expected accepted length; see `values_by_length`.
    """

    rates: tuple[float, ...]
    values: Floats


class NodeRates:
    """The chance that a drafter head's node is accepted after its parent: its probability, set right by depth.

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

    def chances(self, drawn: HostPool) -> Floats:
        """Return (nodes,) the chance that each node lies on the accepted path; 1 for the root."""
        probs, chances = step_probs(drawn), np.ones(len(drawn.tokens))
        rate, trust = _NODE_PRIOR, 1.0
        for depth in range(1, drawn.levels + 1):
            prior = rate
            if depth <= len(self._prior):
                trust = self._trust[depth - 1].given(trust)
                prior = self._prior[depth - 1] * trust
            level, rate = drawn.level(depth), self._rates[depth - 1].given(prior)
            chances[level] = chances[drawn.parents[level]] * np.minimum(probs[level] * rate, 1.0)
        return chances

    def learn(self, drawn: HostPool, text: Sequence[int]) -> None:
        """Take the tokens that followed the root."""
        for depth, (came, promised) in enumerate(promises(drawn, text)):
            if depth < len(self._prior):
                self._trust[depth].learn(came, promised * self._prior[depth])
            self._rates[depth].learn(came, promised)


class DraftValues:
    """The expected accepted length of a drafter head's trees of one width: means over recent drafts.

    A text begins with the mean of what all texts came to and what the last one did, since a conversation goes on, and
    its own first drafts count most. Longer drafts than one that is learnt from become better or worse as the longest of
    those does that it tells of.

    Args:
        prior: (lengths, nodes) what texts usually come to; None where nothing is known.
    """

    def __init__(self, prior: Floats | None = None) -> None:
        known = prior is not None
        self._means = np.zeros((len(LENGTHS), MOST_ROWS + 1)) if prior is None else prior.copy()
        self._drafts = np.full(len(LENGTHS), float(_PRIOR_DRAFTS if known else 0))
        self._unseen = np.zeros(len(LENGTHS))  # drafts since one was as long
        self._in_text = 0  # drafts
        self._texts = _PRIOR_TEXTS if known else 0  # in which there were drafts
        self._usual = self._means.copy()  # of those

    @property
    def drafts(self) -> float:
        """How many drafts the best known length was seen in."""
        return float(self._drafts.max())

    def table(self) -> Floats:
        """Return the expected accepted length, (lengths, nodes); minus infinity for what was not seen yet."""
        return np.where(self._drafts[:, None] > 0, self._means, -np.inf)

    def begin_text(self) -> None:
        """Go back half the way to what texts usually come to."""
        if self._in_text:
            self._texts += 1
            self._usual += (self._means - self._usual) * max(_TEXT_WEIGHT, 1 / self._texts)
            self._means = (self._means + self._usual) / 2
            self._in_text = 0

    def learn(self, drawn: HostPool, chances: Floats) -> None:
        """Take a draft and the chances of its nodes."""
        values = values_by_length(drawn, chances)
        told = int(np.isfinite(values[:, 0]).sum())  # the shortest ones
        self._in_text += 1
        self._unseen += 1
        self._drafts[:told] += 1
        of_text = max(_DRAFT_WEIGHT, 1 / (_USUAL_DRAFTS + self._in_text))
        weights = np.minimum(1 - (1 - of_text) ** self._unseen[:told], max(_MOST_WEIGHT, of_text))
        weights = np.maximum(weights, 1 / self._drafts[:told])[:, None]
        self._unseen[:told] = 0
        before = self._means[told - 1, -1]
        self._means[:told] += weights * (values[:told] - self._means[:told])
        change = self._means[told - 1, -1] / before if before else 1.0
        scaled = self._means[told:] * min(max(change, 1 / _LARGEST_CHANGE), _LARGEST_CHANGE)
        self._means[told:] = np.minimum(scaled, DRAFTED[told:, None])


class AcceptanceEstimates:
    """What is known of how far the target follows each kind of draft, at one temperature; kept from reply to reply.

    Args:
        known: Of the drafter head, beforehand; None for nothing.

    Attributes:
        known: That.
        lookup: Of prompt lookup.
        chains: Of a draft model.
        nodes: Of a head's nodes.
        cut_gain: Tokens that a head's draft is worth more once it is cut by its own scores, what its time would
            bring otherwise counted.
        goes_on: How often a draft model goes on behind a token that it drafted.
        follows: How often a head's draft follows another, so that it may be begun before.
    """

    def __init__(self, known: Acceptance | None = None) -> None:
        self.known = known
        self.lookup, self.chains = LookupRates(), ChainRates()
        self.cut_gain, self.goes_on, self.follows = Rate(_CUT_GAIN, _CUT_WEIGHT), Rate(_GOES_ON), Rate(0.5)
        self.nodes = NodeRates(known.rates) if known else NodeRates()
        self._values: dict[int, DraftValues] = {}

    def values(self, width: int) -> DraftValues:
        """Return what is known of a drafter head's trees of a width."""
        if width not in self._values:
            prior = None if self.known is None else self.known.values[WIDTHS.index(width)]
            self._values[width] = DraftValues(prior)
        return self._values[width]

    def begin_text(self) -> None:
        """Go back towards what texts usually show, as another reply begins."""
        self.chains.begin_text()
        for values in self._values.values():
            values.begin_text()
