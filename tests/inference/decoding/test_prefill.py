"""Chunks of a prompt are as long as cancelling allows, and change no text."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product

import mlx.core as mx
import pytest
from hypothesis import given, settings, strategies as some

from rdchat.errors import ModelError
from rdchat.inference.api import GenerationEvent, GenerationRequest, PrefillProgress
from rdchat.inference.decoding import reply_iterator
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import MAX_TOKENS, LoadedModel, PrefillPace
from tests.grids import share
from tests.inference.fakes import ask, reply_end, shared_family, shared_llama

PROMPT = "the quick brown fox jumps over the lazy dog " * 4


def events(model: LoadedModel, request: GenerationRequest) -> list[GenerationEvent]:
    return list(ChatSession(model).generate(request))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "temperature"), share(product(["llama", "gemma3", "lfm2"], [0, 1]), 9))
def test_the_text_is_the_same_in_chunks_of_any_length(name: str, temperature: float) -> None:
    model = shared_family(name)
    request = ask(PROMPT, temperature=temperature)
    texts = {
        reply_end(events(replace(model, pace=pace), request)).token_ids
        for pace in (PrefillPace(3, 3, 3), PrefillPace(64, 64, 64), PrefillPace(512, 512, 512), PrefillPace(4, 4, 64))
    }
    assert len(texts) == 1


def test_the_next_chunk_follows_from_the_time_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 0.1, 1.0, 1.3, 2.0, 2.5, 3.0, 3.1, 4.0, 4.1])  # chunks of 0.1, 0.3, 0.5, 0.1 and 0.1 seconds
    monkeypatch.setattr(reply_iterator, "perf_counter", lambda: next(times))
    model = replace(shared_llama(), pace=PrefillPace(32, 8, 64))
    found = events(model, ask("a" * 180, temperature=0, max_tokens=2))
    read = [event.processed for event in found if isinstance(event, PrefillProgress)]
    assert [after - before for before, after in pairwise(read)] == [32, 64, 64, 32, 5]


@pytest.mark.parametrize(("kept", "cleared"), [(49, 0), (51, 3)])
def test_freed_buffers_are_kept_up_to_a_share_of_the_memory_in_use(
    monkeypatch: pytest.MonkeyPatch, kept: int, cleared: int
) -> None:
    """They were freed after each chunk, of 64 tokens too. The most that is held grows by no more than that share."""
    clears: list[int] = []
    model = shared_llama()
    cache = KVCache(shared_llama().network)
    monkeypatch.setattr(mx, "get_cache_memory", lambda: kept)
    monkeypatch.setattr(mx, "get_active_memory", lambda: 1000)
    monkeypatch.setattr(mx, "clear_cache", lambda: clears.append(1))
    list(reply_iterator.prefill(replace(model, pace=PrefillPace(4, 4, 4)), cache, [5] * 13, lambda: False, Ledger()))
    assert len(clears) == cleared


ROWS = shared_llama().info.vocabulary_size
_WITHOUT_ROW = some.integers(max_value=-1) | some.integers(min_value=ROWS)


@settings(deadline=None)
@given(some.lists(some.integers(0, ROWS - 1), min_size=1, max_size=20), some.data())
def test_without_a_feed_a_token_without_a_row_is_refused(prompt: list[int], data: some.DataObject) -> None:
    """Law: no row, no read. The negative ids of an image ended the process."""
    model = shared_llama()
    list(reply_iterator.prefill(model, KVCache(model.network), prompt, lambda: False, Ledger()))
    prompt[data.draw(some.integers(0, len(prompt) - 1))] = data.draw(_WITHOUT_ROW)
    cache = KVCache(model.network)
    with pytest.raises(ModelError, match="no embedding"):
        list(reply_iterator.prefill(model, cache, prompt, lambda: False, Ledger()))
    assert not cache.tokens


def test_a_prompt_never_ends_inside_an_image() -> None:
    """Its last token is fed without the rows of images."""
    model = shared_llama()
    with pytest.raises(ModelError, match="no embedding"):
        next(
            reply_iterator.prefill(
                model, KVCache(model.network), [1, -2], lambda: False, Ledger(), feed=lambda *_: None
            )
        )


def after(pace: PrefillPace, seconds: Callable[[int], float], chunks: int = 20) -> list[int]:
    """Read so many chunks on a machine that takes `seconds` for a chunk; return their tokens."""
    taken = []
    for _ in range(chunks):
        taken.append(pace.chunk)
        pace.record_time(pace.chunk, seconds(pace.chunk))
    return taken


@pytest.mark.parametrize(
    ("per_token", "settled"),
    [(1e-5, 2048), (1e-4, 2048), (1.5e-4, 2048), (4e-4, 512), (2e-3, 128), (5e-3, 64), (9e-3, 32), (4e-2, 8)],
)
def test_a_chunk_grows_to_what_stop_allows(per_token: float, settled: int) -> None:
    chunks = after(PrefillPace(128), lambda tokens: tokens * per_token)
    assert set(chunks[-5:]) == {settled}
    assert settled * per_token <= 0.5
    assert settled == MAX_TOKENS or 2 * settled * per_token > 0.4


def test_after_the_first_no_chunk_takes_longer_than_half_a_second() -> None:
    """Time grows with the context; and a machine is slower for a while."""
    pace = PrefillPace(128)
    depth = 0
    for number in range(200):
        seconds = pace.chunk * (1e-4 + depth * 2e-8) + 0.01
        assert seconds <= 0.5
        depth += pace.chunk
        pace.record_time(pace.chunk, seconds)
        if number == 5:
            assert pace.chunk == MAX_TOKENS
    assert pace.chunk < MAX_TOKENS


def test_a_far_too_long_chunk_is_followed_by_one_that_fits() -> None:
    pace = PrefillPace(2048)
    pace.record_time(2048, 3.0)
    assert pace.chunk == 128
    pace.record_time(128, 30.0)
    assert pace.chunk == 8


def test_the_short_chunk_at_a_prompts_end_says_nothing_of_a_long_one() -> None:
    pace = PrefillPace(128)
    pace.record_time(3, 0.001)
    pace.record_time(3, 0.3)  # a large model reads all its weights for three tokens
    assert pace.chunk == 128
    pace.record_time(70, 0.6)
    assert pace.chunk == 32


def test_after_a_chunk_that_the_system_stopped_all_chunks_take_half_the_time() -> None:
    pace = PrefillPace(128)
    assert after(pace, lambda tokens: tokens * 4e-4)[-1] == 512
    pace.shorten()
    assert pace.chunk == 256
    assert set(after(pace, lambda tokens: tokens * 4e-4)[-5:]) == {256}
    for _ in range(20):
        pace.shorten()
    assert pace.chunk == 8
    assert set(after(pace, lambda tokens: tokens * 4e-4)[-5:]) == {64}  # not ever shorter


def test_chunks_that_are_not_stopped_win_their_time_back() -> None:
    pace = PrefillPace(128)
    for _ in range(20):
        pace.shorten()
    assert set(after(pace, lambda tokens: tokens * 4e-4, 300)[-5:]) == {512}
