"""Laws: a call is read back as it was written, also without a mark, or it stays text; a stream says the same."""

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as some

from rdchat.inference.api import PartsReader
from rdchat.inference.calls.marked_forms import CHANNELS, READERS
from rdchat.inference.decoding.tool_calls import Parse, call_marks, find_tool_calls
from rdchat.inference.prompts.template_fitting import CHANNEL_MARKERS
from tests.inference.calls.call_forms import FORMS, json_text
from tests.inference.calls.tools import TOOLS

_PIECES = (
    "a", " ", "\n", "\t", "\\", '"', "'", "`", "{", "}", "[", "]", "<", ">", ",", ":", "=", "</", "null", "None",
    "true", "007", "3.0", "\r\n", "é", "漢", "😀", "\\n", "\\u0041", "<![CDATA[", "]]>", "&amp;", "path", "look(",
    "_stand_in_0_", "<tool_call>", "</tool_call>", "</function>", "<function=look>", "<parameter=path>", "</parameter>",
    "<arg_key>", "</arg_value>", "</arg_key>", "<arg_value>", "</invoke>", "[TOOL_CALLS]", "[ARGS]", '<|"|>',
    "<escape>", "<tool_call|>", "<|tool_call_end|>", "<|close|>argument<|sep|>", "</param>", "<longcat_arg_key>",
    "</longcat_arg_value>", "</atem:parameter>", "<|tool_call_argument_begin|>", "```", "<think>", "</think>",
)  # fmt: skip
_TEXTS = some.lists(some.sampled_from(_PIECES), max_size=8).map("".join)
_PLAIN = some.text("ab 1.é漢😀-_\n", max_size=12)
_NUMBERS = some.integers(-(10**25), 10**25)
# The check of arguments answers a model that writes them for a number or a boolean.
_WORDS = some.sampled_from(("many", "all of them", "  a few ", "yes", "TRUE", "\u221e"))


def _arguments(texts: some.SearchStrategy[str]) -> some.SearchStrategy[dict[str, Any]]:
    flat = texts | _NUMBERS | some.booleans() | some.none()
    names = some.sampled_from(("a", "b-c", "d_1"))
    deep = some.dictionaries(names, flat | some.lists(flat, max_size=2), max_size=2)
    kinds = {
        "path": texts, "content": texts, "note": texts,
        "count": _NUMBERS | _WORDS,
        "share": _NUMBERS | _WORDS | some.just(0.25), "deep": deep, "items": some.lists(flat | deep, max_size=3),
        "flag": some.booleans() | _WORDS,
    }  # fmt: skip
    return some.fixed_dictionaries({}, optional=kinds)


_OFFERED = json.dumps(TOOLS)


@cache
def _parser(form: str) -> tuple[Parse, tuple[str, str]]:
    module = import_module(f"mlx_lm.tool_parsers.{form}")
    return module.parse_tool_call, (module.tool_call_start, module.tool_call_end)


def _read(form: str, text: str) -> tuple[list[tuple[str, Any]], str]:
    parse, marks = _parser(form)
    whole = f"So:{marks[0]}{text}{marks[1]}"
    spans = ((0, len(whole)),)
    calls, left = find_tool_calls(whole, marks, parse, _OFFERED, answers=spans, ended=True)
    return [(each.name, json.loads(each.arguments)) for each in calls], "".join(whole[a:b] for a, b in left)


def test_each_form_of_mlx_lm_has_a_reader() -> None:
    folder = import_module("mlx_lm.tool_parsers").__path__[0]
    assert (
        {path.stem for path in Path(folder).glob("*.py")} - {"__init__"} == READERS.keys() - {CHANNELS} == FORMS.keys()
    )


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=40)
@given(arguments=_arguments(_TEXTS))
@example(arguments={"content": "", "deep": {}, "items": []})
@example(arguments={"content": "    return 1\n", "path": " a"})
@example(arguments={"path": "_stand_in_0_"})
@example(arguments={"path": "</arg_value></tool_call><tool_call>"})
def test_a_call_is_read_as_it_was_written_or_stays_text(form: str, arguments: dict[str, Any]) -> None:
    text = FORMS[form]("write_file", arguments)
    calls, left = _read(form, text)
    if calls:
        alike = "".join(FORMS[form](*calls[0]).split()) == "".join(text.split())
        assert calls == [("write_file", arguments)] or alike, "the form writes both calls alike, but for blanks"
        assert left == "So:"
    else:
        assert text in left


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=30)
@given(
    name=some.sampled_from(("write_file", "notes.write-file")),
    arguments=_arguments(_PLAIN.filter(lambda text: text.strip() not in {"None", "null"})),
)
def test_a_call_without_marks_in_its_values_is_found(form: str, name: str, arguments: dict[str, Any]) -> None:
    calls, left = _read(form, FORMS[form](name, arguments))
    assert (calls, left) == ([(name, arguments)], "So:")


