"""Plain decoding against the simplest oracle, and traces with the target's own log-probabilities."""

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from rdchat.errors import PromptTooLongError
from rdchat.inference.api import (
    DraftSettings,
    FinishReason,
    GenerationRequest,
    Mode,
    PrefillProgress,
    ReplyEnd,
    TokenEvent,
)
from rdchat.inference.decoding.autoregressive import token_log_probs
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.grids import grid, share
from tests.inference.fakes import (
    ALPHABET,
    END,
    ScriptedDrafter,
    ask,
    job_of,
    positions,
    reply_end,
    shared_llama,
    tiny_llama,
    token_events,
)
from tests.inference.plain_replies import ENDING_SEEDS, SAMPLINGS, cancelling, plain
from tests.inference.ready_drafters import ready_session, settings_of


def oracle(model: LoadedModel, request: GenerationRequest) -> list[int]:
    """Decode without cache or pipeline; a sliding window needs a cache to get its mask, so a fresh one each time."""
    prompt = model.encode_request(request)[0]
    chooser = TokenChooser(request.sampling, request.seed, model.info.vocabulary_size)
    tokens: list[int] = []
    while len(tokens) < request.sampling.max_tokens and END not in tokens:
        fed = prompt + tokens
        logits = model.network(mx.array([fed]), cache=model.network.make_cache())[:, -1]
        seen = chooser.seen(prompt)
        seen = None if seen is None else chooser.with_tokens(seen, mx.array(tokens, mx.int32))
        tokens.append(chooser.choose(logits, [len(fed)], seen).item())
    return tokens


@pytest.mark.across_rows
@pytest.mark.parametrize(("sampling", "window"), grid(SAMPLINGS, [None, 12], one_in=8), ids=str)
def test_tokens_are_those_of_the_oracle(sampling: dict[str, float], window: int | None) -> None:
    model = shared_llama(sliding_window=window)
    request = ask(seed=7, **sampling)
    end = reply_end(ChatSession(model).generate(request))
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
    expected = reply_end(ChatSession(model).generate(request))
    monkeypatch.setattr(TokenChooser, "choose_quickly", never_sure)
    end = reply_end(ChatSession(model).generate(request))
    assert end.token_ids == expected.token_ids
    assert len(end.token_ids) == 200
    assert quick < 20


