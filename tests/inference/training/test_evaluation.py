"""A drafter's evaluation adds up the counts of its replies."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rdchat.inference.api import Prompt, Statistics, TrainingProgress
from rdchat.inference.training.training_run import evaluate, pooled
from tests.clocks import ManualClock
from tests.inference.drafting.checkpoints.drafter_folders import saved_random_drafter
from tests.inference.fakes import shared_llama

PROMPTS = [Prompt("hello there"), Prompt("abc abc abc")]


@pytest.mark.slow
@pytest.mark.across_rows
def test_every_question_is_decoded_with_every_setup(tmp_path: Path) -> None:
    model = shared_llama()
    found = dict[str, Statistics]()

    def run() -> Iterator[TrainingProgress]:
        drafter = saved_random_drafter(model, tmp_path / "drafter", 32)
        found.update((yield from evaluate(model, PROMPTS, drafter, ManualClock())))

    assert [event.fraction for event in run()] == pytest.approx([each / 6 for each in range(1, 7)])
    assert list(found) == ["W1 L5", "W4 L5", "W4 L5 + lookup"]
    assert len({counts.generated_tokens for counts in found.values()}) == 1, "all setups decode the same tokens"
    for counts in found.values():
        assert counts.target_calls <= counts.generated_tokens - 1
        # A branch of prompt lookup may be longer than the beams.
        assert 0 < len(counts.acceptance_by_position) <= 12


def test_counts_are_pooled_by_sums_not_ratios() -> None:
    few = Statistics(generated_tokens=11, target_calls=10, drafted_lengths=(0, 10), accepted_lengths=(10, 0))
    many = Statistics(generated_tokens=101, target_calls=50, drafted_lengths=(0, 0, 50), accepted_lengths=(20, 10, 20))
    both = pooled([few, many])
    assert both.tokens_per_target_call == pytest.approx(110 / 60)
    assert both.acceptance_by_position == pytest.approx([30 / 60, 20 / 50])
    assert pooled([]).tokens_per_target_call is None
