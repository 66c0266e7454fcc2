"""Reading the prompt in chunks sized by the time of the last one; the text does not depend on them."""

from dataclasses import replace
from itertools import pairwise, product

import mlx.core as mx
import pytest

from rdchat.inference.api import GenerationEvent, GenerationRequest, PrefillProgress, ReplyEnd
from rdchat.inference.decoding import reply_iterator
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel, PrefillPace
from tests.grids import share
from tests.inference.fakes import ask, shared_family, shared_llama

PROMPT = "the quick brown fox jumps over the lazy dog " * 4


def events(model: LoadedModel, request: GenerationRequest) -> list[GenerationEvent]:
    return list(ChatSession(model).generate(request))


def token_ids(found: list[GenerationEvent]) -> tuple[int, ...]:
    assert isinstance(found[-1], ReplyEnd)
    return found[-1].token_ids


@pytest.mark.slow
@pytest.mark.parametrize(("name", "temperature"), share(product(["llama", "sliding", "gemma3", "lfm2"], [0, 1]), 9))
def test_the_text_is_the_same_in_chunks_of_any_length(name: str, temperature: float) -> None:
    makers = {"llama": shared_llama, "sliding": lambda: shared_llama(sliding_window=10)}
    model = makers[name]() if name in makers else shared_family(name)
    request = ask(PROMPT, temperature=temperature)
    texts = {
        token_ids(events(replace(model, pace=pace), request))
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
