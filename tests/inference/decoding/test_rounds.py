"""The same seed gives the same text with drafts as without, whatever is drafted and however the reply ends."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain, cycle, islice, product
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_map

from rdchat.inference.api import DraftKind, DraftSettings, FinishReason, GenerationRequest, Mode, ReplyEnd, TokenEvent
from rdchat.inference.decoding import reply
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel
from tests.grids import pairs, share
from tests.inference.drafting.draft_pairs import CHAIN, TREE, Pair
from tests.inference.fakes import (
    ALPHABET,
    ScriptedDrafter,
    ask,
    job_of,
    loaded,
    reply_end,
    shared_family,
    shared_llama,
    token_events,
)
from tests.inference.families import CHAINS, FED_AGAIN, HYBRIDS, TREES, network_of
from tests.inference.known_capabilities import with_known
from tests.inference.plain_replies import SAMPLINGS, cancelling, check_same, drafted, plain

pytestmark = pytest.mark.across_rows


@pytest.mark.parametrize(("sampling", "window", "length"), share(pairs(SAMPLINGS, [None, 12], [2, 5, 9]), 24))
def test_drafts_do_not_change_the_text(sampling: dict[str, float], window: int | None, length: int) -> None:
    """Each width meets each sampling, each length and each window."""
    width = (1, 3, 8)[(SAMPLINGS.index(sampling) + length // 4) % 3]
    end, _ = check_same(shared_llama(sliding_window=window), ask(seed=5, max_tokens=30, **sampling), width, length)
    statistics = end.statistics
    assert statistics.rounds == statistics.target_calls == sum(statistics.accepted_lengths)
    assert statistics.accepted == sum(n * count for n, count in enumerate(statistics.accepted_lengths))
    assert statistics.drafted == sum(n * count for n, count in enumerate(statistics.drafted_lengths))
    assert statistics.accepted + statistics.rounds >= statistics.generated_tokens - 1


@pytest.mark.parametrize("start", share(range(1, 20), 4))
def test_accepted_are_the_drafted_tokens_that_are_in_the_reply(start: int) -> None:
    """Law: the panel's counts are those of the window of tokens. A kept token after the end made them differ."""
    model = shared_llama()
    text = plain(model, ask(temperature=1, max_tokens=24)).text
    for stop in ((), (text[start : start + 1],), (text[start : start + 3],)):
        request = ask(temperature=1, max_tokens=start + 4, stop=stop)
        reply = list(plain(model, replace(request, sampling=replace(request.sampling, stop=()))).token_ids)
        (*events, end), _ = drafted(model, request, ScriptedDrafter(reply, 3, 5))
        assert isinstance(end, ReplyEnd)
        written = token_events(events)[: len(end.token_ids)]
        counts = end.statistics
        assert counts.accepted == sum(event.position > 0 for event in written)
        assert counts.accepted == sum(n * steps for n, steps in enumerate(counts.accepted_lengths))
        assert sum(counts.accepted_lengths) == counts.rounds
        own = sum(event.position == 0 for event in written) - 1
        assert own in (counts.target_calls, counts.target_calls - 1), "the last draft may end the reply"


@pytest.mark.parametrize("context", share(range(46, 54), 4))
def test_a_context_that_ends_inside_a_round(context: int) -> None:
    model = shared_llama()
    short = replace(model, info=replace(model.info, context_length=context))
    end, _ = check_same(short, ask("abc", temperature=1, max_tokens=60), 3, 5)
    assert end.finish_reason is FinishReason.CONTEXT_FULL
    assert end.statistics.context_tokens == context


@pytest.mark.slow
@pytest.mark.parametrize("sampling", share([*SAMPLINGS[1:4:2], SAMPLINGS[5]], 4), ids=str)
def test_only_what_follows_accepted_tokens_is_chosen_by_the_definition(
    monkeypatch: pytest.MonkeyPatch, sampling: dict[str, float]
) -> None:
    """At temperature 2 all 16 rows of a round were sorted for want of one: it took twice its time."""
    model = shared_llama()
    rng = np.random.default_rng(0)
    chosen = 0
    request = replace(ask(seed=5, max_tokens=60, **sampling), draft=DraftSettings(trace=True))
    *told, expected = ChatSession(model).generate(request)
    assert isinstance(expected, ReplyEnd)
    quickly = TokenChooser.choose_quickly
    exactly = TokenChooser.choose

    def seldom_sure(self: TokenChooser, logits: mx.array, *rest: Any) -> tuple[mx.array, mx.array]:
        sure = mx.array(rng.random(len(logits)) < 0.3)
        return mx.where(sure, quickly(self, logits, *rest)[0], 1), sure

    def counted(self: TokenChooser, logits: mx.array, *rest: Any) -> mx.array:
        nonlocal chosen
        chosen += len(logits)
        return exactly(self, logits, *rest)

    monkeypatch.setattr(TokenChooser, "choose_quickly", seldom_sure)
    monkeypatch.setattr(TokenChooser, "choose", counted)
    (*events, end), _ = drafted(model, request, ScriptedDrafter(list(expected.token_ids), 8, 5))
    assert isinstance(end, ReplyEnd)
    assert end.token_ids == expected.token_ids
    log_probs = [[event.log_prob for event in token_events(reply)] for reply in (events, told)]
    assert log_probs[0] == pytest.approx(log_probs[1], abs=1e-3)
    assert end.statistics.verified_nodes > 2 * len(end.token_ids)
    assert chosen <= len(end.token_ids)


