"""Law: each text and image of a request reaches the model, or is named to the client, or the request is refused."""

import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as some

from rdchat.errors import RdchatError
from rdchat.inference.api import (
    ChatMessage,
    DraftSettings,
    FinishReason,
    ReplyEnd,
    Role,
    SamplingDefaults,
    Statistics,
    ToolCall,
)
from rdchat.inference.prompts.shape_grammar import check_grammar
from rdchat.server.interfaces.anthropic_messages import Messages
from rdchat.server.interfaces.chat_completions import ChatCompletions
from rdchat.server.interfaces.fields import ApiError, Fields
from rdchat.server.interfaces.reply_request import Choice
from rdchat.server.interfaces.responses import Responses
from tests.server.interfaces.sample_requests import IMAGES, REQUESTS, SECRET, texts_of

INTERFACES: dict[str, Any] = {"chat": ChatCompletions, "messages": Messages, "responses": Responses}
_INFO = SimpleNamespace(
    context_length=8192, name="m", sampling=SamplingDefaults(), thinking=(), tool_markers=("<c>", "</c>"),
    trained_for_tools=True, sees=False,
)  # fmt: skip

_CHOICE = Choice(0, 0, "Hm", "So", calls=(ToolCall("look", "{}"),),
                 end=ReplyEnd(0, "", (1,), "", FinishReason.EOS, Statistics()))  # fmt: skip

TEXT = some.just("@")
_KINDS = some.sampled_from((
    "text", "input_text", "output_text", "refusal", "thinking", "reasoning", "document", "search_result", "compaction",
    "tool_reference", "summary_text", "container_upload", "something_new", "file", "input_file", "mcp_tool_use",
))  # fmt: skip
_SOURCES = some.fixed_dictionaries({"type": some.just("text"), "media_type": some.just("text/plain"), "data": TEXT})
_CITATIONS = some.lists(some.fixed_dictionaries({"cited_text": TEXT, "title": TEXT, "encrypted_index": some.just("#")}))
_INNER = some.lists(some.fixed_dictionaries({"type": some.just("text"), "text": TEXT}), min_size=1, max_size=2)
_DOCUMENT = some.fixed_dictionaries({"type": some.just("content"), "content": TEXT | _INNER})
_PART = some.fixed_dictionaries(
    {"type": _KINDS},
    optional={
        "text": TEXT, "title": TEXT, "content": TEXT | _INNER, "summary": TEXT | _INNER, "thinking": TEXT | _INNER,
        "tool_name": TEXT, "refusal": TEXT, "source": TEXT | _SOURCES | _DOCUMENT, "context": TEXT,
        "citations": _CITATIONS, "filename": TEXT, "new_field": TEXT | _INNER,
    },
)  # fmt: skip
# Each image has bytes of its own, which are not text; one that is not in the request may be a placeholder.
_IMAGE = some.sampled_from((
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,#"}},
    {"type": "input_image", "image_url": "data:image/png;base64,#", "detail": "low"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "#"}},
    {"type": "image", "source": {"type": "url", "url": "https://example.com/#"}},
))  # fmt: skip
_JSON = some.dictionaries(some.just("found"), TEXT | some.integers() | some.lists(TEXT), max_size=1) | some.integers()
_CONTENT = TEXT | some.lists(_PART | TEXT | _IMAGE, min_size=1, max_size=3)
_ARGUMENTS = some.dictionaries(some.sampled_from("ab"), TEXT | some.lists(TEXT, max_size=2), max_size=2)
_FUNCTION = some.fixed_dictionaries({
    "name": TEXT, "description": TEXT,
    "parameters": some.fixed_dictionaries({"type": some.just("object"), "properties": some.dictionaries(
        TEXT, some.fixed_dictionaries({"type": some.just("string"), "description": TEXT, "enum": some.lists(TEXT)}))}),
})  # fmt: skip
_FORM = some.fixed_dictionaries({"type": some.just("grammar"), "syntax": some.just("lark"), "definition": TEXT})


def _tool(kind: str, **fields: Any) -> some.SearchStrategy[dict[str, Any]]:
    return some.fixed_dictionaries({"type": some.just(kind), **fields})


_CALL = _tool("function", id=some.just("c1"), function=some.fixed_dictionaries({
    "name": TEXT, "arguments": _ARGUMENTS.map(json.dumps)})) | _tool(
    "custom", id=some.just("c1"), custom=some.fixed_dictionaries({"name": TEXT, "input": TEXT}))  # fmt: skip
