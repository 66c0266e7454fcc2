"""Replies of a remote server, event by event: characters that are cut, and limits."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdchat.errors import ModelError
from rdchat.inference.api.events import GenerationEvent, ReplyEnd, TokenEvent
from rdchat.inference.api.messages import ChatMessage, Role
from rdchat.inference.api.requests import GenerationRequest, SamplingParams
from rdchat.inference.remote.connection import Connection
from rdchat.inference.remote.remote_reply import RemoteReply
from rdchat.inference.remote.server_list import RemoteServer

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


def call(**parts: str) -> dict[str, Any]:
    said = {"id": parts.pop("id", None)}
    return chunk(tool_calls=[{"index": 0, **said, "function": parts}])


def reply(*script: dict[str, Any]) -> RemoteReply:
    connection = ScriptedConnection(RemoteServer("studio", "http://127.0.0.1:1"), "", script)
    return RemoteReply(connection, REQUEST, "m", lambda *_: b"", is_rdchat=False)


def streamed(events: Sequence[GenerationEvent]) -> str:
    return "".join(each.text for each in events if isinstance(each, TokenEvent))


def whole(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@st.composite
def cut(draw: st.DrawFn, texts: st.SearchStrategy[str] = TEXTS) -> tuple[str, ...]:
    """Draw a text and cut it anywhere, also between the halves of a character."""
    units = draw(texts).encode("utf-16-le", "surrogatepass")
    ends = sorted({0, len(units), *(2 * each for each in draw(st.sets(st.integers(0, len(units) // 2))))})
    return tuple(units[a:b].decode("utf-16-le", "surrogatepass") for a, b in pairwise(ends))


@given(cut(), cut(), st.sampled_from(["stop", "length"]))
def test_a_text_is_the_same_however_its_events_cut_it(
    thought: tuple[str, ...], answer: tuple[str, ...], finish: str
) -> None:
    script = [chunk(reasoning_content=each) for each in thought] + [chunk(content=each) for each in answer]
    with closing(reply(*script, chunk(finish))) as events:
        taken = list(events)
    end = taken[-1]
    assert isinstance(end, ReplyEnd)
    marker = "\n</think>\n\n" if thought and (answer or finish == "stop") else ""
    assert end.text == whole("".join(thought)) + marker + whole("".join(answer))
    assert streamed(taken) + end.trailing_text == end.text
    assert [end.text[offset:].startswith("</think>") for offset in end.told.control] == [True] * bool(marker)


@given(cut(), cut(), cut())
def test_a_call_is_the_same_however_its_events_cut_it(
    name: tuple[str, ...], call_id: tuple[str, ...], value: tuple[str, ...]
) -> None:
    written = json.dumps("".join(value), ensure_ascii=False)
    script = [call(name=each) for each in ("f", *name)] + [call(id=each) for each in call_id]
    script += [call(arguments=each) for each in ('{"a": ', *units_of(written))]
    with closing(reply(*script, call(arguments="}"), chunk("tool_calls"))) as events:
        end = list(events)[-1]
    assert isinstance(end, ReplyEnd)
    (made,) = end.tool_calls
    assert (made.name, made.call_id) == ("f" + whole("".join(name)), whole("".join(call_id)))
    assert json.loads(made.arguments) == {"a": whole("".join(value))}


def units_of(text: str) -> list[str]:
    """Return a text as its UTF-16 units."""
    units = text.encode("utf-16-le", "surrogatepass")
    return [units[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2)]


@pytest.mark.parametrize(
    "long",
    [
        [call(name="n" * 65)],
        [call(name="n")] * 65,
        [call(id="i" * 101, name="f")],
        [call(id="ii", name="f")] * 51,
        [call(name="f", arguments="1" * 2**19)] * 3,
        [chunk(tool_calls=[{"index": n, "function": {"arguments": "1" * 2**18}}]) for n in range(5)],
        [{"choices": [{"delta": {"content": "b"}, "token_ids": [1, 2]}]}] * 6,
        [chunk(content="x" * 60_000)] * 3,
    ],
)
def test_more_than_was_asked_for_ends_a_reply_and_what_came_before_is_kept(long: list[dict[str, Any]]) -> None:
    taken = []
    with closing(reply(chunk(content="A"), *long, chunk("stop"))) as events:
        with pytest.raises(ModelError, match=r"127\.0\.0\.1:1 writes more than it was asked for"):
            taken.extend(iter(events))
        assert streamed(taken).startswith("A")


def test_what_is_within_the_limits_is_taken() -> None:
    call_of = {"name": "n" * 64, "id": "i" * 100, "arguments": json.dumps({"a": "x" * (2**20 - 9)})}
    ids = {"choices": [{"delta": {}, "token_ids": [*range(10)], "finish_reason": "tool_calls"}]}
    with closing(reply(call(**call_of), ids)) as events:
        end = list(events)[-1]
    assert isinstance(end, ReplyEnd)
    assert len(end.tool_calls[0].arguments) == 2**20
    assert end.token_ids == (*range(10),)


@pytest.mark.parametrize("token", [-1, 2**40])
def test_a_number_that_is_no_token_is_refused(token: int) -> None:
    wrong = {"choices": [{"delta": {}, "token_ids": [token]}]}
    with closing(reply(wrong)) as events, pytest.raises(ModelError, match="OpenAI-compatible"):
        next(events)
