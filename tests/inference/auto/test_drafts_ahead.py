"""The automatic mode begins a head's next draft before the host knows what the round brings, where that pays."""

from dataclasses import replace

from rdchat.inference.api.requests import BeamShape, Mode
from rdchat.inference.auto.acceptance import AcceptanceEstimates
from rdchat.inference.auto.controller import Controller
from rdchat.inference.auto.cost_model import PLAIN_STEP, CostModel, Part
from rdchat.inference.auto.plan import LENGTHS, MOST_ROWS, PLAIN, WIDTHS, Plan
from rdchat.inference.auto.planner import Planner

ROUND = Plan(Mode.DRAFTER, 4, 5, 8, 8)


def controller(lone_call_ms: float) -> Controller:
    """Return one on a device whose plain steps take 10 ms, and calls with nothing queued behind them this long."""
    costs = CostModel()
    costs.use(Part.CALLS, {(PLAIN_STEP, 128): 10.0, (1, 128): lone_call_ms, (MOST_ROWS, 128): 30.0})
    costs.use(Part.BEAMS, {(width, length): 0.5 * length for width in WIDTHS for length in LENGTHS})
    return Controller(Planner(costs), AcceptanceEstimates(), range(128))


def follow(controller: Controller, times: int, plan: Plan) -> None:
    for _ in range(times):
        controller.plan = ROUND
        controller._change(plan)
    controller.plan = ROUND


def test_a_draft_is_begun_ahead_where_a_round_is_likely_enough_to_follow() -> None:
    chosen = controller(12.0)
    assert chosen.begins_ahead(20) is None, "it is a plain step"
    follow(chosen, 40, replace(ROUND, length=3))
    assert chosen.begins_ahead(20) == BeamShape(4, 5)
    assert chosen.begins_ahead(3) is None, "no room for one as long"
    follow(chosen, 200, PLAIN)
    assert chosen.begins_ahead(20) is None


def test_where_the_host_costs_nothing_there_is_nothing_to_save() -> None:
    chosen = controller(10.0)
    follow(chosen, 40, ROUND)
    assert chosen.begins_ahead(20) is None
