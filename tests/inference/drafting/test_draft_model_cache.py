"""A draft model's cache agrees with the conversation after every kind of end, for every kind of cache."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_map

from rdchat.inference.api import ChatMessage, FinishReason, Role, TokenEvent
from rdchat.inference.drafting.draft_model import DraftModelDrafter
from rdchat.inference.verification.round_cache import RoundKVCache, RoundRows, RowBuffer
from rdchat.inference.verification.target import LoadedModel
from tests.grids import share
from tests.inference.drafting.draft_pairs import CHAIN, SIZE, TREE, Pair, shared_near
from tests.inference.fakes import ask, loaded, positions, shared_llama
from tests.inference.plain_replies import ENDING_SEEDS, plain

pytestmark = pytest.mark.across_rows


@pytest.mark.parametrize(
    ("max_tokens", "draft"), share(zip(range(1, 13), cycle([shared_llama, shared_near]), strict=False), 5)
)
def test_the_caches_are_in_step_after_a_cut_at_every_place_of_a_round(
    max_tokens: int, draft: Callable[[], LoadedModel]
) -> None:
    pair = Pair.of(shared_llama(), draft())
    end = pair.reply(ask(temperature=1.0, max_tokens=max_tokens))
    assert len(end.token_ids) == max_tokens
    pair.assert_in_step()


@pytest.mark.slow
def test_the_caches_are_in_step_after_an_end_token_and_after_a_stop_string() -> None:
    target = shared_llama()
    text = plain(target, ask(temperature=0.7)).text
    ends = set()
    requests = [ask(temperature=1.5, seed=seed, max_tokens=60) for seed in ENDING_SEEDS[:7]]
    requests += [ask(temperature=0.7, stop=(text[at : at + 2],)) for at in range(1, 14, 2)]
    for request in requests:
        pair = Pair.of(target, shared_near())
        end = pair.reply(request)
        assert (end.token_ids, end.text) == (plain(target, request).token_ids, plain(target, request).text)
        pair.assert_in_step()
        ends.add(end.finish_reason)
    assert ends >= {FinishReason.EOS, FinishReason.STOP_STRING}


@pytest.mark.parametrize(("events", "by"), share(zip(range(20), cycle(["cancel", "close"]), strict=False), 20))
def test_the_caches_are_in_step_after_a_cancel_in_every_phase(by: str, events: int) -> None:
    target = shared_llama()
    pair = Pair.of(target, shared_near())
    request = ask("a prompt that is longer than one chunk of prefill", temperature=0.7)
    iterator = pair.start(request)
    begun = [next(iterator) for _ in range(events)]
    getattr(iterator, by)()
    for _ in iterator:
        pass
    held = list(pair.draft.cache.tokens)
    assert positions(pair.draft.cache) == len(held)
    assert held == pair.cache.tokens[: len(held)]
    if begun and isinstance(begun[-1], TokenEvent):
        pair.assert_in_step()
    assert pair.reply(request).token_ids == plain(target, request).token_ids


def test_a_cancel_while_the_draft_model_reads_the_prompt_keeps_what_it_read() -> None:
    target = shared_llama()
    pair = Pair.of(target, shared_near())
    prompt = target.encode_chat(ask("several chunks of prompt please").messages, continue_last=False)
    drafter = DraftModelDrafter(pair.draft, prompt, ask(), shape_of=lambda _: TREE)
    looks = iter([False, False, True])
    read = list(drafter.prefill(lambda: next(looks)))
    drafter.end_reply(len(prompt))
    assert read == [0, 8, 16]
    assert pair.draft.cache.tokens == prompt[:16]
    assert positions(pair.draft.cache) == 16


@pytest.mark.parametrize("failing_call", share([0, 3, 9, 14], 4))
def test_the_draft_cache_is_empty_after_an_error(failing_call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    target = shared_llama()
    pair = Pair.of(target, shared_near())
    whole = type(pair.draft.model.network).__call__
    calls = iter(range(1000))

    def fail(self: object, *arguments: object, **options: object) -> object:
        if self is pair.draft.model.network and next(calls) == failing_call:
            raise LookupError("out of luck")
        return whole(self, *arguments, **options)

    monkeypatch.setattr(type(pair.draft.model.network), "__call__", fail)
    with pytest.raises(LookupError, match="out of luck"):
        pair.reply(ask())
    assert (pair.draft.cache.tokens, positions(pair.draft.cache)) == ([], 0)
    assert pair.reply(ask()).token_ids == plain(target, ask()).token_ids
    pair.assert_in_step()


def test_a_further_turn_reads_only_what_is_new_and_an_edit_what_follows_it(
    writes: list[tuple[RowBuffer, int]],
) -> None:
    target = shared_llama()
    pair = Pair.of(target, shared_near())
    first = ask("who are you", temperature=0.7)
    reply = pair.reply(first).text.rstrip("\0")
    rows = pair.draft.cache.layers[0].buffer
    said = {Role.USER: first.messages[0].content, Role.ASSISTANT: reply}
    turns = [*(ChatMessage(role, text) for role, text in said.items()), ChatMessage(Role.USER, "and what do you do")]
    for messages in (turns, [*turns[:2], replace(turns[2], content="and why")]):
        request = replace(first, messages=tuple(messages))
        prompt = target.encode_chat(request.messages, continue_last=False)
        held = list(pair.draft.cache.tokens)
        shared = next((i for i, (a, b) in enumerate(zip(held, prompt, strict=False)) if a != b), len(held))
        assert shared > 20
        writes.clear()
        iterator = pair.start(request)
        while not isinstance(next(iterator), TokenEvent):
            pass
        assert sum(count for buffer, count in writes if buffer is rows) == len(prompt) - 1 - shared
        assert [*iterator][-1].token_ids == plain(target, request).token_ids  # type: ignore[union-attr]
        pair.assert_in_step()


@pytest.mark.slow
def test_a_wrapped_window_in_the_draft_model_is_taken_back_exactly() -> None:
    target = shared_llama()
    pair = Pair.of(target, shared_llama(sliding_window=7))
    for seed in range(3):
        request = ask("a prompt longer than the window", seed=seed, temperature=1.0, max_tokens=60)
        assert pair.reply(request).token_ids == plain(target, request).token_ids
        pair.assert_in_step()


def test_rows_of_a_window_survive_a_buffer_that_grows_within_a_round() -> None:
    """What a rejected draft pushed out of the window is wanted again, so growing must not drop it."""
    rows = mx.arange(300.0).reshape(1, 1, 300, 1)
    for fed in range(240, 260):
        cache = RoundKVCache(window=8)
        cache.update_and_fetch(rows[:, :, :fed], rows[:, :, :fed])
        cache.open_round()
        for step in range(9):
            cache.update_and_fetch(-rows[:, :, step : step + 1], -rows[:, :, step : step + 1])
        cache.close_round(RoundRows.for_path([0, 1]))
        keys, _ = cache.update_and_fetch(rows[:, :, fed : fed + 1], rows[:, :, fed : fed + 1])
        assert np.array(keys)[0, 0, :, 0].tolist() == [*range(fed - 5, fed), 0, -1, fed]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["mamba2", "lfm2"])
def test_a_draft_model_with_recurrent_state_reads_no_accepted_token_again(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = recurrent(family)
    draft = recurrent(family)
    request = ask(temperature=1.0, top_p=1.0, max_tokens=41)
    statistics = Pair.of(target, draft).reply(request, CHAIN).statistics
    # Each round brought the whole draft and a token, but the last one, in which the reply ended.
    assert statistics.rounds == -(-(statistics.generated_tokens - 1) // 5)
    attentive = shared_llama()
    pair = Pair.of(attentive, draft)
    rows = list[int]()
    feed = DraftModelDrafter._feed

    def noted(self: DraftModelDrafter, tokens: mx.array) -> mx.array:
        rows.append(len(tokens))
        return feed(self, tokens)

    monkeypatch.setattr(DraftModelDrafter, "_feed", noted)
    for seed in range(4):
        request = ask(temperature=1.0, seed=seed)
        assert pair.reply(request, TREE).token_ids == plain(attentive, request).token_ids
        pair.assert_in_step()
    assert max(rows) == 2, "a root behind a token that was accepted last and is not read yet"


def recurrent(family: str) -> LoadedModel:
    """Return a small model of a family whose layers keep state."""
    module = importlib.import_module(f"mlx_lm.models.{family}")
    common = {
        "model_type": family, "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": SIZE, "max_position_embeddings": 512,
        "rope_theta": 10000.0, "tie_word_embeddings": False,
    }  # fmt: skip
    own = {
        "mamba2": {
            "num_heads": 8, "state_size": 16, "layer_norm_epsilon": 1e-5, "conv_kernel": 4, "expand": 2, "n_groups": 2,
            "use_bias": False, "use_conv_bias": True, "time_step_limit": (0.0, float("inf")), "time_step_rank": "auto",
        },
        "lfm2": {
            "norm_eps": 1e-5, "conv_bias": False, "conv_L_cache": 3, "block_dim": 64, "block_ff_dim": 128,
            "block_multiple_of": 8, "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": False,
            "full_attn_idxs": [1],
        },
    }[family]  # fmt: skip
    mx.random.seed(2)
    network = module.Model(module.ModelArgs.from_dict(common | own))
    network.update(tree_map(lambda array: array + 0.1 * mx.random.normal(array.shape), network.parameters()))
    network.eval()
    return loaded(network)
