"""What a small model says without drafts, under samplings of every kind, and with those of any drafter."""

from collections.abc import Iterator
from dataclasses import replace
from weakref import WeakKeyDictionary

import mlx.core as mx

from rdchat.inference.api import BeamShape, GenerationEvent, GenerationRequest, ReplyEnd, TokenEvent
from rdchat.inference.decoding.draft import Drafter
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.hooks import ModelHooks
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel
from tests.inference import rounding
from tests.inference.fakes import ScriptedDrafter, job_of, reply_end, with_beams

SAMPLINGS: list[dict[str, float]] = [
    {"temperature": 0},
    {"temperature": 0.7},
    {"temperature": 1.3, "top_p": 1},
    {"temperature": 1.3, "top_p": 0.8, "top_k": 5, "min_p": 0.05},
    {"temperature": 0, "repetition_penalty": 1.3},
    {"temperature": 0.7, "repetition_penalty": 1.5, "top_k": 8},
    {"temperature": 0, "presence_penalty": 0.8},
    {"temperature": 0.7, "top_p": 0.95, "frequency_penalty": 0.4},
]


# At temperature 1.5, of the first 60 the seeds with which `shared_llama` soonest ends its answer to `ask()`:
# after 1, 2, 4, 6, 11, 12, 15, 18, 19, 23 and 30 tokens.
ENDING_SEEDS = (21, 38, 0, 43, 22, 25, 20, 15, 19, 9, 12)

_said: WeakKeyDictionary[ModelHooks, dict[tuple[object, ...], ReplyEnd]] = WeakKeyDictionary()


def plain(model: LoadedModel, request: GenerationRequest) -> ReplyEnd:
    """Return the reply of a new chat without drafts; it is decoded once, so a model must not be changed afterwards."""
    told = _said.setdefault(model.hooks, {})
    key = (request, model.info.context_length, str(mx.default_device()), tuple(rounding.active))
    if key not in told:
        end = reply_end(ChatSession(model).generate(request))
        told[key] = end
    return told[key]


def drafted(model: LoadedModel, request: GenerationRequest, drafter: Drafter) -> tuple[list[GenerationEvent], KVCache]:
    """Return the events of a new chat's reply, drafted in rounds, and the KV cache that it leaves."""
    job = job_of(model, request)
    return list(ReplyIterator(job, drafter)), job.cache


def check_same(model: LoadedModel, request: GenerationRequest, width: int, length: int) -> tuple[ReplyEnd, KVCache]:
    """Assert that drafting changes neither tokens nor text, and that cache and events agree; return end and cache."""
    expected = plain(model, request)
    whole = plain(model, unended(request)).token_ids  # what a drafter may well draft beyond the end
    events, cache = drafted(model, request, ScriptedDrafter(list(whole), width, length))
    end = reply_end(events)
    assert (end.token_ids, end.text, end.finish_reason) == (expected.token_ids, expected.text, expected.finish_reason)
    prompt = model.encode_chat(request.messages)
    assert cache.tokens == [*prompt, *end.token_ids][: len(cache.tokens)]
    assert all(getattr(layer, "offset", len(cache.tokens)) == len(cache.tokens) for layer in cache.layers)
    return end, cache


def unended(request: GenerationRequest) -> GenerationRequest:
    length = max(24, request.sampling.max_tokens)
    return replace(request, sampling=replace(request.sampling, stop=(), max_tokens=length))


def cancelling(events: Iterator[GenerationEvent], iterator: ReplyIterator, index: int) -> Iterator[GenerationEvent]:
    for event in events:
        yield event
        if isinstance(event, TokenEvent) and event.index == index:
            iterator.cancel()


def drafted_by_beams(drafters: HeadModel, model: LoadedModel, request: GenerationRequest, shape: BeamShape) -> ReplyEnd:
    """Return a new chat's reply, drafted by a head with beams of a shape; its text must be that of plain decoding."""
    prompt = model.encode_chat(request.messages)
    end = reply_end(drafted(model, request, drafters.drafter(prompt, with_beams(request, shape, False)))[0])
    assert end.token_ids == plain(model, request).token_ids
    assert end.statistics.drafted > 0
    return end
