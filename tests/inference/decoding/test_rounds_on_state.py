"""Rounds on recurrent and convolutional state: the text of plain decoding in each family, however the reply ends.

After each end the cache holds the state of its tokens, so that the next prompt can go on with it.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, cycle, islice, product
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_map

from rdchat.inference.api import DraftKind, FinishReason, GenerationRequest, ReplyEnd, TokenEvent
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel
from tests.grids import share
from tests.inference.drafting.draft_pairs import CHAIN, TREE, Pair
from tests.inference.fakes import ALPHABET, ScriptedDrafter, ask, job_of, loaded, reply_end, shared_family
from tests.inference.families import FED_AGAIN, HYBRIDS, network_of
from tests.inference.plain_replies import cancelling, check_same, plain

pytestmark = pytest.mark.across_rows

FAMILIES = [*HYBRIDS, *FED_AGAIN]
RECURRENCES = [
    ["qwen3_5", "qwen3_next", "qwen3_5_moe", "kimi_linear", "kimi_k3", "olmo_hybrid", "bailing_moe_v3"],  # gated delta
    ["bailing_moe_linear", "bailing_hybrid"],  # lightning attention
    ["mamba2", "nemotron_h", "granitemoehybrid", "falcon_h1", "plamo2"],
    ["lfm2", "lfm2_moe"],  # convolutions alone
    [*FED_AGAIN],
]
LENGTH = 5  # of a draft


def by_turns(cases: Sequence[Any], values: Sequence[Any]) -> list[tuple[str, Any, Any]]:
    """Return each kind of recurrence with each case; its families and the values by turns."""
    cells = product(enumerate(RECURRENCES), enumerate(cases))
    return [
        (families[turn % len(families)], case, values[(place + turn) % len(values)])
        for (place, families), (turn, case) in cells
    ]


def checked(model: LoadedModel, request: GenerationRequest, width: int) -> ReplyEnd:
    """Assert that drafts change nothing, and that the cache can go on."""
    end, held = check_same(model, request, width, LENGTH)
    assert_continues(model, held)
    return end


def assert_continues(model: LoadedModel, held: KVCache) -> None:
    """Assert that a cache is that of a network that was fed its tokens."""
    fresh = KVCache(model.network)
    if held.tokens:
        model.network(mx.array([held.tokens]), cache=fresh.layers)
    expected, found = (np.array(model.network(mx.array([[5, 6]]), cache=each.layers)) for each in (fresh, held))
    np.testing.assert_allclose(found, expected, atol=1e-3 * expected.std())


def test_each_family_has_a_recurrence() -> None:
    assert sorted(chain(*RECURRENCES)) == sorted(FAMILIES)


@pytest.mark.parametrize(
    ("name", "temperature", "width"),
    share(zip(FAMILIES, cycle([0, 0.9]), cycle([4, 4, 1, 1]), strict=False), 8),
)
def test_drafts_do_not_change_the_text(name: str, temperature: float, width: int) -> None:
    """A part of nearly every chain is rejected, and of every tree a branch."""
    model = shared_family(name)
    assert model.capability.kind is (DraftKind.TREE if name in HYBRIDS else DraftKind.FED_AGAIN)
    end = checked(model, ask(seed=5, max_tokens=30, temperature=temperature), width if name in HYBRIDS else 1)
    assert end.statistics.accepted > 3 or end.finish_reason is FinishReason.EOS


def at_lengths(model: LoadedModel, width: int) -> None:
    for length, temperature in ((2, 0), (3, 0.9), (4, 0), (6, 0.9), (7, 0.9)):
        checked(model, ask(seed=3, temperature=temperature, max_tokens=length), width)


def at_stop_strings(model: LoadedModel, width: int) -> None:
    asked = ask(seed=3, temperature=0.9, top_p=1, max_tokens=24)
    text = plain(model, asked).text
    for start in range(1, len(text) - 3, 6):
        stops = replace(asked, sampling=replace(asked.sampling, stop=(text[start : start + 3],)))
        assert checked(model, stops, width).finish_reason is FinishReason.STOP_STRING


def at_end_tokens(model: LoadedModel, width: int) -> None:
    requests = (ask(seed=seed, temperature=1.5, top_p=1, max_tokens=40) for seed in range(60))
    ended = [*islice((each for each in requests if plain(model, each).finish_reason is FinishReason.EOS), 3)]
    assert ended
    for request in ended:
        checked(model, request, width)


def after_a_cancel(model: LoadedModel, width: int) -> None:
    for at in (4, 7):
        asked = ask(seed=3, temperature=0.9, max_tokens=50)
        iterator, job, reply = begun(model, asked, width)
        end = reply_end(cancelling(iter(iterator), iterator, at))
        assert end.finish_reason in {FinishReason.CANCELLED, FinishReason.EOS}
        assert list(end.token_ids) == reply[: len(end.token_ids)]
        assert_continues(model, job.cache)


def after_a_failed_call(model: LoadedModel, width: int) -> None:
    fails_in_a_round(model, width, type(model.network), call=1)


def after_a_failed_layer(model: LoadedModel, width: int) -> None:
    fails_in_a_round(model, width, nn.Linear, call=7)


def begun(model: LoadedModel, asked: GenerationRequest, width: int) -> tuple[ReplyIterator, ReplyJob, list[int]]:
    """Return a reply that is not decoded yet, its job, and its tokens."""
    reply = list(plain(model, asked).token_ids)
    job = job_of(model, asked)
    return ReplyIterator(job, ScriptedDrafter([*reply, *[1] * 50], width, LENGTH)), job, reply


def fails_in_a_round(model: LoadedModel, width: int, kind: Any, call: int) -> None:
    """A module of a kind fails in a call behind the first token; the model writes the next reply as if it had not."""
    asked = ask(seed=5, temperature=0.9, max_tokens=30)
    iterator, job, _ = begun(model, asked, width)
    while not isinstance(next(iterator), TokenEvent):
        pass
    calls = iter(range(1000))
    whole = kind.__call__

    def fail(*arguments: Any, **options: Any) -> Any:
        if next(calls) == call:
            raise LookupError("out of luck")
        return whole(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "__call__", fail)
        with pytest.raises(LookupError, match="out of luck"):
            list(iterator)
    assert job.cache.tokens == []
    assert all(array is None for leaf in job.cache._leaves if hasattr(leaf, "cache") for array in leaf.cache)
    checked(model, asked, width)


ENDS = (at_lengths, at_stop_strings, at_end_tokens, after_a_cancel, after_a_failed_call, after_a_failed_layer)


@pytest.mark.parametrize(("name", "end", "width"), share(by_turns(ENDS, [1, 4]), 8))
def test_the_cache_goes_on_after_every_end(name: str, end: Any, width: int) -> None:
    end(shared_family(name), width if name in HYBRIDS else 1)


@cache
def near_family(name: str) -> LoadedModel:
    """Return a model of its own that often agrees with `shared_family(name)`."""
    network = network_of(name, {**(HYBRIDS | FED_AGAIN)[name][1], "vocab_size": len(ALPHABET)})
    mx.random.seed(11)
    network.update(tree_map(lambda array: array + 0.01 * mx.random.normal(array.shape), network.parameters()))
    return loaded(network)


@pytest.mark.parametrize(
    ("name", "temperature", "tree"),
    share(zip(FAMILIES, cycle([0, 0.9]), cycle([False, False, True, True]), strict=False), 10),
)
def test_a_draft_model_of_the_same_family(name: str, temperature: float, tree: bool) -> None:
    """Both keep state; the draft model computes within the target's round, and the next prompt goes on from there.

    A target that feeds again may hold fewer tokens of the reply than its draft model.
    """
    target = shared_family(name)
    pair = Pair.of(target, near_family(name))
    for seed in range(2):
        asked = ask(seed=seed, temperature=temperature, max_tokens=30)
        end = pair.reply(asked, TREE if tree else CHAIN)
        assert end.token_ids == plain(target, asked).token_ids
        text = [*target.encode_chat(asked.messages, continue_last=False), *end.token_ids]
        held = pair.draft.cache.tokens
        assert held == text[: len(held)]
        assert len(text) - len(held) <= 9
        for model, kept in ((target, pair.cache), (pair.draft.model, pair.draft.cache)):
            assert_continues(model, kept)
            kept.drop_tokens()