def _bare(text: str) -> str:
    return re.sub(r"\[(?:TOOL_CALLS|CALL_ID|ARGS)\](?:(?<=ID\])\w*)?", "", text)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=30)
@given(arguments=_arguments(_PLAIN), cut=some.floats(0, 1))
@example(arguments={"deep": {"a": "\n"}}, cut=0.98)
def test_half_a_call_never_has_other_values(form: str, arguments: dict[str, Any], cut: float) -> None:
    text = FORMS[form]("write_file", arguments)
    for half in (text[: int(cut * len(text))], text[int(cut * len(text)) :]):
        calls, left = _read(form, half)
        # Half a name is another tool's.
        assert _bare(half) in _bare(left) if not calls else [name for name, _ in calls] == ["write_file"]
        assert all(key in arguments and arguments[key] == value for _, read in calls for key, value in read.items())


@settings(max_examples=100)
@given(arguments=_arguments(_TEXTS), behind=_TEXTS | _PLAIN)
@example(arguments={"count": 3}, behind="Here is what I found.")
@example(arguments={"count": 3}, behind=', "share": 4}')
@example(arguments={"count": 3}, behind='[TOOL_CALLS]look[ARGS]{"path": "a')
def test_text_behind_a_call_without_an_end_mark_is_the_rest(arguments: dict[str, Any], behind: str) -> None:
    text = FORMS["mistral"]("write_file", arguments)
    calls, left = _read("mistral", text + behind)
    if behind.lstrip()[:1] in {*",:}]"}:
        assert (calls, left) == ([], f"So:[TOOL_CALLS]{text}{behind}"), "it may belong to the arguments"
    else:
        assert (calls, left) == ([("write_file", arguments)], f"So:{behind if behind.strip() else ''}")


@pytest.mark.parametrize("value", ["007", "1_000", "0x10", "3 of them", ""])
@pytest.mark.parametrize("form", ["qwen3_coder", "glm47", "minimax_m2"])
def test_what_a_client_may_take_for_another_number_leaves_the_call_text(form: str, value: str) -> None:
    text = FORMS[form]("write_file", {"count": value})
    calls, left = _read(form, text)
    assert not calls
    assert text in left


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("call:look{ path: <|\"|>a<|\"|>, content: 'x' }", {"path": "a", "content": "x"}),
        ("call: look {\n  path: 'a, b: {c}',\n  count: 3,\n}", {"path": "a, b: {c}", "count": 3}),
        ('call:look{path:"it\'s \\"a\\"\\n"}', {"path": 'it\'s "a"\n'}),
        ("call:look{\"path\": 'say \"a\"', 'items': ['a', \"b\", 1]}", {"path": 'say "a"', "items": ["a", "b", 1]}),
        ("call:look{path:''}", {"path": ""}),
        ("call:look{path:'it's'}", None),
        ("call:look{path:'it\\'s'}", None),
        ("call:look{path:'a}", None),
        ("call:look{'path\":'a'}", None),
        ("call:look{path:a}", None),
        ('call:look{"p\\u0061th": "a"}', None),
        ("call:look{path:'a', path:'b'}", None),
    ],
)
def test_gemmas_values_in_other_quotes_are_read_whole_or_the_call_is_text(
    text: str, arguments: dict[str, Any] | None
) -> None:
    calls, left = _read("gemma4", text)
    assert calls == ([] if arguments is None else [("look", arguments)])
    assert (text in left) is (arguments is None)


@pytest.mark.parametrize("text", ['{"path": "a", "path": "b"}', "{'path': 'a', 'path': 'b'}", "{'deep': {1: 1, 1: 2}}"])
@pytest.mark.parametrize("form", ["json_tools", "mistral", "kimi_k2"])
def test_of_two_values_with_one_name_none_is_chosen(form: str, text: str) -> None:
    whole = FORMS[form]("look", {}).replace("{}", text)
    assert _read(form, whole)[0] == []


OPEN = "<tool_call>"
CLOSE = "</tool_call>"


@dataclass(frozen=True)
class Block:
    """A call in a reply, and the words before it."""

    words: str
    opened: bool
    closed: bool
    blank: str
    tool: str = "look"

    def text(self, number: int) -> str:
        blank = self.blank
        name = f'"name"{blank}: {blank}"{self.tool}"'
        call = f'{{{blank}{name}, "arguments": {{"path": "p{number} {OPEN} {CLOSE}"}}{blank}}}'
        return f"{self.words}{OPEN * self.opened}{call}{blank}{CLOSE * self.closed}{blank}"


