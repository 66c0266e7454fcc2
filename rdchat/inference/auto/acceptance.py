"""How far the target follows each drafter: estimates that are learnt from reply to reply. No MLX here."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rdchat.inference.auto.plan import DRAFT_TOKENS, LENGTHS, ROWS, WIDTHS, Floats
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.drafting.lookup_index import Before, Guess

_MATCHES = (2, 3, 4, 5, 6, 8, 12, 16, 24)  # least lengths of an ending that occurred before, by class
# Prompt lookup's next token is right. Less than what 2,757 of them in replies of the default model showed (0.58 for the
# shortest ending if it occurred once, 0.69 and 0.29 below): a path believed too much costs more than one missed.
_MATCH_PRIORS = {
    Before.ONCE: (0.27, 0.39, 0.46, 0.58, 0.61, 0.7, 0.75, 0.85, 0.89),
    Before.ALIKE: (0.39, 0.7, 0.74, 0.79, 0.85, 0.89, 0.89, 0.91, 0.94),
    Before.VARIED: (0.07, 0.13, 0.2, 0.33, 0.34, 0.49, 0.53, 0.7, 0.83),
}
_HEAD_CHANCE = 0.6  # that an unknown head's first choice is accepted
_CHAIN_CHANCE = 0.84  # that a draft model's is: 0.83 to 0.87 with the pair in docs/benchmarks.md
_RUNNER_UPS = 0.85  # n candidates miss n ** -0.85 as often as one
_UNTRIED = 0.98  # of what a text showed, that counts after a plain step


class Rate:
    """A ratio of what came to what was expected, such as accepted to drafted tokens, in which old ones fade.

    Args:
        prior: The ratio where nothing was observed.
        weight: Expectation that the prior counts for.
        fade: Share of earlier observations that stays, at each new one.
    """

    def __init__(self, prior: float, weight: float = 4.0, fade: float = 0.985) -> None:
        self._prior, self._weight, self._fade = prior, weight, fade
        self._expected = self._came = 0.0

    @property
    def value(self) -> float:
        return self.given(self._prior)

    def given(self, prior: float) -> float:
        """Return the ratio with another prior."""
        return (self._came + prior * self._weight) / (self._expected + self._weight)

    def learn(self, came: float, expected: float = 1.0) -> None:
        """Take an observation."""
        self._expected = self._expected * self._fade + expected
        self._came = self._came * self._fade + came

    def forget(self, kept: float) -> None:
        """Keep this share of what was observed."""
        self._expected *= kept
        self._came *= kept


class LookupEstimate:
    """The chance that prompt lookup's next token is right.

    It depends on the length of the ending that occurred before, and on whether the text went on alike wherever its last
    two tokens occurred.
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
        longest = sum(guess.match >= least for least in _MATCHES[1:])
        return self._rates[guess.before][longest]


class DraftEstimate:
    """Expected accepted tokens of a drafter's trees: the usual ones, changed by how this text is followed.

    A draft is summed up by one chance: that a path of it goes on by another token. A factor on that chance is learnt in
    each text, and begins with what all texts showed.

    Args:
        drafted: Tokens of the longest path below the root, of each length.
        usual: (lengths, `MOST_ROWS` + 1) usual accepted tokens, by nodes, the root included.
    """

    def __init__(self, drafted: Sequence[int], usual: Floats) -> None:
        self._drafted = np.array(drafted)
        self._chances = np.zeros_like(usual)  # those that give the usual accepted tokens, found bit by bit
        for bit in 0.5 ** np.arange(1, 40):
            self._chances += bit * (self._accepted(self._chances + bit) <= usual)
        self._of_texts, self._of_text = Rate(1.0, 20.0, 0.998), Rate(1.0, 6.0, 0.97)

    @property
    def factor(self) -> float:
        """By how much paths go on more often than usual."""
        return self._of_text.given(self._of_texts.value)

    def table(self) -> Floats:
        """Return (lengths, `MOST_ROWS` + 1) the expected accepted tokens."""
        return self._accepted(np.minimum(self._chances * self.factor, 1.0))

    def learn(self, drafted: int, nodes: int, accepted: int, ended: bool = False) -> None:
        """Take a draft.

        Args:
            drafted: Tokens of its longest path below the root.
            nodes: Nodes that were verified, the root included.
            accepted: Tokens of it that were accepted.
            ended: Whether the reply ended with these, so that nothing is known of further ones.
        """
        chance = float(self._chances[np.searchsorted(self._drafted, drafted), nodes])
        for came in [1.0] * accepted + [0.0] * (accepted < drafted and not ended):
            for rate in (self._of_texts, self._of_text):
                rate.learn(came, chance)

    def _accepted(self, chances: Floats) -> Floats:
        """Return what paths come to that go on with such chances, (lengths, `MOST_ROWS` + 1)."""
        total, along = np.zeros_like(chances), np.ones_like(chances)
        for depth in range(1, self._drafted[-1] + 1):
            along = along * chances
            total += along * (self._drafted >= depth)[:, None]
        return total

    def begin_text(self) -> None:
        """Go back half way to what texts usually show."""
        self._of_text.forget(0.5)

    def go_untried(self) -> None:
        """Forget a little of this text, as a plain step is made: its next part may be followed better."""
        self._of_text.forget(_UNTRIED)


