"""How far drafts are followed: estimates from known drafts and texts."""

import numpy as np
import pytest

from rdchat.inference.auto.estimates.acceptance_estimates import (
    DraftValues,
    NodeRates,
    value_by_nodes,
    values_by_length,
)
from rdchat.inference.auto.estimates.lookup_and_chain_rates import ChainRates, LookupRates, Rate
from rdchat.inference.auto.plan import LENGTHS, MOST_ROWS
from rdchat.inference.drafting.lookup_index import Before, Guess
from rdchat.inference.drafting.node_pool import NodePool, step_probs
from tests.inference.auto.simulation import Drafting

# Two beams of two tokens; four nodes of each level are kept:
#   0 -> 1 (0.5), 2 (0.25), 3 (0.1), 4 (0.05);  1 -> 5 (0.4), 8 (0.04);  2 -> 6 (0.6), 7 (0.2)
RIGHT, WRONG = 7, 8  # tokens
PROBS = [1, 0.5, 0.25, 0.1, 0.05, 0.4, 0.6, 0.2, 0.08]
PARENTS = [-1, 0, 0, 0, 0, 1, 2, 2, 1]
PATHS = [1, 0.5, 0.25, 0.1, 0.05, 0.2, 0.15, 0.05, 0.04]
DRAWN = NodePool(np.arange(9) + 10, np.array(PARENTS), np.log(PATHS), levels=2, width=2)


def test_a_nodes_probability_is_what_its_score_adds() -> None:
    assert step_probs(DRAWN) == pytest.approx(PROBS)


def test_chances_are_products_along_the_path() -> None:
    assert NodeRates((1.0,)).chances(DRAWN) == pytest.approx(PATHS)


def test_rates_are_set_right_by_depth_on_nodes_whose_parent_was_accepted() -> None:
    rates = NodeRates((1.0,))
    for _ in range(400):
        rates.learn(DRAWN, [12, 99])  # node 2 is right, none of its children is
    chances = rates.chances(DRAWN)
    assert chances[1:5].sum() == pytest.approx(1, rel=0.02), "some first token was always right; 0.9 was expected"
    assert chances[6] / chances[2] < 0.08, "it promised 0.6; a little of the prior stays"
    assert chances[5] / chances[1] < 0.08


def test_nodes_below_a_rejected_one_tell_nothing() -> None:
    right, wrong = NodeRates((1.0,)), NodeRates((1.0,))
    for _ in range(50):
        right.learn(DRAWN, [99, 16])
        wrong.learn(DRAWN, [99, 99])
    assert right.chances(DRAWN) == pytest.approx(wrong.chances(DRAWN))


def test_depths_of_which_nothing_is_known_are_believed_as_the_ones_before() -> None:
    rates = NodeRates((1.0,))
    for _ in range(400):
        rates.learn(DRAWN, [14])  # expected: 0.9
    chances = rates.chances(DRAWN)
    assert chances[6] / chances[2] == pytest.approx(0.6 / 0.9, rel=0.02)


def test_what_is_known_beforehand_of_all_depths_is_believed_less_where_one_is_not_followed() -> None:
    """It is of greedy replies; at a high temperature it promised 1.8 tokens more and brought none."""
    rates = NodeRates((0.9, 0.8))
    before = rates.chances(DRAWN)
    for _ in range(20):
        rates.learn(DRAWN, [99])
    after = rates.chances(DRAWN)
    assert (after[5:] / after[DRAWN.parents[5:]] < 0.5 * before[5:] / before[DRAWN.parents[5:]]).all()


def test_a_trees_value_is_the_sum_of_its_best_nodes() -> None:
    values = DraftValues()
    assert not np.isfinite(values.table()).any()
    values.learn(DRAWN, NodeRates((1.0,)).chances(DRAWN))
    table = values.table()
    two, three = LENGTHS.index(2), LENGTHS.index(3)
    assert table[three, 1:6] == pytest.approx([0, 0.5, 0.75, 0.95, 1.1])
    assert table[two, 1:7] == pytest.approx([0, 0.5, 0.75, 0.85, 0.9, 0.9])
    assert not np.isfinite(table[LENGTHS.index(4)]).any(), "two tokens tell nothing of three"


