"""KV caches of several conversations: each turn reads only what is new, and nobody's cache serves another."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.api import Mode
from rdchat.inference.local_engine import LocalEngine
from rdchat.inference.verification import prefix_caches
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.prefix_caches import PrefixCaches, usual_limit
from rdchat.inference.verification.target import LoadedModel
from tests.grids import grid, share
from tests.inference import fakes
from tests.inference.caches_on_disk.kept import MODELS, PLENTY, next_turn, reply_in, whole
from tests.inference.fakes import ask, positions, shared_family, shared_llama
from tests.inference.ready_drafters import ready_session
from tests.inference.threads import load_silently

pytestmark = pytest.mark.across_rows


def filled(model: LoadedModel, tokens: list[int]) -> KVCache:
    cache = KVCache(model.network)
    model.network(mx.array([tokens]), cache=cache.layers)
    cache.tokens += tokens
    cache.evaluate()
    return cache


def kept(model: LoadedModel, *conversations: list[int], limit: int = PLENTY, owner: str = "") -> PrefixCaches:
    caches = PrefixCaches(model.network, limit)
    for tokens in conversations:
        caches.give_back(filled(model, tokens), owner)
    return caches


A = [1] * 20 + [2] * 10
B = [3] * 20 + [2] * 10


def test_the_longest_common_prefix_is_taken_and_the_rest_stays() -> None:
    caches = kept(shared_llama(), A, B)
    taken = caches.take_cache([*A, 4, 5], "")
    assert taken.tokens == A
    assert caches.facts.count == 1
    assert caches.take_cache([*A, 4, 5], "").tokens == [], "one reply has it"
    caches.give_back(taken, "")
    assert caches.take_cache([*B, 4], "").tokens == B


def test_a_cache_is_trimmed_where_less_is_lost_than_shared_and_left_alone_otherwise() -> None:
    caches = kept(shared_llama(), A)
    assert caches.take_cache([1] * 9 + [5], "").tokens == [], "21 would be lost for 9"
    assert caches.take_cache([1] * 20 + [5], "").tokens == [1] * 20
    assert caches.facts.count == 0, "the long prefix is held once, and 10 tokens are soon read again"


def test_what_is_trimmed_for_one_conversation_is_put_back_for_the_other() -> None:
    model = shared_llama()
    prefix = [4] * 60
    one = prefix + [1] * 30
    two = prefix + [2] * 20
    caches = kept(model, one)
    for prompt, expected in [(two, prefix), (one, one[:-1]), (two, two[:-1]), ([*one, 9, 9], one)]:
        cache = caches.take_cache(prompt, "")
        assert cache.tokens == expected
        check_rows(model, cache)
        model.network(mx.array([prompt[len(cache.tokens) :]]), cache=cache.layers)
        cache.tokens += prompt[len(cache.tokens) :]
        caches.give_back(cache, "")
    sizes = [each.nbytes for _, each in caches._entries]
    assert max(sizes) == sizes[-1], "the prefix is in one of them"
    assert caches.facts.count == 2


def test_a_tail_is_of_use_in_parts_and_nobody_elses() -> None:
    model = shared_llama()
    prefix = [4] * 60
    caches = kept(model, prefix + [1] * 40)
    first = caches.take_cache([*prefix, 2, 2], "")
    caches.give_back(first, "")
    assert caches.take_cache([*prefix, *[1] * 10, 3, 3], "other").tokens == []
    part = caches.take_cache([*prefix, *[1] * 10, 3, 3], "")
    assert part.tokens == [*prefix, *[1] * 10]
    check_rows(model, part)
    caches.give_back(part, "")
    rest = caches.take_cache([*prefix, *[1] * 40, 3], "")
    assert rest.tokens == [*prefix, *[1] * 40]
    check_rows(model, rest)


def check_rows(model: LoadedModel, cache: KVCache) -> None:
    """Check that a cache gives the logits of a fresh one that read the same tokens."""
    fresh = filled(model, cache.tokens)
    assert positions(cache) == len(cache.tokens)
    following = mx.array([[7, 8]])
    expected = model.network(following, cache=fresh.layers)
    assert mx.allclose(model.network(following, cache=copy.deepcopy(cache.layers)), expected, atol=1e-4)


def random_prompts(rng: np.random.Generator, count: int) -> Iterator[list[int]]:
    """Yield prompts, each of which begins as one before it does."""
    texts = [[1] * 8]
    for _ in range(count):
        old = texts[rng.integers(len(texts))]
        texts.append([*old[: rng.integers(1, len(old) + 1)], *rng.integers(1, 4, size=rng.integers(1, 12)).tolist()])
        yield texts[-1]


@pytest.mark.parametrize(("name", "seed"), share(product(["llama", "qwen3_next", "lfm2"], range(5))))
def test_whatever_prompts_come_every_cache_holds_what_its_prompt_begins_with(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with state goes back to where it was marked, and nowhere else."""
    monkeypatch.setattr(prefix_caches, "_MIN_TAIL", 1)
    model = shared_family(name)
    rng = np.random.default_rng(seed)
    caches = PrefixCaches(model.network, 12 * filled(model, A).nbytes)
    ends = set[int]()
    for prompt in random_prompts(rng, 40):
        cache = caches.take_cache(prompt, "")
        assert cache.tokens == prompt[: len(cache.tokens)] != prompt
        if cache.tokens:
            assert name == "llama" or len(cache.tokens) in ends
            check_rows(model, cache)
        rest = prompt[len(cache.tokens) :]
        cut = int(rng.integers(len(rest) + 1))
        for part in (rest[:cut], rest[cut:]):
            if part:
                model.network(mx.array([part]), cache=cache.layers)
                cache.extend(part)
                cache.evaluate()
            if rng.random() < 0.7:
                cache.mark_prompt()
                ends.add(len(cache.tokens))
        ends.add(len(prompt))
        caches.give_back(cache, "")
        assert caches.facts.held_bytes <= caches.facts.limit_bytes


