"""Anthropic's own client against the server, with a scripted engine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rdchat.errors import PromptTooLongError, TemplateRefusedError
from rdchat.inference.api import AnswerShape, FinishReason, Role, ShapeKind, ToolCall, reply_seed
from rdchat.server.interfaces.anthropic_messages import Messages
from rdchat.server.interfaces.fields import ApiError, Fields
from rdchat.server.server_settings import Limits
from tests.late_module import LateModule
from tests.server.conftest import MakeServer, anthropic_client, streamed
from tests.server.fakes import Script, ScriptedGate

if TYPE_CHECKING:
    from anthropic import Anthropic

anthropic_module = LateModule("anthropic")
ASK: dict[str, Any] = {"model": "tiny/model", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]}
TOOL: Any = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}


def message_of(client: Anthropic, asked: Any, stream: bool) -> Any:
    if not stream:
        return client.messages.create(**asked)
    with client.messages.stream(**asked) as events:
        return events.get_final_message()


def test_a_whole_reply(anthropic: Anthropic, gate: ScriptedGate) -> None:
    reply = anthropic.messages.create(**ASK, system="Be short.", extra_body={"seed": 7})
    assert [block.to_dict() for block in reply.content] == [{"type": "text", "text": "Hello, you!"}]
    assert (reply.stop_reason, reply.model, reply.role) == ("end_turn", "tiny/model", "assistant")
    usage = reply.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (6, 2, 5)
    assert usage.to_dict()["rdchat"]["drafted"] == 4
    (request,) = gate.requests
    assert request.messages[0].role is Role.SYSTEM
    assert (request.seed, request.sampling.max_tokens) == (reply_seed(7, 1, 0), 50)


def test_a_stream_begins_with_the_tokens_of_the_prompt_before_any_is_written(
    anthropic: Anthropic, gate: ScriptedGate
) -> None:
    gate.gate.shut()
    with anthropic.messages.create(**ASK, stream=True) as events:
        first = next(iter(events))
        assert first.type == "message_start"
        usage = first.message.usage
        assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (6, 2, 0)
        gate.gate.open()


def test_a_stream_that_waits_begins_with_pings(make_server: MakeServer, gate: ScriptedGate) -> None:
    server = make_server(Limits(silent_seconds=0.05))
    gate.gate.shut()
    client = anthropic_client(server)
    with client, client.messages.create(**ASK, stream=True), streamed(server, ASK, "/v1/messages") as answer:
        assert [answer.readline() for _ in range(3)] == [b"event: ping\n", b'data: {"type":"ping"}\n', b"\n"]
        gate.gate.open()
        events = [line[7:].strip() for line in answer if line.startswith(b"event: ")]
    assert next(each for each in events if each != b"ping") == b"message_start"
    assert events.count(b"message_start") == 1
    assert events[-1] == b"message_stop"


def test_a_full_context_is_known_by_its_words(anthropic: Anthropic, gate: ScriptedGate) -> None:
    full = ApiError(400, "This chat has 9 tokens. Shorten it.", code="context_length_exceeded")
    gate.scripts = [Script(refusal=full)]
    with pytest.raises(anthropic_module.BadRequestError, match=r"prompt is too long: This chat has 9 tokens"):
        anthropic.messages.create(**ASK)
    gate.count_error = PromptTooLongError("This chat has 9 tokens.", "Shorten it.")
    with pytest.raises(anthropic_module.BadRequestError, match="prompt is too long"):
        anthropic.messages.count_tokens(model="", messages=ASK["messages"])


def test_the_tokens_of_a_prompt_are_counted_without_a_reply(anthropic: Anthropic, gate: ScriptedGate) -> None:
    asked: Any = {"model": "tiny/model", "messages": [{"role": "user", "content": "How are you?"}]}
    assert anthropic.messages.count_tokens(**asked).input_tokens == 3
    assert anthropic.messages.count_tokens(**asked, system="Be short.").input_tokens == 5
    assert anthropic.messages.count_tokens(**asked, tools=[TOOL]).input_tokens > 5
    assert not gate.requests


def test_tokens_are_counted_while_a_reply_is_written(anthropic: Anthropic, gate: ScriptedGate) -> None:
    gate.gate.shut()
    with anthropic.messages.create(**ASK, stream=True):
        assert anthropic.messages.count_tokens(model="", messages=ASK["messages"]).input_tokens == 1
        gate.gate.open()


@pytest.mark.parametrize(
    ("model", "messages", "status"),
    [("tiny/model", [], 400), ("", ASK["messages"], 400), ("other/model", ASK["messages"], 404)],
)
def test_tokens_that_cannot_be_counted(
    anthropic: Anthropic, gate: ScriptedGate, model: str, messages: Any, status: int
) -> None:
    gate.count_error = TemplateRefusedError("The chat template refuses this.")
    with pytest.raises(anthropic_module.APIStatusError) as refused:
        anthropic.messages.count_tokens(model=model, messages=messages)
    body: Any = refused.value.body
    assert (refused.value.status_code, body["type"]) == (status, "error")


def test_a_model_is_not_loaded_to_count(make_server: MakeServer, gate: ScriptedGate) -> None:
    server = make_server(may_load_models=True)
    with anthropic_client(server) as client, pytest.raises(anthropic_module.InternalServerError, match="not loaded"):
        client.messages.count_tokens(model="other/model", messages=ASK["messages"])
    assert not gate.loads


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls(anthropic: Anthropic, gate: ScriptedGate, stream: bool) -> None:
    gate.scripts = [
        Script(
            ("So", " <call>", "{}</call>"), calls=(ToolCall("look", '{"at": 1}'), ToolCall("look", "{}")), content="So"
        )
    ]
    reply = message_of(anthropic, ASK | {"tools": [TOOL]}, stream)
    assert [block.type for block in reply.content] == ["text", "tool_use", "tool_use"]
    assert [block.input for block in reply.content[1:]] == [{"at": 1}, {}]
    assert (reply.content[0].text, reply.stop_reason) == ("So", "tool_use")
    assert '"parameters": {"type": "object"' in gate.requests[0].tools


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_are_sent_only_if_asked_for(anthropic: Anthropic, gate: ScriptedGate, stream: bool) -> None:
    gate.scripts = [Script(("Hm", "</think>", "Yes"), in_thought=True)]

    def kinds(**more: Any) -> list[str]:
        return [block.type for block in message_of(anthropic, ASK | more, stream).content]

    assert kinds() == ["text"]
    assert kinds(thinking={"type": "enabled", "budget_tokens": 1024}) == ["thinking", "text"]
    assert [each.thinking_tokens for each in gate.requests] == [None, 1024]


@pytest.mark.parametrize(
    ("thinking", "effort"),
    [(None, "high"), ({"type": "disabled"}, "none"), ({"type": "adaptive"}, "high"), ({"type": "enabled"}, "high")],
)
def test_an_effort_does_not_switch_thinking_on_again(thinking: Any, effort: str) -> None:
    """In Anthropic's API an effort is about all of a reply, also where thinking is off."""
    asked = {"messages": [{"role": "user", "content": "Hi"}], "thinking": thinking, "output_config": {"effort": "high"}}
    assert Messages(counts=True).read_request(Fields(asked)).effort == effort


