"""The automatic mode knows what a wait for the device costs, and waits where that pays."""

from dataclasses import replace

import numpy as np
import pytest

from rdchat.inference.api.requests import BeamShape, Mode
from rdchat.inference.auto.costs.cost_curve import PLAIN_STEP
from rdchat.inference.auto.costs.cost_model import CostModel, Part
from rdchat.inference.auto.costs.measuring import measure_waits
from rdchat.inference.auto.costs.other_programs import OtherPrograms
from rdchat.inference.auto.costs.wait_costs import STEPS, Wait, WaitCosts
from rdchat.inference.auto.draft_table import DraftTable, HeadSource
from rdchat.inference.auto.estimates.acceptance_estimates import AcceptanceEstimates, DraftValues
from rdchat.inference.auto.plan import LENGTHS, MOST_ROWS, PLAIN, WIDTHS, Plan
from rdchat.inference.auto.planner import Planner
from rdchat.inference.auto.wait_policy import WaitPolicy
from rdchat.inference.drafting.draft_model import DraftModel
from scripts.chips import M1_MAX
from scripts.device_stand_in import DeviceStandIn, DeviceTimes
from tests.inference.auto.known_drafts import reply_with_drafts
from tests.inference.auto.measurements import finished
from tests.inference.auto.simulation import Drafting, Simulation
from tests.inference.fakes import ALPHABET, random_drafter, tiny_llama

ROUND = Plan(Mode.DRAFTER, 4, 5, 8, 8)


def waiting(before_call: float, between_steps: float = 0.0) -> dict[tuple[int, int], float]:
    """Costs of waits that take so many milliseconds."""
    steps = {(Wait.BETWEEN_STEPS, 0): 10.0, (Wait.BETWEEN_STEPS, 1): 10.0 + STEPS * between_steps}
    return {(Wait.BEFORE_CALL, 0): 20.0, (Wait.BEFORE_CALL, 1): 20.0 + before_call, **steps}


def policy(before_call: float, between_steps: float = 0.0) -> tuple[WaitPolicy, AcceptanceEstimates]:
    costs = CostModel()
    costs.use(Part.CALLS, {(PLAIN_STEP, 128): 10.0, (1, 128): 12.0, (8, 128): 14.0, (MOST_ROWS, 128): 30.0})
    costs.use(Part.BEAMS, {(width, length): 0.5 * length for width in WIDTHS for length in LENGTHS})
    costs.use(Part.DRAFT_MODEL, {(1, 0): 3.0, (16, 0): 5.0})
    costs.use(Part.WAITS, waiting(before_call, between_steps))
    estimates = AcceptanceEstimates()
    return WaitPolicy(Planner(costs), estimates), estimates


def test_a_wait_costs_what_the_same_work_takes_longer_with_it() -> None:
    assert WaitCosts.of(waiting(2.5, 0.75)) == WaitCosts(2.5, 0.75)
    assert WaitCosts.of({(Wait.BEFORE_CALL, 0): 20.0, (Wait.BEFORE_CALL, 1): 19.0}) == WaitCosts(0.0, 0.0)
    assert WaitCosts.of({}) == WaitCosts()


def test_waits_are_measured_where_there_is_something_to_wait_for() -> None:
    model = tiny_llama()
    drafter, small = random_drafter(model), DraftModel(model, tiny_llama(seed=3), len(ALPHABET))
    assert set(finished(measure_waits(model, drafter, small, OtherPrograms())).costs) == {
        (wait, n) for wait in Wait for n in (0, 1)
    }
    assert set(finished(measure_waits(model, None, small, OtherPrograms())).costs) == {
        (Wait.BETWEEN_STEPS, 0),
        (Wait.BETWEEN_STEPS, 1),
    }


def test_on_a_device_that_leaves_the_host_alone_a_wait_costs_what_could_have_been_built_meanwhile() -> None:
    """On the stand-in: the wait itself, and the graph of the call, which else is built while the device drafts."""
    model = tiny_llama()
    times = DeviceTimes(call=40, draft_call=40, beam_step=40, wait=5)
    device = DeviceStandIn(model.network, times=times)
    drafter = random_drafter(model)
    with device.working("rdchat.inference.auto.costs.scratch.perf_counter"):
        costs = finished(measure_waits(model, drafter, None, OtherPrograms())).costs
    assert WaitCosts.of(costs).before_call_ms > times.wait


