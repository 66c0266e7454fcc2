"""The chance that a token copied from an earlier match is right, learnt from what was accepted. No MLX here."""

# Number of tokens that are compared before two positions; longer matches count as this long.
LONGEST_MATCH = 32
# Classes of matches, by their minimum length.
_MATCHES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
# Chance that the token after the longest, newest match is right, by class; see docs/adr/0026.
_IN_CHAT = (0.22, 0.5, 0.62, 0.68, 0.74, 0.76, 0.82, 0.82, 0.86, 0.9, 0.95)
_IN_REPLIES = (0.15, 0.3, 0.45, 0.55, 0.62, 0.66, 0.74, 0.82, 0.86, 0.9, 0.95)
# Weight of a vote in earlier replies: those that agree are often copies of one another.
_ALIKE = 0.5
# Weight of these values, in observations, and the share that earlier observations keep at each new one.
_WEIGHT = 20.0
_FADE = 0.998
# Maximum of a chance.
_SUREST = 0.99
_CLASSES = [sum(match >= min_length for min_length in _MATCHES[1:]) for match in range(LONGEST_MATCH + 1)]


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
        self._expected = self._came = 0.0

    @property
    def value(self) -> float:
        return self.given(self._prior)

    def given(self, prior: float) -> float:
        """Return the ratio with another prior."""
        return (self._came + prior * self._weight) / (self._expected + self._weight)

    def learn(self, observed: float, expected: float = 1.0) -> None:
        """Add an observation."""
        self._expected = self._expected * self._fade + expected
        self._came = self._came * self._fade + observed

    def forget(self, share: float) -> None:
        """Keep this share of the observations."""
        self._expected *= share
        self._came *= share


class LookupEstimate:
    """The odds that the token after an earlier match comes next, by the length of the match.

    Each match votes for its token with these odds, and 1 is the vote for none of them. So the chance of a token is the
    sum of its votes over the sum of all votes and 1. Of one match in the chat that is the chance learnt; matches that
    agree raise it, others lower it. Matches in earlier replies count half.
    """

    def __init__(self) -> None:
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


def _odds(chance: float) -> float:
    chance = min(chance, _SUREST)
    return chance / (1 - chance)