def test_a_draft_in_its_own_shape_is_worth_what_its_best_nodes_are() -> None:
    chances = NodeRates((1.0,)).chances(DRAWN)
    assert value_by_nodes(DRAWN, chances)[:6] == pytest.approx([0, 0, 0.5, 0.75, 0.95, 1.1])
    drawn = Drafting(0.45).draw(4, 5)
    values = value_by_nodes(drawn, np.exp(drawn.scores))
    assert len(values) == 1 + min(len(drawn.tokens), MOST_ROWS)
    assert values == pytest.approx(values_by_length(drawn, np.exp(drawn.scores))[LENGTHS.index(5)])


def usual_values() -> np.ndarray:
    return np.broadcast_to(np.minimum(0.1 * np.arange(MOST_ROWS + 1), 1.0), (len(LENGTHS), MOST_ROWS + 1)).copy()


def test_longer_drafts_than_are_seen_go_with_those_that_are() -> None:
    values = DraftValues(usual_values())
    for _ in range(20):
        values.learn(DRAWN, np.array(PATHS) * 0.25)
    short, long = values.table()[1, -1], values.table()[5, -1]
    assert short < 0.5
    assert long == pytest.approx(short, rel=1e-6), "both began with 1"
    for _ in range(40):
        values.learn(DRAWN, np.array(PATHS) * 4)
    assert values.table()[1, -1] > 4
    assert (values.table()[..., -1] <= np.maximum(np.array(LENGTHS) - 1, values.table()[1, -1])).all()


def test_the_first_drafts_of_a_text_count_most_and_the_next_text_begins_near_the_usual() -> None:
    values = DraftValues(usual_values())
    good = np.array(PATHS) * 2  # 2.38 in all
    values.learn(DRAWN, good)
    first = values.table()[1, -1]
    assert first > 1.2
    for _ in range(30):
        values.learn(DRAWN, good)
    before = values.table()[1, -1]
    assert before == pytest.approx(2.38, rel=0.15)
    values.begin_text()
    after = values.table()[1, -1]
    assert 1.5 < after < (1 + before) / 2 + 0.3
    values.begin_text()
    assert values.table()[1, -1] == after, "a text without drafts tells nothing"


def test_lengths_that_were_not_seen_for_long_are_judged_by_newer_drafts_sooner() -> None:
    often, seldom = DraftValues(), DraftValues()
    short = NodePool(DRAWN.tokens[:5], DRAWN.parents[:5], DRAWN.scores[:5], levels=1, width=2)
    for values in (often, seldom):
        for _ in range(30):
            values.learn(DRAWN, np.array(PATHS))
    for _ in range(30):
        seldom.learn(short, np.array(PATHS[:5]))
    for values in (often, seldom):
        values.learn(DRAWN, np.zeros(9))
    assert seldom.table()[1, 5] < often.table()[1, 5] < 1.1


def test_a_rate_goes_from_its_prior_to_what_is_seen_and_forgets() -> None:
    rate = Rate(0.5)
    assert rate.value == 0.5
    for _ in range(500):
        rate.learn(1.0)
    assert rate.value > 0.95
    for _ in range(500):
        rate.learn(0.0)
    assert rate.value < 0.05
    rate.fade(0)
    assert rate.value == 0.5


def test_prompt_lookup_is_believed_the_more_the_longer_the_match_and_along_its_path() -> None:
    rates = LookupRates()
    for before in Before:
        firsts = [rates.path([Guess(RIGHT, match, before)])[0] for match in range(2, 40)]
        assert firsts == sorted(firsts)
    path = [Guess(RIGHT, 3, Before.ONCE), Guess(RIGHT, 4, Before.ALIKE), Guess(RIGHT, 5, Before.VARIED)]
    assert rates.path(path) == pytest.approx(np.cumprod([rates.path([token])[0] for token in path]))
    assert rates.path([]).size == 0


def test_prompt_lookup_is_believed_the_more_if_the_text_went_on_alike_before() -> None:
    rates = LookupRates()
    for match in range(2, 40):
        firsts = {before: rates.path([Guess(RIGHT, match, before)])[0] for before in Before}
        assert firsts[Before.VARIED] < firsts[Before.ONCE] < firsts[Before.ALIKE]