def test_a_thought_has_a_signature_and_comes_back(anthropic: Anthropic, gate: ScriptedGate) -> None:
    """Vercel's AI SDK drops a thought without `signature_delta` from its next request."""
    gate.scripts = [Script(("Hm", "</think>", "Yes"), in_thought=True)]
    thinking: Any = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    whole = anthropic.messages.create(**ASK, **thinking).content
    raw = [each.to_dict() for each in anthropic.messages.create(**ASK, **thinking, stream=True)]
    of_thought: Any = [each for each in raw if each.get("index") == 0]
    kinds = [(each.get("delta") or each)["type"] for each in of_thought]
    assert kinds == ["content_block_start", "thinking_delta", "signature_delta", "content_block_stop"]
    with anthropic.messages.stream(**ASK, **thinking) as events:
        assert events.get_final_message().content[0] == whole[0]
    messages: Any = [*ASK["messages"], {"role": "assistant", "content": whole}, *ASK["messages"]]
    anthropic.messages.create(**(ASK | {"messages": messages}))
    assert (gate.requests[-1].messages[1].thought, gate.requests[-1].messages[1].content) == ("Hm", "Yes")


@pytest.mark.parametrize(
    ("script", "reason", "sequence"),
    [
        (Script(finish=FinishReason.LENGTH), "max_tokens", None),
        (Script(finish=FinishReason.STOP_STRING, stop="y"), "stop_sequence", "y"),
        (Script(finish=FinishReason.CONTEXT_FULL), "model_context_window_exceeded", None),
    ],
)
def test_stop_reason_says_why_a_reply_ended(
    anthropic: Anthropic, gate: ScriptedGate, script: Script, reason: str, sequence: str | None
) -> None:
    gate.scripts = [script]
    for stream in (False, True):
        reply = message_of(anthropic, ASK | {"stop_sequences": ["x", "y"]}, stream)
        assert (reply.stop_reason, reply.stop_sequence) == (reason, sequence)