def test_events_say_what_was_drafted_and_traces_show_the_tree() -> None:
    model = shared_llama()
    settings = DraftSettings(mode=Mode.DRAFTER, trace=True)
    plainly = ask(temperature=1, max_tokens=30)
    request = replace(plainly, draft=settings)
    events, _ = drafted(model, request, ScriptedDrafter(list(plain(model, plainly).token_ids), 3, 5))
    tokens = token_events(events)[1:]
    rounds: list[list[TokenEvent]] = [[]]
    for event in tokens:
        rounds[-1].append(event)
        if event.round is not None:
            rounds.append([])
    assert rounds.pop() == []
    for number, members in enumerate(rounds, start=1):
        last = members[-1]
        assert last.round is not None
        assert last.tree is not None
        assert (last.round.round, last.round.emitted) == (number, len(members))
        assert [event.position for event in members] == [*range(1, len(members)), 0]
        assert {event.drafter for event in members[:-1]} <= {"drafter"}
        tree = last.tree
        assert [tree.tokens[node] for node in tree.path[1:]] == [event.token_id for event in members[:-1]]
        assert (tree.correction, last.drafter) == (last.token_id, "")
        assert all(log_prob <= 0 for log_prob in tree.log_probs)
    assert any(len(members) > 2 for members in rounds)