_CHAT_MESSAGE = some.fixed_dictionaries(
    {"role": some.sampled_from(("system", "user", "assistant", "tool", "developer")), "content": _CONTENT},
    optional={"tool_calls": some.lists(_CALL, max_size=2), "reasoning_content": TEXT, "name": TEXT,
              "reasoning_details": some.lists(_PART, max_size=2), "new_field": TEXT},
)  # fmt: skip
_BLOCK = _PART | _IMAGE | _tool("tool_use", id=some.just("c1"), name=TEXT, input=_ARGUMENTS) | _tool(
    "tool_result", tool_use_id=some.just("c1"), content=_CONTENT | _JSON, is_error=some.booleans()) | _tool(
    "server_tool_use", id=some.just("s"), name=TEXT, input=_ARGUMENTS)  # fmt: skip
_ITEM = (
    some.fixed_dictionaries({"type": some.just("message"), "role": some.sampled_from(("user", "assistant", "system")),
                             "content": _CONTENT})
    | _tool("function_call", call_id=some.just("c1"), name=TEXT, arguments=_ARGUMENTS.map(json.dumps))
    | _tool("custom_tool_call", call_id=some.just("c1"), name=TEXT, input=TEXT)
    | _tool("local_shell_call", call_id=some.just("c1"), action=_ARGUMENTS)
    | _tool("function_call_output", call_id=some.just("c1"), output=_CONTENT | _JSON)
    | _tool("custom_tool_call_output", call_id=some.just("c1"), output=_CONTENT | _JSON)
    | some.fixed_dictionaries({"type": some.just("reasoning")}, optional={
        "content": _INNER, "summary": _INNER, "encrypted_content": some.just("gAAAAA==")})
    | _tool("web_search_call", query=TEXT)
)  # fmt: skip
_CUSTOM = _tool("custom", name=TEXT, description=TEXT, format=_FORM)
_FLAT = _FUNCTION.map(lambda function: {"type": "function", **function})
BODIES: dict[str, Any] = {
    "chat": some.fixed_dictionaries({
        "messages": some.lists(_CHAT_MESSAGE, min_size=1, max_size=3),
        "tools": some.lists(_tool("function", function=_FUNCTION) | _tool("web_search", name=TEXT), max_size=2),
    }),
    "messages": some.fixed_dictionaries({
        "max_tokens": some.just(9), "system": TEXT | _INNER,
        "messages": some.lists(some.fixed_dictionaries({
            "role": some.sampled_from(("user", "assistant")), "content": TEXT | some.lists(_BLOCK, max_size=3),
        }), min_size=1, max_size=3),
        "tools": some.lists(_FUNCTION.map(lambda each: {
            "name": each["name"], "description": each["description"], "input_schema": each["parameters"],
        }) | _tool("bash_20250124", name=TEXT) | _tool("web_search_20250305", name=TEXT), max_size=2),
    }),
    "responses": some.fixed_dictionaries({
        "instructions": TEXT, "input": TEXT | some.lists(_ITEM, min_size=1, max_size=4),
        "tools": some.lists(_FLAT | _CUSTOM | _tool("web_search", name=TEXT) | _tool(
            "namespace", name=TEXT, description=TEXT, tools=some.lists(_FLAT | _CUSTOM, max_size=2)), max_size=2),
    }),
}  # fmt: skip


def _numbered(value: Any, numbers: Iterator[int]) -> Any:
    """Return a body with a text of its own in each place; those inside of JSON too."""
    match value:
        case str():
            value = re.sub("#", lambda _: b64encode(f"image-{next(numbers)}-".encode()).decode(), value)
            return re.sub("@", lambda _: f"text-{next(numbers)}-", value)
        case list():
            return [_numbered(each, numbers) for each in value]
        case dict():
            return {_numbered(key, numbers): _numbered(each, numbers) for key, each in value.items()}
    return value


