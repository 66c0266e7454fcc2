"""Replies of a remote server, event by event: the forms of all servers, characters that are cut, and limits.

Law: words in any known place of a delta stand in the reply, its calls are those that were sent, whatever the cuts, and
what is not known never ends a reply whose words can be read.
"""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, settings, strategies as st

from rdchat.errors import ModelError, RdchatError
from rdchat.inference.api import (
    ChatMessage,
    GenerationEvent,
    GenerationRequest,
    RemoteServer,
    ReplyEnd,
    Role,
    SamplingParams,
    TokenEvent,
    ToolCall,
)
from rdchat.inference.remote.remote_reply import RemoteReply
from rdchat.inference.remote.server_connection import Connection

REQUEST = GenerationRequest((ChatMessage(Role.USER, "Hi"),), sampling=SamplingParams(max_tokens=10))
# Letters, both kinds of halves, characters of two halves, and all others.
TEXTS = st.text(st.sampled_from("ab\ud83d\ude00\udc00\n😀") | st.characters(exclude_categories=()), max_size=12)


@dataclass(frozen=True)
class ScriptedConnection(Connection):
    """A connection whose answers have these events."""

    script: tuple[dict[str, Any], ...] = ()

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        for event in self.script:
            yield json.loads(json.dumps(event))


def chunk(finish: str | None = None, **delta: object) -> dict[str, Any]:
    return {"choices": [{"delta": delta, "finish_reason": finish}]}


def piece(index: int | None = None, call_id: str = "", name: str = "", arguments: str = "") -> dict[str, Any]:
    part = {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}
    return chunk(tool_calls=[part])


def reply(*script: dict[str, Any]) -> RemoteReply:
    connection = ScriptedConnection(RemoteServer("studio", "http://127.0.0.1:1"), "", script)
    return RemoteReply(connection, REQUEST, {}, is_rdchat=False)


def streamed(events: Sequence[GenerationEvent]) -> str:
    return "".join(each.text for each in events if isinstance(each, TokenEvent))


def end_of(script: Sequence[dict[str, Any]]) -> ReplyEnd:
    with closing(reply(*script)) as events:
        taken = list(events)
    end = taken[-1]
    assert isinstance(end, ReplyEnd)
    assert streamed(taken) + end.trailing_text == end.text
    return end