@pytest.mark.parametrize("mode", share([Mode.AUTO, Mode.LOOKUP, Mode.OFF], 3))
def test_freed_buffers_are_given_back_in_every_mode(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds kept them all: MLX keeps them for reuse, and they grow with the context."""
    model = shared_llama()
    calls = list[int]()
    asked = ask("abcabcabc", temperature=0, max_tokens=20)
    chunks = -(-(len(model.encode_chat(asked.messages)) - 1) // model.pace.chunk)
    monkeypatch.setattr(reply, "_FREE_BUFFERS_EVERY", 8)
    monkeypatch.setattr(mx, "clear_cache", lambda: calls.append(1))
    monkeypatch.setattr(mx, "get_cache_memory", lambda: 2**40)  # more than prefill keeps
    end = reply_end(ChatSession(model).generate(replace(asked, draft=DraftSettings(mode))))
    assert end.finish_reason is FinishReason.LENGTH
    assert len(calls) == chunks + 3  # before the first token, the 9th and the 17th


FAMILIES = [*HYBRIDS, *FED_AGAIN]
KINDS = [
    ["llama", "gemma3"],  # attention alone, with and without a sliding window
    ["qwen3_5", "qwen3_next", "qwen3_5_moe", "kimi_linear", "kimi_k3", "olmo_hybrid", "bailing_moe_v3"],  # gated delta
    ["bailing_moe_linear", "bailing_hybrid"],  # lightning attention
    ["mamba2", "nemotron_h", "granitemoehybrid", "falcon_h1", "plamo2"],
    ["lfm2", "lfm2_moe"],  # convolutions alone
    [*FED_AGAIN],
]
LENGTH = 5  # of a draft


def by_turns(cases: Sequence[Any], values: Sequence[Any]) -> list[tuple[str, Any, Any]]:
    """Return each kind of layer with each case; its families and the values by turns."""
    cells = product(enumerate(KINDS), enumerate(cases))
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


def test_each_family_with_state_has_a_kind() -> None:
    assert sorted(chain(*KINDS[1:])) == sorted(FAMILIES)


@pytest.mark.parametrize(
    ("name", "temperature", "width"),
    share(zip([*TREES, *CHAINS, *FAMILIES], cycle([0, 0.9]), cycle([4, 4, 1, 1]), strict=False), 11),
)
def test_drafts_do_not_change_the_text_of_other_families(name: str, temperature: float, width: int) -> None:
    """Sliding windows, chunks, latent attention, experts and state; a part of nearly every draft is rejected."""
    model = shared_family(name)
    kind = DraftKind.CHAIN if name in CHAINS else DraftKind.FED_AGAIN if name in FED_AGAIN else DraftKind.TREE
    assert (model.capability.kind, model.capability.reason == "") == (kind, kind is DraftKind.TREE)
    assert model.hooks.states.recorded is (kind is not DraftKind.FED_AGAIN)
    end = checked(model, ask(seed=5, max_tokens=24, temperature=temperature), width if kind is DraftKind.TREE else 1)
    assert end.statistics.accepted > 3 or end.finish_reason is FinishReason.EOS


def at_lengths(model: LoadedModel, width: int) -> None:
    for length, temperature in ((2, 0), (3, 0.9), (4, 0), (6, 0.9), (7, 0.9)):
        checked(model, ask(seed=3, temperature=temperature, max_tokens=length), width)


def at_stop_strings(model: LoadedModel, width: int) -> None:
    asked = ask(seed=3, temperature=0.9, top_p=1, max_tokens=24)
    text = plain(model, asked).text
    for start in range(1, len(text) - 3, 8):
        stops = replace(asked, sampling=replace(asked.sampling, stop=(text[start : start + 3],)))
        assert checked(model, stops, width).finish_reason is FinishReason.STOP_STRING


def at_end_tokens(model: LoadedModel, width: int) -> None:
    requests = (ask(seed=seed, temperature=1.5, top_p=1, max_tokens=40) for seed in range(60))
    ended = [*islice((each for each in requests if plain(model, each).finish_reason is FinishReason.EOS), 2)]
    assert ended
    for request in ended:
        checked(model, request, width)


def after_a_cancel(model: LoadedModel, width: int) -> None:
    for at in (4, 7):
        asked = ask(seed=3, temperature=0.9, max_tokens=20)
        iterator, job, reply = begun(model, asked, width)
        end = reply_end(cancelling(iter(iterator), iterator, at))
        cancelled = end.finish_reason is FinishReason.CANCELLED
        assert at < len(end.token_ids) <= at + LENGTH if cancelled else end.finish_reason is FinishReason.EOS
        assert list(end.token_ids) == reply[: len(end.token_ids)]
        assert_continues(model, job.cache)


def begun(model: LoadedModel, asked: GenerationRequest, width: int) -> tuple[ReplyIterator, ReplyJob, list[int]]:
    """Return a reply that is not decoded yet, its job, and its tokens."""
    reply = list(plain(model, asked).token_ids)
    job = job_of(model, asked)
    return ReplyIterator(job, ScriptedDrafter([*reply, *[1] * 50], width, LENGTH)), job, reply


def fails_in_a_round(model: LoadedModel, width: int, kind: Any, call: int, name: str = "__call__") -> None:
    """A method of a kind fails in a call behind the first token; the model writes the next reply as if it had not.

    The kind is the network's where it is None.
    """
    kind = kind or type(model.network)
    asked = ask(seed=5, temperature=0.9, max_tokens=16)
    iterator, job, _ = begun(model, asked, width)
    while not isinstance(next(iterator), TokenEvent):
        pass
    calls = iter(range(1000))
    whole = getattr(kind, name)

    def fail(*arguments: Any, **options: Any) -> Any:
        if next(calls) == call:
            raise LookupError("out of luck")
        return whole(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, name, fail)
        with pytest.raises(LookupError, match="out of luck"):
            list(iterator)
    assert job.cache.tokens == []
    assert all(array is None for leaf in job.cache._leaves if hasattr(leaf, "cache") for array in leaf.cache)
    checked(model, asked, width)


ENDS = (
    at_lengths,
    at_stop_strings,
    at_end_tokens,
    after_a_cancel,
    partial(fails_in_a_round, kind=None, call=1),
    partial(fails_in_a_round, kind=nn.Linear, call=7),
    partial(fails_in_a_round, kind=ScriptedDrafter, call=1, name="propose"),
)


@pytest.mark.parametrize(("name", "end", "width"), share(by_turns(ENDS, [1, 4]), 8))
def test_the_cache_goes_on_after_every_end(name: str, end: Any, width: int) -> None:
    end(shared_family(name), 1 if name in FED_AGAIN else width)


@cache
def near_family(name: str) -> LoadedModel:
    """Return a model of its own that often agrees with `shared_family(name)`."""
    network = network_of(name, {**(HYBRIDS | FED_AGAIN)[name][1], "vocab_size": len(ALPHABET)})
    mx.random.seed(11)
    network.update(tree_map(lambda array: array + 0.01 * mx.random.normal(array.shape), network.parameters()))
    return with_known(loaded(network), shared_family(name).capability)


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
    asked = ask(temperature=temperature, max_tokens=16)
    end = pair.reply(asked, TREE if tree else CHAIN)
    assert end.token_ids == plain(target, asked).token_ids
    text = [*target.encode_chat(asked.messages), *end.token_ids]
    held = pair.draft.cache.tokens
    assert held == text[: len(held)]
    assert len(text) - len(held) <= 9
    assert_continues(target, pair.cache)
    assert_continues(pair.draft.model, pair.draft.cache)