def usual_accepted(chance: float, shape: DraftShape, branches: bool = False) -> float:
    """Return the accepted tokens of a draft.

    Args:
        chance: That a first choice is accepted after accepted ones.
        shape: Of the draft.
        branches: Whether paths go on behind runner-ups, as in a beam search; they end there in a draft model's drafts.
    """
    total, reached = 0.0, 1.0
    for step in range(shape.draft_tokens):
        either = 1 - (1 - chance) * shape.candidates(step) ** -_RUNNER_UPS
        total += reached * either
        reached *= either if branches else chance
    return total


def usual_table(chance: float, drafted: Sequence[int], branches: bool = False) -> Floats:
    """Return `usual_accepted` of drafts of some lengths, (lengths, `MOST_ROWS` + 1), by nodes."""
    shapes = [[DraftShape.of_size(n, nodes) for nodes in ROWS.tolist()] for n in drafted]
    return np.array([[usual_accepted(chance, shape, branches) for shape in of_length] for of_length in shapes])


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What is measured of a drafter head after its training: means over many texts.

    Attributes:
        rates: By depth, the share of what its probabilities promise that comes true.
        values: (widths, lengths, nodes) the expected accepted tokens.
    """

    rates: tuple[float, ...]
    values: Floats


class AcceptanceEstimates:
    """The estimates of all drafters at one temperature; kept from reply to reply.

    Args:
        known: The head's measured acceptance; None where there is none.

    Attributes:
        known: The same.
        lookup: Of prompt lookup.
        chains: Of a draft model.
        follows: How often a head's draft follows another, so that it may be begun ahead.
    """

    def __init__(self, known: Acceptance | None = None) -> None:
        self.known = known
        self.lookup, self.follows = LookupEstimate(), Rate(0.5)
        self.chains = DraftEstimate(DRAFT_TOKENS, usual_table(_CHAIN_CHANCE, DRAFT_TOKENS))
        self._heads: dict[int, DraftEstimate] = {}

    def head(self, width: int) -> DraftEstimate:
        """Return the estimate of a drafter head's trees of a width."""
        if width not in self._heads:
            drafted = [length - 1 for length in LENGTHS]
            if self.known is None:
                values = usual_table(_HEAD_CHANCE, drafted, branches=True)
            else:
                values = self.known.values[WIDTHS.index(width)]
            self._heads[width] = DraftEstimate(drafted, values)
        return self._heads[width]

    def chain(self, shape: DraftShape) -> float:
        """Return the expected accepted tokens of a draft model's draft of any length."""
        return usual_accepted(min(_CHAIN_CHANCE * self.chains.factor, 1.0), shape)

    def begin_text(self) -> None:
        """Go back towards what texts usually show, as another reply begins."""
        for estimate in (self.chains, *self._heads.values()):
            estimate.begin_text()

    def go_untried(self) -> None:
        """Take a plain step."""
        for estimate in (self.chains, *self._heads.values()):
            estimate.go_untried()