def whole(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@st.composite
def cut(draw: st.DrawFn) -> tuple[str, ...]:
    """Draw a text and cut it anywhere, also between the halves of a character."""
    units = draw(TEXTS).encode("utf-16-le", "surrogatepass")
    ends = sorted({0, len(units), *(2 * each for each in draw(st.sets(st.integers(0, len(units) // 2))))})
    return tuple(units[a:b].decode("utf-16-le", "surrogatepass") for a, b in pairwise(ends))


@settings(max_examples=40)
@given(cut(), cut(), st.sampled_from(["stop", "length"]))
def test_a_text_is_the_same_however_its_events_cut_it(
    thought: tuple[str, ...], answer: tuple[str, ...], finish: str
) -> None:
    script = [chunk(reasoning_content=each) for each in thought] + [chunk(content=each) for each in answer]
    end = end_of([*script, chunk(finish)])
    marker = "\n</think>\n\n" if thought and (answer or finish == "stop") else ""
    assert end.text == whole("".join(thought)) + marker + whole("".join(answer))
    assert [end.text[offset:].startswith("</think>") for offset in end.told.control] == [True] * bool(marker)


@settings(max_examples=40)
@given(cut(), TEXTS, cut())
def test_a_call_is_the_same_however_its_events_cut_it(
    name: tuple[str, ...], call_id: str, value: tuple[str, ...]
) -> None:
    written = json.dumps("".join(value), ensure_ascii=False)
    script = [piece(0, name=each) for each in ("f", *name)] + [piece(0, call_id)]
    script += [piece(0, arguments=each) for each in ('{"a": ', *units_of(written), "}")]
    # A piece that is the whole name so far is the same name again.
    assume(all(piece != "".join(("f", *name[:at])) for at, piece in enumerate(name)))
    end = end_of([*script, chunk("tool_calls")])
    (made,) = end.tool_calls
    assert (made.name, made.call_id) == ("f" + whole("".join(name)), whole(call_id))
    assert json.loads(made.arguments) == {"a": whole("".join(value))}


def units_of(text: str) -> list[str]:
    """Return a text as its UTF-16 units."""
    units = text.encode("utf-16-le", "surrogatepass")
    return [units[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2)]


@pytest.mark.parametrize(
    "long",
    [
        [piece(0, name="n" * 65)],
        [piece(0, name=each) for each in ("n", "no") * 22],
        [piece(0, "i" * (2**15 + 1), "f")],
        [piece(0, str(each), "f") for each in range(129)],
        [piece(0, "", "f", "1" * 2**19)] * 3,
        [piece(n, arguments="1" * 2**18) for n in range(5)],
        [{"choices": [{"delta": {"content": "b"}, "token_ids": [1, 2]}]}] * 6,
        [chunk(content="x" * 60_000)] * 3,
    ],
)
def test_more_than_was_asked_for_ends_a_reply_and_what_came_before_is_kept(long: list[dict[str, Any]]) -> None:
    taken: list[GenerationEvent] = []
    with closing(reply(chunk(content="A"), *long, chunk("stop"))) as events:
        with pytest.raises(ModelError, match=r"127\.0\.0\.1:1 writes more than it was asked for"):
            taken.extend(iter(events))
        assert streamed(taken).startswith("A")


def test_what_is_within_the_limits_is_taken() -> None:
    call = piece(0, "i" * 2**15, "n" * 64, json.dumps({"a": "x" * (2**20 - 9)}))
    ids = {"choices": [{"delta": {}, "token_ids": [*range(10)], "finish_reason": "tool_calls"}]}
    end = end_of([call, ids])
    assert len(end.tool_calls[0].arguments) == 2**20
    assert end.token_ids == (*range(10),)


@pytest.mark.parametrize("token", [-1, 2**40])
def test_a_number_that_is_no_token_is_refused(token: int) -> None:
    wrong = {"choices": [{"delta": {}, "token_ids": [token]}]}
    with closing(reply(wrong)) as events, pytest.raises(ModelError, match="OpenAI-compatible"):
        next(events)


# The forms in which servers send words, with `@` in their place, and whether those are a thought.
_WORDS: list[tuple[Any, bool]] = [
    ({"content": "@"}, False),
    ({"content": ["@"]}, False),
    ({"content": {"type": "text", "text": "@"}}, False),
    ({"content": [{"type": "text", "text": "@"}, {"type": "text", "text": ""}, {"type": "text", "text": "@"}]}, False),
    ({"content": [{"type": "something_new", "text": "@", "more": {"a": 1}}]}, False),
    ({"content": [{"type": "text", "text": {"value": "@", "annotations": ["other"]}}]}, False),
    ({"content": [{"type": "output_text", "content": [{"type": "text", "text": "@"}]}]}, False),
    ({"content": None, "refusal": "@"}, False),
    ({"content": [{"type": "refusal", "refusal": "@"}]}, False),
    ({"reasoning": "@", "reasoning_content": "@"}, True),
    ({"reasoning_details": [{"type": "reasoning.summary", "summary": "@", "format": "x", "index": 0}]}, True),
    (
        {"reasoning_details": [{"type": "reasoning.text", "text": "@"}, {"type": "reasoning.encrypted", "data": "x"}]},
        True,
    ),
    ({"thinking_blocks": [{"type": "thinking", "thinking": "@", "signature": "x"}], "content": ""}, True),
    ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "@"}]}]}, True),
]
# What a reply may have beside them; nothing of it is words.
_NOISE: list[dict[str, Any]] = [
    {}, {"id": None}, {"usage": 5}, {"usage": {"prompt_tokens": "x", "prompt_tokens_details": 3}}, {"x": [1]},
    {"usage": {"rdchat": {"tokens_per_second": "fast"}}}, {"error": None}, {"object": "x", "warnings": ["x"]},
]  # fmt: skip
_DELTA_NOISE: list[dict[str, Any]] = [
    {}, {"role": "assistant", "tool_calls": None, "function_call": None}, {"images": [{"url": "x"}], "audio": {}},
    {"annotations": [{"url": "x"}], "tool_calls": []}, {"reasoning": None, "provider": {"a": ["b"]}},
]  # fmt: skip


def filled(form: Any, word: str) -> Any:
    return json.loads(json.dumps(form).replace("@", word))


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.sampled_from(_WORDS), st.sampled_from(_NOISE), st.sampled_from(_DELTA_NOISE)), max_size=6),
    st.sampled_from(["stop", "length", "STOP", "tool_calls", "function_call", "eos"]),
)
def test_words_in_each_place_of_a_delta_stand_in_the_reply(
    drawn: list[tuple[tuple[Any, bool], dict[str, Any], dict[str, Any]]], finish: str
) -> None:
    script = list[dict[str, Any]]()
    answer = list[str]()
    thought = list[str]()
    for at, ((form, is_thought), noise, beside) in enumerate(drawn):
        script.append(chunk(**beside | filled(form, f"w{at} ")) | noise)
        # One text under two names is one.
        count = json.dumps(form).count("@") if not is_thought else 1
        (thought if is_thought else answer).extend([f"w{at}"] * count)
    end = end_of([*script, chunk(finish)])
    assert (end.told.answer.split(), end.told.thought.split()) == (answer, thought)


