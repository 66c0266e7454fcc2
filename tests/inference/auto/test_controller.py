"""The automatic mode decides by what a round gains, what a switch costs and what a reply may lose to trials."""

from collections.abc import Sequence

import pytest

from rdchat.inference.api import AutoChoice, Mode
from rdchat.inference.auto.controller import ChosenRound, Controller
from rdchat.inference.auto.cost_model import LENGTHS, MAX_ROWS, PLAIN_STEP, CostModel, Part, WeightReads
from rdchat.inference.auto.planner import WIDTH, AcceptanceEstimates, Choice, Drafts, Plan, Planner, head_source
from rdchat.inference.decoding.loop import Call, CallResult
from tests.inference.auto.chips import M1_MAX_4_BIT

ROUND = Plan(Mode.DRAFTER, 4, 5, 8, 8)
LOOKUP = Plan(Mode.LOOKUP, 1, 5, 5, 5)
STEP_MS = 10.0
ALONE_MS = 14.0  # a step with nothing queued before it: a switch costs 0.4 tokens


class KnownPlanner(Planner):
    """Has one opinion of what is best.

    Attributes:
        choice: The opinion.
        asked: The drafts that there were at the last decision.
    """

    def __init__(self) -> None:
        costs = CostModel()
        costs.use(Part.CALLS, {(PLAIN_STEP, 128): STEP_MS, (1, 128): ALONE_MS, (MAX_ROWS, 128): ALONE_MS})
        super().__init__(costs)
        self.choice: Choice | None = None
        self.asked: Sequence[Drafts] = ()

    def best_draft(self, depth: int, drafts: Sequence[Drafts]) -> Choice | None:
        self.asked = drafts
        return self.choice

    def expect(self, gain: float, plan: Plan = ROUND, tokens: float = 2.0) -> None:
        """Have a call with this plan gain so many tokens: a rate of one a step."""
        self.choice = Choice(plan, tokens, STEP_MS * (tokens - gain), STEP_MS, 1 / STEP_MS)


@pytest.fixture
def planner() -> KnownPlanner:
    return KnownPlanner()


@pytest.fixture
def estimates() -> AcceptanceEstimates:
    return AcceptanceEstimates()


@pytest.fixture
def controller(planner: KnownPlanner, estimates: AcceptanceEstimates) -> Controller:
    return Controller(planner, estimates, range(100), [head_source(estimates.head, planner.costs, WIDTH)])


def step(controller: Controller, ms: float = STEP_MS, queued: bool = True, held_up: bool = False) -> None:
    controller.saw(CallResult(Call.STEP, (), [7], ms, queued=queued, held_up=held_up))


def make_round(controller: Controller, accepted: int = 1, room: int = 20) -> ChosenRound:
    plan = controller.plan_round(room)
    assert plan is not None
    controller.saw(CallResult(Call.ROUND, (), [7] * (1 + accepted), plan.choice.ms, plan=plan))
    return plan


def test_without_a_draft_a_plain_step_follows(controller: Controller) -> None:
    assert controller.plan_round(20) is None
    assert controller.wants_queue(20)
    controller.stop_drafter(Mode.DRAFTER)
    words = "Not drafting: no earlier text repeats here."
    assert controller.status == AutoChoice(Mode.OFF.value, 0, 0, 1.0, 1.0, words, 1.0)


def test_the_status_says_what_is_expected_of_a_round_and_why_there_is_none(
    controller: Controller, planner: KnownPlanner
) -> None:
    planner.expect(1.0, tokens=2.5)
    make_round(controller)
    words = "Expected: 1.7 times as fast."
    assert controller.status == AutoChoice(Mode.DRAFTER.value, 4, 5, 2.5, 1.5, words)
    step(controller)
    planner.expect(-0.5)
    assert controller.plan_round(20) is None
    words = "Drafting would be slower here, so it is off."
    assert controller.status == AutoChoice(Mode.OFF.value, 0, 0, 1.0, 1.0, words, 0.8)


def test_without_measured_costs_the_status_says_so_until_a_round_was_made(
    planner: KnownPlanner, estimates: AcceptanceEstimates
) -> None:
    planner.costs = CostModel()
    controller = Controller(planner, estimates, range(100))
    assert controller.status.words.startswith("Not drafting yet: rdchat measures this computer")
    planner.expect(1.0)
    make_round(controller)
    step(controller)
    planner.choice = None
    assert controller.plan_round(20) is None
    assert controller.status.words == "Not drafting: no earlier text repeats here."
    assert controller.status.speedup is None