def test_what_comes_of_lookups_is_learnt_for_others_of_their_kind() -> None:
    rates, others = LookupRates(), [Guess(RIGHT, 4, Before.ONCE), Guess(RIGHT, 3, Before.ALIKE)]
    known = [rates.path([other])[0] for other in others]
    for _ in range(100):
        rates.learn(Guess(RIGHT, 3, Before.ONCE), WRONG)
    assert rates.path([Guess(RIGHT, 3, Before.ONCE)])[0] < 0.1
    assert [rates.path([other])[0] for other in others] == known


MIDDLING = 1.2  # a margin at which a draft model is neither sure nor unsure


def test_a_draft_models_chain_ends_at_a_runner_up() -> None:
    rates = ChainRates()
    for _ in range(600):
        rates.learn([MIDDLING] * 3, chain=0, accepted=1, runner_ups=(1, 1))  # the first token is always the runner-up
    assert rates.expected(3) < 0.2, "there is no runner-up in such a draft"
    assert rates.expected(3, (1, 1)) == pytest.approx(1, abs=0.2)


def test_chains_that_fail_tell_nothing_of_runner_ups() -> None:
    """They used to count as misses, so that none were offered any more."""
    rates, untold = ChainRates(), ChainRates()
    for _ in range(50):
        rates.learn([MIDDLING] * 3, chain=0, accepted=0)
        rates.learn([MIDDLING] * 3, chain=1, accepted=1, runner_ups=(2,))
    assert rates.expected(2, (2, 2), [0.5, 0.5]) == untold.expected(2, (2, 2), [0.5, 0.5])
    for _ in range(50):
        rates.learn([MIDDLING] * 3, chain=0, accepted=0, runner_ups=(2,))
    assert rates.expected(1, (2,), [0.5]) < 0.55


def test_runner_ups_are_believed_the_more_there_are_of_them() -> None:
    alone, one, three, many = (ChainRates().expected(2, (count, count)) for count in (0, 1, 3, 14))
    assert alone == pytest.approx(0.84 + 0.84**2)
    assert alone < one < three < many < 0.989 * (1 + 0.84), "some tokens are none of the likeliest fourteen"


def test_drafts_that_fail_end_a_draft_models_trial_and_another_text_gives_it_a_chance() -> None:
    rates = ChainRates()
    before = rates.expected(4)
    for _ in range(3):
        rates.learn([MIDDLING] * 4, chain=0, accepted=0)
    assert rates.expected(4) < 0.4 * before
    rates.begin_text()
    assert rates.expected(4) > 0.7 * before


def test_a_text_begins_with_what_all_of_them_showed_of_a_draft_model() -> None:
    rates = ChainRates()
    believed = rates.chance
    for _ in range(8):
        rates.begin_text()
        for _ in range(10):
            rates.learn([MIDDLING] * 2, chain=0, accepted=0)
            rates.learn([MIDDLING] * 2, chain=1, accepted=1)
    rates.begin_text()
    assert rates.chance == pytest.approx(1 / 3, abs=0.1), "a third of its tokens were right"
    for _ in range(10):
        rates.learn([MIDDLING] * 2, chain=2, accepted=2)
    assert rates.chance > believed, "this text is another one"


def test_a_draft_model_is_believed_alike_at_all_depths() -> None:
    rates = ChainRates()
    for _ in range(100):
        rates.learn([MIDDLING] * 2, chain=2, accepted=2)
    assert rates.expected(6) > 5


def test_a_drafted_token_is_believed_by_its_margin_as_such_ones_came_true() -> None:
    rates = ChainRates()
    unsure, sure = rates.chance_of(0.1), rates.chance_of(7.0)
    assert unsure < 0.5 < 0.95 < sure
    for _ in range(200):
        rates.learn([7.0, 0.1, 7.0], chain=1, accepted=1)  # what lies behind a token that failed tells nothing
    unsure, sure = rates.chance_of(0.1), rates.chance_of(7.0)
    assert unsure < 0.1
    assert sure > 0.99
    rates.begin_text()
    assert [rates.chance_of(margin) for margin in (0.1, 7.0)] == [unsure, sure], "a margin means the same in every text"
