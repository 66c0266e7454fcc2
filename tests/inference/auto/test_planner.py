"""The planner finds the best plan by what it learns of acceptance, and never does much worse than plain steps."""

from dataclasses import replace

import numpy as np
import pytest

from rdchat.inference.api import Mode
from rdchat.inference.auto.cost_model import LENGTHS, MAX_ROWS, PLAIN_STEP, ROWS, CostModel, Floats, Part, WeightReads
from rdchat.inference.auto.planner import (
    DRAFT_TOKENS,
    AcceptanceEstimates,
    Choice,
    DraftEstimate,
    Drafts,
    Plan,
    Planner,
    Source,
    draft_model_source,
    explanation,
    lookup_drafts,
    usual_accepted,
    usual_table,
)
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.drafting.lookup_index import LONGEST_MATCH, LookupEstimate, LookupTree, Rate
from tests.grids import pairs, share
from tests.inference.auto.chips import CHIPS, CPU, M2_ULTRA, STEP_MS, Chip
from tests.inference.auto.simulation import Drafting, Simulation, best_of_all, estimate_of, source, worth

QUALITIES = (0.05, 0.25, 0.4, 0.49)
BELIEFS = ("usual", "of another drafter", "of this one")


def name_of(value: Chip | float | str) -> str:
    return value.name if isinstance(value, Chip) else str(value)


def best(planner: Planner, *drafts: Drafts) -> Choice:
    choice = planner.best_draft(128, drafts)
    assert choice is not None
    return choice


def chain(path: Floats) -> LookupTree:
    """Return a chain from prompt lookup that is accepted up to each token with these chances."""
    places = range(len(path))
    return LookupTree([0 for _ in places], [*places], [1 + place for place in places], path.tolist())


def chain_source(costs: CostModel, chance: float = 0.84, unread: int = 0) -> Source:
    """Return a draft model whose first choices are accepted with a chance."""
    return draft_model_source(DraftEstimate(DRAFT_TOKENS, usual_table(chance, DRAFT_TOKENS)), costs, lambda: unread)


@pytest.mark.parametrize("first", QUALITIES)
@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_it_finds_the_best_of_all_plans(chip: Chip, first: float) -> None:
    values = Drafting(first).true_values()
    costs = chip.costs()
    choice = best(Planner(costs), source(costs, values).drafts(MAX_ROWS))
    found = max(worth(chip, choice.plan, values), 1.0)
    assert found == pytest.approx(best_of_all(chip, values), rel=1e-6)
    assert (choice.gain > 0) == (worth(chip, choice.plan, values) > 1)
    assert choice.speedup == pytest.approx(worth(chip, choice.plan, values))


@pytest.mark.parametrize("chance", [0.3, 0.7, 0.95])
@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_a_path_from_prompt_lookup_is_as_long_as_pays(chip: Chip, chance: float) -> None:
    path = np.cumprod(np.full(MAX_ROWS - 1, chance))
    choice = best(Planner(chip.costs()), lookup_drafts(chain(path)))
    calls = chip.calls_of()
    sizes = [(nodes, rows) for nodes in range(2, MAX_ROWS + 1) for rows in range(nodes, 33)]
    fastest = max((1 + path[: nodes - 1].sum()) / calls[rows] for nodes, rows in sizes)
    if fastest > 1:
        assert choice.speedup == pytest.approx(fastest)
    else:
        assert choice.gain == pytest.approx(max(1 + path[: nodes - 1].sum() - calls[rows] for nodes, rows in sizes))
    assert choice.plan.rows >= choice.plan.nodes == choice.plan.length


@pytest.mark.parametrize(("chip", "first", "believed"), share(pairs(CHIPS, QUALITIES, BELIEFS), 36), ids=name_of)
def test_learning_from_what_is_accepted_comes_near_the_best(chip: Chip, first: float, believed: str) -> None:
    drafting = Drafting(first)
    estimates = AcceptanceEstimates()
    if believed != "usual":
        estimates.head = estimate_of((drafting if believed == "of this one" else Drafting(0.35)).true_values())
    simulation = Simulation(chip, drafting, estimates)
    simulation.run(300)
    values = drafting.true_values()
    speed = np.mean([worth(chip, simulation.last, values) for _ in range(100) if simulation.run(1)])
    assert speed > 0.9 * best_of_all(chip, values)
    assert speed > 0.97


