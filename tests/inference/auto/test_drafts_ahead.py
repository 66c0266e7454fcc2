"""The automatic mode begins a head's next draft before the host knows what the round brings, where that pays."""

from rdchat.inference.api import Mode
from rdchat.inference.auto.controller import Controller
from rdchat.inference.auto.cost_model import LENGTHS, MAX_ROWS, PLAIN_STEP, CostModel, Part
from rdchat.inference.auto.planner import WIDTH, AcceptanceEstimates, Plan, Planner

ROUND = Plan(Mode.DRAFTER, 4, 5, 8, 8)


def controller(lone_call_ms: float) -> Controller:
    """Return one on a device whose plain steps take 10 ms, and calls with nothing queued behind them this long."""
    costs = CostModel()
    costs.use(Part.CALLS, {(PLAIN_STEP, 128): 10.0, (1, 128): lone_call_ms, (MAX_ROWS, 128): 30.0})
    costs.use(Part.BEAMS, {(WIDTH, length): 0.5 * length for length in LENGTHS})
    return Controller(Planner(costs), AcceptanceEstimates(), range(128))


def test_a_draft_is_begun_ahead_where_another_as_long_may_follow() -> None:
    chosen = controller(12.0)
    assert not chosen.begins_ahead(Plan(Mode.LOOKUP, 1, 5, 8, 8), 20), "it needs the text that the round brings"
    assert chosen.begins_ahead(ROUND, 20)
    assert not chosen.begins_ahead(ROUND, 3), "no room for one as long"


def test_where_the_host_costs_nothing_there_is_nothing_to_save() -> None:
    assert not controller(10.0).begins_ahead(ROUND, 20)