@st.composite
def called(draw: st.DrawFn) -> tuple[list[ToolCall], list[dict[str, Any]]]:
    """Draw calls of tools, and the events with which a server of one kind sends them."""
    calls = list[ToolCall]()
    script = list[dict[str, Any]]()
    index = draw(st.sampled_from(["own", "shared", "null", "absent", "of the piece"]))
    # Calls that came whole need no id, where each comes in one piece.
    has_ids = draw(st.booleans())
    cuts = draw(st.booleans()) and has_ids
    again = draw(st.booleans())
    once = draw(st.booleans())
    # Who counts the pieces sends the name and the id once.
    again &= index != "of the piece"
    as_object = draw(st.booleans()) and not cuts
    random_ids = draw(st.booleans()) and not again
    random_ids &= index != "of the piece"
    for at, value in enumerate(draw(st.lists(st.text('ab{}"', max_size=5), max_size=4))):
        name = draw(st.sampled_from(["get", "get_map", "look"]))
        arguments = json.dumps({"a": value})
        calls.append(ToolCall(name, arguments, f"c{at}" if has_ids else ""))
        pieces: list[Any] = [*arguments] if cuts else [{"a": value} if as_object else arguments]
        for number, piece in enumerate(["", *pieces] if cuts else pieces):
            function: dict[str, Any] = {"arguments": piece, "new_field": {"x": 1}}
            unnamed: list[dict[str, Any]] = [{}, {"name": ""}, {"name": None}]
            function |= {"name": name} if again or not number else draw(st.sampled_from(unnamed))
            part: dict[str, Any] = {"type": "function", "function": function, "extra_content": ["x"]}
            if index != "absent":
                part["index"] = {"own": at, "shared": 0, "null": None, "of the piece": len(script)}[index]
            if has_ids and (again or not number):
                part["id"] = f"c{at}"
            elif has_ids and random_ids:
                part["id"] = f"other-{number}"
            script.append(chunk(tool_calls=part if once else [part]))
    return calls, script


