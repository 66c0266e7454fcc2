"""The drafts that the automatic mode can choose from, and the choice it makes for one target call."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rdchat.inference.api.requests import Mode

Floats = npt.NDArray[np.float64]

MOST_ROWS = 32  # rows of a verified tree: beyond, a node is worth less than it costs on every machine known
ROWS = np.arange(MOST_ROWS + 1)
WIDTHS = (1, 2, 4, 8)  # beams of a head's draft
LENGTHS = (2, 3, 4, 5, 6, 8)  # tokens of a beam, the root included
WIDEST, LONGEST = WIDTHS[-1], LENGTHS[-1]
DRAFT_TOKENS = (1, 2, 3, 4, 6, 8)  # steps of a draft model


@dataclass(frozen=True, slots=True)
class Plan:
    """What is drafted for a target call.

    Attributes:
        mode: What drafts; `off` is a plain step.
        width: Beams of a head's draft; 1 for a chain, 0 in a plain step.
        length: Tokens of the longest path, the root included.
        nodes: Nodes of the tree, the root included.
        rows: Rows of the call: the nodes, and padding up to a number of rows that is cheaper.
    """

    mode: Mode = Mode.OFF
    width: int = 0
    length: int = 1
    nodes: int = 1
    rows: int = 1


PLAIN = Plan()


@dataclass(frozen=True, slots=True)
class Choice:
    """A plan and what is expected of it.

    Attributes:
        plan: What to do.
        tokens: Expected tokens of the call.
        ms: Expected time of the call, draft and host included.
        plain_ms: Time of a plain step at the same place.
        rate: Tokens per millisecond of the best drafter that can always draft, or of plain decoding.
    """

    plan: Plan
    tokens: float
    ms: float
    plain_ms: float
    rate: float

    @property
    def gain(self) -> float:
        """Tokens beyond those that its time would bring at `rate`; below 0 plain decoding is better."""
        return self.tokens - 1 - self.rate * (self.ms - self.plain_ms)

    @property
    def cost(self) -> float:
        """The call's time over a plain step's."""
        return self.ms / self.plain_ms

    @property
    def speedup(self) -> float:
        """Expected speed over plain decoding."""
        return self.tokens / self.cost
