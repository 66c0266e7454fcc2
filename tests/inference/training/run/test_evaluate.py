"""Evaluation decodes: its counts are those of the rounds, and they add up."""

import mlx.core as mx
import pytest

from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.requests import SamplingParams
from rdchat.inference.drafting.drafter_folder import StoredDrafter
from rdchat.inference.drafting.recurrent_head import HeadConfig, RecurrentHead
from rdchat.inference.training.run.evaluate import Evaluation, repeated_runs
from rdchat.inference.training.run.trials import Setup, Trial, report
from tests.inference.fakes import ALPHABET, tiny_llama

PROMPTS = [Prompt("hello there", "a"), Prompt("abc abc abc", "b"), Prompt("more words", "a")]
SETUPS = [Setup(1, 4), Setup(3, 4, lookup_branch=True), Setup(0, 4)]


@pytest.fixture(scope="module")
def results() -> list[tuple[Prompt, Setup, Trial]]:
    mx.random.seed(0)
    head = RecurrentHead(HeadConfig(32, len(ALPHABET), exit_size=16, state_size=16))
    stored = StoredDrafter(head, mx.arange(len(ALPHABET)), None)
    sampling = SamplingParams(temperature=0, max_tokens=40)
    return list(Evaluation(tiny_llama(0), stored, sampling).run(PROMPTS, SETUPS))


def test_every_prompt_is_decoded_with_every_setup(results: list[tuple[Prompt, Setup, Trial]]) -> None:
    assert [(prompt, setup) for prompt, setup, _ in results] == [(p, s) for p in PROMPTS for s in SETUPS]


def test_all_setups_decode_the_same_tokens(results: list[tuple[Prompt, Setup, Trial]]) -> None:
    for prompt in PROMPTS:
        assert len({trial.decoded for own, _, trial in results if own == prompt}) == 1


def test_counts_add_up(results: list[tuple[Prompt, Setup, Trial]]) -> None:
    for _, _, trial in results:
        assert trial.target_calls <= trial.decoded <= trial.target_calls + sum(trial.accepted)
        for position, (offered, accepted) in enumerate(zip(trial.offered, trial.accepted, strict=True)):
            assert accepted <= offered
            assert not position or offered <= trial.accepted[position - 1]


def test_runs_that_occurred_before_are_counted() -> None:
    assert repeated_runs(list(range(20))) == (13, 0)
    assert repeated_runs([*range(10), *range(10)]) == (13, 3)  # of the second ten: 0-7, 1-8, 2-9
    assert repeated_runs([5] * 10) == (3, 2)
    assert repeated_runs([1, 2, 3]) == (0, 0)


def test_the_report_pools_sums_not_ratios() -> None:
    few, many = Trial(1, 10, 10, (10, 0), (0, 0)), Trial(1, 100, 50, (50, 30), (30, 20))
    setup = Setup(1, 3)
    rows = report([(Prompt("x", "a"), setup, few), (Prompt("y", "b"), setup, many)])
    assert [row["group"] for row in rows] == ["a", "b", "all"]
    assert rows[-1]["tokens_per_target_call"] == pytest.approx(110 / 60)
    assert rows[-1]["acceptance_by_position"] == pytest.approx([30 / 60, 20 / 30])
    assert rows[0]["acceptance_by_position"] == [0, None]


def test_prompts_without_a_group_are_only_pooled() -> None:
    assert [row["group"] for row in report([(Prompt("x"), Setup(1, 2), Trial(1, 4, 2, (2,), (2,)))])] == ["all"]