_BLOCKS = some.lists(
    some.builds(
        Block,
        some.sampled_from(("", "", "\n", "So. ", "{ ", '{"name": "', "``` ")),
        some.booleans(),
        some.booleans(),
        some.sampled_from(("", " ", "\n  ")),
        some.sampled_from(("look", "look", "erase")),
    ),
    min_size=1,
    max_size=4,
)


def _streamed(
    text: str, parse: Parse | None, marks: tuple[str, str], step: int = 1, tools: str = _OFFERED
) -> tuple[list[tuple[str, Any]], str, str]:
    """Return the calls, the answer without them, and what a client has of it before the end."""
    reader = PartsReader(call_marks=call_marks(parse, marks, tools))
    pieces = [piece for at in range(0, len(text), step) for piece in reader.add_text(text[at : at + step])]
    told = reader.finish_reply(ended=True)
    calls, left = find_tool_calls(text, marks, parse, tools, answers=told.spans, ended=True)
    sent = "".join(piece.text for piece in pieces if not (piece.is_thought or piece.is_mark))
    return [(each.name, json.loads(each.arguments)) for each in calls], told.within(left).answer, sent


def read_marked(text: str, form: str, step: int) -> tuple[list[str], str, str]:
    calls, left, sent = _streamed(text, _parser(form)[0], (OPEN, CLOSE), step)
    assert text.startswith(sent)
    return [arguments.get("path", "") for _, arguments in calls], left, sent


@pytest.mark.parametrize("form", ["json_tools", "qwen3_coder", "glm47"])
@settings(max_examples=50)
@given(blocks=_BLOCKS, step=some.sampled_from((1, 7, 10_000)))
@example(blocks=[Block("", True, False, "\n"), Block("", True, True, "\n")], step=1)
@example(blocks=[Block("", False, True, "")], step=10_000)
@example(blocks=[Block("", False, True, " "), Block("", True, True, "")], step=10_000)
def test_a_whole_call_is_read_once_whatever_mark_is_missing(form: str, blocks: list[Block], step: int) -> None:
    text = "".join(block.text(number) for number, block in enumerate(blocks))
    paths, left, sent = read_marked(text, form, step)
    order = [int(path.split()[0][1:]) for path in paths]
    assert order == sorted(set(order))
    for number in range(len(blocks)):
        assert (f'"p{number} ' in left) is (number not in order), "it is a call, or it is text"
    # In code it is text, and so is what may belong to other JSON.
    if not any("```" in block.words or "{" in block.words for block in blocks):
        for number, (block, following) in enumerate(zip(blocks, [*blocks[1:], None], strict=True)):
            is_next = following is not None and following.opened and not following.words.strip()
            marked = block.closed if not block.opened else block.closed or is_next or following is None
            assert (number in order) >= (marked and block.tool == "look"), text
    # What a client has is never taken back.
    assert "".join(left.split()).startswith("".join(sent.split()))


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "look", "arguments": {"path": "a"}}',
        f'{{"name": "erase", "arguments": {{"path": "a"}}}}{CLOSE}',
        f'{{"name": "look", "arguments": {{"path": "a"}}{CLOSE}',
        f'{{"name": "look", "arguments": {{"path": "a"}}}} and so on{CLOSE}',
        f'The call `{{"name": "look", "arguments": {{"path": "a"}}}}{CLOSE}` is an example.',
        f'```json\n{{"name": "look", "arguments": {{"path": "a"}}}}\n{CLOSE}\n```',
        f'{OPEN}{{"name": "look", "arguments": {{"path": "a {OPEN}',
        f'{OPEN}{{"name": "look", "arguments": {{"path": "a"}}}} or not {OPEN}x',
        f"{OPEN}not JSON{CLOSE}", OPEN * 3, f"{OPEN}{'[' * 100_000}{CLOSE}",
        f'{OPEN}{{"name": 5, "arguments": {{}}}}{CLOSE}', f'{OPEN}{{"arguments": {{}}}}{CLOSE}',
        f'{OPEN}{{"name": "look", "arguments": [1]}}{CLOSE}',
        f'{OPEN}{{"name": "look", "arguments": {{"path": NaN}}}}{CLOSE}',
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_what_is_less_than_a_call_is_text(text: str) -> None:
    assert read_marked(text, "json_tools", 1)[:2] == ([], text)