@pytest.mark.parametrize("interface", INTERFACES)
@settings(max_examples=80)
@given(data=some.data())
def test_no_text_of_a_request_vanishes(interface: str, data: some.DataObject) -> None:
    body = _numbered(data.draw(BODIES[interface]), count())
    try:
        made = INTERFACES[interface]().read_request(Fields(body))
        request = made.request(0, _INFO, DraftSettings(), "p")
    except (ApiError, RdchatError):
        return
    given_to_model = json.dumps([asdict(each) for each in request.messages], default=str) + request.tools
    for text, names in texts_of(body):
        assert text in given_to_model or names & {*made.ignored}, (text, sorted(names), made.ignored)
    sent = Counter(re.findall(r'(?:;base64,|"data": ")([A-Za-z0-9+/=]+)"', json.dumps(body)))
    kept = Counter(b64encode(image.data).decode() for image in made.images)
    assert not kept - sent
    assert (sent - kept).total() <= given_to_model.count("[image") or "messages.content.tool_result" in made.ignored
    assert (len(made.without_effect(_INFO)) > len(made.ignored)) == bool(kept), "a client is told of a blind model"


def test_the_input_of_a_custom_call_reaches_the_model() -> None:
    call = {"type": "custom", "id": "c1", "custom": {"name": "patch", "input": "+ a line"}}
    messages = [
        {"role": "user", "content": "Patch it."},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Done."},
    ]
    made = INTERFACES["chat"]().read_request(Fields({"messages": messages}))
    asked = made.request(0, _INFO, DraftSettings(), "p").messages
    (made_of_it,) = asked[1].tool_calls
    assert (made_of_it.name, json.loads(made_of_it.arguments)) == ("patch", {"input": "+ a line"})


def _nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the path of each value in a body, and the value."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key), each
        yield from _nodes(each, (*path, key))


def _changed(value: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """Return a body with another value at a path."""
    if not path:
        return change(value)
    first, *rest = path
    made = {first: _changed(value[first], tuple(rest), change)}
    return value | made if isinstance(value, dict) else [made.get(at, each) for at, each in enumerate(value)]


def _put(value: Any) -> Callable[[Any], Any]:
    return lambda _old: value


def _is_text(path: tuple[Any, ...], value: Any) -> bool:
    """Return whether a value is a text; bytes are none."""
    return isinstance(value, str) and (path[-1] == "text" or not value.startswith("data:"))


def _with_word(text: str) -> str:
    return f"{text}text-7-" if not text.startswith("{") else text.replace('"a"', '"text-7-"')


def _given_to_model(interface: str, body: dict[str, Any]) -> tuple[str, Any]:
    made = INTERFACES[interface]().read_request(Fields(body))
    request = made.request(0, _INFO, DraftSettings(), "p")
    messages = [asdict(replace(each, images=())) for each in request.messages]
    return json.dumps(messages, ensure_ascii=False) + request.tools, made


@pytest.mark.parametrize("interface", INTERFACES)
def test_returned_parts_are_accepted_and_their_bytes_are_not_in_the_prompt(interface: str) -> None:
    prompt, made = _given_to_model(interface, REQUESTS[interface])
    assert SECRET not in prompt
    assert len(made.images) == IMAGES[interface]
    assert "page" not in prompt, "a citation is not a word of the message"
    assert [each["function"]["name"] for each in made.tools] == ["look"] + ["moresee"] * (interface == "responses")


@pytest.mark.parametrize(
    ("interface", "path"),
    [(name, path) for name, body in REQUESTS.items() for path, each in _nodes(body) if _is_text(path, each)],
)
def test_each_text_of_a_sample_is_in_the_prompt_or_named(interface: str, path: tuple[Any, ...]) -> None:
    body = _changed(REQUESTS[interface], path, _with_word)
    try:
        prompt, made = _given_to_model(interface, body)
    except ApiError:
        # A kind or a role that does not exist.
        assert path[-1] in {"type", "role"}
        return
    assert all(text in prompt or names & {*made.ignored} for text, names in texts_of(body)), made.ignored


_ODD_SCHEMAS: list[Any] = [
    {"type": "object", "properties": {"coin": {"type": "string"}, "required": ["coin"]}},
    {"type": "object", "properties": {"a": None}},
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": "0"}}},
    {"type": "object", "properties": [1]},
    {"type": "object", "required": True},
    {"$defs": []},
    {"definitions": None},
    {"type": "object", "properties": {"a": {"enum": "x"}}},
    {"type": "object", "properties": {"a": {"anyOf": ["x"]}}},
    {"type": "object", "properties": {"a": {"items": 5}}},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/y"}, "b": {"$ref": "#/$defs/z"}},
     "$defs": {"y": {"$ref": "#/$defs/w"}, "w": {"minimum": "0"}, "z": {"$ref": "#/$defs/none"}}},
]  # fmt: skip


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("schema", _ODD_SCHEMAS)
def test_a_malformed_schema_leaves_the_other_tools_to_be_called(schema: Any, first: bool, strict: bool) -> None:
    good = {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "string"}}}
    tools = [
        {"type": "function", "function": {"name": name, "parameters": parameters, "strict": strict}}
        for name, parameters in ([("bad", schema), ("good", good)] if first else [("good", good), ("bad", schema)])
    ]
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "tools": tools, "tool_choice": "required"}
    shape = ChatCompletions().read_request(Fields(body)).shape
    assert shape is not None
    check_grammar(shape)
    assert shape.left_out == ("bad",)
    body["tool_choice"] = {"type": "function", "function": {"name": "bad"}}
    with pytest.raises(ApiError, match="schema cannot be used"):
        ChatCompletions().read_request(Fields(body))