def test_drafts_are_cut_where_that_saves_more_than_the_wait_costs() -> None:
    free, dear = policy(0.0)[0], policy(50.0)[0]
    for of_device in (free, dear):
        of_device.decide(rate=0.1)
    assert (free.cuts, dear.cuts) == (True, False)


def test_what_cutting_would_save_is_learnt_of_drafts_that_are_not_cut() -> None:
    """Else a device on which it did not pay at first would never cut again."""
    chosen, estimates = policy(3.0)
    choice = Planner(chosen._costs).choose(128, [_table(chosen)])
    assert choice is not None
    made = replace(choice, plan=replace(ROUND, nodes=30, rows=30), rate=0.15)  # of which nearly all is in vain
    chosen.decide(0.15)
    assert not chosen.cuts
    for _ in range(40):
        chosen.left_uncut(Drafting(0.05).draw(4, 5))
        chosen.round_ended(made, 128)
    assert estimates.cut_gain.value > 0.45
    assert chosen.cuts


def _table(chosen: WaitPolicy) -> DraftTable:
    values = DraftValues(Drafting(0.4).true_values()[WIDTHS.index(4)])
    table = HeadSource(values, chosen._costs, 4).table(8)
    assert table is not None
    return table


def test_a_draft_that_is_verified_at_once_costs_a_wait_less() -> None:
    chosen, _ = policy(1.0)
    table = _table(chosen)
    assert np.allclose(chosen.at_once(table).draft_ms, np.maximum(table.draft_ms - 1.0, 0))


def test_a_draft_is_begun_ahead_where_a_round_is_likely_enough_to_follow() -> None:
    chosen, _ = policy(1.0)
    assert chosen.ahead(PLAIN, 20) is None
    for _ in range(40):
        chosen.followed(ROUND, replace(ROUND, length=3))
    assert chosen.ahead(ROUND, 20) == BeamShape(4, 5)
    assert chosen.ahead(ROUND, 3) is None, "no room for one as long"
    for _ in range(200):
        chosen.followed(ROUND, PLAIN)
    assert chosen.ahead(ROUND, 20) is None
    assert policy(0.0)[0].ahead(ROUND, 20) is None, "where a wait costs nothing there is nothing to save"


def test_a_draft_model_drafts_on_where_its_steps_are_worth_the_waits() -> None:
    assert not policy(0.0, between_steps=0.0)[0].drafts_on
    assert policy(0.0, between_steps=2.0)[0].drafts_on
    chosen, _ = policy(0.0, between_steps=2.0)
    for _ in range(100):
        chosen.went_on(False)
    assert not chosen.drafts_on


@pytest.mark.parametrize(("wait_ms", "waits"), [(0.0, 2), (100.0, 1)])
def test_the_automatic_mode_waits_once_a_round_where_waits_are_dear(
    monkeypatch: pytest.MonkeyPatch, wait_ms: float, waits: int
) -> None:
    use = CostModel.use

    def with_waits(self: CostModel, part: Part, costs: dict[tuple[int, int], float]) -> None:
        use(self, part, costs)
        use(self, Part.WAITS, waiting(wait_ms))

    monkeypatch.setattr(CostModel, "use", with_waits)
    end, *_ = reply_with_drafts(monkeypatch, 0.9, believed=2.0)
    counted = end.statistics
    assert counted.rounds > 5
    assert counted.host_syncs == counted.target_calls + (waits - 1) * counted.rounds


def test_waits_that_cost_nothing_change_no_decision() -> None:
    """On a CPU, and in simulations of machines whose waits nobody measured."""
    plans = []
    for measured in (False, True):
        simulation = Simulation(M1_MAX, Drafting(0.5))
        if measured:
            simulation._costs.use(Part.WAITS, waiting(0.0))
        simulation.run(60)
        plans.append((simulation.tokens, simulation.ms, simulation.rounds))
    assert plans[0] == plans[1]