@settings(max_examples=60)
@given(called(), st.sampled_from(["stop", "tool_calls"]))
def test_the_calls_are_those_that_were_sent(drawn: tuple[list[ToolCall], list[dict[str, Any]]], finish: str) -> None:
    calls, script = drawn
    assert [*end_of([chunk(content="So"), *script, chunk(finish)]).tool_calls] == calls


@pytest.mark.parametrize(
    "script",
    [
        # The name comes last.
        [piece(None, "", "", '{"a": '), piece(None, "", "", "1}"), piece(None, "", "get")],
        [piece(None, "c", "", '{"a": '), piece(None, "c", "", "1}"), piece(None, "c", "get")],
        # The index is that of the piece.
        [piece(0, "c", "get"), piece(1, "", "", '{"a": '), piece(2, "", "", "1}")],
        # One call has several places.
        [piece(0, "c", "get"), piece(1, "c", "get", '{"a": 1}'), piece(2, "c", "get", '{"a": 1}')],
        [piece(0, "c", "get", '{"a": '), piece(1, "c", "", "1}")],
    ],
)
def test_a_call_that_comes_in_another_order_or_with_other_numbers_is_one(script: list[dict[str, Any]]) -> None:
    end = end_of([*script, chunk("tool_calls")])
    assert [(call.name, call.arguments) for call in end.tool_calls] == [("get", '{"a": 1}')]
    assert not end.text


def test_a_call_in_its_former_form_is_one() -> None:
    pieces: list[Any] = [{"name": "get", "arguments": ""}, {"arguments": '{"a": '}, {"arguments": "1}"}]
    end = end_of([*(chunk(function_call=each) for each in pieces), chunk("function_call")])
    assert end.tool_calls == (ToolCall("get", '{"a": 1}'),)


@pytest.mark.parametrize(
    ("piece", "words"),
    [
        ({"index": 1, "function": {"name": "get", "arguments": '{"a": '}}, 'get({"a": )'),
        ({"index": 1, "function": {"name": "get", "arguments": '{"a": 1e999}'}}, 'get({"a": 1e999})'),
        ({"index": 1, "function": {"name": "get", "arguments": [1]}}, "get([1])"),
        ({"index": 1, "function": {"arguments": "{}"}}, "({})"),
        ("get", "({})"),
    ],
)
def test_a_damaged_call_is_words_and_hides_no_other(piece: Any, words: str) -> None:
    good = {"index": 0, "id": "c", "function": {"name": "look", "arguments": "{}"}}
    # What has no index goes on with the last call.
    listed = [good, piece] if isinstance(piece, dict) else [piece]
    end = end_of([chunk(reasoning="Hm"), chunk(content="So"), chunk("length", tool_calls=listed)])
    assert [call.name for call in end.tool_calls] == ["look"] * (len(listed) - 1)
    assert end.told.answer == f"So\n[a call of a tool that is not valid: {words}]"


@pytest.mark.parametrize("deltas", [[], [chunk(role="assistant"), chunk(content="A"), chunk(content="B")]])
def test_a_whole_message_in_a_stream_is_the_reply_once(deltas: list[dict[str, Any]]) -> None:
    whole = {"choices": [{"message": {"role": "assistant", "content": "AB"}, "finish_reason": "stop"}]}
    assert end_of([*deltas, whole]).text == "AB"


def test_a_part_without_words_is_named() -> None:
    parts = [{"type": "text", "text": "Look: "}, {"type": "image_url", "image_url": {"url": "data:x"}}]
    assert end_of([chunk("stop", content=parts)]).text == "Look: [image_url]"


@pytest.mark.parametrize("reason", ["error", "content_filter", "something_new", 7])
def test_an_end_that_is_not_complete_is_said(reason: Any) -> None:
    taken: list[GenerationEvent] = []
    with (
        closing(reply(chunk(content="A"), chunk(reason))) as events,
        pytest.raises(RdchatError, match=rf"127\.0\.0\.1:1 broke off the reply: {reason}\."),
    ):
        taken.extend(iter(events))
    assert streamed(taken) == "A"
