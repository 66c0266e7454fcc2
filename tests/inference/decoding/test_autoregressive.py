"""Plain decoding against the simplest oracle: the whole sequence fed again for every token."""

import mlx.core as mx
import pytest

from rdchat.errors import ModelError, PromptTooLongError
from rdchat.inference.api import FinishReason, GenerationEvent, GenerationRequest, PrefillProgress, ReplyEnd, TokenEvent
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.grids import grid, share
from tests.inference.fakes import ALPHABET, END, ask, positions, tiny_llama, token_events


def end_of(events: list[GenerationEvent]) -> ReplyEnd:
    assert isinstance(events[-1], ReplyEnd)
    assert not any(isinstance(event, ReplyEnd) for event in events[:-1])
    return events[-1]


def oracle(model: LoadedModel, request: GenerationRequest) -> list[int]:
    """Decode without cache or pipeline; a sliding window needs a cache to get its mask, so a fresh one each time."""
    prompt = model.encode_chat(request.messages, request.continue_last)
    chooser = TokenChooser(request.sampling, request.seed, model.info.vocabulary_size)
    tokens: list[int] = []
    while len(tokens) < request.sampling.max_tokens and END not in tokens:
        fed = prompt + tokens
        logits = model.network(mx.array([fed]), cache=model.network.make_cache())[:, -1]
        seen = chooser.seen(prompt)
        seen = None if seen is None else chooser.with_tokens(seen, mx.array(tokens, mx.int32))
        tokens.append(chooser.choose(logits, [len(fed)], seen).item())
    return tokens


SAMPLINGS = [
    {"temperature": 0},
    {"temperature": 0.7},
    {"temperature": 1.3, "top_p": 1},
    {"temperature": 1.3, "top_p": 0.8, "top_k": 5, "min_p": 0.05},
    {"temperature": 0, "repetition_penalty": 1.3},
    {"temperature": 1, "repetition_penalty": 1.5},
    {"temperature": 0, "presence_penalty": 1, "frequency_penalty": 0.5},
]


@pytest.mark.across_rows
@pytest.mark.parametrize(("sampling", "window"), grid(SAMPLINGS, [None, 12], one_in=8), ids=str)
def test_tokens_are_those_of_the_oracle(sampling: dict[str, float], window: int | None) -> None:
    model = tiny_llama(sliding_window=window)
    request = ask(seed=7, **sampling)
    end = end_of(list(ChatSession(model).generate(request)))
    assert list(end.token_ids) == oracle(model, request)


