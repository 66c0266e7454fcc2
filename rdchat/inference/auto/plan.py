"""The drafts that the automatic mode can choose from, and its choice for one target call."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rdchat.inference.api import Mode

Floats = npt.NDArray[np.float64]

# Maximum rows of a verified tree: on every known machine, further nodes cost more than they bring. On the cost curves
# of `tests/inference/auto/chips.py`, 48 gain nothing on seven, and on the others at most 2.6 %.
MAX_ROWS = 32
ROWS = np.arange(MAX_ROWS + 1)
# Beams of a head's draft, where the target takes trees.
WIDTH = 4
# Tokens of a beam, the root included.
LENGTHS = (2, 3, 4, 5, 6, 8)
LONGEST = LENGTHS[-1]
# Steps of a draft model.
DRAFT_TOKENS = (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to draft for a target call.

    Attributes:
        mode: The drafter; `off` for a plain step.
        width: Beams of a head's draft; 1 for a chain, 0 in a plain step.
        length: Tokens of the longest path, the root included.
        nodes: Nodes of the tree, the root included.
        rows: Rows of the call: the nodes, with padding where a larger number of rows is cheaper.
    """

    mode: Mode = Mode.OFF
    width: int = 0
    length: int = 1
    nodes: int = 1
    rows: int = 1


@dataclass(frozen=True, slots=True)
class Choice:
    """A plan and its expected result.

    Attributes:
        plan: What to draft.
        tokens: Expected tokens of the call.
        ms: Expected time of the call, draft and host included.
        plain_ms: Time of a plain step at the same depth.
        rate: Tokens per millisecond of the best drafter that can always draft, or of plain decoding.
    """

    plan: Plan
    tokens: float
    ms: float
    plain_ms: float
    rate: float

    @property
    def gain(self) -> float:
        """Expected tokens minus those that its time would bring at `rate`; below 0 plain decoding is better."""
        return self.tokens - 1 - self.rate * (self.ms - self.plain_ms)

    @property
    def cost(self) -> float:
        """The call's time divided by a plain step's."""
        return self.ms / self.plain_ms

    @property
    def speedup(self) -> float:
        """Expected speed over plain decoding."""
        return self.tokens / self.cost
