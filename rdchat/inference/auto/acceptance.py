"""Learns how many drafted tokens the target accepts from each drafter, from reply to reply. No MLX here."""

from collections.abc import Sequence

import numpy as np

from rdchat.inference.auto.plan import DRAFT_TOKENS, LENGTHS, ROWS, Floats
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.drafting.lookup_estimate import LookupEstimate, Rate

# Chance that the target accepts the first choice of a drafter head.
_HEAD_CHANCE = 0.6
# The same for a draft model: 0.83 to 0.87 with the pair in docs/benchmarks.md.
_CHAIN_CHANCE = 0.84
# So n candidates miss n ** -0.85 times as often as one.
_RUNNER_UPS = 0.85


class DraftEstimate:
    """Expected accepted tokens of a drafter's trees: the usual ones, adjusted to the present text.

    A draft is described by one chance: that a path continues by another accepted token. A factor on that chance is
    learnt in each text; it starts from the average over texts.

    Args:
        drafted: Tokens of the longest path below the root, of each length.
        usual: (lengths, `MAX_ROWS` + 1) usual accepted tokens, by number of nodes, the root included.
    """

    def __init__(self, drafted: Sequence[int], usual: Floats) -> None:
        self._drafted = np.array(drafted)
        # Bisection finds the chances that give `usual`.
        self._chances = np.zeros_like(usual)
        for bit in 0.5 ** np.arange(1, 40):
            self._chances += bit * (self._accepted(self._chances + bit) <= usual)
        self._of_texts = Rate(1.0, 20.0, 0.998)
        self._of_text = Rate(1.0, 6.0, 0.97)

    @property
    def factor(self) -> float:
        """How much more often than usual paths continue."""
        return self._of_text.given(self._of_texts.value)

    def table(self) -> Floats:
        """Return the expected accepted tokens, (lengths, `MAX_ROWS` + 1)."""
        return self._accepted(np.minimum(self._chances * self.factor, 1.0))

    def learn(self, drafted: int, nodes: int, accepted: int, ended: bool = False) -> None:
        """Learn from a verified draft.

        Args:
            drafted: Tokens of its longest path below the root.
            nodes: Nodes that were verified, the root included.
            accepted: Accepted tokens.
            ended: Whether the reply ended here, so that nothing is known about the next token.
        """
        chance = float(self._chances[np.searchsorted(self._drafted, drafted), nodes])
        for observed in [1.0] * accepted + [0.0] * (accepted < drafted and not ended):
            for rate in (self._of_texts, self._of_text):
                rate.learn(observed, chance)

    def _accepted(self, chances: Floats) -> Floats:
        """Return the expected accepted tokens for chances of continuing, (lengths, `MAX_ROWS` + 1)."""
        total = np.zeros_like(chances)
        along = np.ones_like(chances)
        for depth in range(1, self._drafted[-1] + 1):
            along = along * chances
            total += along * (self._drafted >= depth)[:, None]
        return total

    def forget(self, share: float) -> None:
        """Keep this share of what the present text showed."""
        self._of_text.forget(share)


def usual_accepted(chance: float, shape: DraftShape, branches: bool = False) -> float:
    """Return the expected accepted tokens of a draft.

    Args:
        chance: Chance that a first choice is accepted after accepted ones.
        shape: Shape of the draft.
        branches: Whether paths continue below runner-ups, as in a beam search; in a draft model's drafts they end.
    """
    total = 0.0
    reached = 1.0
    for step in range(shape.draft_tokens):
        either = 1 - (1 - chance) * shape.candidates(step) ** -_RUNNER_UPS
        total += reached * either
        reached *= either if branches else chance
    return total


def usual_table(chance: float, drafted: Sequence[int], branches: bool = False) -> Floats:
    """Return `usual_accepted` for drafts of some lengths, (lengths, `MAX_ROWS` + 1), by number of nodes."""
    shapes = [[DraftShape.of_size(n, nodes) for nodes in ROWS.tolist()] for n in drafted]
    return np.array([[usual_accepted(chance, shape, branches) for shape in of_length] for of_length in shapes])


class AcceptanceEstimates:
    """The estimates of all drafters at one temperature; kept from reply to reply.

    Attributes:
        lookup: Estimate of prompt lookup.
        chains: Estimate of a draft model.
        head: Estimate of a drafter head.
    """

    def __init__(self) -> None:
        drafted = [length - 1 for length in LENGTHS]
        self.lookup = LookupEstimate()
        self.chains = DraftEstimate(DRAFT_TOKENS, usual_table(_CHAIN_CHANCE, DRAFT_TOKENS))
        self.head = DraftEstimate(drafted, usual_table(_HEAD_CHANCE, drafted, branches=True))

    def chain(self, shape: DraftShape) -> float:
        """Return the expected accepted tokens of a draft model's draft of this shape."""
        return usual_accepted(min(_CHAIN_CHANCE * self.chains.factor, 1.0), shape)

    def forget(self, share: float) -> None:
        """Keep this share of what the present text showed; the rest is the average over texts again."""
        for estimate in (self.chains, self.head):
            estimate.forget(share)