@pytest.mark.slow
def test_it_follows_a_text_that_becomes_hard_and_easy_again() -> None:
    simulation = Simulation(M2_ULTRA, Drafting(0.49))
    simulation.run(200)
    assert simulation.last.mode is Mode.DRAFTER
    simulation.drafting = Drafting(0.02)
    simulation.run(150)
    assert simulation.last.mode is Mode.OFF
    simulation.drafting = Drafting(0.49)
    simulation.run(300)
    assert simulation.last.mode is Mode.DRAFTER


def test_rows_are_padded_up_to_a_cheaper_number_where_that_can_be() -> None:
    path = np.cumprod(np.full(11, 0.9))
    choice = best(Planner(CPU.costs()), lookup_drafts(chain(path)))
    assert (choice.plan.nodes, choice.plan.rows) == (12, 16)
    unpadded = best(Planner(CPU.costs(), padding=False), lookup_drafts(chain(path)))
    assert unpadded.plan.rows == unpadded.plan.nodes


def test_drafts_of_a_mode_that_is_chosen_by_hand_get_the_cheapest_rows_that_were_measured() -> None:
    measured = Planner(CPU.costs())
    assert [measured.rows_for(Mode.LOOKUP, nodes, 128) for nodes in (1, 4, 9, 12, 16, 20, 40)] == [
        1,
        4,
        16,
        16,
        16,
        20,
        40,
    ]
    assert Planner(CPU.costs(), padding=False).rows_for(Mode.LOOKUP, 12, 128) == 12
    guessing = CostModel()
    guessing.learn_plain(128, STEP_MS)
    assert Planner(guessing).rows_for(Mode.LOOKUP, 12, 128) == 12


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_no_more_is_drafted_than_there_is_room_for(limit: int) -> None:
    values = Drafting(0.49).true_values()
    path = np.cumprod(np.full(MAX_ROWS - 1, 0.99))
    costs = M2_ULTRA.costs()
    tables = [drafter.drafts(limit) for drafter in (chain_source(costs), source(costs, values))]
    if limit:
        tables.append(lookup_drafts(chain(path[:limit])))
    for table in tables:
        choice = Planner(costs).best_draft(128, [table])
        assert (choice is None) == (limit == 0)
        assert choice is None or 1 < choice.plan.length <= limit + 1


def test_where_rows_cannot_be_padded_a_chain_has_no_more_than_it_is_long() -> None:
    """A chain of 6 was planned with 16 rows where those are cheaper, and then verified with 6."""
    costs = Chip("pair", PAIR).costs()
    values = np.zeros((len(LENGTHS), MAX_ROWS + 1))
    for n, length in enumerate(LENGTHS):
        reached = 0.6 ** np.arange(1, MAX_ROWS)
        values[n, 2:] = np.cumsum(np.where(np.arange(1, MAX_ROWS) < length, reached, 0.0))
    choice = best(Planner(costs, padding=False), source(costs, values, trees=False).drafts(MAX_ROWS))
    assert choice.plan.rows == choice.plan.nodes <= choice.plan.length


@pytest.mark.parametrize("dearer", [0.8, 1.3])
def test_what_a_change_to_rounds_costs_does_not_drift_with_what_rounds_cost(dearer: float) -> None:
    """It grew to half a token where rounds were dearer than measured, and drafting was left for good."""
    costs = CPU.costs()
    planner = Planner(costs)
    before = planner.switch_tokens(128)
    for _ in range(400):
        costs.learn(Mode.DRAFTER, dearer * CPU.calls_of()[4] * STEP_MS / costs.calls_ms(Mode.DRAFTER, 128)[4])
        costs.learn_plain(128, STEP_MS)
    assert planner.switch_tokens(128) == pytest.approx(before)


def test_a_draft_model_is_charged_for_catching_up() -> None:
    costs = M2_ULTRA.costs()
    costs.use(Part.DRAFT_MODEL, {(1, 0): 2.0, (16, 0): 20.0})
    planner = Planner(costs)
    soon, late = (best(planner, chain_source(costs, unread=unread).drafts(MAX_ROWS)) for unread in (0, 4000))
    assert soon.plan.mode is Mode.SPECULATIVE
    assert soon.gain > 0 > late.gain


# Qwen2.5-Coder-1.5B with its 0.5B on two cores, in plain steps of the target (FACTS of the plan)
PAIR = {1: 1.02, 2: 1.28, 3: 1.6, 4: 1.9, 8: 2.01, 12: 3.2, 16: 1.64, 32: 2.45}


def pair_choice(estimate: DraftEstimate, unread: int = 0) -> Choice:
    costs = Chip("pair", PAIR).costs()
    costs.use(Part.DRAFT_MODEL, {(1, 0): STEP_MS / 3, (16, 0): 1.64 * STEP_MS / 3})
    return best(Planner(costs), draft_model_source(estimate, costs, lambda: unread).drafts(16))