def test_the_replys_own_text_is_looked_up(controller: Controller, planner: KnownPlanner) -> None:
    controller.plan_round(20)
    assert Mode.LOOKUP not in {drafts.mode for drafts in planner.asked}
    for token in (7, 8, 9, 7, 8):
        controller.saw(CallResult(Call.STEP, (), [token], STEP_MS, queued=True))
    controller.plan_round(20)
    assert Mode.LOOKUP in {drafts.mode for drafts in planner.asked}
    assert controller.text[-5:] == [7, 8, 9, 7, 8]


@pytest.mark.parametrize("is_usual", [True, False])
def test_a_rounds_time_is_learnt_where_it_is_usual(
    controller: Controller, planner: KnownPlanner, is_usual: bool
) -> None:
    planner.expect(1.0)
    for _ in range(3):
        make_round(controller)
    plan = controller.plan_round(20)
    before = float(planner.costs.calls_ms(Mode.DRAFTER, 100)[8])
    controller.saw(CallResult(Call.ROUND, (), [7], 3 * STEP_MS, plan=plan, usual=is_usual))
    assert (float(planner.costs.calls_ms(Mode.DRAFTER, 100)[8]) > before) is is_usual


@pytest.mark.parametrize(("gain", "drafts"), [(0.5, True), (-0.09, True), (-0.11, False)])
def test_a_round_may_lose_a_quarter_of_a_switch(
    controller: Controller, planner: KnownPlanner, gain: float, drafts: bool
) -> None:
    """Prompt lookup's, which gets no trials."""
    planner.expect(gain, LOOKUP)
    plan = controller.plan_round(20)
    assert (plan is not None) is drafts
    assert plan is None or (plan.choice, plan.is_trial, plan.is_forced) == (planner.choice, False, False)


@pytest.mark.parametrize(("gain", "queues"), [(0.0, True), (0.13, True), (0.17, False)])
def test_the_next_step_is_queued_unless_a_round_gains_a_quarter_of_a_switch_and_a_margin(
    controller: Controller, planner: KnownPlanner, gain: float, queues: bool
) -> None:
    planner.expect(gain, LOOKUP)
    assert controller.wants_queue(20) is queues
    assert not controller.wants_queue(0), "the reply has no room"
    assert controller.wants_queue(1), "a round has no room"


@pytest.mark.parametrize("plan", [ROUND, LOOKUP], ids=["a head", "prompt lookup, which gets none"])
def test_a_trial_is_made_where_the_budget_pays_it(controller: Controller, planner: KnownPlanner, plan: Plan) -> None:
    """It costs 0.52 tokens here, of which a switch is 0.4; 0.2 may be lost at the start, and 60 tokens bring 0.36."""
    planner.expect(-0.12, plan)
    assert controller.plan_round(20) is None
    assert controller.wants_queue(20)
    for _ in range(60):
        step(controller)
    if plan is LOOKUP:
        assert controller.plan_round(20) is None
        assert controller.wants_queue(20)
        return
    assert not controller.wants_queue(20)
    assert make_round(controller, accepted=0).is_trial
    assert controller.plan_round(20) is None, "it is spent"


def test_after_forty_rounds_three_plain_steps_are_timed(controller: Controller, planner: KnownPlanner) -> None:
    planner.expect(0.2)
    for _ in range(40):
        assert not controller.wants_queue(20)
        make_round(controller)
    assert controller.status.mode == Mode.DRAFTER.value
    assert controller.plan_round(20) is None
    queued = []
    for _ in range(3):
        queued.append(controller.wants_queue(20))
        step(controller, queued=queued[-1])
        assert controller.status.words.startswith("Timing plain decoding") is (len(queued) < 3)
    assert queued == [True, True, False], "nothing is queued after the last"
    make_round(controller)


def test_rounds_that_are_surely_faster_go_on(controller: Controller, planner: KnownPlanner) -> None:
    planner.expect(1.0, tokens=2.5)
    for _ in range(90):
        make_round(controller)


