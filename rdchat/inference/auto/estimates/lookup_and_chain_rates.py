"""How often prompt lookup's and a draft model's tokens are accepted: ratios of sums that fade, over a prior.

All sums fade, so that the newest text counts most, and begin with a prior of a few made-up observations.
"""

from collections.abc import Sequence

import numpy as np

from rdchat.inference.auto.costs.cost_curve import Floats
from rdchat.inference.auto.plan import DRAFT_TOKENS
from rdchat.inference.drafting.lookup_index import Before, Guess

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


class Rate:
    """An exponentially weighted ratio of what came to what was expected, such as accepted to drafted tokens.

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
        self._beside = [Rate(0.0) for _ in range(DRAFT_TOKENS[-1] + 1)]  # where the first choice was not
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
