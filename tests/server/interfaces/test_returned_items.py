"""Law: what a response said comes back whole, in each of the forms in which clients send it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rdchat.inference.api import FinishReason, ReplyEnd, Role, Statistics, ToolCall
from rdchat.server.interfaces import responses
from rdchat.server.interfaces.fields import ApiError, Fields
from rdchat.server.interfaces.reply_request import Choice, Delta
from rdchat.server.interfaces.responses import KeptItems, Responses
from tests.late_module import LateModule
from tests.server.conftest import MakeServer, openai_client, response_of
from tests.server.fakes import Script, ScriptedGate

if TYPE_CHECKING:
    from openai import OpenAI

openai_module = LateModule("openai")
ASK: dict[str, Any] = {"model": "tiny/model", "input": "Hi"}
TOOL: Any = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": None}
CALL = Script(("Hm</think>So", "<call>{}</call>"), in_thought=True, calls=(ToolCall("look", "{}"),),
              content="Hm</think>So")  # fmt: skip
SEALED = "reasoning.encrypted_content"
WORDS = some.text(min_size=1).filter(str.strip)


def _reference(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "item_reference", "id": item["id"]}


def _only(*names: str) -> Any:
    return lambda item: {name: item[name] for name in ("type", *names)}


def _written(responses: Responses, asked: dict[str, Any], pieces: list[str], answer: str) -> list[dict[str, Any]]:
    """Return the items of a streamed response, as its last event has them."""
    form = responses.format(responses.read_request(Fields({"input": "Hi"} | asked)), "m", "1")
    text = form.begin() + "".join(form.delta(Delta(0, thought=each)) for each in pieces)
    end = ReplyEnd(0, "", (1,), "", FinishReason.EOS, Statistics())
    text += form.finish(Choice(0, 0, "".join(pieces), answer, end=end), Delta(0, answer=answer)) + form.end([])
    last = json.loads(text.split("data: ")[-2].split("\n\n")[0])
    items: list[dict[str, Any]] = last["response"]["output"]
    return items


@given(pieces=some.lists(WORDS, min_size=1, max_size=3), answer=WORDS, store=some.sampled_from((None, True, False)))
@pytest.mark.parametrize(
    ("include", "summary", "sent"),
    [
        ([SEALED], None, lambda item: item),
        ([SEALED], "auto", lambda item: item),
        ([SEALED], "auto", _only("id", "summary", "encrypted_content")),
        ([SEALED], None, _only("encrypted_content")),
        ([], "detailed", _only("summary")),
        ([], None, _only("content")),
        ([], None, _reference),
        ([], "concise", _reference),
        ([SEALED], None, _reference),
    ],
)
def test_a_thought_comes_back_once_and_whole(
    include: list[str], summary: str | None, sent: Any, pieces: list[str], answer: str, store: bool | None
) -> None:
    responses = Responses()
    asked = {"include": include, "reasoning": {"summary": summary}, "store": store}
    thought, said = _written(responses, asked, pieces, answer)
    items = [{"role": "user", "content": "Hi"}, sent(thought), said, {"role": "user", "content": "And?"}]
    if sent is _reference and store is False:
        with pytest.raises(ApiError, match="store: false"):
            responses.read_request(Fields({"input": items}))
        return
    request = responses.read_request(Fields({"input": items}))
    _, reply, _ = request.prompts[0].messages
    assert (reply.role, reply.thought, reply.content) == (Role.ASSISTANT, "".join(pieces), answer)
    assert not request.ignored


@pytest.mark.parametrize("given", ["gAAAAABo", "rdchat:", "rdchat:####", "rdchat:gAAA", "rdchat:SGVsbG8", "xx"])
def test_a_sealed_thought_of_others_is_named(given: str) -> None:
    items: list[dict[str, Any]] = [
        {"type": "reasoning", "summary": [], "encrypted_content": given},
        {"role": "user", "content": "Hi"},
    ]
    request = Responses().read_request(Fields({"input": items}))
    assert given == "rdchat:" or "input.encrypted_content" in request.ignored
    with pytest.raises(ApiError, match="encrypted_content"):
        Responses().read_request(Fields({"input": [items[0] | {"encrypted_content": 1}]}))


@pytest.mark.parametrize("stream", [False, True])
def test_items_of_the_last_responses_may_be_named_instead_of_sent(
    openai: OpenAI, gate: ScriptedGate, stream: bool
) -> None:
    """As Vercel's AI SDK does at each second step of its tool loop."""
    gate.scripts = [CALL]
    output = response_of(openai, ASK | {"tools": [TOOL]}, stream).output
    assert [each.type for each in output] == ["reasoning", "message", "function_call"]
    names = [{"type": "item_reference", "id": each.id} for each in output]
    result = {"type": "function_call_output", "call_id": output[-1].call_id, "output": "DONE"}
    items: Any = [{"role": "user", "content": "Hi"}, *names, result]
    raw = openai.responses.with_raw_response.create(model="", input=items, tools=[TOOL])
    assert "x-rdchat-ignored" not in raw.headers
    _, reply, answer = gate.requests[-1].messages
    assert (reply.thought, reply.content, [each.name for each in reply.tool_calls]) == ("Hm", "So", ["look"])
    assert (answer.content, answer.tool_call_id) == ("DONE", reply.tool_calls[0].call_id)


@pytest.mark.parametrize("store", [False, None])
def test_an_item_that_is_not_there_is_refused(make_server: MakeServer, store: bool | None) -> None:
    """One of a response with `store: false`, and one of another server, which may have another key."""
    first, other = (openai_client(make_server()) for _ in range(2))
    with first, other:
        (item,) = first.responses.create(**ASK, store=store).output
        items: Any = [{"type": "item_reference", "id": item.id}, {"role": "user", "content": "Hi"}]
        with pytest.raises(openai_module.BadRequestError, match="`store: false`") as refused:
            (first if store is False else other).responses.create(model="", input=items)
    assert refused.value.param == "input[0].id"


def test_the_oldest_items_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "MAX_KEPT", 200)
    kept = KeptItems()
    for at in range(50):
        kept.add_item({"id": f"msg_{at}", "type": "message", "text": "x" * at})

    def there(name: str) -> bool:
        try:
            return bool(kept.resolved(Fields({"type": "item_reference", "id": name})).values)
        except ApiError:
            return False

    assert [at for at in range(50) if there(f"msg_{at}")] == [48, 49]
    kept.add_item({"id": "large", "text": "x" * 1000})
    assert not any(there(name) for name in ("large", "msg_49"))


@pytest.mark.parametrize("mode", ["required", "auto"])
def test_the_tools_of_one_request_may_be_limited(openai: OpenAI, gate: ScriptedGate, mode: str) -> None:
    names = ("look", "write")
    listed: Any = [{"type": "function", "function": {"name": name, "parameters": TOOL["parameters"]}} for name in names]
    gate.scripts = [Script(('{"name": "look", "arguments": {}}',)) if mode == "required" else CALL]
    chosen: Any = [{"type": "function", "function": {"name": "look"}}]
    choice: Any = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": chosen}}
    reply = openai.chat.completions.create(
        model="", messages=[{"role": "user", "content": "Hi"}], tools=listed, tool_choice=choice
    )
    calls: Any = reply.choices[0].message.tool_calls
    assert [call.function.name for call in calls] == ["look"]
    assert [each["function"]["name"] for each in json.loads(gate.requests[0].tools)] == ["look"]
    assert bool(gate.requests[0].shape) == (mode == "required")
