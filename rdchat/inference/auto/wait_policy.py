"""Where the host waits for the device in the middle of a round: only where that brings more than the wait costs.

Three choices, each by the price of a wait on this device (`WaitCosts`): whether a head's draft is looked at and cut
before it is verified; whether the next one is begun before the host knows what a round brings; and whether a draft
model's next step is queued before it is known whether the draft goes on. Plain arithmetic, no MLX.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from rdchat.inference.api.requests import BeamShape, Mode
from rdchat.inference.auto.costs.cost_curve import Floats
from rdchat.inference.auto.draft_table import DraftTable
from rdchat.inference.auto.estimates.acceptance_estimates import AcceptanceEstimates, value_by_nodes
from rdchat.inference.auto.plan import Choice, Plan
from rdchat.inference.auto.planner import Planner
from rdchat.inference.drafting.node_pool import HostPool, NodePool

_TOLD_EVERY = 4  # heads' drafts that are not cut: what cutting would have saved is looked at


class WaitPolicy:
    """The waits of one reply.

    Args:
        planner: Tells what drafts cost and bring.
        estimates: How far drafts are followed, and what waits brought up to now.
        drafts_ahead: Whether the head can draft below a root that the device still works on.

    Attributes:
        cuts: Whether heads' drafts are cut by their own scores.
    """

    def __init__(self, planner: Planner, estimates: AcceptanceEstimates, *, drafts_ahead: bool = True) -> None:
        self._drafts_ahead = drafts_ahead
        self._planner, self._costs, self._estimates = planner, planner.costs, estimates
        self._uncut: NodePool[Any] | None = None  # the last draft, where it was not cut
        self._uncut_drafts = 0
        self.cuts = True

    # Cutting a head's draft

    def decide(self, rate: float) -> None:
        """Decide whether drafts are cut from now on, where a millisecond would bring `rate` tokens otherwise."""
        self.cuts = self._estimates.cut_gain.value >= rate * self._costs.waits.before_call_ms

    def values(self, made: Choice, depth: int, pool: HostPool) -> Floats:
        """Return `value_by_nodes` of a head's draft, and learn what cutting it saves; arguments as for `sized`."""
        accepted = value_by_nodes(pool, self._estimates.nodes.chances(pool))
        self._estimates.cut_gain.learn(self._planner.cut_gain(made, depth, accepted))
        return accepted

    def left_uncut(self, pool: NodePool[Any]) -> None:
        """Take a draft that is verified as it was planned; the device may still be working on it."""
        self._uncut = pool

    def round_ended(self, made: Choice, depth: int) -> None:
        """Learn from time to time what cutting would have saved: the draft is computed by now."""
        pool, self._uncut = self._uncut, None
        if pool is not None:
            self._uncut_drafts += 1
            if self._uncut_drafts % _TOLD_EVERY == 0:
                drawn = pool.fetch()
                if drawn.finite:
                    self.values(made, depth, drawn)
        self.decide(made.rate)

    def at_once(self, table: DraftTable) -> DraftTable:
        """Return what heads' drafts cost where the host does not wait for them before they are verified.

        Draft and call are measured one by one, so their sum holds one wait too many.
        """
        return replace(table, draft_ms=np.maximum(table.draft_ms - self._costs.waits.before_call_ms, 0.0))

    # Beginning a head's next draft before the host knows its root

    def followed(self, before: Plan, after: Plan) -> None:
        """Learn from two calls whether the second one's draft could have been begun in the first."""
        if before.mode is Mode.DRAFTER:
            same = after.mode is Mode.DRAFTER and after.width == before.width
            self._estimates.follows.learn(same and after.length <= before.length)

    def ahead(self, plan: Plan, limit: int, depth: int = 0) -> BeamShape | None:
        """Return the shape of a draft to begin in a round; None where it would too often be made in vain.

        Args:
            plan: Of the round.
            limit: Tokens that may be drafted behind it.
            depth: Tokens of the text before it.
        """
        wait_ms = self._costs.waits.before_call_ms
        if not self._drafts_ahead or plan.mode is not Mode.DRAFTER or plan.length > 1 + limit or not wait_ms:
            return None
        shape, follows = BeamShape(plan.width, plan.length), self._estimates.follows.value
        return shape if follows * wait_ms > (1 - follows) * self._costs.beam_ms(shape, depth) else None

    # Queueing a draft model's next step before the last one is looked at

    def went_on(self, on: bool) -> None:
        """Learn whether a draft model went on behind a token."""
        self._estimates.goes_on.learn(on)

    @property
    def drafts_on(self) -> bool:
        """Whether its next step is queued all the same: in vain where the draft ends, but no step waits then."""
        on = self._estimates.goes_on.value
        return on * self._costs.waits.between_steps_ms > (1 - on) * self._costs.draft_model_step_ms
