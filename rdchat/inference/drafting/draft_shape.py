"""The shape of a draft model's draft: a chain, with runner-ups beside some of its steps. No MLX here."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from rdchat.inference.api.requests import check_draft_tokens

# Measured on Qwen2.5-Coder-1.5B with its 0.5B: the target's token was the draft model's first choice in 75 of 100 cases
# at temperature 1 (83 greedy), the second in 12 (9), the third in 5 (2), the fourth in 2.
_REACHED = 0.75  # share of steps at which the first choice is the target's
_RUNNER_UP = 0.4  # share of the remaining cases that each next candidate takes


@dataclass(frozen=True, slots=True)
class DraftShape:
    """How many tokens are drafted, and how many runner-ups are offered beside each.

    Attributes:
        draft_tokens: Steps of the draft model: the depth of the draft.
        runner_ups: For each step from the first on, the number of further candidates; none where it ends early.

    Raises:
        InvalidSettingError: If the depth is out of range.
    """

    draft_tokens: int
    runner_ups: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_draft_tokens(self.draft_tokens)

    @classmethod
    @cache
    def of_size(cls, draft_tokens: int, nodes: int) -> "DraftShape":
        """Return the shape of at most `nodes` nodes, root and chain included, that should be accepted the furthest.

        Runner-ups go where they are most likely to be accepted: at early steps first, since later ones are reached more
        seldom. On the pair named above, 4 draft tokens and 12 nodes give 3.4 tokens a target call at temperature 1
        (greedy 3.8), the chain of 5 nodes 3.0 (3.45).
        """
        runner_ups = [0] * draft_tokens
        for _ in range(nodes - 1 - draft_tokens):
            chances = [_REACHED**step * _RUNNER_UP * (1 - _RUNNER_UP) ** count for step, count in enumerate(runner_ups)]
            runner_ups[int(np.argmax(chances))] += 1
        return cls(draft_tokens, tuple(runner_ups))

    @property
    def nodes(self) -> int:
        """Nodes of the tree, the root included."""
        return 1 + self.draft_tokens + sum(self.runner_ups)

    def candidates(self, step: int) -> int:
        """Return how many tokens a step offers, its first choice included."""
        return 1 + (self.runner_ups[step] if step < len(self.runner_ups) else 0)
