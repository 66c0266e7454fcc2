"""Turns of a chat, and replies that are paused for others: what is said never depends on what came before."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rdchat.inference import session
from rdchat.inference.api import (
    ChatMessage,
    DraftSettings,
    GenerationEvent,
    GenerationRequest,
    Mode,
    PrefillProgress,
    ReplyEnd,
    Role,
    SamplingParams,
    TokenEvent,
    TokenIterator,
)
from rdchat.inference.decoding import ledger, reply, reply_iterator
from rdchat.inference.session import ChatSession
from tests.grids import grid, pairs, share
from tests.inference.fakes import MODELS, ask, positions, reply_end, shared_llama, tiny_llama, token_events
from tests.inference.plain_replies import plain
from tests.inference.ready_drafters import ready_session, settings_of

pytestmark = pytest.mark.across_rows

USER = Role.USER
ASSISTANT = Role.ASSISTANT


def request(*turns: tuple[Role, str], continue_last: bool = False, **sampling: object) -> GenerationRequest:
    options = {"max_tokens": 12, "temperature": 1.0, **sampling}
    messages = tuple(ChatMessage(role, text) for role, text in turns)
    params = SamplingParams(**options)  # type: ignore[arg-type]
    plain = DraftSettings(Mode.OFF)
    return GenerationRequest(messages, params, 3, continue_last=continue_last, draft=plain)


def answer(session: ChatSession, asked: GenerationRequest) -> ReplyEnd:
    end = reply_end(session.generate(asked))
    assert positions(session.cache) == len(session.cache.tokens)
    return end


def stop_after(count: int, act: Callable[[TokenIterator], None]) -> Callable[[TokenIterator], None]:
    def run(iterator: TokenIterator) -> None:
        for event in iterator:
            if isinstance(event, TokenEvent) and event.index == count:
                act(iterator)
                return

    return run


ENDS = {
    "closed before it began": lambda iterator: iterator.close(),
    "closed during prefill": lambda iterator: (next(iterator), next(iterator), iterator.close()),
    "closed while writing": stop_after(3, lambda iterator: iterator.close()),
    "closed twice": stop_after(3, lambda iterator: (iterator.close(), iterator.close())),
    "cancelled": stop_after(3, lambda iterator: (iterator.cancel(), list(iterator))),
    "forgotten": stop_after(3, lambda iterator: None),
    "read to its end": list,
}


@pytest.mark.parametrize(("name", "window"), grid(list(ENDS), [None, 10]))
def test_after_every_kind_of_end_the_next_reply_is_what_a_fresh_session_says(name: str, window: int | None) -> None:
    model = tiny_llama(sliding_window=window)
    session = ChatSession(model)
    ENDS[name](session.generate(request((USER, "one two three four"))))
    following = request((USER, "one two three four"), (ASSISTANT, "five"), (USER, "six"))
    assert answer(session, following).token_ids == answer(ChatSession(model), following).token_ids


def test_a_reply_that_is_continued_ends_as_the_whole_one() -> None:
    model = shared_llama()
    first = answer(ChatSession(model), request((USER, "one"), temperature=0, max_tokens=20))
    part = first.text[:9]
    rest = answer(
        ChatSession(model),
        request((USER, "one"), (ASSISTANT, part), continue_last=True, temperature=0, max_tokens=11),
    )
    assert part + rest.text == first.text


SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0, "max_tokens": 16},
    {"temperature": 0.9, "max_tokens": 16, "stop": ("qq", "zx"), "repetition_penalty": 1.3, "frequency_penalty": 0.2},
    {"temperature": 0.9, "max_tokens": 16, "stop": ("a", "e ")},
]
OTHER = "another chat in between abcabcabc"


def said(events: list[GenerationEvent]) -> tuple[list[tuple[int, int, str]], ReplyEnd]:
    """Return the tokens with their pieces of text, and the end."""
    end = reply_end(events)
    return [(e.index, e.token_id, e.text) for e in token_events(events)], end


def paused_each_time(
    chat: ChatSession, asked: GenerationRequest, between: Callable[[int], GenerationRequest | None]
) -> list[GenerationEvent]:
    """Make a reply; after each of its events make one of another chat, where `between` has one."""
    events = list[GenerationEvent]()
    running = chat.generate(asked)
    for event in running:
        events.append(event)
        if (other := between(len(events))) is not None and not isinstance(event, ReplyEnd):
            with running.paused():
                end = reply_end(chat.generate(other))
            assert end.token_ids == plain(chat.model, replace(other, draft=ask().draft, partition="")).token_ids
    return events


@pytest.mark.slow
@pytest.mark.parametrize(("sampling", "mode", "name"), pairs(SAMPLINGS, Mode, MODELS))
def test_paused_at_every_token_it_is_the_same_reply(sampling: dict[str, Any], mode: Mode, name: str) -> None:
    model = MODELS[name]()
    asked = replace(ask("abcabcabcabc abcabc", seed=4, **sampling), draft=settings_of(mode))
    alone, whole = said(list(ready_session(model).generate(asked)))
    other = replace(ask(OTHER, temperature=0.9, max_tokens=4), draft=settings_of(mode))
    chat = ready_session(model)
    tokens, end = said(paused_each_time(chat, asked, lambda _: replace(other, partition="person")))
    assert tokens == alone
    assert (end.text, end.trailing_text, end.token_ids) == (whole.text, whole.trailing_text, whole.token_ids)
    assert (end.finish_reason, end.mode) == (whole.finish_reason, whole.mode)
    counted = end.statistics
    assert (counted.prompt_tokens, counted.generated_tokens) == (whole.statistics.prompt_tokens, len(end.token_ids))
    assert positions(chat.cache) == len(chat.cache.tokens), "of the last reply in between"
    following = replace(asked, seed=5)
    last = reply_end(chat.generate(following))
    assert last.token_ids == plain(model, replace(following, draft=ask().draft)).token_ids


@pytest.mark.slow
@pytest.mark.parametrize("mode", share([Mode.DRAFTER, Mode.LOOKUP, Mode.SPECULATIVE]))
def test_its_drafts_are_the_same_too(mode: Mode) -> None:
    """A reply in between once took the memory of what drafts."""
    asked = replace(ask("abcabcabcabc", temperature=0.9, max_tokens=30), draft=settings_of(mode))
    *_, alone = ready_session(shared_llama()).generate(asked)
    other = replace(ask(OTHER, max_tokens=4), draft=settings_of(mode))
    *_, paused = paused_each_time(ready_session(shared_llama()), asked, lambda count: other if count % 5 == 0 else None)
    assert isinstance(alone, ReplyEnd)
    assert isinstance(paused, ReplyEnd)
    assert paused.statistics.drafted_lengths == alone.statistics.drafted_lengths
    assert paused.statistics.accepted_lengths == alone.statistics.accepted_lengths


def test_a_pause_while_the_prompt_is_read_reads_nothing_twice() -> None:
    chat = ChatSession(shared_llama())
    asked = ask("a" * 60, max_tokens=5)
    events = paused_each_time(chat, asked, lambda count: ask(OTHER, max_tokens=3) if count == 3 else None)
    read = [event.processed for event in events if isinstance(event, PrefillProgress)]
    assert read == sorted(set(read))
    assert said(events)[1].token_ids == plain(chat.model, asked).token_ids


def test_a_reply_that_is_not_paused_is_closed_by_the_next() -> None:
    chat = ChatSession(shared_llama())
    running = chat.generate(ask(max_tokens=20))
    next(running)
    list(chat.generate(ask(OTHER, max_tokens=3)))
    assert list(running) == []


def test_its_times_leave_the_pause_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10**9]

    def tick() -> int:
        now[0] += 1000
        return now[0]

    for module in (reply, reply_iterator, ledger):
        monkeypatch.setattr(module, "perf_counter_ns", tick)
    monkeypatch.setattr(session, "Clock", lambda: reply.Clock(tick()))
    hour_ms = 3_600_000
    running = ChatSession(shared_llama()).generate(ask(max_tokens=8))
    events = list[GenerationEvent]()
    for event in running:
        events.append(event)
        with running.paused():
            now[0] += hour_ms * 10**6
    statistics = said(events)[1].statistics
    assert 0 < statistics.prefill_ms <= statistics.ttft_ms < hour_ms
    assert 0 < statistics.decode_ms < hour_ms
    assert 0 < sum(entry.total_ms for entry in statistics.ledger if not entry.parent) < hour_ms
    assert len(said(events)[0]) == 8