@pytest.mark.parametrize(
    ("first", "held_up", "learnt"),
    [(True, False, True), (False, False, False), (True, True, False)],
    ids=["queued", "alone", "delayed"],
)
def test_only_times_of_queued_steps_that_nothing_delayed_are_learnt(
    controller: Controller, planner: KnownPlanner, first: bool, held_up: bool, learnt: bool
) -> None:
    for _ in range(4):
        step(controller)
    step(controller, queued=first, held_up=held_up)
    before = planner.costs.plain_ms(104)
    step(controller, 2 * STEP_MS)
    assert (planner.costs.plain_ms(104) != before) is learnt


def test_the_first_calls_teach_no_time(controller: Controller, planner: KnownPlanner) -> None:
    before = planner.costs.plain_ms(100)
    step(controller, 5 * STEP_MS)
    step(controller, 5 * STEP_MS)
    assert planner.costs.plain_ms(100) == before
    step(controller, 5 * STEP_MS)
    assert planner.costs.plain_ms(100) != before


def test_a_reply_learns_what_is_accepted_and_forgets_half_for_the_next(
    controller: Controller, planner: KnownPlanner, estimates: AcceptanceEstimates
) -> None:
    usual = estimates.head.factor
    planner.expect(1.0)
    for _ in range(20):
        make_round(controller, accepted=4)
    learnt = estimates.head.factor
    assert learnt > usual
    step(controller)
    after_step = estimates.head.factor
    assert usual < after_step < learnt
    Controller(planner, estimates, range(100))
    assert usual < estimates.head.factor < after_step


def test_a_drafter_that_is_stopped_is_not_asked_again(controller: Controller, planner: KnownPlanner) -> None:
    controller.plan_round(20)
    assert Mode.DRAFTER in {drafts.mode for drafts in planner.asked}
    controller.stop_drafter(Mode.SPECULATIVE)
    controller.plan_round(20)
    assert Mode.DRAFTER in {drafts.mode for drafts in planner.asked}
    controller.stop_drafter(Mode.DRAFTER)
    controller.plan_round(20)
    assert Mode.DRAFTER not in {drafts.mode for drafts in planner.asked}


def test_what_the_answers_shape_forces_is_drafted_without_a_look_at_the_text(
    planner: KnownPlanner, estimates: AcceptanceEstimates
) -> None:
    controller = Controller(planner, estimates, [1, 2, 3, 1, 2], forced=lambda limit: [8, 9][:limit])
    planner.expect(0.5, LOOKUP)
    plan = controller.plan_round(20)
    assert plan is not None
    assert (plan.is_forced, plan.looked_up.tokens) == (True, [8, 9])
    assert not controller.wants_queue(20)
    assert [drafts.mode for drafts in planner.asked] == [Mode.LOOKUP]
    assert controller.plan_round(1) is not None


@pytest.mark.parametrize(
    ("reads", "reason"),
    [
        (WeightReads.SHARED, ""),
        (WeightReads.BY_ROW, " M1 and M2 read models of 4 to 8 bits again for each drafted token."),
        (WeightReads.TILED, " M1 and M2 read models of 16 bits at a third of the speed for more than one token."),
    ],
)
def test_the_chip_is_named_where_it_is_why_drafting_is_off(reads: WeightReads, reason: str) -> None:
    """Who has an M1 or M2 and a model of 4 bits read only that drafting would be slower."""
    costs = M1_MAX_4_BIT.costs()
    costs.reads = reads
    controller = Controller(Planner(costs), AcceptanceEstimates(), [1, 2, 3, 4, 1, 2])
    assert controller.plan_round(20) is None
    assert controller.status.words == f"Drafting would be slower here, so it is off.{reason}"


def test_a_draft_is_begun_ahead_where_another_as_long_may_follow() -> None:
    costs = CostModel()
    costs.use(Part.CALLS, {(PLAIN_STEP, 128): 10.0, (1, 128): 12.0, (MAX_ROWS, 128): 30.0})
    costs.use(Part.BEAMS, {(WIDTH, length): 0.5 * length for length in LENGTHS})
    chosen = Controller(Planner(costs), AcceptanceEstimates(), range(128))
    assert not chosen.begins_ahead(Plan(Mode.LOOKUP, 1, 5, 8, 8), 20), "it needs the text that the round brings"
    assert chosen.begins_ahead(ROUND, 20)
    assert not chosen.begins_ahead(ROUND, 3), "no room for one as long"