@pytest.mark.parametrize(
    "tools",
    [
        [{"type": "function", "function": {"name": "odd", "parameters": []}}],
        [5],
        [{"type": "function"}, {"type": "function", "function": {"name": "look"}}],
    ],
)
def test_a_damaged_tool_that_must_be_called_is_refused(tools: list[Any]) -> None:
    choice = {"type": "function", "function": {"name": "odd"}}
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": tools, "tool_choice": choice}
    with pytest.raises(ApiError):
        ChatCompletions().read_request(Fields(body))


_ODD_VALUES: list[Any] = [None, True, 5, "x", [], {}, [5], ["x"], [[]], [{}], {"x": 5}, {"type": {}}, {"type": "x"}]
_OPTIONS: dict[str, dict[str, Any]] = {
    "chat": {
        "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
            {"type": "function", "function": {"name": "look"}}, {"namespace": "more", "name": "see"}]}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
        "stop": ["x"], "stream_options": {"include_usage": True}, "thinking": {"type": "enabled"}, "logit_bias": {},
        "reasoning": {"effort": "low"}, "chat_template_kwargs": {"enable_thinking": True}, "modalities": ["text"],
    },
    "messages": {
        "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": True}, "stop_sequences": ["x"],
        "thinking": {"type": "enabled", "budget_tokens": 5}, "output_config": {"effort": "low", "format": {
            "type": "json_schema", "schema": {"type": "object"}}},
    },
    "responses": {
        "tool_choice": {"type": "function", "name": "look"}, "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low", "summary": "auto"}, "text": {"format": {"type": "text"}}, "store": True,
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("interface", INTERFACES)
def test_an_odd_value_in_any_place_is_read_or_refused(interface: str) -> None:
    """Schemathesis found a part whose `type` is an object: it failed unexpectedly."""
    body = REQUESTS[interface] | _OPTIONS[interface]
    for path, _ in _nodes(body):
        for odd in _ODD_VALUES:
            with suppress(ApiError):
                made = INTERFACES[interface]().read_request(Fields(_changed(body, path, _put(odd))))
                form = INTERFACES[interface]().format(made, "m", "1")
                json.dumps(form.complete([_CHOICE]))


@pytest.mark.parametrize(("named", "thought"), [("Also", "First\nAlso"), ("First", "First"), ("", "First")])
def test_thoughts_in_parts_and_under_a_name_are_one_thought(named: str, thought: str) -> None:
    message = {"role": "assistant", "content": [{"type": "thinking", "text": "First"}], "reasoning_content": named}
    body = {"messages": [message, {"role": "user", "content": "Hi"}]}
    made = ChatCompletions().read_request(Fields(body))
    assert made.prompts[0].messages[0].thought == thought


_USER = {"role": "user", "content": "Hi"}


