"""What each kind of drafter could draft now, and what that should bring: all that the planner must know of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rdchat.inference.api.requests import BeamShape, Mode
from rdchat.inference.auto.costs.cost_curve import ROWS, Floats
from rdchat.inference.auto.costs.cost_model import CostModel
from rdchat.inference.auto.estimates.acceptance_estimates import DRAFTED, DraftValues
from rdchat.inference.auto.estimates.lookup_and_chain_rates import ChainRates
from rdchat.inference.auto.plan import LENGTHS, LONGEST, MOST_ROWS, WIDTHS
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.drafting.node_pool import Ints

_SPREAD = 16  # rounds that a draft model's catching up is spread over


@dataclass(frozen=True, slots=True, eq=False)
class DraftTable:
    """Drafts that one drafter could make.

    Attributes:
        mode: Which drafter.
        shapes: Of each draft: its beams, 1 for a chain, and the tokens of its longest path, the root included.
        accepted: (shapes, `MOST_ROWS` + 1) expected accepted length, by the nodes that are verified, the root included;
            minus infinity where there is no such draft.
        draft_ms: (shapes,) time of the draft itself.
    """

    mode: Mode
    shapes: Sequence[tuple[int, int]]
    accepted: Floats
    draft_ms: Floats


class DraftSource(Protocol):
    """What a drafter must tell the controller, before anything is drafted.

    A new kind of drafter needs one of these, a mode, and an estimate of its acceptance.
    """

    def table(self, limit: int, depth: int) -> DraftTable | None:
        """Return what could be drafted; None for nothing.

        Args:
            limit: The most tokens that may be drafted.
            depth: Tokens of the text before.
        """


def lookup_table(path: Floats, limit: int) -> DraftTable | None:
    """Return the drafts that prompt lookup could make.

    Args:
        path: (tokens,) the chance that its path is accepted up to each token.
        limit: Tokens that may be drafted.
    """
    drafted = np.cumsum(path[: min(limit, MOST_ROWS - 1)])
    if not drafted.size:
        return None
    nodes = np.arange(2, 2 + len(drafted))
    return DraftTable(Mode.LOOKUP, [(1, int(n)) for n in nodes], _at(nodes, drafted), np.zeros(len(nodes)))


@dataclass(frozen=True, slots=True)
class ChainSource:
    """A draft model; see `DraftSource`.

    Attributes:
        rates: How often its tokens are accepted.
        costs: What its steps cost.
        shapes: Of the drafts to choose from.
        late: Tells how many tokens of the conversation it has not read yet.
    """

    rates: ChainRates
    costs: CostModel
    shapes: Sequence[DraftShape]
    late: Callable[[], int]

    def table(self, limit: int, depth: int = 0) -> DraftTable | None:  # noqa: ARG002  it is measured at one depth
        """See `DraftSource`."""
        drafts = [
            (shape.draft_tokens, self.rates.expected(shape.draft_tokens, shape.runner_ups), shape.nodes)
            for shape in self.shapes
            if shape.draft_tokens <= limit and shape.nodes <= MOST_ROWS
        ]
        return self.priced(drafts, self.late()) if drafts else None

    def priced(self, drafts: Sequence[tuple[int, float, int]], behind: int) -> DraftTable:
        """Return the table of some drafts.

        Args:
            drafts: Steps, expected accepted length, and nodes of each.
            behind: Tokens that the draft model had not read before.
        """
        steps, accepted, nodes = zip(*drafts, strict=True)
        late = min(behind, 1)
        catching_up = self.costs.draft_model_ms(1, behind) - self.costs.draft_model_ms(1, late)
        draft_ms = [self.costs.draft_model_ms(n, late) + catching_up / _SPREAD for n in steps]
        shapes = [(1, n + 1) for n in steps]
        return DraftTable(Mode.SPECULATIVE, shapes, _at(np.array(nodes), np.array(accepted)), np.array(draft_ms))


@dataclass(frozen=True, slots=True)
class HeadSource:
    """A drafter head; see `DraftSource`.

    Attributes:
        values: What its drafts of this width come to.
        costs: What they cost.
        width: Beams.
        padding: Whether rows without meaning may be added to a call.
        most_drafted: The most tokens that it drafts below a root.
        drafts_ahead: Whether a draft can be begun before the host knows its root.
    """

    values: DraftValues
    costs: CostModel
    width: int
    padding: bool = True
    most_drafted: int = LONGEST - 1
    drafts_ahead: bool = True

    @property
    def longest(self) -> BeamShape:
        """The shape of its longest draft that there may be."""
        return BeamShape(self.width, min(LONGEST, 1 + self.most_drafted))

    def table(self, limit: int, depth: int = 0) -> DraftTable | None:
        """See `DraftSource`."""
        limit = min(limit, self.most_drafted)
        if not limit:
            return None
        accepted = self.values.table()
        accepted[:, :2] = -np.inf
        accepted[limit < DRAFTED] = -np.inf
        if not self.padding and self.width == 1:
            accepted[1 + DRAFTED[:, None] < ROWS] = -np.inf  # a chain has no more nodes than tokens
        shapes = [(self.width, length) for length in LENGTHS]
        return DraftTable(Mode.DRAFTER, shapes, accepted, self.costs.beams_ms(depth)[WIDTHS.index(self.width)])


def _at(nodes: Ints, accepted: Floats) -> Floats:
    """Return a table whose drafts each have one number of nodes."""
    table = np.full((len(nodes), len(ROWS)), -np.inf)
    table[np.arange(len(nodes)), nodes] = accepted
    return table
