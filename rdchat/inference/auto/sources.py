"""What each drafter can draft below a token, with what it should bring and cost: all that the planner needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rdchat.inference.api.requests import Mode
from rdchat.inference.auto.acceptance import DraftEstimate
from rdchat.inference.auto.cost_model import CostModel
from rdchat.inference.auto.plan import DRAFT_TOKENS, LENGTHS, LONGEST, ROWS, WIDTHS, Floats

_SPREAD = 16  # rounds that a draft model's catching up is spread over


@dataclass(frozen=True, slots=True, eq=False)
class Drafts:
    """The drafts that one drafter can make now.

    Attributes:
        mode: Which drafter.
        width: Beams; 1 for a chain.
        lengths: Tokens of each draft's longest path, the root included.
        accepted: (lengths, `MOST_ROWS` + 1) expected accepted tokens, by the nodes that are verified, the root
            included; minus infinity where there is no such draft.
        draft_ms: (lengths,) time of the draft itself.
    """

    mode: Mode
    width: int
    lengths: Sequence[int]
    accepted: Floats
    draft_ms: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A drafter that can draft below any token: a drafter head or a draft model.

    A new kind of drafter needs one of these, and a mode.

    Attributes:
        mode: Which drafter.
        width: Beams; 1 for a chain.
        lengths: Tokens of the longest paths to choose from, the root included.
        possible: (lengths, `MOST_ROWS` + 1) bool: the numbers of nodes that such a draft can have, the root included.
        estimate: How far its drafts are followed.
        draft_ms: Returns the time of a draft of each length, (lengths,).
    """

    mode: Mode
    width: int
    lengths: Sequence[int]
    possible: npt.NDArray[np.bool_]
    estimate: DraftEstimate
    draft_ms: Callable[[], Floats]

    def drafts(self, limit: int) -> Drafts:
        """Return what can be drafted.

        Args:
            limit: The most tokens that may be drafted.
        """
        possible = self.possible & (np.array(self.lengths) <= 1 + limit)[:, None]
        accepted = np.where(possible, self.estimate.table(), -np.inf)
        return Drafts(self.mode, self.width, self.lengths, accepted, self.draft_ms())


def head_source(estimate: DraftEstimate, costs: CostModel, width: int, most_drafted: int = LONGEST) -> Source:
    """Return a drafter head's drafts of a width; it drafts at most so many tokens below a root."""
    lengths = np.array(LENGTHS)[:, None]
    possible = (lengths <= 1 + most_drafted) & (lengths == ROWS if width == 1 else lengths <= ROWS)
    return Source(Mode.DRAFTER, width, LENGTHS, possible, estimate, lambda: costs.beams_ms()[WIDTHS.index(width)])


def draft_model_source(
    estimate: DraftEstimate, costs: CostModel, late: Callable[[], int], trees: bool = True
) -> Source:
    """Return a draft model's drafts.

    Args:
        estimate: How far they are followed.
        costs: What they cost.
        late: Returns how many tokens of the conversation it has not read yet.
        trees: Whether it may add runner-ups beside its chain.
    """
    lengths = 1 + np.array(DRAFT_TOKENS)

    def draft_ms() -> Floats:
        behind = late()
        soon = min(behind, 1)
        catching_up = costs.draft_model_ms(1, behind) - costs.draft_model_ms(1, soon)
        return np.array([costs.draft_model_ms(steps, soon) + catching_up / _SPREAD for steps in DRAFT_TOKENS])

    possible = (lengths[:, None] <= ROWS) if trees else (lengths[:, None] == ROWS)
    return Source(Mode.SPECULATIVE, 1, lengths.tolist(), possible, estimate, draft_ms)


def lookup_drafts(path: Floats) -> Drafts:
    """Return the drafts that prompt lookup can make.

    Args:
        path: (tokens,) the chance that its path is accepted up to each token; fewer than `MOST_ROWS`, and at least one.
    """
    nodes = np.arange(2, 2 + len(path))
    accepted = np.full((len(nodes), len(ROWS)), -np.inf)
    accepted[np.arange(len(nodes)), nodes] = np.cumsum(path)
    return Drafts(Mode.LOOKUP, 1, nodes.tolist(), accepted, np.zeros(len(nodes)))