def _read_result(interface: str, result: Any) -> tuple[ChatMessage, tuple[str, ...]]:
    """Return the message that a tool's result becomes, and the names that the client is told."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    bodies: dict[str, Any] = {
        "chat": {"messages": [_USER, {"role": "assistant", "tool_calls": [call]},
                              {"role": "tool", "tool_call_id": "c1", "content": result}]},
        "messages": {"max_tokens": 9, "messages": [_USER, {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": result}]}]},
        "responses": {"input": [_USER, {"type": "function_call_output", "call_id": "c1", "output": result}]},
    }  # fmt: skip
    made = INTERFACES[interface]().read_request(Fields(bodies[interface]))
    (message,) = (each for each in made.prompts[0].messages if each.role is Role.TOOL)
    return message, made.ignored


_RECORD_KINDS = some.sampled_from(("bug", "text", "image", "image_url", "document", "file", "search_result", "message"))
_PROTOCOL_WORDS = some.sampled_from((
    "text", "id", "status", "role", "index", "title", "source", "content", "data", "url", "file", "file_id", "detail",
    "annotations", "call_id", "signature", "image_url", "logprobs", "name",
))  # fmt: skip
_LEAF = some.just("?")
_OWN = some.recursive(
    _LEAF, lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.integers(0, 9), inner, max_size=3)
)
_RECORD = some.fixed_dictionaries({"type": _RECORD_KINDS, "own": _OWN}) | some.dictionaries(_PROTOCOL_WORDS, _OWN).map(
    lambda record: {"own": "?"} | record
)
_RESULTS = _RECORD | some.lists(_RECORD | _LEAF | some.just({"type": "text", "text": "?"}), min_size=1, max_size=3)


def _with_own_words(value: Any, words: list[str]) -> Any:
    """Return a value with a short word of its own in each leaf, and in each key that is no word of a protocol."""

    def word() -> str:
        words.append(f"{len(words):x}q")
        return words[-1]

    match value:
        case dict():
            return {
                key if isinstance(key, str) and key != "own" else word(): each if key == "type" else _with_own_words(
                    each, words)
                for key, each in value.items()
            }  # fmt: skip
        case list():
            return [_with_own_words(each, words) for each in value]
    return word()


@pytest.mark.parametrize("interface", INTERFACES)
@settings(max_examples=80)
@given(result=_RESULTS)
def test_each_key_and_leaf_of_a_tools_result_reaches_the_model(interface: str, result: Any) -> None:
    words: list[str] = []
    message, _ = _read_result(interface, _with_own_words(result, words))
    assert not [word for word in words if not re.search(rf"\b{word}\b", message.content)], message.content


_BUG = {"type": "bug", "id": "A7", "status": "open", "title": "Zebra crash"}
_ROW = {"type": "text", "text": "call Ada", "id": "T1", "status": "late", "index": "4"}
_PICTURE = b64encode(b"\x89PNG").decode()
_ADDRESS = f"data:image/png;base64,{_PICTURE}"


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize(
    "result",
    [
        _BUG,
        [_BUG, {"type": "task", "id": "B9"}],
        [_ROW],
        {"text": "call Ada", "id": "T1"},
        {"type": "error", "status": "failed", "id": 5},
        5,
        False,
        {},
        [[]],
        ["a", "b"],
        [{"url": "a", "data": [1]}, [2]],
        {"type": "file", "file": "a.txt"},
        {"type": "document", "source": {"type": "weather", "data": "sunny"}},
        {"type": "search_result", "title": "A", "content": [_ROW]},
    ],
)
def test_json_of_a_tools_own_is_that_json(interface: str, result: Any) -> None:
    message, ignored = _read_result(interface, result)
    assert json.loads(message.content) == result
    assert not ignored


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize(
    ("result", "text", "images"),
    [
        ([], "", 0),
        ([{"type": "text", "text": "a"}, _BUG], f"a\n{json.dumps(_BUG)}", 0),
        ({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, "a", 0),
        (
            [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": _ADDRESS, "detail": "low"}],
            "a",
            1,
        ),
        ({"type": "computer_screenshot", "image_url": _ADDRESS}, "", 1),
        ({"screen": _ADDRESS, "id": "A7"}, '{"screen": "[image/png]", "id": "A7"}', 0),
        ([{"type": "image", "data": _PICTURE, "mimeType": "image/png", "id": "A7"}, "b"], '{"id": "A7"}\nb', 1),
        ([{"type": "image", "id": "A7"}], '{"type": "image", "id": "A7"}', 0),
        ({"type": "tool_reference", "tool_name": "look"}, "look", 0),
    ],
)
def test_a_part_of_a_tools_result_is_its_text_or_its_image(interface: str, result: Any, text: str, images: int) -> None:
    message, _ = _read_result(interface, result)
    assert (message.content, len(message.images)) == (text, images)