@pytest.mark.parametrize(("calls", "nodes"), [({1: 1, 3: 1.2, 16: 1.8}, 4), ({1: 1, 3: 1.2, 16: 1.25}, MAX_ROWS)])
def test_a_draft_model_gets_runner_ups_where_their_rows_cost_little(calls: dict[int, float], nodes: int) -> None:
    costs = Chip("made up", calls).costs()
    costs.use(Part.DRAFT_MODEL, {(1, 0): STEP_MS / 3})
    choice = best(Planner(costs), chain_source(costs).drafts(2))
    assert choice.plan.nodes == nodes


def test_a_draft_model_is_tried_left_and_tried_again_after_enough_other_text() -> None:
    """It used to be taken for too poor to be tried, so that nothing was ever learnt of it."""
    estimate = AcceptanceEstimates().chains
    assert pair_choice(estimate).gain > 0.1
    for _ in range(3):
        estimate.learn(4, 16, accepted=0)
    assert pair_choice(estimate).gain < 0
    failed = pair_choice(estimate).gain
    for _ in range(100):
        estimate.keep_share(0.98)
    assert pair_choice(estimate).gain > failed + 0.05
    assert pair_choice(estimate, unread=100).gain > -0.2, "near enough to be tried"


def guessed_rows(reads: WeightReads, chance: float) -> int:
    """Return the rows of the best draft where calls are guessed and each token is accepted with a chance."""
    costs = CostModel(reads)
    costs.learn_plain(128, STEP_MS)
    return best(Planner(costs), lookup_drafts(chain(np.cumprod(np.full(MAX_ROWS - 1, chance))))).plan.rows


@pytest.mark.parametrize("chance", [0.6, 0.7, 0.8, 0.95])
def test_where_each_row_reads_the_weights_two_or_three_rows_are_tried_first(chance: float) -> None:
    """On M1 and M2 with quantised weights; elsewhere more rows are nearly free."""
    assert 2 <= guessed_rows(WeightReads.BY_ROW, chance) <= 3 <= guessed_rows(WeightReads.SHARED, chance)


@pytest.mark.parametrize("chance", [0.8, 0.95])
def test_where_two_rows_cost_as_much_as_all_a_long_draft_is_tried_first(chance: float) -> None:
    """On M1 and M2 with weights of 16 bits."""
    assert guessed_rows(WeightReads.TILED, chance) > 16


def test_nothing_is_chosen_where_no_cost_is_known() -> None:
    assert Planner(CostModel()).best_draft(128, [lookup_drafts(chain(np.array([0.9])))]) is None


@pytest.mark.parametrize("chip", [*CHIPS, Chip("4 bit on a CPU", {1: 1.0, MAX_ROWS: MAX_ROWS})], ids=lambda c: c.name)
def test_without_measurements_rounds_are_tried_soon_and_their_costs_met(chip: Chip) -> None:
    """Until measured, every row was taken to cost a plain step, so that short replies were nearly always plain."""
    costs = CostModel()
    calls = chip.calls_of()
    ms = 0.0
    tokens = 0.0
    planner = Planner(costs)
    path = np.cumprod(np.full(MAX_ROWS - 1, 0.8))
    for step in range(60):
        choice = planner.best_draft(128, [lookup_drafts(chain(path))])
        if choice is None or choice.gain < 0:
            costs.learn_plain(128, STEP_MS)
            ms = ms + STEP_MS
            tokens = tokens + 1
            continue
        assert step, "a plain step is met first"
        real = calls[choice.plan.rows] * STEP_MS
        costs.learn(choice.plan.mode, real / choice.ms)
        ms = ms + real
        tokens = tokens + 1 + path[: choice.plan.nodes - 1].sum()
    known = max(1.0, *((1 + path[: rows - 1].sum()) / calls[rows] for rows in range(2, MAX_ROWS + 1)))
    assert tokens / ms * STEP_MS > max(0.95, 0.55 * known)