@pytest.mark.parametrize("tokens", [("Hm", "</think>", "Yes"), ("<call>{}</call>",), ()])
@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_is_warmed_without_a_reply(
    anthropic: Anthropic, gate: ScriptedGate, stream: bool, tokens: tuple[str, ...]
) -> None:
    calls = (ToolCall("look", "{}"),) if tokens[:1] == ("<call>{}</call>",) else ()
    gate.scripts = [Script(tokens, in_thought=tokens[:1] == ("Hm",), calls=calls)]
    asked = ASK | {"max_tokens": 0, "tools": [TOOL], "thinking": {"type": "adaptive"}}
    reply = message_of(anthropic, asked, stream)
    assert (reply.content, reply.stop_reason, reply.usage.output_tokens) == ([], "max_tokens", 0)
    assert (reply.usage.input_tokens, reply.usage.cache_read_input_tokens) == (6, 2)
    assert gate.requests[0].sampling.max_tokens == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0]:"),
        ({"extra_body": {"temperature": 20}}, "temperature"),
        ({"extra_body": {"mcp_servers": [{"url": "x"}]}}, "mcp_servers"),
        ({"extra_body": {"thinking": {"type": "deep"}}}, "thinking.type"),
        ({"extra_body": {"output_config": {"effort": "huge"}}}, "output_config.effort"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(anthropic: Anthropic, given: dict[str, Any], words: str) -> None:
    with pytest.raises(anthropic_module.BadRequestError) as refused:
        anthropic.messages.create(**(ASK | given))
    body: Any = refused.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert words in body["error"]["message"]


def test_failure_within_a_stream_raises_an_error_in_the_client(anthropic: Anthropic, gate: ScriptedGate) -> None:
    gate.scripts = [Script(failure=ApiError(500, "The device stopped."))]
    stream = anthropic.messages.create(**ASK, stream=True)
    with pytest.raises(anthropic_module.APIStatusError, match="The device stopped"):
        list(stream)


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_the_client_insists_on(anthropic: Anthropic, gate: ScriptedGate, stream: bool) -> None:
    gate.scripts = [Script(('{"name": "look", ', '"arguments": {"at": 1}}'))]
    reply = message_of(anthropic, ASK | {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "look"}}, stream)
    assert [(block.type, block.input) for block in reply.content] == [("tool_use", {"at": 1})]
    assert (reply.stop_reason, bool(gate.requests[0].shape)) == ("tool_use", True)


def test_an_answer_in_a_shape(anthropic: Anthropic, gate: ScriptedGate) -> None:
    schema = {"type": "object", "properties": {}}
    wanted = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    anthropic.messages.create(**ASK, extra_body=wanted)
    assert gate.requests[0].shape == AnswerShape(ShapeKind.SCHEMA, json.dumps(schema))
