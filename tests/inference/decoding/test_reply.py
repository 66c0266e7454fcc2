"""The counters and the text of a reply."""

import codecs
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain

import pytest
from hypothesis import given, settings, strategies as some
from tokenizers import Tokenizer, decoders, models

import rdchat.inference.decoding.reply as reply_module
from rdchat.inference.api import ChatMessage, FinishReason, GenerationRequest, Role, SamplingParams
from rdchat.inference.decoding.reply import Reply, ReplyJob
from rdchat.inference.verification.target import LoadedModel
from tests.inference.fakes import ask, shared_llama
from tests.inference.tokenizer_kinds import Kind, kinds

_SECOND = 1_000_000_000


class Ticks:
    """A clock that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = _SECOND
        monkeypatch.setattr(reply_module, "perf_counter_ns", lambda: self.now)


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    return Ticks(monkeypatch)


def _reply(plain_ms: Callable[[int], float] = lambda _depth: 9.0) -> Reply:
    job = ReplyJob.fresh(shared_llama(), [1, 2], ask(max_tokens=200))
    return Reply(replace(job, plain_ms=plain_ms, plain_error=lambda: 0.1))


def test_a_settled_reply_keeps_its_baseline(ticks: Ticks) -> None:
    """It fell from 18.6 to 9.6 tokens/s within one reply."""
    now = 0.0
    reply = _reply(lambda _depth: now)
    seen = []
    for count in range(1, 33):
        ticks.now += _SECOND // 50
        reply.add_token(3)
        now = {1: 50.0, 30: 70.0}.get(count, 60.0)
        if count in (1, 29, 30, 31, 32):
            seen.append(reply.statistics().plain_step_ms)
    assert seen == pytest.approx([50.0, 60.0, 60.0, 60.0, 60.0])
    assert reply.statistics().plain_error == pytest.approx(0.1)
    now = 30.0
    assert reply.statistics().plain_error == pytest.approx(1.2), "steps are twice as quick by now"


def test_a_baseline_that_becomes_known_late_is_taken(ticks: Ticks) -> None:
    now = 0.0
    reply = _reply(lambda _depth: now)
    for _ in range(40):
        reply.add_token(3)
    seen = []
    for now in (0.0, 40.0, 41.0):  # noqa: B007  the reply reads it
        seen.append(reply.statistics().plain_step_ms)
    assert seen == pytest.approx([0.0, 40.0, 40.0])


@given(some.floats(1, 100), some.floats(0, 2), some.integers(30, 150), some.floats(0.2, 5))
@settings(max_examples=25)
def test_a_longer_cache_is_no_change_of_the_computers_speed(
    first: float, growth: float, tokens: int, change: float
) -> None:
    """A long reply had "No verdict: the speed of the computer changed", as its steps took longer with its length.

    A real change after the baseline is an error of as much.
    """
    speed = 1.0
    reply = _reply(lambda depth: (first + growth * depth) * speed)
    for _ in range(tokens):
        reply.add_token(3)
        reply.statistics()
    steady = reply.statistics()
    assert steady.plain_error == pytest.approx(0.1, abs=1e-3)
    assert steady.plain_step_ms == pytest.approx(first + growth * (2 + tokens // 2))
    speed = change
    changed = reply.statistics()
    assert changed.plain_error == pytest.approx(1.1 * max(change, 1 / change) - 1, abs=1e-3)
    assert changed.plain_step_ms == pytest.approx(steady.plain_step_ms)


def test_speeds_are_those_of_the_moment_not_means(ticks: Ticks) -> None:
    reply = _reply()
    for milliseconds in (0, 125, 125, 250, 100):
        ticks.now += milliseconds * 1_000_000
        reply.add_token(3)
    assert reply.statistics().speeds == pytest.approx((8.0, 4.0))


def test_the_newest_speeds_are_kept(ticks: Ticks) -> None:
    reply = _reply()
    for number in range(150):
        ticks.now += _SECOND if number < 149 else _SECOND // 2
        reply.add_token(3)
    speeds = reply.statistics().speeds
    assert (len(speeds), speeds[-1], speeds[-2]) == (120, 2.0, 1.0)


NAMES = tuple(kinds())
QUESTION = ChatMessage(Role.USER, "hm")
# Asked, continued, and a raw text.
ASKED = ("fresh", "continued", "raw")


def model_of(name: str) -> LoadedModel:
    return replace(shared_llama(context_length=10_000), tokenizer=kinds()[name].loaded)


MODELS = {name: model_of(name) for name in NAMES}
TOKENS = {name: kinds()[name].tokens for name in NAMES}


def request_of(asked: str, stop: tuple[str, ...]) -> GenerationRequest:
    params = SamplingParams(max_tokens=5000, stop=stop)
    if asked == "raw":
        return GenerationRequest((), params, text="so")
    messages = (QUESTION, ChatMessage(Role.ASSISTANT, "so")) if asked == "continued" else (QUESTION,)
    return GenerationRequest(messages, params, continue_last=asked == "continued")


def written(name: str, tokens: Sequence[int], asked: str, stop: tuple[str, ...]) -> tuple[str, str, Reply]:
    """Return the text of a reply of some tokens, streamed and whole."""
    model = MODELS[name]
    prompt = model.tokenizer.encode("so", add_special_tokens=False)
    reply = Reply(ReplyJob.fresh(model, prompt, request_of(asked, stop)))
    streamed = ""
    for token in tokens:
        streamed += reply.add_token(token).text
        if reply.finish_reason:
            break
    reply.finish_reason = reply.finish_reason or FinishReason.LENGTH
    end = reply.closing_event()
    return streamed + end.trailing_text, end.text, reply


def text_of(data: bytes, asked: str) -> str:
    """Return what bytes say, but for a character at the end that is not finished and a chat's first blank."""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data)
    return text.removeprefix(" ") if asked == "fresh" else text