def test_words_say_what_and_why() -> None:
    costs = CostModel()
    costs.use(Part.CALLS, {(PLAIN_STEP, 128): STEP_MS, (1, 128): STEP_MS, (5, 128): 1.7 * STEP_MS})
    choice = Choice(Plan(Mode.SPECULATIVE, 1, 5, 5, 5), 1.4, 2 * STEP_MS, STEP_MS, 1 / STEP_MS)
    assert explanation(choice, drafts=False, measured=True) == "Drafting would be slower here, so it is off."
    assert explanation(None, drafts=False, measured=True) == "Not drafting: no earlier text repeats here."
    little = replace(choice, tokens=1.09, ms=choice.plain_ms)
    gain = "Drafting would gain only 9\N{NARROW NO-BREAK SPACE}% here, so it is off."
    assert explanation(little, drafts=False, measured=True) == gain
    assert explanation(replace(little, tokens=1.0), False, True) == "Drafting would gain nothing here, so it is off."
    assert explanation(replace(choice, tokens=2.8), True, True) == "Expected: 1.4 times as fast."
    words = "Not drafting yet: rdchat measures this computer between replies, on mains power."
    assert explanation(None, drafts=False, measured=False) == words


DRAFTED = [length - 1 for length in LENGTHS]


def usual_chain(chance: float = 0.6) -> DraftEstimate:
    """Return the estimate of a chain whose tokens are usually accepted with this chance."""
    levels = np.minimum(np.array(DRAFTED)[:, None], np.maximum(ROWS - 1, 0))
    return DraftEstimate(DRAFTED, np.cumsum([0.0, *chance ** np.arange(1, MAX_ROWS)])[levels])


def test_a_rate_goes_from_its_prior_to_what_is_seen_and_forgets() -> None:
    rate = Rate(0.5)
    assert rate.value == 0.5
    for _ in range(500):
        rate.learn(1.0)
    assert rate.value > 0.95
    for _ in range(500):
        rate.learn(0.0)
    assert rate.value < 0.05
    rate.keep_share(0)
    assert rate.value == 0.5


def test_prompt_lookup_is_believed_the_more_the_longer_the_match() -> None:
    for odds in LookupEstimate().odds():
        assert odds == sorted(odds)
        assert len(odds) == LONGEST_MATCH + 1


def test_what_is_usual_is_expected_until_something_is_learnt() -> None:
    for width in (1, 2, 4, 8):
        values = Drafting(0.42).true_values(width)
        assert estimate_of(values).table()[:, 2:] == pytest.approx(values[:, 2:], abs=0.01)


@pytest.mark.parametrize("chance", [0.2, 0.5, 0.8, 0.95])
def test_an_estimate_comes_to_what_the_text_accepts(chance: float) -> None:
    estimate = usual_chain()
    rng = np.random.default_rng(0)
    found = []
    for _ in range(300):
        estimate.learn(5, 6, int(np.argmin([*(rng.random(5) < chance), False])))
        found.append(estimate.table()[LENGTHS.index(4), 4])
    assert np.mean(found[100:]) == pytest.approx(sum(chance**n for n in (1, 2, 3)), rel=0.1)


def test_longer_drafts_than_are_seen_go_with_those_that_are() -> None:
    estimate = usual_chain()
    before = estimate.table()
    for _ in range(40):
        estimate.learn(2, 3, 0)
    after = estimate.table()
    assert (after[:, 3:] < 0.5 * before[:, 3:]).all()
    assert after[-1, -1] / before[-1, -1] < after[0, -1] / before[0, -1], "they lose more"
    for _ in range(200):
        estimate.learn(2, 3, 2)
    assert (estimate.table() <= np.array(DRAFTED)[:, None]).all()


def test_a_reply_that_ends_in_a_draft_refuses_none_of_it() -> None:
    """It was taken for a miss."""
    ended = usual_chain()
    missed = usual_chain()
    for _ in range(20):
        ended.learn(4, 5, 1, ended=True)
        missed.learn(4, 5, 1)
    assert ended.factor > 1 > missed.factor


def test_a_text_begins_with_what_all_of_them_showed() -> None:
    estimate = AcceptanceEstimates().chains
    for _ in range(8):
        estimate.keep_share(0.5)
        for _ in range(10):
            estimate.learn(2, 3, accepted=0)
            estimate.learn(2, 3, accepted=1)
    for _ in range(4):
        estimate.keep_share(0.5)
    assert estimate.factor * 0.84 == pytest.approx(1 / 3, abs=0.1), "a third of its tokens were right"
    for _ in range(40):
        estimate.learn(2, 3, accepted=2)
    assert estimate.factor > 1, "this text is another one"


def test_runner_ups_are_believed_the_more_there_are_of_them() -> None:
    alone, one, three, many = (usual_accepted(0.84, DraftShape(2, (count, count))) for count in (0, 1, 3, 14))
    assert alone == pytest.approx(0.84 + 0.84**2)
    assert alone < one < three < many < 0.989 * (1 + 0.84), "some tokens are none of the likeliest fourteen"
