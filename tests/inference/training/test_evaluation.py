"""A drafter's evaluation adds up the counts of its replies."""

import mlx.core as mx
import pytest

from rdchat.inference.api import Prompt, Statistics
from rdchat.inference.drafting.checkpoints.checkpoint import write_drafter
from rdchat.inference.drafting.heads.recurrent_head import HeadConfig, RecurrentHead
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.training.training_run import evaluate, pooled
from tests.clocks import ManualClock
from tests.inference.fakes import ALPHABET, StoredDrafter, tiny_llama

PROMPTS = [Prompt("hello there"), Prompt("abc abc abc")]


@pytest.mark.slow
@pytest.mark.across_rows
def test_every_question_is_decoded_with_every_setup(tmp_path_factory: pytest.TempPathFactory) -> None:
    model = tiny_llama(0)
    folder = tmp_path_factory.mktemp("drafter") / "drafter"
    mx.random.seed(0)
    head = RecurrentHead(HeadConfig(32, len(ALPHABET), exit_size=16, state_size=16))
    write_drafter(
        folder, StoredDrafter(head, mx.arange(len(ALPHABET)), TargetBinding.for_model(model.info)).written(), "card"
    )
    events = 0
    run = evaluate(model, PROMPTS, folder, ManualClock())
    while True:
        try:
            fraction = next(run).fraction
            events += 1
        except StopIteration as end:
            found = end.value
            break
    assert (events, fraction) == (6, pytest.approx(1))
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