@pytest.mark.slow
def test_quick_choices_that_are_never_sure_are_soon_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a high temperature each queued call was for a wrong token: plain decoding took twice its time."""
    quick = 0

    def never_sure(
        self: TokenChooser, logits: mx.array, start: int, depths: mx.array, *_: object
    ) -> tuple[mx.array, mx.array]:
        nonlocal quick
        quick += 1
        return mx.zeros(depths.shape, mx.uint32), mx.zeros(depths.shape, mx.bool_)

    model = tiny_llama()
    model.tokenizer.eos_token_ids = frozenset()
    request = ask(seed=7, temperature=1, max_tokens=200)
    expected = end_of(list(ChatSession(model).generate(request)))
    monkeypatch.setattr(TokenChooser, "choose_quickly", never_sure)
    end = end_of(list(ChatSession(model).generate(request)))
    assert end.token_ids == expected.token_ids
    assert len(end.token_ids) == 200
    assert quick < 20


def test_events_come_in_order_and_add_up() -> None:
    session = ChatSession(tiny_llama())
    events = list(session.generate(ask("a" * 40, temperature=0, max_tokens=9)))
    progress = [event for event in events if isinstance(event, PrefillProgress)]
    tokens = token_events(events)
    end = end_of(events)
    assert events == [*progress, *tokens, end]
    assert [event.processed for event in progress] == sorted({event.processed for event in progress})
    assert progress[-1].processed == progress[-1].total - 1
    assert [event.index for event in tokens] == list(range(9))
    assert "".join(event.text for event in tokens) + end.trailing_text == end.text
    assert tuple(event.token_id for event in tokens) == end.token_ids
    statistics = end.statistics
    assert (statistics.generated_tokens, statistics.target_calls, statistics.host_syncs) == (9, 8, 8)
    assert statistics.tokens_per_target_call == 1
    assert statistics.acceptance_rate is None
    assert (statistics.rounds, statistics.drafted, statistics.verified_nodes) == (0, 0, 0)
    assert statistics.context_tokens == statistics.prompt_tokens + 9
    assert 0 < statistics.prefill_ms <= statistics.ttft_ms
    assert {entry.name for entry in statistics.ledger} >= {"prefill", "queue step", "wait for token", "detokenize"}


@pytest.mark.parametrize("length", [1, 2, 23])
def test_length_ends_a_reply(length: int) -> None:
    session = ChatSession(tiny_llama())
    end = end_of(list(session.generate(ask(temperature=0, max_tokens=length))))
    assert end.finish_reason is FinishReason.LENGTH
    assert len(end.token_ids) == length


@pytest.mark.across_rows
def test_end_token_ends_a_reply_and_counts_but_is_not_shown() -> None:
    model = tiny_llama()
    request = next(
        r for r in (ask(seed=s, temperature=1.5, max_tokens=200) for s in range(50)) if END in oracle(model, r)
    )
    end = end_of(list(ChatSession(model).generate(request)))
    assert end.finish_reason is FinishReason.EOS
    assert end.token_ids[-1] == END
    assert ALPHABET[END] not in end.text
    assert end.statistics.generated_tokens == len(end.token_ids) == len(end.text) + 1


@pytest.mark.parametrize("kept", share([0, 1, 2, 7], 2))
def test_what_a_stop_string_cuts_is_not_counted(kept: int) -> None:
    """It once gave minus one token for each target call."""
    model = tiny_llama()
    whole = end_of(list(ChatSession(model).generate(ask(temperature=1, max_tokens=20)))).text
    stop = whole[kept : kept + 4]
    assert whole.index(stop) == kept
    session = ChatSession(model)
    end = end_of(list(session.generate(ask(temperature=1, max_tokens=20, stop=(stop,)))))
    statistics = end.statistics
    assert statistics.generated_tokens == len(end.token_ids) == kept
    assert statistics.target_calls == statistics.host_syncs == max(kept - 1, 0)
    assert statistics.tokens_per_target_call == (1 if kept > 1 else None)
    assert (statistics.decode_ms > 0) == (kept > 1)
    assert 0 < statistics.prefill_ms <= statistics.ttft_ms


def test_the_ledger_counts_each_target_call_of_the_prefill_once() -> None:
    end = end_of(list(ChatSession(tiny_llama()).generate(ask("hi", temperature=0))))
    prompt = end.statistics.prompt_tokens
    calls = {entry.name: entry.calls for entry in end.statistics.ledger}
    assert calls["prefill"] == -(-(prompt - 1) // 8) + 1  # chunks of eight, and the last token


def test_full_context_ends_a_reply() -> None:
    model = tiny_llama(context_length=48)
    end = end_of(list(ChatSession(model).generate(ask("abc", temperature=0, max_tokens=1000))))
    assert end.finish_reason is FinishReason.CONTEXT_FULL
    assert end.statistics.context_tokens == 48


def test_prompt_that_leaves_no_room_is_refused_with_the_figures() -> None:
    session = ChatSession(tiny_llama(context_length=48))
    with pytest.raises(PromptTooLongError, match=r"118 tokens; together with the reply, tiny takes 48"):
        session.generate(ask("a" * 100))


def test_cancel_takes_effect_with_the_next_token() -> None:
    session = ChatSession(tiny_llama())
    iterator = session.generate(ask(temperature=0, max_tokens=100))
    events = []
    for event in iterator:
        events.append(event)
        if isinstance(event, TokenEvent) and event.index == 4:
            iterator.cancel()
    end = end_of(events)
    assert end.finish_reason is FinishReason.CANCELLED
    assert len(end.token_ids) == 5


def test_cancel_during_prefill_ends_within_a_chunk() -> None:
    session = ChatSession(tiny_llama())
    iterator = session.generate(ask("a" * 200))
    events = []
    for event in iterator:
        events.append(event)
        if isinstance(event, PrefillProgress) and event.processed == 16:
            iterator.cancel()
    end = end_of(events)
    assert end.finish_reason is FinishReason.CANCELLED
    assert end.token_ids == ()
    assert positions(session.cache) == len(session.cache.tokens) == 16
    assert end.statistics.prefill_ms > 0
    assert end.statistics.ttft_ms == 0
    assert end.statistics.prefill_tps is None  # not the whole prompt was read


def test_numbers_that_are_not_finite_are_an_error_and_leave_no_cache() -> None:
    model = tiny_llama()
    model.network.model.norm.weight = model.network.model.norm.weight * mx.array(float("nan"))
    session = ChatSession(model)
    with pytest.raises(ModelError, match="not finite"):
        list(session.generate(ask()))
    assert session.cache.tokens == []