def any_tokens(name: str) -> some.SearchStrategy[list[int]]:
    """Draw tokens, of which many are parts of characters, and some the bytes of whole ones."""
    tokens = TOKENS[name]
    single = {data[0]: number for number, data in enumerate(tokens) if len(data) == 1}
    assert len(single) == 256
    partial = [number for number, data in enumerate(tokens) if data.decode("utf-8", "ignore").encode() != data]
    whole = some.sampled_from("é€😀\ufffd\n ").map(lambda character: [single[byte] for byte in character.encode()])
    one = some.sampled_from(partial) | some.integers(0, len(tokens) - 1)
    return some.lists(whole | one.map(lambda number: [number]), max_size=12).map(
        lambda parts: [*chain.from_iterable(parts)]
    )


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(data=some.data())
def test_a_replys_text_is_that_of_its_tokens_bytes_up_to_a_stop_string(name: str, data: some.DataObject) -> None:
    """All behind one odd byte had no text, and a stop string there was not found."""
    tokens = data.draw(any_tokens(name))
    asked = data.draw(some.sampled_from(ASKED))
    stop = data.draw(some.sampled_from(["no such text", " ", "the", "\ufffd", "é\n", "€"]))
    streamed, whole, reply = written(name, tokens, asked, (stop,))
    said = text_of(b"".join(TOKENS[name][token] for token in tokens), asked)
    assert streamed == whole == said.split(stop)[0]
    kept = b"".join(TOKENS[name][token] for token in reply.token_ids)
    assert said.startswith(text_of(kept, asked))
    assert (reply.finish_reason is FinishReason.STOP_STRING) == (stop in said)


# Decoders whose blanks depend on the tokens beside.
NEIGHBOURS = {
    "words": (decoders.WordPiece("##"), ["the", "fox", "##es", ".", "n't"]),
    "ends of words": (decoders.BPEDecoder("</w>"), ["the</w>", "f", "ox</w>", ".</w>", "a</w>"]),
}


@cache
def neighbours(name: str) -> tuple[Tokenizer, LoadedModel]:
    """Return a tokenizer with one of these decoders, and a model that has it."""
    decoder, spelled = NEIGHBOURS[name]
    vocabulary = {text: number for number, text in enumerate([*spelled, "[UNK]"])}
    own = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    own.decoder = decoder
    return own, replace(shared_llama(), tokenizer=Kind(own, str.encode).loaded)


@pytest.mark.parametrize("name", NEIGHBOURS)
@settings(max_examples=40, deadline=None)
@given(tokens=some.lists(some.integers(0, 4), max_size=8).map(lambda rest: [0, *rest]))
def test_blanks_that_depend_on_the_token_before_are_the_tokenizers(name: str, tokens: list[int]) -> None:
    own, model = neighbours(name)
    reply = Reply(ReplyJob.fresh(model, [1], request_of("fresh", ())))
    streamed = "".join(reply.add_token(token).text for token in tokens)
    assert streamed == own.decode(tokens).removeprefix(" ")
