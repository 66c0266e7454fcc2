"""Many conversations in lockstep say what each says alone."""

from contextlib import nullcontext

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import llama
from mlx_lm.models.cache import make_prompt_cache

from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.batched_decoding import Lockstep
from rdchat.inference.training.data.folded_attention import folded_attention
from tests.inference.fakes import tiny_llama

PREFIX = [3, 4, 5]
PROMPTS = [[7], [8, 9, 10, 11, 12, 13], [1, 2], [20, 21, 22, 23]]


def alone(model: LoadedModel, tokens: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the last token's logits and hidden state, without any cache of ours."""
    logits = model.network(mx.array([tokens]), cache=make_prompt_cache(model.network))
    assert model.hooks.hidden is not None
    return np.array(logits[0, -1]), np.array(model.hooks.hidden[0, -1])


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("window", [None, 4])
def test_each_lane_sees_its_own_tokens_only(window: int | None, folded: bool) -> None:
    """Of different lengths, over many steps, lanes dropped on the way; windows count tokens, not columns."""
    model = tiny_llama(1, sliding_window=window)
    with folded_attention(model.network) if folded else nullcontext():
        check_lanes(model)


def check_lanes(model: LoadedModel) -> None:
    lockstep = Lockstep.read(model, PREFIX, PROMPTS)
    seen = [[*PREFIX, *prompt] for prompt in PROMPTS]
    lanes = [0, 1, 2, 3]
    for step in range(70):  # across the buffers' growth
        if step == 5:
            lockstep.keep([3, 1])
            lanes = [3, 1]
        tokens = [(7 * step + 3 * lane) % 25 + 1 for lane in lanes]
        logits, hidden = lockstep.step(tokens)
        for place, lane in enumerate(lanes):
            seen[lane].append(tokens[place])
            if step in {0, 4, 5, 6, 69}:
                expected, state = alone(model, seen[lane])
                np.testing.assert_allclose(np.array(logits[place]), expected, atol=2e-4)
                np.testing.assert_allclose(np.array(hidden[place]), state, atol=2e-4)


def test_attention_is_only_folded_within() -> None:
    plain = llama.scaled_dot_product_attention
    with folded_attention(tiny_llama(1).network):
        assert llama.scaled_dot_product_attention is not plain
    assert llama.scaled_dot_product_attention is plain


def test_prompts_are_read_in_bounded_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt longer than the steps by which mlx-lm's buffers grow, 256, beside shorter ones."""
    monkeypatch.setattr("rdchat.inference.training.data.batched_decoding._PREFILL_TOKENS", 5)
    model = tiny_llama(1)
    prompts = [*PROMPTS[:2], [], [number % 25 + 1 for number in range(260)]]
    logits, _ = Lockstep.read(model, PREFIX, prompts).step([1, 2, 3, 4])
    for lane, prompt in enumerate(prompts):
        expected, _ = alone(model, [*PREFIX, *prompt, lane + 1])
        np.testing.assert_allclose(np.array(logits[lane]), expected, atol=2e-4)
