"""Estimates of acceptance, from known drafts and texts."""

import numpy as np
import pytest

from rdchat.inference.auto.cost_model import LENGTHS, MAX_ROWS, ROWS
from rdchat.inference.auto.planner import AcceptanceEstimates, DraftEstimate, usual_accepted
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.drafting.lookup_index import LONGEST_MATCH, LookupEstimate, Rate
from tests.inference.auto.simulation import Drafting, estimate_of

DRAFTED = [length - 1 for length in LENGTHS]


def chain(chance: float = 0.6) -> DraftEstimate:
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
    estimate = chain()
    rng = np.random.default_rng(0)
    found = []
    for _ in range(300):
        estimate.learn(5, 6, int(np.argmin([*(rng.random(5) < chance), False])))
        found.append(estimate.table()[LENGTHS.index(4), 4])
    assert np.mean(found[100:]) == pytest.approx(sum(chance**n for n in (1, 2, 3)), rel=0.1)


def test_longer_drafts_than_are_seen_go_with_those_that_are() -> None:
    estimate = chain()
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
    ended = chain()
    missed = chain()
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
