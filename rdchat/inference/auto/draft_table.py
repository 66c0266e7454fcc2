"""What each kind of drafter could draft now, and what that should bring: all that the planner must know of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from rdchat.inference.api.requests import Mode
from rdchat.inference.auto.costs.cost_curve import ROWS, Floats
from rdchat.inference.auto.costs.cost_model import CostModel
from rdchat.inference.auto.estimates.acceptance_estimates import DRAFTED, DraftValues
from rdchat.inference.auto.estimates.lookup_and_chain_rates import ChainRates, Rate
from rdchat.inference.auto.plan import LENGTHS, MOST_ROWS, WIDTHS
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.drafting.node_pool import Ints

_BRANCHES = (2, 4, LENGTHS[-1] - 1)  # tokens of a lookup path beside beams that are considered
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
        branch: Tokens of a path from prompt lookup that is offered beside.
    """

    mode: Mode
    shapes: Sequence[tuple[int, int]]
    accepted: Floats
    draft_ms: Floats
    branch: int = 0


class DraftSource(Protocol):
    """What a drafter must tell the controller, before anything is drafted.

    A new kind of drafter needs one of these, a mode, and an estimate of its acceptance.
    """

    def table(self, limit: int) -> DraftTable | None:
        """Return what could be drafted, at most `limit` tokens deep; None for nothing."""


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

    def table(self, limit: int) -> DraftTable | None:
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
class RecurrentSource:
    """A recurrent drafter; see `DraftSource`.

    Attributes:
        values: What its drafts of this width come to.
        costs: What they cost.
        width: Beams.
        branches: What drafts with a branch from prompt lookup came to; None where the target takes chains only.
        padding: Whether rows without meaning may be added to a call.
    """

    values: DraftValues
    costs: CostModel
    width: int
    branches: Rate | None = None
    padding: bool = True

    def table(self, limit: int) -> DraftTable | None:
        """See `DraftSource`; drafts without a branch from prompt lookup."""
        if not limit:
            return None
        accepted = self.values.table()
        accepted[:, :2] = -np.inf
        accepted[limit < DRAFTED] = -np.inf
        if not self.padding and self.width == 1:
            accepted[1 + DRAFTED[:, None] < ROWS] = -np.inf  # a chain has no more nodes than tokens
        shapes = [(self.width, length) for length in LENGTHS]
        return DraftTable(Mode.RECURRENT, shapes, accepted, self.costs.beams_ms()[WIDTHS.index(self.width)])

    def with_branches(self, table: DraftTable, path: Floats, limit: int) -> Iterator[DraftTable]:
        """Yield the same drafts with a branch from prompt lookup, which is no longer than the beams.

        A depth is reached by the branch or by the beams; how likely both fail there is reckoned as if they had nothing
        to do with each other, and what then comes is held against it.

        Args:
            table: What `table` gave.
            path: (tokens,) the chance that the branch is accepted up to each token.
            limit: Tokens that may be drafted.
        """
        if self.branches is None:
            return
        reached = _reached(table.accepted)
        for branch in sorted({min(length, limit, len(path)) for length in _BRANCHES}):
            beside = path[:branch] @ (1 - reached[:branch])
            accepted = np.full_like(table.accepted, -np.inf)
            accepted[:, 2 + branch :] = (table.accepted + beside)[:, 2:-branch]
            accepted = np.minimum(accepted * self.branches.value, DRAFTED[:, None])
            accepted[branch > DRAFTED] = -np.inf
            yield replace(table, accepted=accepted, branch=branch)


def _at(nodes: Ints, accepted: Floats) -> Floats:
    """Return a table whose drafts each have one number of nodes."""
    table = np.full((len(nodes), len(ROWS)), -np.inf)
    table[np.arange(len(nodes)), nodes] = accepted
    return table


def _reached(accepted: Floats) -> Floats:
    """Return (depths, nodes) how likely each depth is reached, by the accepted lengths of drafts, (lengths, nodes)."""
    known = np.where(np.isfinite(accepted), accepted, 0.0)
    depths = np.diff(DRAFTED, prepend=0)
    by_length = np.diff(known, axis=0, prepend=0.0) / depths[:, None]
    return np.clip(np.repeat(by_length, depths, axis=0), 0.0, 1.0)
