"""Many conversations in one batch say what each says alone."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from rdchat.inference.training.data.batched_decoding import BatchedDecoder
from rdchat.inference.verification.target import LoadedModel
from tests.inference.fakes import tiny_llama

pytestmark = pytest.mark.across_rows

PREFIX = [3, 4, 5]
PROMPTS = [[7], [8, 9, 10, 11, 12, 13], [1, 2], [20, 21, 22, 23]]


def alone(model: LoadedModel, tokens: list[int]) -> np.ndarray:
    """Return the last token's logits, without any cache of ours."""
    return np.array(model.network(mx.array([tokens]), cache=make_prompt_cache(model.network))[0, -1])


@pytest.mark.parametrize("window", [None, 4])
def test_each_sequence_sees_its_own_tokens_only(window: int | None) -> None:
    """Of different lengths, over many steps, sequences dropped on the way; windows count tokens, not columns."""
    model = tiny_llama(1, sliding_window=window)
    decoder = BatchedDecoder(model, PREFIX, PROMPTS)
    seen = [[*PREFIX, *prompt] for prompt in PROMPTS]
    sequences = [0, 1, 2, 3]
    for step in range(70):  # across the buffers' growth
        if step == 5:
            decoder.keep([3, 1])
            sequences = [3, 1]
        tokens = [(7 * step + 3 * sequence) % 25 + 1 for sequence in sequences]
        logits = decoder.step(tokens)
        for place, sequence in enumerate(sequences):
            seen[sequence].append(tokens[place])
            if step in {0, 4, 5, 6, 69}:
                np.testing.assert_allclose(np.array(logits[place]), alone(model, seen[sequence]), atol=2e-4)


def test_prompts_are_read_in_bounded_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt longer than the steps by which mlx-lm's buffers grow, 256, beside shorter ones."""
    monkeypatch.setattr("rdchat.inference.training.data.batched_decoding._CALL_TOKENS", 5)
    model = tiny_llama(1)
    prompts = [*PROMPTS[:2], [], [number % 25 + 1 for number in range(260)]]
    logits = BatchedDecoder(model, PREFIX, prompts).step([1, 2, 3, 4])
    for sequence, prompt in enumerate(prompts):
        expected = alone(model, [*PREFIX, *prompt, sequence + 1])
        np.testing.assert_allclose(np.array(logits[sequence]), expected, atol=2e-4)