_THOUGHT = "<|channel|>analysis<|message|>I look.<|end|><|start|>assistant"
HEADERS = (
    f"{_THOUGHT}<|channel|>commentary to=functions.{{}} <|constrain|>json<|message|>",
    f"{_THOUGHT} to=functions.{{}}<|channel|>commentary json<|message|>",
    "<|channel|>commentary to=functions.{}<|message|>",
    " to=functions.{}<|channel|>commentary <|constrain|>json<|message|>",
    "<|start|>assistant to=functions.{}<|channel|>commentary <|constrain|>json<|message|>",
    "<|start|>assistant to=functions.{}<|channel|>analysis code<|message|>\n",
)


def _read_channel(text: str) -> tuple[list[tuple[str, Any]], str, str]:
    return _streamed(text, None, CHANNEL_MARKERS)


@pytest.mark.parametrize("header", HEADERS)
@settings(max_examples=40)
@given(
    end=some.sampled_from(("<|call|>", "")),
    path=some.text('ab {}"\\<|>é漢\n', max_size=12)
    | some.sampled_from(("<|call|>", "<|message|>", "to=functions.look")),
)
def test_a_call_in_a_channel_is_a_call_and_no_answer(header: str, end: str, path: str) -> None:
    calls, answer, sent = _read_channel(header.format("look") + json.dumps({"path": path}) + end)
    assert (calls, answer.strip(), sent) == ([("look", {"path": path})], "", "")


_MISTRAL_HEADS = ("[TOOL_CALLS]{}[ARGS]", "[TOOL_CALLS] {}[CALL_ID]a1b2c3d4e[ARGS]", "[TOOL_CALLS]{}")


@pytest.mark.parametrize("head", [*HEADERS, *_MISTRAL_HEADS])
@pytest.mark.parametrize("tools", [_OFFERED, ""])
@settings(max_examples=30)
@given(
    words=some.sampled_from(("", "I look. ", "\n")),
    arguments=_arguments(_PLAIN | some.sampled_from(("to=functions.look", "[TOOL_CALLS]"))).map(json_text),
    name=some.sampled_from(("erase", "notes.erase", "_x-1")),
    cut=some.sampled_from((0, 0, 1)),
)
def test_a_call_of_a_tool_that_is_not_offered_is_its_name_and_its_arguments(
    head: str, tools: str, words: str, arguments: str, name: str, cut: int
) -> None:
    parse, marks = _parser("mistral") if head in _MISTRAL_HEADS else (None, CHANNEL_MARKERS)
    if parse is None and words:
        words = f"<|channel|>commentary<|message|>{words}<|end|>"
        head = head if head.startswith("<|start|>") else f"<|start|>assistant{head}"
    body = arguments[: len(arguments) - cut]
    calls, answer, sent = _streamed(words + head.format(name) + body + marks[1] * (not cut), parse, marks, tools=tools)
    said = "I look. " if "I look" in words else ""
    assert (calls, answer.lstrip()) == ([], f"{said}{name}{body}")
    assert answer.startswith(sent)


def test_mistrals_list_of_calls_of_other_tools_is_that_list() -> None:
    listed = '[{"name": "erase", "arguments": {"path": "a"}}]'
    parse, marks = _parser("mistral")
    assert _streamed(f"So: [TOOL_CALLS] {listed}", parse, marks)[:2] == ([], f"So: {listed}")


def test_a_call_beside_one_of_another_tool_counts_and_marks_in_code_stay() -> None:
    calls, answer = _read("mistral", 'erase[ARGS]{"a": 1}[TOOL_CALLS]look[ARGS]{"path": "a"}')
    assert (calls, answer) == ([("look", {"path": "a"})], 'So:erase{"a": 1}')
    shown = "So: `[TOOL_CALLS]erase[ARGS]{}` or\n```\n[TOOL_CALLS]erase[ARGS]{}\n```"
    parse, marks = _parser("mistral")
    assert _streamed(shown, parse, marks)[:2] == ([], shown)
    many = '[TOOL_CALLS]erase[ARGS]{"a": 1}' * 40 + '[TOOL_CALLS]look[ARGS]{"path": "a"}'
    assert _streamed(many, parse, marks)[:2] == ([("look", {"path": "a"})], 'erase{"a": 1}' * 40)


def test_words_before_a_call_are_the_answer_and_a_call_in_code_is_text() -> None:
    words = "<|channel|>commentary<|message|>I look it up.<|end|><|start|>assistant"
    calls, answer, sent = _read_channel(words + HEADERS[2].format("look") + '{"path": "a"}')
    assert (calls, answer, sent) == ([("look", {"path": "a"})], "I look it up.", "I look it up.")
    shown = "<|channel|>final<|message|>```\n" + HEADERS[2].format("look") + '{"path": "a"}\n```'
    assert _read_channel(shown)[:1] == ([],)
