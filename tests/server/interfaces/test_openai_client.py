"""OpenAI's own client against the server, with a scripted engine."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rdchat.inference.api import AnswerShape, FinishReason, Role, ShapeKind, ThinkingChoice, ToolCall, reply_seed
from rdchat.server.interfaces.fields import ApiError
from tests.late_module import LateModule
from tests.server.conftest import MakeServer, openai_client, wait_until
from tests.server.fakes import MODEL, Script, ScriptedGate

if TYPE_CHECKING:
    from openai import OpenAI

openai_module = LateModule("openai")
ASK: dict[str, Any] = {"model": "tiny/model", "messages": [{"role": "user", "content": "Hi"}]}
TOOL: Any = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def received(openai: OpenAI, stream: bool, **asked: Any) -> tuple[list[Any], str, str]:
    """Return the functions that a reply calls, its text and why it ended."""
    reply: Any = openai.chat.completions.create(**(ASK | asked), stream=stream)
    choices = [chunk.choices[0] for chunk in (reply if stream else [reply]) if chunk.choices]
    parts = [choice.delta if stream else choice.message for choice in choices]
    calls = [call for part in parts for call in part.tool_calls or []]
    return calls, "".join(part.content or "" for part in parts), choices[-1].finish_reason


def test_models(openai: OpenAI) -> None:
    assert [each.id for each in openai.models.list()] == ["tiny/model"]
    assert openai.models.retrieve("tiny/model").owned_by == "rdchat"
    with pytest.raises(openai_module.NotFoundError):
        openai.models.retrieve("../secrets")


def test_a_whole_reply(openai: OpenAI, gate: ScriptedGate) -> None:
    reply = openai.chat.completions.create(**ASK, seed=7)
    assert reply.choices[0].message.content == "Hello, you!"
    assert (reply.choices[0].finish_reason, reply.model) == ("stop", "tiny/model")
    assert reply.usage
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (8, 5, 13)
    assert reply.usage.prompt_tokens_details
    assert reply.usage.prompt_tokens_details.cached_tokens == 2
    drafting = {
        "mode": "off",
        "rounds": 2,
        "drafted": 4,
        "accepted": 3,
        "target_calls": 2,
        "tokens_per_second": 8.0,
        "cached_tokens": 2,
    }
    assert reply.usage.to_dict()["rdchat"] == drafting | {"reply_seeds": [gate.requests[0].seed]}
    (request,) = gate.requests
    assert request.seed == reply_seed(7, 1, 0)
    assert request.partition.startswith("server-")
    assert request.sampling.max_tokens == MODEL.context_length


def test_a_stream(openai: OpenAI) -> None:
    chunks = list(openai.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True}))
    assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices) == "Hello, you!"
    assert [each.choices[0].finish_reason for each in chunks if each.choices][-1] == "stop"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage
    assert chunks[-1].usage.completion_tokens == 5
    assert all(each.usage is None for each in chunks[:-1])


@pytest.mark.parametrize("stream", [False, True])
def test_several_replies_to_one_prompt_come_in_turn(openai: OpenAI, gate: ScriptedGate, stream: bool) -> None:
    gate.scripts = [Script(("a",)), Script(("b", "c"), FinishReason.LENGTH)]
    reply: Any = openai.chat.completions.create(**ASK, n=2, seed=3, stream=stream)
    texts = ["", ""]
    ends = ["", ""]
    for chunk in reply if stream else [reply]:
        for choice in chunk.choices:
            texts[choice.index] += (choice.delta if stream else choice.message).content or ""
            ends[choice.index] = choice.finish_reason
    assert (texts, ends) == (["a", "bc"], ["stop", "length"])
    assert [request.seed for request in gate.requests] == [reply_seed(3, 1, 0), reply_seed(3, 1, 1)]


@pytest.mark.parametrize("stream", [False, True])
def test_log_probs(openai: OpenAI, stream: bool) -> None:
    reply: Any = openai.chat.completions.create(**ASK, logprobs=True, top_logprobs=2, stream=stream)
    chunks = reply if stream else [reply]
    tokens = [token for chunk in chunks for c in chunk.choices if c.logprobs for token in c.logprobs.content]
    assert [token.token for token in tokens] == ["Hello", ",", " you", "!"]  # without the end of the reply
    assert [each.logprob for each in tokens[0].top_logprobs] == [-1.0, -2.0]
    assert (tokens[0].logprob, tokens[0].bytes) == (-0.25, list(b"Hello"))
    with pytest.raises(openai_module.BadRequestError, match="top_logprobs"):
        openai.chat.completions.create(**ASK, logprobs=True, top_logprobs=21)


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls(openai: OpenAI, gate: ScriptedGate, stream: bool) -> None:
    calls = (ToolCall("look", '{"at": 1}'), ToolCall("look", "{}", "own-id"))
    tokens = ("So", ":", " <", "call>{", "}</call>", "<call>{}</call>")
    gate.scripts = [Script(tokens, calls=calls, content="So:")]
    called, *rest = received(openai, stream, tools=[TOOL])
    assert rest == ["So:", "tool_calls"]
    assert [(call.function.name, call.function.arguments) for call in called] == [("look", '{"at": 1}'), ("look", "{}")]
    assert called[1].id == "own-id"
    assert re.fullmatch("[a-zA-Z0-9]{9}", called[0].id)
    assert '"look"' in gate.requests[0].tools
    assert len(received(openai, stream, tools=[TOOL], parallel_tool_calls=False)[0]) == 1


@pytest.mark.parametrize("field", ["thinking_token_budget", "thinking_budget"])
def test_the_limit_of_a_thought_is_read(openai: OpenAI, gate: ScriptedGate, field: str) -> None:
    for tokens in (500, -1):
        openai.chat.completions.create(**ASK, extra_body={field: tokens})
    assert [each.thinking_tokens for each in gate.requests] == [500, None]


def test_effort_is_the_nearest_of_the_models_choices(openai: OpenAI, gate: ScriptedGate) -> None:
    gate.model = replace(MODEL, thinking=(ThinkingChoice.OFF, ThinkingChoice.ON))
    openai.chat.completions.create(**ASK, reasoning_effort="high")
    openai.chat.completions.create(**ASK, reasoning_effort="none")
    openai.chat.completions.create(**ASK)
    gate.model = replace(MODEL, thinking=(ThinkingChoice.LOW, ThinkingChoice.MEDIUM, ThinkingChoice.HIGH))
    openai.chat.completions.create(**ASK, reasoning_effort="max")
    chosen = [ThinkingChoice.ON, ThinkingChoice.OFF, None, ThinkingChoice.HIGH]
    assert [each.thinking for each in gate.requests] == chosen


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("logit_bias", {"5": 1}),
        ("temperature", "hot"),
        ("temperature", 10**400),
        ("temperature", 11),
        ("stop", ["x"] * 65),
        ("stop", [1]),
        ("stop", ["x", "x" * 1001]),
        ("max_tokens", 0),
        ("max_completion_tokens", 0),
        ("max_completion_tokens", -2),
        ("max_completion_tokens", "all"),
        ("n", 0),
        ("n", 17),
        ("top_logprobs", 3),
        ("functions", [{"name": "f"}]),
        ("audio", {"voice": "x", "format": "wav"}),
        ("messages", []),
        ("top_p", -0.1),
        ("min_p", 2),
        ("repetition_penalty", 11),
        ("tool_choice", {"type": "function", "function": {"name": "other"}}),
        ("messages[0].role", [{"role": "nobody", "content": ""}]),
        ("messages[0].content[0]", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(openai: OpenAI, gate: ScriptedGate, param: str, value: Any) -> None:
    with pytest.raises(openai_module.BadRequestError) as refused:
        openai.chat.completions.create(**ASK, extra_body={param.partition("[")[0]: value})
    assert (refused.value.param, refused.value.status_code) == (param, 400)
    assert not gate.requests


def test_fields_without_effect_are_named(openai: OpenAI) -> None:
    more: Any = {"user": "me", "extra_body": {"colour": "red", "bad name\n": 1}}
    raw = openai.chat.completions.with_raw_response.create(**ASK, **more)
    assert raw.headers["x-rdchat-ignored"] == "colour, user, and 1 more"
    many = {f"field_{at}": at for at in range(30)}
    raw = openai.chat.completions.with_raw_response.create(**ASK, extra_body=many)
    *named, last = raw.headers["x-rdchat-ignored"].split(", ")
    assert len(named) == 20
    assert set(named) <= many.keys()
    assert last == "and 10 more"


def test_another_installed_model_is_loaded_if_that_is_allowed(make_server: MakeServer, gate: ScriptedGate) -> None:
    with openai_client(make_server(may_load_models=True)) as client:
        assert [each.id for each in client.models.list()] == ["tiny/model", "other/model"]
        reply = client.chat.completions.create(**(ASK | {"model": "other/model"}))
        assert (reply.model, gate.loads) == ("other/model", ["other"])
        gate.load_failure = ApiError(500, "It is broken. Mend it.")
        gate.cards = (replace(gate.cards[0], name="third/model", path=gate.cards[0].path / "3"),)
    third = openai_client(make_server(may_load_models=True))
    broken = r"It is broken. Mend it."
    with third, pytest.raises(openai_module.InternalServerError, match=broken):
        third.chat.completions.create(**(ASK | {"model": "third/model"}))


def test_request_without_a_loaded_model_has_status_503(openai: OpenAI, gate: ScriptedGate) -> None:
    gate.model = None
    with pytest.raises(openai_module.InternalServerError) as failed:
        openai.chat.completions.create(**(ASK | {"model": ""}))
    assert failed.value.status_code == 503


def test_failure_within_a_stream_raises_an_error_in_the_client(openai: OpenAI, gate: ScriptedGate) -> None:
    gate.scripts = [Script(failure=ApiError(500, "The device stopped."))]
    chunks = []
    with pytest.raises(openai_module.APIError, match="The device stopped"):
        chunks.extend(openai.chat.completions.create(**ASK, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello, you!"


def test_a_client_that_leaves_stops_its_reply(openai: OpenAI, gate: ScriptedGate) -> None:
    gate.gate.shut()
    gate.gate.allow(1)
    with openai.chat.completions.create(**ASK, stream=True) as stream:
        assert next(iter(stream)).choices[0].delta.role == "assistant"
    wait_until(lambda: gate.cancelled == 1)
    gate.gate.open()
    assert openai.chat.completions.create(**ASK).choices[0].message.content == "Hello, you!"


def test_raw_texts(openai: OpenAI, gate: ScriptedGate) -> None:
    gate.scripts = [Script(("<think>", "x")), Script(("b",))]
    reply = openai.completions.create(model="tiny/model", prompt=["One", "Two"], logprobs=1, seed=5, max_tokens=6)
    assert [choice.text for choice in reply.choices] == ["<think>x", "b"]
    assert reply.choices[0].logprobs
    assert reply.choices[0].logprobs.tokens == ["<think>", "x"]
    assert reply.choices[0].logprobs.top_logprobs == [{"t0": -1.0}, {"t0": -1.0}]
    assert [request.text for request in gate.requests] == ["One", "Two"]
    assert gate.requests[0].sampling.max_tokens == 6
    chunks = list(openai.completions.create(model="", prompt="Three", stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "b"
    with pytest.raises(openai_module.BadRequestError) as refused:
        openai.completions.create(model="", prompt="x", suffix="y")
    assert refused.value.param == "suffix"


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
NAMED = {"type": "function", "function": {"name": "look"}}


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, AnswerShape(ShapeKind.JSON)),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}},
            AnswerShape(ShapeKind.SCHEMA, json.dumps(SCHEMA)),
        ),
        ({"type": "json_object", "schema": SCHEMA}, AnswerShape(ShapeKind.SCHEMA, json.dumps(SCHEMA))),
        ({"type": "regex", "regex": "[ab]+"}, AnswerShape(ShapeKind.REGEX, "[ab]+")),
    ],
)
def test_an_answer_in_a_shape(
    openai: OpenAI, gate: ScriptedGate, given: dict[str, Any], shape: AnswerShape | None
) -> None:
    openai.chat.completions.create(**ASK, response_format=given)  # type: ignore[call-overload]
    assert gate.requests[0].shape == shape


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"type": "json_schema"}, "must have a schema"),
        ({"type": "yaml"}, "has no format"),
        ({"type": "regex", "regex": ""}, "The regular expression is empty"),
        ({"type": "json_object", "schema": {"type": "nonsense"}}, "JSON schema cannot be used"),
        ({"type": "json_object", "schema": {"$ref": "http://127.0.0.1:9/s"}}, "rdchat fetches no schema"),
    ],
)
def test_invalid_response_format_is_refused(openai: OpenAI, given: dict[str, Any], words: str) -> None:
    with pytest.raises(openai_module.BadRequestError, match=words) as refused:
        openai.chat.completions.create(**ASK, response_format=given)  # type: ignore[call-overload]
    assert str(refused.value.param).startswith("response_format")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "choice", ["required", "any", {"type": "any"}, {"type": "required"}, {"type": "tool", "name": "look"}, NAMED]
)
def test_a_call_that_the_client_insists_on(openai: OpenAI, gate: ScriptedGate, choice: Any, stream: bool) -> None:
    gate.scripts = [Script(('{"name": "look", ', '"arguments": {"at": 1}}'))]
    gate.model = replace(MODEL, tool_markers=None)
    ((call,), *rest) = received(openai, stream, tools=[TOOL], tool_choice=choice)
    assert (call.function.name, call.function.arguments) == ("look", '{"at": 1}')
    assert rest == ["", "tool_calls"]
    shape = gate.requests[0].shape
    assert shape
    assert '{"name": {"const": "look"}' in shape.source
    assert '"look"' in gate.requests[0].tools


def test_a_call_that_was_cut_off_stays_text(openai: OpenAI, gate: ScriptedGate) -> None:
    gate.scripts = [Script(('{"name": "lo',), FinishReason.LENGTH)]
    assert received(openai, False, tools=[TOOL], tool_choice="required") == ([], '{"name": "lo', "length")


LISTED: Any = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}, "required": ["a"]}


@pytest.mark.parametrize(("choice", "offered"), [({"type": "auto"}, True), ({"type": "none"}, False), ("none", False)])
def test_tool_choice_auto_or_none_sets_no_shape(openai: OpenAI, gate: ScriptedGate, choice: Any, offered: bool) -> None:
    openai.chat.completions.create(**ASK, tools=[TOOL], tool_choice=choice, stop=["x" * 1000])
    assert (bool(gate.requests[0].tools), gate.requests[0].shape) == (offered, None)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("markers", [None, ("<call>", "</call>")])
def test_tools_beside_a_format_are_a_call_or_an_answer(
    openai: OpenAI, gate: ScriptedGate, stream: bool, markers: Any
) -> None:
    gate.model = replace(MODEL, tool_markers=markers)
    told = []
    answer = '{"name": "look", "arguments": {}, "why": "<call>{}</call>"}'
    for text in ('{"name": "look", "arguments": {"at": 1}}', answer, '{"name": "other", "arguments": {}}'):
        gate.scripts = [Script((text,))]
        calls, *rest = received(openai, stream, tools=[TOOL], response_format={"type": "json_object"})
        told.append(([call.function.arguments for call in calls], *rest))
    assert told == [
        (['{"at": 1}'], "", "tool_calls"), ([], answer, "stop"), ([], '{"name": "other", "arguments": {}}', "stop")
    ]  # fmt: skip
    request = gate.requests[0]
    assert request.shape
    assert '{"type": "object"}]' in request.shape.source
    assert '"look"' in request.tools


@pytest.mark.parametrize("stream", [False, True])
def test_what_no_grammar_enforces_is_named(openai: OpenAI, gate: ScriptedGate, stream: bool) -> None:
    tool: Any = {"type": "function", "function": {"name": "fill", "parameters": LISTED}}
    gate.scripts = [Script(('{"name": "fill", "arguments": {"a": []}}',))]
    create = openai.chat.completions.with_raw_response.create
    raw = create(**ASK, tools=[TOOL, tool], tool_choice="required", stream=stream)
    assert raw.headers["x-rdchat-unenforced"] == "fill.uniqueItems"
    shape = gate.requests[0].shape
    assert shape
    assert json.loads(shape.unenforced) == {"look": True, "fill": LISTED}
    raw = create(**ASK, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": LISTED}})
    assert raw.headers["x-rdchat-unenforced"] == "uniqueItems"


def test_what_is_strict_is_enforced_whole_or_refused_by_the_engine(openai: OpenAI, gate: ScriptedGate) -> None:
    function = {"name": "fill", "parameters": LISTED, "strict": True}
    openai.chat.completions.create(**ASK, tools=[{"type": "function", "function": function}], tool_choice="required")  # type: ignore[call-overload]
    strict = {"name": "x", "schema": LISTED, "strict": True}
    openai.chat.completions.create(**ASK, response_format={"type": "json_schema", "json_schema": strict})  # type: ignore[call-overload]
    for request in gate.requests:
        assert request.shape
        assert ("uniqueItems" in request.shape.source, request.shape.unenforced) == (True, "")
        assert "strict" not in request.tools


def test_nested_fields_without_effect_are_named(openai: OpenAI) -> None:
    tool = {"type": "function", "function": {"name": "f", "colour": 1, "strict": False}, "cache_control": {}}
    more: Any = {
        "messages": [{"role": "user", "content": "Hi", "weight": 1}] * 2,
        "tools": [tool],
        "response_format": {"type": "text", "shade": 1},
        "stream_options": {"depth": 1},
    }
    raw = openai.chat.completions.with_raw_response.create(**(ASK | more))
    named = ("messages.weight", "response_format.shade", "stream_options.depth")
    assert raw.headers["x-rdchat-ignored"] == ", ".join((*named, "tools.cache_control", "tools.function.colour"))


def test_history_and_tools_of_older_and_newer_clients(openai: OpenAI, gate: ScriptedGate) -> None:
    messages: Any = [
        *ASK["messages"],
        {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": {"at": 1}}},
        {"role": "function", "name": "look", "content": "Nothing."},
    ]
    tools: Any = [TOOL, {"type": "web_search_preview"}]
    raw = openai.chat.completions.with_raw_response.create(model="", messages=messages, tools=tools, seed=1)
    assert raw.headers["x-rdchat-ignored"] == "tools.web_search_preview"
    assert gate.requests[0].seed == reply_seed(1, 3, 0)
    _, asked, result = gate.requests[0].messages
    assert asked.tool_calls == (ToolCall("look", '{"at": 1}'),)
    assert (result.role, result.name, result.content) == (Role.TOOL, "look", "Nothing.")
