"""The drafts that the automatic mode can choose from, and its choice for one target call."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rdchat.inference.api.requests import Mode

Floats = npt.NDArray[np.float64]

MAX_ROWS = 32  # most rows of a verified tree: on every known machine, further nodes cost more than they bring
ROWS = np.arange(MAX_ROWS + 1)
WIDTH = 4  # beams of a head's draft, where the target takes trees
LENGTHS = (2, 3, 4, 5, 6, 8)  # tokens of a beam, the root included
LONGEST = LENGTHS[-1]
DRAFT_TOKENS = (1, 2, 3, 4, 6, 8)  # steps of a draft model


@dataclass(frozen=True, slots=True)
class Plan:
    """What to draft for a target call."""

    mode: Mode = Mode.OFF  # the drafter; `off` for a plain step
    width: int = 0  # beams of a head's draft; 1 for a chain, 0 in a plain step
    length: int = 1  # tokens of the longest path, the root included
    nodes: int = 1  # nodes of the tree, the root included
    rows: int = 1  # rows of the call: the nodes, with padding where a larger number of rows is cheaper


PLAIN = Plan()


@dataclass(frozen=True, slots=True)
class Choice:
    """A plan and its expected result."""

    plan: Plan  # what to do
    tokens: float  # expected tokens of the call
    ms: float  # expected time of the call, draft and host included
    plain_ms: float  # time of a plain step at the same place
    rate: float  # tokens per millisecond of the best drafter that can always draft, or of plain decoding

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
