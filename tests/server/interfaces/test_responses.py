"""OpenAI's own client against `/v1/responses`: what a response said comes back whole in each of its forms."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as some
from pydantic import TypeAdapter

from rdchat.inference.api import (
    AnswerShape,
    ChatMessage,
    FinishReason,
    ReplyEnd,
    Role,
    ShapeKind,
    Statistics,
    ThinkingChoice,
    ToolCall,
)
from rdchat.server.interfaces import responses
from rdchat.server.interfaces.fields import ApiError, Fields
from rdchat.server.interfaces.reply_request import Choice, Delta
from rdchat.server.interfaces.responses import Responses, StoredItems
from rdchat.server.server_settings import Limits
from tests.late_module import LateModule
from tests.server.conftest import MakeServer, openai_client, response_of, streamed
from tests.server.fakes import MODEL, Script, ScriptedGate

if TYPE_CHECKING:
    from openai import OpenAI

openai_module = LateModule("openai")
types = LateModule("openai.types.responses")
ASK: dict[str, Any] = {"model": "tiny/model", "input": "Hi"}
TOOL: Any = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": None}
THINKS = Script(("Hm", "m", "</thi", "nk>", "Yes", "."), in_thought=True)
CALLS = Script(
    ("So", " <call>", "{}</call>"), calls=(ToolCall("look", '{"at": 1}'), ToolCall("look", "{}", "id7")), content="So"
)


def test_a_whole_response(openai: OpenAI, gate: ScriptedGate) -> None:
    response = openai.responses.create(**ASK, instructions="Be short.", metadata={"a": "b"}, max_output_tokens=20)
    assert (response.output_text, response.status, response.error) == ("Hello, you!", "completed", None)
    assert (response.model, response.instructions, response.metadata) == ("tiny/model", "Be short.", {"a": "b"})
    assert response.usage
    usage = (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens)
    assert usage == (8, 5, 13)
    assert response.usage.input_tokens_details.cached_tokens == 2
    assert response.usage.output_tokens_details.reasoning_tokens == 0
    assert MODEL.sampling.params.temperature == response.temperature
    assert response.to_dict()["store"] is False
    types.Response.model_validate(response.to_dict())
    (request,) = gate.requests
    assert request.messages == (ChatMessage(Role.SYSTEM, "Be short."), ChatMessage(Role.USER, "Hi"))
    assert request.sampling.max_tokens == 20


def test_a_response_has_all_fields_of_the_open_responses_specification(openai: OpenAI) -> None:
    tools: Any = [TOOL, {"type": "web_search"}]
    effort: Any = {"effort": "low"}
    response = openai.responses.create(**ASK, tools=tools, reasoning=effort, temperature=0.5).to_dict()
    texts = {"id", "object", "status", "model", "truncation", "service_tier", "tool_choice"}
    numbers = {"created_at", "completed_at", "temperature", "top_p", "presence_penalty", "frequency_penalty"}
    empty = {"incomplete_details", "previous_response_id", "instructions", "error", "max_output_tokens"}
    empty |= {"max_tool_calls", "safety_identifier", "prompt_cache_key"}
    assert {name for name, value in response.items() if isinstance(value, str)} == texts
    assert all(isinstance(response[name], int | float) for name in {*numbers, "top_logprobs"})
    assert {name for name, value in response.items() if value is None} == empty
    assert response["temperature"] == 0.5
    assert response["reasoning"] == {"effort": "low", "summary": None}
    (tool,) = response["tools"]
    assert tool == TOOL | {"description": "", "strict": False}


@pytest.mark.parametrize("summary", ["auto", None])
@pytest.mark.parametrize("script", [Script(), THINKS, CALLS, replace(THINKS, finish=FinishReason.LENGTH)])
def test_a_stream_is_the_whole_response_in_events_of_the_clients_types(
    openai: OpenAI, gate: ScriptedGate, script: Script, summary: Any
) -> None:
    gate.scripts = [script]
    asked: Any = ASK | {"tools": [TOOL], "reasoning": {"summary": summary}, "include": ["reasoning.encrypted_content"]}
    whole = openai.responses.create(**asked)
    events = list(openai.responses.create(**asked, stream=True))
    assert [each.sequence_number for each in events] == [*range(len(events))]
    any_event = TypeAdapter(types.ResponseStreamEvent)
    for each in events:
        assert any_event.validate_python(each.to_dict()).type == each.type
    kinds = [each.type for each in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    last: Any = events[-1]
    assert last.type == f"response.{whole.status}"
    for item, streamed_item in zip(whole.output, last.response.output, strict=True):
        same = item.to_dict()
        other = streamed_item.to_dict()
        assert same.pop("id") != other.pop("id")
        if item.type == "function_call" and not item.call_id.startswith("id"):
            assert same.pop("call_id") != other.pop("call_id")
        assert same == other
    done = [each.item for each in events if each.type == "response.output_item.done"]
    assert done == last.response.output
    for kind in ("output_text", "reasoning_text", "reasoning_summary_text", "function_call_arguments"):
        parts = "".join(each.delta for each in events if each.type == f"response.{kind}.delta")
        ends = [each for each in events if each.type == f"response.{kind}.done"]
        assert parts == "".join(str(getattr(each, "text", None) or getattr(each, "arguments", "")) for each in ends)


@pytest.mark.parametrize("stream", [False, True])
def test_a_thought_is_an_item_of_its_own_with_its_tokens(openai: OpenAI, gate: ScriptedGate, stream: bool) -> None:
    gate.scripts = [THINKS]
    response = response_of(openai, ASK, stream)
    thought, answer = response.output
    assert (thought.type, thought.content[0].text, thought.summary) == ("reasoning", "Hmm", [])
    assert (answer.type, response.output_text) == ("message", "Yes.")
    assert response.usage.output_tokens_details.reasoning_tokens == 4
    chat = openai.chat.completions.create(model="", messages=[{"role": "user", "content": "Hi"}])
    assert chat.usage
    assert chat.usage.completion_tokens_details
    assert chat.usage.completion_tokens_details.reasoning_tokens == 4


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls(openai: OpenAI, gate: ScriptedGate, stream: bool) -> None:
    gate.scripts = [CALLS]
    response = response_of(openai, ASK | {"tools": [TOOL]}, stream)
    text, first, second = response.output
    assert (text.content[0].text, response.status) == ("So", "completed")
    assert [(call.name, call.arguments) for call in (first, second)] == [("look", '{"at": 1}'), ("look", "{}")]
    assert (len(first.call_id), second.call_id) == (9, "id7")
    assert json.loads(gate.requests[0].tools)[0]["function"]["name"] == "look"
    one = openai.responses.create(**ASK, tools=[TOOL], parallel_tool_calls=False)
    assert [each.type for each in one.output] == ["message", "function_call"]


def test_a_call_that_the_client_insists_on(openai: OpenAI, gate: ScriptedGate) -> None:
    gate.scripts = [Script(('{"name": "look", ', '"arguments": {"at": 1}}'))]
    choice: Any = {"type": "function", "name": "look"}
    (call,) = openai.responses.create(**ASK, tools=[TOOL], tool_choice=choice).output
    assert call.type == "function_call"
    assert (call.name, call.arguments, bool(gate.requests[0].shape)) == ("look", '{"at": 1}', True)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_the_output_of_a_response_goes_back_as_input(
    openai: OpenAI, gate: ScriptedGate, named: bool, stream: bool
) -> None:
    """Vercel's AI SDK names the items at each second step of its tool loop."""
    gate.scripts = [replace(CALLS, tokens=("Hm</think>", "So <call>"), content="Hm</think>So", in_thought=True)]
    output: Any = response_of(openai, ASK | {"tools": [TOOL]}, stream).output
    calls = [item for item in output if item.type == "function_call"]
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "Nothing."} for call in calls]
    sent = [{"type": "item_reference", "id": item.id} for item in output] if named else output
    items: Any = [{"role": "developer", "content": "Rules."}, {"role": "user", "content": "Hi"}, *sent, *results]
    raw = openai.responses.with_raw_response.create(model="", input=items, tools=[TOOL])
    assert "x-rdchat-ignored" not in raw.headers
    rules, question, reply, *answers = gate.requests[-1].messages
    assert (rules, question) == (ChatMessage(Role.SYSTEM, "Rules."), ChatMessage(Role.USER, "Hi"))
    assert (reply.thought, reply.content) == ("Hm", "So")
    assert [(call.name, call.call_id) for call in reply.tool_calls] == [("look", call.call_id) for call in calls]
    assert [(each.role, each.content, each.tool_call_id) for each in answers] == [
        (Role.TOOL, "Nothing.", call.call_id) for call in calls
    ]


