"""Reading calls and thoughts takes time in proportion to the text, whatever a model repeats in it."""

import importlib
import json
from itertools import accumulate

import pytest

from rdchat.inference.api import ChatMessage, PartsReader, Role, ToolCall, split_thoughts
from rdchat.inference.calls.offered import OfferedTools
from rdchat.inference.decoding.tool_calls import Parse, call_marks, find_tool_calls
from rdchat.inference.prompts.template_fitting import CHANNEL_MARKERS, fitted
from tests.growth import SHAPES, Text, assert_grows_no_faster, repeated
from tests.inference.calls.tools import TOOLS

_OFFERED = json.dumps(TOOLS)
# Parsers of mlx-lm, and the ways in which a call of the family begins.
_FORMS = {
    "glm47": ("<tool_call>look", "<arg_key>", "</arg_key>", "<arg_value>"),
    "longcat": ("<longcat_tool_call>look", "<longcat_arg_key>", "<longcat_arg_value>"),
    "minimax_m2": ("<minimax:tool_call>", "<invoke name=", '<invoke name="look">', '<parameter name="'),
    "qwen3_coder": ("<tool_call>", "<function=look>", "<function=", "<parameter=path>", "<parameter="),
    "kimi_k2": ("<|tool_calls_section_begin|>", "<|tool_call_begin|>functions.look:0", "<|tool_call_argument_begin|>"),
    "mistral": ("[TOOL_CALLS]", "look[CALL_ID]", "look[ARGS]", 'look{"path": "', '[TOOL_CALLS]x{"a": "'),
    "function_gemma": ("<start_function_call>", "call:look{", "path:<escape>"),
    "gemma4": ("<|tool_call>", "call:look{", 'path:<|"|>'),
    "pythonic": ("<|tool_call_start|>", "[look(", "path='"),
    "json_tools": ("<tool_call>", '{"name": "look"', '{"name": "look", "arguments": {"path": "'),
}
# Pieces of JSON that look like a call and are less than one, which once took time by the square.
_HARD = (
    '{"name": "look", ', '{"name": "look", "arguments": {"path": "a"}}', '{"name": "look"}</tool_call> ', "{",
    '{"name": "look", "arguments": {', '<tool_call>{"name": "look"}', '{   "name"   ', '{"name": "look", "name": {',
    '{"name": "look", "arguments": {"path": "a"}} </tool_call>x',
)  # fmt: skip
_CHANNEL = (
    "<|channel|>", "to=functions.look", "to=functions.", " to=functions.look<|channel|>", "<|constrain|>",
    'to=functions.x<|message|>{"a": "',
)  # fmt: skip
_REPEATED = (" ", "a", "7", '"', "'", "x ", "\n", "<", "\\", "{", "=", ",")


def _parser(family: str) -> tuple[Parse, tuple[str, str]]:
    module = importlib.import_module(f"mlx_lm.tool_parsers.{family}")
    return module.parse_tool_call, (module.tool_call_start, module.tool_call_end)


def _texts(openings: tuple[str, ...], end: str) -> list[Text]:
    """Return each beginning of a call with each letter behind it in growing numbers, and itself in growing numbers."""
    begun = list(accumulate(openings))
    texts = [repeated(letter, opening, f"!{end}") for opening in begun for letter in _REPEATED]
    for opening in begun:
        texts += [repeated(opening), repeated(opening, after=end)]
        texts += [repeated(f"{opening}!{end}"), repeated(f'{opening}"')]
    return texts


def _check_calls(parse: Parse | None, marks: tuple[str, str], texts: list[Text], longest: int) -> None:
    def whole(text: str) -> None:
        find_tool_calls(text, marks, parse, _OFFERED, answers=((0, len(text)),), ended=True)

    for text in texts:
        assert_grows_no_faster(whole, text, longest)


def test_reading_calls_grows_with_the_text() -> None:
    parse, marks = _parser("json_tools")
    texts = [repeated(letter, each, f"x{marks[1]}") for each in accumulate(_FORMS["json_tools"]) for letter in " a"]
    _check_calls(parse, marks, [*texts, *map(repeated, _HARD)], 16_000)


@pytest.mark.slow
@pytest.mark.parametrize("family", _FORMS)
def test_reading_calls_of_all_shapes_grows_with_the_text(family: str) -> None:
    parse, marks = _parser(family)
    hard = _HARD if marks[0] == "<tool_call>" else ()
    _check_calls(parse, marks, [*_texts(_FORMS[family], marks[1]), *map(repeated, hard), *SHAPES.values()], 16_000)


@pytest.mark.parametrize("opening", _CHANNEL)
@pytest.mark.parametrize("letter", ["a", " ", "7"])
def test_reading_headers_of_channels_grows_with_the_text(opening: str, letter: str) -> None:
    text = repeated(letter, opening, " ! <|message|>x")
    _check_calls(None, CHANNEL_MARKERS, [text, repeated(opening)], 64_000)
    assert_grows_no_faster(split_thoughts, text, 64_000)


def _streamed(text: str) -> None:
    reader = PartsReader(call_marks=call_marks(None, CHANNEL_MARKERS, _OFFERED))
    for at in range(0, len(text), 8):
        reader.add_text(text[at : at + 8])
    reader.finish_reply(ended=True)


@pytest.mark.parametrize("name", ["only blanks", "thoughts and answers"])
def test_telling_parts_apart_grows_with_the_text(name: str) -> None:
    assert_grows_no_faster(split_thoughts, SHAPES[name], 64_000)
    text = repeated("<think>\nab\n</think>\n\ncd\n\n") if name == "thoughts and answers" else SHAPES[name]
    assert_grows_no_faster(_streamed, text, 32_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_telling_parts_of_all_shapes_apart_grows_with_the_text(name: str) -> None:
    assert_grows_no_faster(split_thoughts, SHAPES[name])


def test_a_schema_that_refers_to_itself_is_read_once() -> None:
    branches = {"anyOf": [{"$ref": "#/$defs/a"}] * 9 + [{"type": "integer"}]}
    schema = {"type": "object", "$defs": {"a": branches}, "properties": {"x": {"$ref": "#/$defs/a"}}}
    tools = OfferedTools([{"type": "function", "function": {"name": "f", "parameters": schema}}])
    assert tools.value("f", "x", "7") == "7"


def _reads_branches(text: str) -> None:
    many = len(text) // 20
    parts = {str(at): {"anyOf": [{"$ref": f"#/$defs/{at + 1}"}] * 2} for at in range(many)}
    schema = {"$defs": parts, "properties": {"x": {"$ref": "#/$defs/0"}}}
    OfferedTools([{"name": "f", "parameters": schema}]).value("f", "x", "hello")


def test_reading_a_schema_grows_with_its_parts() -> None:
    assert_grows_no_faster(_reads_branches, repeated("a"), 100_000)


def _fits(text: str) -> None:
    many = len(text) // 10
    calls = tuple(ToolCall("look", "{}", str(at)) for at in range(many))
    apart = [ChatMessage(Role.ASSISTANT, "", tool_calls=(call,)) for call in calls]
    results = [ChatMessage(Role.TOOL, "b", tool_call_id=str(at)) for at in reversed(range(many))]
    for messages in ([*apart, *results], [ChatMessage(Role.ASSISTANT, "", tool_calls=calls), *results]):
        for _ in zip(range(3), fitted(messages), strict=False):
            pass


def test_giving_results_to_calls_grows_with_both() -> None:
    assert_grows_no_faster(_fits, repeated("a"), 20_000)