def test_a_mark_is_gone_with_the_tokens_before_it() -> None:
    model = shared_family("qwen3_next")
    cache = filled(model, A)
    cache.mark_prompt()
    cache.drop_tokens()
    model.network(mx.array([B + B]), cache=cache.layers)
    cache.extend(B + B)
    assert cache.reach(len(B) + 5) == 0


def test_of_two_that_share_as_much_the_one_that_loses_less_is_taken() -> None:
    long = [1] * 30 + [2] * 20
    short = [1] * 30 + [3]
    for conversations in ((long, short), (short, long)):
        caches = kept(shared_llama(), *conversations)
        caches.take_cache([1] * 30 + [4, 4], "")
        assert caches.take_cache([*long, 5], "").tokens == long


def test_the_last_token_of_a_prompt_is_always_read() -> None:
    assert kept(shared_llama(), A).take_cache(A, "").tokens == A[:-1]
    assert kept(shared_family("qwen3_next"), A).take_cache(A, "").tokens == [], "its state cannot go back"
    assert kept(shared_family("qwen3_next"), A).take_cache([*A, 1], "").tokens == A


def test_nobody_gets_the_cache_of_another() -> None:
    caches = kept(shared_llama(), A, owner="key 1")
    assert caches.take_cache([*A, 4], "").tokens == []
    assert caches.take_cache([*A, 4], "key 2").tokens == []
    assert caches.take_cache([*A, 4], "key 1").tokens == A