def test_formats_thinking_and_likely_tokens(openai: OpenAI, gate: ScriptedGate) -> None:
    gate.model = replace(MODEL, thinking=(ThinkingChoice.LOW, ThinkingChoice.HIGH))
    schema = {"type": "object", "properties": {}}
    shape: Any = {"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}, "verbosity": "low"}
    thinking: Any = {"effort": "xhigh", "max_tokens": 250}
    include: Any = ["message.output_text.logprobs"]
    response: Any = openai.responses.create(**ASK, text=shape, reasoning=thinking, include=include, top_logprobs=2)
    (request,) = gate.requests
    assert request.shape == AnswerShape(ShapeKind.SCHEMA, json.dumps(schema))
    assert (request.thinking, request.thinking_tokens, request.top_log_probs) == (ThinkingChoice.HIGH, 250, 2)
    likely = response.output[0].content[0].logprobs
    assert [token.token for token in likely] == ["Hello", ",", " you", "!"]
    assert len(likely[0].top_logprobs) == 2
    with openai.responses.stream(**ASK, include=include, top_logprobs=2) as events:
        final: Any = events.get_final_response()
    assert final.output[0].content[0].logprobs == likely


@pytest.mark.parametrize("finish", [FinishReason.LENGTH, FinishReason.CONTEXT_FULL])
def test_a_response_that_was_cut_off(openai: OpenAI, gate: ScriptedGate, finish: FinishReason) -> None:
    gate.scripts = [Script(finish=finish)]
    response = openai.responses.create(**ASK)
    assert response.incomplete_details
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert [item.status for item in response.output if item.type == "message"] == ["incomplete"]


def test_failure_within_a_stream_is_a_failed_response(openai: OpenAI, gate: ScriptedGate) -> None:
    gate.scripts = [Script(failure=ApiError(500, "The device stopped."))]
    *_, last = openai.responses.create(**ASK, stream=True)
    assert last.type == "response.failed"
    assert last.response.error
    assert (last.response.error.code, last.response.error.message) == ("server_error", "The device stopped.")
    assert last.response.output_text == "Hello, you!"


def test_a_failure_in_a_stream_that_only_waited_is_a_response_too(make_server: MakeServer, gate: ScriptedGate) -> None:
    server = make_server(Limits(silent_seconds=0.05), may_load_models=True)
    gate.load_failure = ApiError(503, "It does not fit.")
    gate.gate.shut()
    other = ASK | {"model": "other/model"}
    client = openai_client(server)
    path = "/v1/responses"
    with client, client.responses.create(**ASK, stream=True), streamed(server, other, path) as answer:
        assert answer.readline() == b": please wait\n"
        gate.gate.open()
        events = [json.loads(line[6:]) for line in answer if line.startswith(b"data: {")]
    assert [each["type"] for each in events] == ["response.created", "response.in_progress", "response.failed"]
    assert events[-1]["response"]["error"]["message"] == "It does not fit."


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].id"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
            "input[0].content[0].type",
        ),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"reasoning": {"max_tokens": -2}}, "reasoning.max_tokens"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
        ({"tool_choice": {"type": "web_search_preview"}}, "tool_choice"),
        ({"top_logprobs": 21}, "top_logprobs"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(openai: OpenAI, given: dict[str, Any], param: str) -> None:
    with pytest.raises(openai_module.BadRequestError) as refused:
        openai.responses.create(**(ASK | given))
    assert refused.value.param == param


def test_a_request_to_store_is_named(openai: OpenAI) -> None:
    raw = openai.responses.with_raw_response.create(**ASK, store=True)
    assert raw.headers["x-rdchat-ignored"] == "store"


SEALED = "reasoning.encrypted_content"
WORDS = some.text(min_size=1, max_size=20).filter(str.strip)


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


@settings(max_examples=20)
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


def test_an_item_of_another_server_is_refused(make_server: MakeServer) -> None:
    """It may have another key."""
    first, other = (openai_client(make_server()) for _ in range(2))
    with first, other:
        (item,) = first.responses.create(**ASK).output
        items: Any = [{"type": "item_reference", "id": item.id}, {"role": "user", "content": "Hi"}]
        with pytest.raises(openai_module.BadRequestError, match="`store: false`") as refused:
            other.responses.create(model="", input=items)
    assert refused.value.param == "input[0].id"


def test_the_oldest_items_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "MAX_STORED", 200)
    kept = StoredItems()
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
@pytest.mark.parametrize("is_nested", [False, True])
def test_the_tools_of_one_request_may_be_limited(mode: str, is_nested: bool) -> None:
    allowed = {"mode": mode, "tools": [{"type": "function", "function": {"name": "look"}}]}
    choice = {"type": "allowed_tools"} | ({"allowed_tools": allowed} if is_nested else allowed)
    asked = ASK | {"tools": [TOOL, TOOL | {"name": "write"}], "tool_choice": choice}
    request = Responses().read_request(Fields(asked))
    assert [tool["function"]["name"] for tool in request.tools] == ["look"]
    assert bool(request.shape) == (mode == "required")