def test_events_come_in_order_and_add_up() -> None:
    session = ChatSession(shared_llama())
    events = list(session.generate(ask("a" * 40, temperature=0, max_tokens=9)))
    progress = [event for event in events if isinstance(event, PrefillProgress)]
    tokens = token_events(events)
    end = reply_end(events)
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
    calls = {entry.name: entry.calls for entry in statistics.ledger}
    assert calls.keys() >= {"prefill", "queue step", "wait for token", "detokenize"}
    assert calls["prefill"] == -(-(statistics.prompt_tokens - 1) // 8) + 1  # chunks of eight, and the last token


@pytest.mark.across_rows
def test_end_token_ends_a_reply_and_counts_but_is_not_shown() -> None:
    model = shared_llama()
    request = ask(seed=ENDING_SEEDS[6], temperature=1.5)
    assert END in oracle(model, request)
    end = reply_end(ChatSession(model).generate(request))
    assert end.finish_reason is FinishReason.EOS
    assert end.token_ids[-1] == END
    assert ALPHABET[END] not in end.text
    assert end.statistics.generated_tokens == len(end.token_ids) == len(end.text) + 1


@pytest.mark.parametrize("kept", share([0, 1, 2, 7], 2))
def test_what_a_stop_string_cuts_is_not_counted(kept: int) -> None:
    """It once gave minus one token for each target call."""
    model = shared_llama()
    whole = reply_end(ChatSession(model).generate(ask(temperature=1, max_tokens=20))).text
    stop = whole[kept : kept + 4]
    assert whole.index(stop) == kept
    session = ChatSession(model)
    end = reply_end(session.generate(ask(temperature=1, max_tokens=20, stop=(stop,))))
    statistics = end.statistics
    assert statistics.generated_tokens == len(end.token_ids) == kept
    assert statistics.target_calls == statistics.host_syncs == max(kept - 1, 0)
    assert statistics.tokens_per_target_call == (1 if kept > 1 else None)
    assert (statistics.decode_ms > 0) == (kept > 1)
    assert 0 < statistics.prefill_ms <= statistics.ttft_ms


@pytest.mark.parametrize("length", [1, 2, 23, 1000])
def test_length_or_a_full_context_ends_a_reply(length: int) -> None:
    end = reply_end(ChatSession(shared_llama(context_length=48)).generate(ask("abc", temperature=0, max_tokens=length)))
    assert end.finish_reason is (FinishReason.LENGTH if length < 1000 else FinishReason.CONTEXT_FULL)
    assert end.statistics.context_tokens == min(end.statistics.prompt_tokens + length, 48)


def test_prompt_that_leaves_no_room_is_refused_with_the_figures() -> None:
    session = ChatSession(shared_llama(context_length=48))
    with pytest.raises(PromptTooLongError, match=r"118 tokens; together with the reply, tiny takes 48"):
        session.generate(ask("a" * 100))


def test_cancel_takes_effect_with_the_next_token() -> None:
    session = ChatSession(shared_llama())
    iterator = session.generate(ask(temperature=0, max_tokens=100))
    end = reply_end(cancelling(iterator, iterator, 4))
    assert end.finish_reason is FinishReason.CANCELLED
    assert len(end.token_ids) == 5


def test_cancel_during_prefill_ends_within_a_chunk() -> None:
    session = ChatSession(shared_llama())
    iterator = session.generate(ask("a" * 200))
    events = []
    for event in iterator:
        events.append(event)
        if isinstance(event, PrefillProgress) and event.processed == 16:
            iterator.cancel()
    end = reply_end(events)
    assert end.finish_reason is FinishReason.CANCELLED
    assert end.token_ids == ()
    assert positions(session.cache) == len(session.cache.tokens) == 16
    assert end.statistics.prefill_ms > 0
    assert end.statistics.ttft_ms == 0
    assert end.statistics.prefill_tps is None  # not the whole prompt was read


TRACED: list[dict[str, float]] = [
    {"temperature": 0},
    {"temperature": 1.3, "top_p": 0.8, "top_k": 5},
    {"temperature": 0.7, "repetition_penalty": 1.5},
]


def tokens_of(model: LoadedModel, request: GenerationRequest) -> list[TokenEvent]:
    return token_events(ChatSession(model).generate(request))


def expected_log_probs(model: LoadedModel, request: GenerationRequest, tokens: list[int]) -> np.ndarray:
    """Feed prompt and reply in one go and look up each token of the reply."""
    prompt = model.encode_chat(request.messages)
    logits = model.network(mx.array([[*prompt, *tokens]]))[0, len(prompt) - 1 : -1]
    log_probs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    return np.array(log_probs[mx.arange(len(tokens)), mx.array(tokens)])


@pytest.mark.across_rows
@pytest.mark.parametrize("sampling", share(TRACED, 3), ids=str)
def test_every_token_and_every_node_has_the_targets_own_log_probability(sampling: dict[str, float]) -> None:
    model = shared_llama()
    plainly = ask(seed=5, max_tokens=16, **sampling)
    request = replace(plainly, draft=DraftSettings(mode=Mode.OFF, trace=True))
    told = tokens_of(model, request)
    reply = [event.token_id for event in told]
    assert reply == [event.token_id for event in tokens_of(model, plainly)]
    events = token_events(ReplyIterator(job_of(model, request), ScriptedDrafter(reply, 3, 5)))
    for each in (told, events):
        found = [event.log_prob for event in each]
        np.testing.assert_allclose(found, expected_log_probs(model, request, reply), atol=2e-3)
    before = 0
    for event in events:
        if (tree := event.tree) is None:
            continue
        path = [tree.tokens[node] for node in tree.path]
        assert tree.texts == tuple(ALPHABET[token] for token in tree.tokens)
        assert tree.correction_text == ALPHABET[tree.correction]
        for node in range(1, len(tree.tokens)):
            way = [node]
            while way[0]:
                way.insert(0, tree.parents[way[0]])
            whole = [*reply[:before], *(tree.tokens[step] for step in way)]
            expected = expected_log_probs(model, request, whole)[-1]
            assert tree.log_probs[node] == pytest.approx(expected, abs=2e-3)
        continued = [*reply[:before], *path, tree.correction]
        assert tree.correction_log_prob == pytest.approx(expected_log_probs(model, request, continued)[-1], abs=2e-3)
        before = event.index
    assert before > 10


@pytest.mark.across_rows
@pytest.mark.parametrize("count", [4, 0])
@pytest.mark.parametrize("mode", share(list(Mode), 5))
def test_the_most_likely_tokens_are_listed_beside_each_token_in_every_mode(mode: Mode, count: int) -> None:
    model = shared_llama()
    asked = ask("abcabcabcabc", seed=5, max_tokens=16, temperature=0.9, repetition_penalty=1.2)
    asked = replace(asked, draft=settings_of(mode), top_log_probs=count)
    *events, end = ready_session(model).generate(asked)
    assert isinstance(end, ReplyEnd)
    assert end.token_ids == plain(model, replace(asked, draft=DraftSettings(Mode.OFF), top_log_probs=None)).token_ids
    tokens = token_events(events)
    ids = [event.token_id for event in tokens]
    prompt = model.encode_chat(asked.messages)
    logits = model.network(mx.array([[*prompt, *ids]]))[0, len(prompt) - 1 : -1]
    expected = np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
    np.testing.assert_allclose([e.log_prob for e in tokens], expected[np.arange(len(ids)), ids], atol=2e-3)
    for event, row in zip(tokens, expected, strict=True):
        assert (event.data, event.tree) == (ALPHABET[event.token_id].encode(), None)
        listed = [each.log_prob for each in event.alternatives]
        np.testing.assert_allclose(listed, np.sort(row)[: -count - 1 : -1], atol=2e-3)
        np.testing.assert_allclose(listed, row[[each.token_id for each in event.alternatives]], atol=2e-3)
        assert [each.data for each in event.alternatives] == [ALPHABET[e.token_id].encode() for e in event.alternatives]


@pytest.mark.across_rows
def test_a_trace_can_be_switched_on_while_the_reply_is_written() -> None:
    iterator = ChatSession(shared_llama()).generate(replace(ask(temperature=0), draft=DraftSettings(Mode.OFF)))
    found = []
    for event in iterator:
        if isinstance(event, TokenEvent):
            found.append(event.log_prob is not None)
            if event.index == 5:
                iterator.update(DraftSettings(Mode.OFF, trace=True))
    assert found[:6] == [False] * 6
    assert all(found[8:])


@pytest.mark.across_rows
@pytest.mark.parametrize("dtype", share([mx.float32, mx.float16, mx.bfloat16], 2))
@pytest.mark.parametrize("columns", [49_152, 1_001])
def test_the_quick_sum_is_right_to_a_thousandth(dtype: mx.Dtype, columns: int) -> None:
    mx.random.seed(0)
    logits = (mx.random.normal((40, columns)) * mx.linspace(0.1, 6, 40)[:, None]).astype(dtype)
    tokens = mx.argmax(logits.astype(mx.float32) + mx.random.gumbel(logits.shape), axis=-1)
    exact = logits.astype(mx.float32)
    exact = exact - mx.logsumexp(exact, axis=-1, keepdims=True)
    expected = exact[mx.arange(40), tokens]
    assert mx.abs(token_log_probs(logits, tokens) - expected).max().item() < 2e-3


@pytest.mark.across_rows
def test_a_tokens_text_has_its_leading_space() -> None:
    class Pieces:
        """Drops the space that a text begins with, as SentencePiece tokenizers do."""

        def encode(self, text: str, **_options: object) -> list[int]:
            assert text == "a"
            return [0]

        def decode(self, token_ids: list[int], **_options: object) -> str:
            return "".join([" a", " word", "s"][token] for token in token_ids).removeprefix(" ")

    model = replace(shared_llama(), tokenizer=Pieces())
    assert [model.token_text(token) for token in (1, 2, 1)] == [" word", "s", " word"]


@pytest.mark.across_rows
@pytest.mark.parametrize(
    ("spelled", "data"),
    [
        ("\u0120\u00e2\u013e", b" \xe2\x9c"),
        ("<0xE2>", b"\xe2"),
        ("<0xe2>", b"\xe2"),
        ("\u4e00\ufffd", "\ufffd".encode()),
    ],
    ids=["byte-level", "a byte", "a byte in small letters", "neither"],
)
def test_a_token_with_a_part_of_a_character_has_its_bytes(spelled: str, data: bytes) -> None:
    class Parts:
        """Knows a token that is no whole character."""

        def encode(self, _text: str, **_options: object) -> list[int]:
            return [0]

        def decode(self, token_ids: list[int], **_options: object) -> str:
            return "".join(["a", "\ufffd"][token] for token in token_ids)

        def convert_ids_to_tokens(self, _token_id: int) -> str:
            return spelled

    model = replace(shared_llama(), tokenizer=Parts())
    assert (model.token_data(1), model.token_data(0)) == (data, b"a")