@pytest.mark.parametrize("name", fakes.MODELS)
def test_the_least_recently_used_go_first(name: str) -> None:
    model = MODELS[name]()
    size = filled(model, A).nbytes
    conversations = [[first, *A] for first in range(5)]
    caches = kept(model, *conversations, limit=3 * size)
    assert (caches.facts.count, caches.facts.held_bytes) == (3, 3 * size)
    held = caches.take_cache([*conversations[2], 1], "")
    assert held.tokens == conversations[2]
    caches.give_back(held, "")
    caches.limit(size)
    assert caches.facts.count == 1
    assert caches.take_cache([*conversations[2], 1], "").tokens == conversations[2]


def test_one_is_kept_whatever_its_size_and_the_others_make_room_for_one_that_grows() -> None:
    caches = kept(shared_llama(), A, B, limit=0)
    assert caches.facts.count == 1
    caches.limit(2 * filled(shared_llama(), A).nbytes)
    caches.give_back(filled(shared_llama(), A), "")
    assert caches.facts.count == 2
    taken = caches.take_cache([*A, 1], "")
    caches.limit(taken.nbytes)
    caches.give_back(taken, "")
    assert caches.facts.count == 1
    caches.drop_caches()
    assert caches.facts.held_bytes == 0


@pytest.mark.parametrize(("mode", "name"), grid(list(Mode), list(fakes.MODELS), one_in=6))
def test_turns_of_two_interleaved_conversations_read_only_what_is_new(mode: Mode, name: str) -> None:
    session = ready_session(MODELS[name](), cache_bytes=PLENTY)
    chats = [ask("a long text about apples", max_tokens=6), ask("something else about pears", max_tokens=6)]
    held = [0, 0]
    for _ in range(3):
        for which, chat in enumerate(chats):
            asked = whole(session.model, chat)
            end = reply_in(session, replace(asked, partition=str(which)), mode)
            counted = end.statistics
            assert counted.cached_prompt_tokens == held[which]
            held[which] = len(session.cache.tokens)
            assert held[which] in range(counted.prompt_tokens, counted.context_tokens + 1), "the round is closed"
            chats[which] = next_turn(asked, end)
    assert session.caches.facts.count == 2


@pytest.mark.parametrize("name", fakes.MODELS)
def test_a_request_that_leaves_no_cache_costs_a_chat_nothing(name: str) -> None:
    """As it begins like the chat, it would take the chat's cache, and some models could not go back in it."""
    session = ready_session(MODELS[name](), cache_bytes=PLENTY)
    asked = whole(session.model, ask("a long text about apples", max_tokens=6))
    end = reply_in(session, asked)
    held = len(session.cache.tokens)
    aside = replace(next_turn(asked, end, "notes"), leaves_cache=False)
    assert reply_in(session, aside).statistics.cached_prompt_tokens == 0
    assert session.caches.facts.count == 1
    assert reply_in(session, next_turn(asked, end)).statistics.cached_prompt_tokens == held


@pytest.mark.parametrize("mode", [Mode.SPECULATIVE, Mode.DRAFTER])
def test_what_a_drafter_read_for_one_serves_no_other(mode: Mode) -> None:
    """A draft model that has read a prompt already would tell so by its time."""
    session = ready_session(shared_llama(), cache_bytes=PLENTY)
    asked = ask("abcabcabc", max_tokens=6)
    reply_in(session, replace(asked, partition="one"), mode)
    small = session.drafters._draft_models["small"]
    before = small.cache
    reply_in(session, replace(asked, partition="one"), mode)
    assert small.cache is before
    reply_in(session, replace(asked, partition="two"), mode)
    assert small.cache is not before


def test_the_engine_tells_their_size_and_keeps_the_limit_for_the_next_model(small_model: Path) -> None:
    engine = LocalEngine()
    assert engine.prefix_caches().limit_bytes == usual_limit()
    assert engine.prefix_caches(5000).limit_bytes == 5000
    load_silently(engine, small_model)
    list(engine.generate(ask(max_tokens=3)))
    facts = engine.prefix_caches()
    assert (facts.count, facts.limit_bytes) == (1, 5000)
    assert facts.held_bytes > 5000
    engine.unload()
