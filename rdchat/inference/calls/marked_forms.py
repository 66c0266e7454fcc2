"""Reads the calls of tools in a reply, by the form in which a family of models writes them.

- `json_calls`: calls that are JSON. Each value stays as it was written: numbers are never made and written anew.
- From `mistral_calls` to `pythonic_calls`: a name, and the arguments as JSON or in a form like it.
- `TaggedForm`: arguments between tags, as Qwen3-Coder, GLM, MiniMax and others write them.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rdchat.inference.api import ToolCall
from rdchat.inference.calls.offered import NUMBER, OfferedTools, object_text

Reader = Callable[[str, OfferedTools], list[ToolCall]]
"""Returns the calls of a text between two marks, which has nothing else; raises anything otherwise."""
_BLANK = re.compile(r"\s*")
# What stands before a call's arguments: `[TOOL_CALLS]add[CALL_ID]a1[ARGS]` of Mistral, where only the name must be
# there, and nothing before a list; `<|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>` of Kimi K2; and, of
# gpt-oss, `add<|channel|>commentary json<|message|>`.
_MISTRAL = re.compile(
    r"\s*+(?:\[TOOL_CALLS\]\s*+)?(?P<name>[^\s\[\]{}]*+)\s*+"
    r"(?:\[CALL_ID\]\s*+(?P<id>\w++)\s*+)?(?:\[ARGS\]\s*+)?(?={|\[\s*+{)"
)
_KIMI = re.compile(
    r"\s*<\|tool_call_begin\|>\s*(?P<id>(?:functions\.)?(?P<name>[^\s<]+?):\d+)\s*<\|tool_call_argument_begin\|>\s*"
)
_CHANNEL = re.compile(
    r"(?P<name>[^\s<]{1,200}+)\s*+(?:<\|channel\|>\w++\s*+)?(?:<\|constrain\|>)?\w*+\s*+<\|message\|>\s*(?P<id>)(?={)"
)

# Of Gemma: what begins a call, and the name of a value.
_CALL = re.compile(r"[\s,]*call:\s*([^\s{}]+)\s*(?={)")
_KEY = re.compile(r"""\s*(["']?)([^\s:{}\[\],<>"'\\]+)\1\s*:\s*""")

# For Gemma: a text in the quotes of Python; one in those of JSON is read as JSON.
_SINGLE = re.compile(r"'[^'\\\n]*'")

# A value without quotes.
_WORD = re.compile(rf"{NUMBER.pattern}|true|false|null")
# Of tagged forms: a value's wrapper, and the attribute with a name.
_CDATA = re.compile(r"\s*<!\[CDATA\[(.*?)\]\]>\s*", re.DOTALL)
_NAMED = r"""\s++name\s*+=\s*+(?P<quote>["']?)(?P<name>[^"'<>]++)(?P=quote)"""
# Of Kimi K3: what begins a call, `<|open|>call tool="add"<|sep|>`, and a call whose arguments are one JSON object:
# `<|open|>json<|sep|>{"a": 1}<|close|>json<|sep|><|close|>call<|sep|>` behind that beginning.
_KIMI_HEAD = r'<\|open\|>call\s(?:(?!\btool=")[^<])*+\btool="(?P<name>[^"<]++)"[^<]*+<\|sep\|>'

_KIMI_JSON = re.compile(
    rf"\s*{_KIMI_HEAD}\s*<\|open\|>json[^<]*<\|sep\|>"
    r"(\{.*\})\s*<\|close\|>json<\|sep\|>\s*<\|close\|>call<\|sep\|>\s*",
    re.DOTALL,
)


def after_blanks(text: str, at: int) -> int:
    """Return where something other than blanks follows."""
    match = _BLANK.match(text, at)
    assert match
    return match.end()


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(values := dict(pairs)) < len(pairs):
        raise ValueError("a name stands twice")
    return values


_DECODER = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_no_twins)


def value_end(text: str, at: int) -> int:
    """Return where the JSON value that begins at an offset ends; raise ValueError if it is not JSON."""
    return _DECODER.raw_decode(text, at)[1]


def json_calls(text: str, tools: OfferedTools) -> list[ToolCall]:
    """Return the calls of a text that is nothing but JSON: objects one after the other, or a list of them.

    Raises:
        ValueError: If it is anything else.
    """
    text = text.strip()
    listed = (value for _, value in _values(text)) if text[:1] == "[" else _objects(text)
    return [_call(each, tools) for each in listed]


def _objects(text: str) -> Iterator[str]:
    """Yield JSON values that stand one after the other."""
    at = 0
    while at < len(text):
        end = value_end(text, at)
        yield text[at:end]
        at = after_blanks(text, end)


def objects_end(text: str, at: int) -> tuple[int, bool]:
    """Return where JSON objects one after the other end, with the blanks behind them, and whether all are whole.

    Where one is not, the end is where it breaks off.
    """
    while text.startswith("{", at):
        try:
            at = after_blanks(text, value_end(text, at))
        except json.JSONDecodeError as error:
            return max(error.pos, at + 1), False
        except ValueError:
            return at + 1, False
        except RecursionError:
            return len(text), False
    return at, True


def members(text: str) -> dict[str, str]:
    """Return the names of a JSON object, each with its value as it was written.

    Raises:
        ValueError: If it is no object, or a name stands twice.
    """
    if text[:1] != "{":
        raise ValueError("no object")
    return dict(_values(text))


def _values(text: str) -> Iterator[tuple[str, str]]:
    """Yield the values of a JSON object or list as they were written, each behind its name; in a list that is empty.

    `{"a": 1.0}` gives `a` and `1.0`, as texts.
    """
    if value_end(text, 0) != len(text):
        raise ValueError("text behind the value")
    at = after_blanks(text, 1)
    while text[at] not in "]}":
        name = ""
        if text[0] == "{":
            name, at = _DECODER.raw_decode(text, at)
            at = after_blanks(text, after_blanks(text, at) + 1)
        end = value_end(text, at)
        yield name, text[at:end]
        at = after_blanks(text, end)
        at = after_blanks(text, at + 1) if text[at] == "," else at


def _call(text: str, tools: OfferedTools) -> ToolCall:
    """Return the call in one JSON object, in OpenAI's form or in a flat one.

    OpenAI's: `{"type": "function", "id": "a1", "function": {"name": "add", "arguments": {}}}`. Flat:
    `{"name": "add", "arguments": {}}`; there `function` may stand for `name`. In both, `parameters` may stand for
    `arguments`, or these are missing.
    """
    fields = members(text)
    fields.pop("type", None)
    call_id = json.loads(fields.pop("id", '""'))
    if "function" in fields and fields["function"][:1] == "{" and len(fields) == 1:
        fields = members(fields["function"])
    elif "function" in fields and "name" not in fields:
        fields["name"] = fields.pop("function")
    name = json.loads(fields.pop("name"))
    # Both at once are refused: there is one name on the left.
    (arguments,) = [fields.pop(each) for each in ("arguments", "parameters") if each in fields] or ["{}"]
    if fields:
        raise ValueError("more than a call")
    # Some templates write the arguments as a text of JSON.
    return tools.make_call(name, json.loads(arguments) if arguments[:1] == '"' else arguments, str(call_id or ""))


def mistral_calls(text: str, tools: OfferedTools) -> list[ToolCall]:
    """Return the calls of Mistral's models: a list of JSON, or names with arguments and perhaps ids."""
    return json_calls(text, tools) if text.lstrip()[:1] == "[" else _named_calls(text, tools, _MISTRAL, "")


def channel_calls(text: str, tools: OfferedTools) -> list[ToolCall]:
    """Return the call in a message of gpt-oss to a tool."""
    return _named_calls(text, tools, _CHANNEL, "")


HEADS: dict[Callable[[str, OfferedTools], list[ToolCall]], re.Pattern[str]] = {
    mistral_calls: _MISTRAL,
    channel_calls: _CHANNEL,
}
"""By reader, what stands behind the opening mark of a call: marks, but for the group `name`."""


def mistral_end(text: str, tools: OfferedTools) -> int:
    """Return where the last complete call of Mistral's models ends, since no marker shows it; 0 without one.

    Also 0 if the text behind the call may belong to its arguments.
    """
    end = 0
    with suppress(ValueError, RecursionError):
        if text.lstrip()[:1] == "[":
            end = value_end(text, after_blanks(text, 0))
        while (result := _MISTRAL.match(text, end)) and result["name"] in tools.schemas:
            end = value_end(text, result.end())
    return 0 if text[end:].lstrip()[:1] in {*",:}]"} else end


def kimi_k2_calls(text: str, tools: OfferedTools) -> list[ToolCall]:
    """Return the calls in a section of Kimi K2."""
    return _named_calls(text, tools, _KIMI, "<|tool_call_end|>")


def _named_calls(text: str, tools: OfferedTools, head: re.Pattern[str], mark: str) -> list[ToolCall]:
    """Return calls that each are a head with a name and perhaps an id, the arguments as JSON, and an end mark."""
    calls = list[ToolCall]()
    at = 0
    while at < len(text.rstrip()):
        if not (result := head.match(text, at)):
            raise ValueError("text between the calls")
        end = value_end(text, result.end())
        calls.append(tools.make_call(result["name"], text[result.end() : end], result["id"] or ""))
        at = after_blanks(text, end)
        if not text.startswith(mark, at):
            raise ValueError("a call without an end")
        at += len(mark)
    return calls


# Gemma


@dataclass(frozen=True, slots=True)
class Gemma:
    """Gemma's form: JSON with bare names, and marks around texts; models slip into other quotes.

    With `|` as the mark: `call:weather{city:|Rome|,days:3}`.

    Attributes:
        quote: The mark.
    """

    quote: str

    def __call__(self, text: str, tools: OfferedTools) -> list[ToolCall]:
        """Return the calls of a text that is nothing but calls; raise ValueError if it is anything else."""
        calls = list[ToolCall]()
        at = 0
        while head := _CALL.match(text, at):
            arguments, at = self._value(text, head.end())
            calls.append(tools.make_call(head[1], arguments))
        if text[at:].strip():
            raise ValueError("text between the calls")
        return calls

    def _value(self, text: str, at: int) -> tuple[str, int]:
        """Return the JSON of the value at an offset, and where it ends."""
        if text.startswith(self.quote, at):
            start = at + len(self.quote)
            end = text.index(self.quote, start)
            return json.dumps(text[start:end], ensure_ascii=False), end + len(self.quote)
        if text[at] in "{[":
            return self._several(text, at)
        if text[at] == '"':
            end = value_end(text, at)
            return text[at:end], end
        if single := _SINGLE.match(text, at):
            return json.dumps(single[0][1:-1], ensure_ascii=False), single.end()
        if not (word := _WORD.match(text, at)):
            raise ValueError("no value")
        return word[0], word.end()

    def _several(self, text: str, at: int) -> tuple[str, int]:
        """Return the JSON of the object or the list at an offset, and where it ends."""
        is_object = text[at] == "{"
        closing = "}" if is_object else "]"
        results = list[tuple[str, str]]()
        at = after_blanks(text, at + 1)
        while text[at] != closing:
            key = _KEY.match(text, at) if is_object else None
            if is_object and key is None:
                raise ValueError("a value without a name")
            value, at = self._value(text, key.end() if key else at)
            results.append((key[2] if key else "", value))
            at = after_blanks(text, at)
            if text[at] not in (",", closing):
                raise ValueError("text between the values")
            at = after_blanks(text, at + 1) if text[at] == "," else at
        return object_text(results) if is_object else f"[{', '.join(value for _, value in results)}]", at + 1


# Python


def pythonic_calls(text: str, tools: OfferedTools) -> list[ToolCall]:
    """Return the calls of LFM2: a list of Python's calls with named arguments, whose names may have hyphens."""
    stand_ins = _StandIns(tools)
    source = stand_ins.put(text.strip())
    listed = ast.parse(source, mode="eval").body
    if not isinstance(listed, ast.List):
        raise ValueError("no list of calls")
    calls = []
    for each in listed.elts:
        if not isinstance(each, ast.Call) or each.args or not all(keyword.arg for keyword in each.keywords):
            raise ValueError("no call with named arguments")
        arguments = [
            (stand_ins.back(str(keyword.arg)), _python_json(keyword.value, source, stand_ins.back))
            for keyword in each.keywords
        ]
        calls.append(tools.make_call(stand_ins.back(ast.unparse(each.func)), arguments))
    return calls


class _StandIns:
    """Replaces names of tools and arguments that are not Python names, until the call is parsed."""

    def __init__(self, tools: OfferedTools) -> None:
        properties = (schema.get("properties") for schema in tools.schemas.values())
        names = {*tools.schemas, *(key for each in properties if isinstance(each, dict) for key in each)}
        # The longest first: a name with a blank may end in another one.
        odd = sorted((name for name in names if not name.isidentifier()), key=len, reverse=True)
        self._names = {f"_stand_in_{number}_": name for number, name in enumerate(odd)}

    def put(self, text: str) -> str:
        """Return a text with stand-ins for such names."""
        if "_stand_in_" in text:
            raise ValueError("it could not be told from a stand-in")
        for stand_in, name in self._names.items():
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?=\(|=)", stand_in, text)
        return text

    def back(self, text: str) -> str:
        """Return a text with the names instead of their stand-ins."""
        for stand_in, name in self._names.items():
            text = text.replace(stand_in, name)
        return text


def _python_json(node: ast.expr, source: str, back: Callable[[str], str]) -> str:
    """Return the JSON of a Python literal; raise ValueError if the text is not one."""
    match node:
        case ast.Constant(value=str() as text):
            return json.dumps(back(text), ensure_ascii=False)
        case ast.Constant(value=None | bool() as value):
            return json.dumps(value)
        case ast.Name(id="true" | "false" | "null" as name):
            return name
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return f"[{', '.join([_python_json(each, source, back) for each in items])}]"
        case ast.Dict(keys=keys, values=values) if all(isinstance(each, ast.Constant) for each in keys):
            named = [back(str(each.value)) for each in keys if isinstance(each, ast.Constant)]
            return object_text(
                [(key, _python_json(value, source, back)) for key, value in zip(named, values, strict=True)]
            )
    # A number stays as it was written.
    number = ast.get_source_segment(source, node) or ""
    if not NUMBER.fullmatch(number):
        raise ValueError("no literal")
    return number


# Tags


@dataclass(frozen=True, slots=True)
class TaggedForm:
    """The tags of a family.

    A value ends at the last end tag before the next argument, so that it may spell the tag itself. A call in
    Qwen's form: `<function=add><parameter=a>1</parameter></function>`.

    Attributes:
        call: Begins a call; its group is `name`.
        call_end: Ends it; empty where the block's own end does.
        argument: Begins an argument; its groups are `name`, and perhaps `type`, that of the value.
        argument_end: Ends it.
        lines: Whether the values of a call stand on lines of their own, all or none.
    """

    call: re.Pattern[str]
    call_end: str
    argument: re.Pattern[str]
    argument_end: str
    lines: bool = False

    def __call__(self, text: str, tools: OfferedTools) -> list[ToolCall]:
        """Return the calls of a text that is nothing but calls; raise ValueError if it is anything else."""
        if text.lstrip()[:1] in {"{", "["}:
            return json_calls(text, tools)
        heads = list(self.call.finditer(text))
        if not heads or text[: heads[0].start()].strip():
            raise ValueError("no call")
        ends = [*(head.start() for head in heads[1:]), len(text)]
        return [
            self._call(head["name"], text[head.end() : end].rstrip(), tools)
            for head, end in zip(heads, ends, strict=True)
        ]

    def _call(self, name: str, body: str, tools: OfferedTools) -> ToolCall:
        """Return a call from the text behind its head: its arguments, and the end tag of the call."""
        if not body.endswith(self.call_end):
            raise ValueError("a call without an end")
        body = body[: len(body) - len(self.call_end)]
        found = list(self.argument.finditer(body))
        arguments = list[tuple[str, str]]()
        for each, value in zip(found, self._written(body, found), strict=True):
            key = each["name"].strip()
            arguments.append((key, self._value(name, key, each.groupdict().get("type"), value, tools)))
        return tools.make_call(name, arguments)

    def _written(self, body: str, arguments: list[re.Match[str]]) -> list[str]:
        """Return the values of a call's arguments as they were written; `arguments` are where each begins."""
        starts = [*(each.start() for each in arguments), len(body)]
        if body[: starts[0]].strip():
            raise ValueError("text between the arguments")
        values = []
        for argument, end in zip(arguments, starts[1:], strict=True):
            value, mark, behind = body[argument.end() : end].rpartition(self.argument_end)
            if not mark or behind.strip():
                raise ValueError("an argument without an end")
            values.append(value)
        if not self.lines or not any(each.startswith("\n") for each in values):
            return values
        if not all(len(each) > 1 and each[0] == each[-1] == "\n" for each in values):
            raise ValueError("a value on half a line")
        return [each[1:-1] for each in values]

    def _value(self, name: str, key: str, kind: str | None, value: str, tools: OfferedTools) -> str:
        """Return the JSON of an argument: by the type that its tag names (`kind`), or else by the tool's schema."""
        if data := _CDATA.fullmatch(value):
            value = data[1]
        if kind == "string":
            return json.dumps(value, ensure_ascii=False)
        return value.strip() if kind else tools.value(name, key, value)


def _form(call: str, call_end: str, argument: str, argument_end: str, *, lines: bool = False) -> TaggedForm:
    return TaggedForm(re.compile(call), call_end, re.compile(argument), argument_end, lines)


QWEN = _form(
    r"<function=(?P<name>[^<>\s]+)>", "</function>", r"<parameter=(?P<name>[^<>\n]+)>", "</parameter>", lines=True
)

# `add<arg_key>a</arg_key><arg_value>1</arg_value>`: the name stands first, and nothing ends the call.
GLM, LONGCAT = (
    _form(rf"\A\s*(?P<name>[^<>\s]+)(?=\s*(?:<{mark}_key>|\Z))", "",
          rf"<{mark}_key>(?P<name>[^<>]++)</{mark}_key>\s*+<{mark}_value>", f"</{mark}_value>")
    for mark in ("arg", "longcat_arg")
)  # fmt: skip

MINIMAX = _form(rf"<invoke{_NAMED}\s*>", "</invoke>", rf"<parameter{_NAMED}\s*>", "</parameter>")
MUSE = _form(rf"<atem:invoke{_NAMED}\s*>", "</atem:invoke>", rf"<atem:parameter{_NAMED}\s*>", "</atem:parameter>")

# The block's own marks are those of the call.
MINICPM = _form(r"""\A\s*(?P<quote>["']?)(?P<name>[^"'<>\s]+)(?P=quote)\s*>""", "", rf"<param{_NAMED}\s*>", "</param>")

_KIMI_CALL = _form(
    _KIMI_HEAD, "<|close|>call<|sep|>",
    r'<\|open\|>argument\skey="(?P<name>[^"]++)"(?:\s++type="(?P<type>\w++)")?[^<]*+<\|sep\|>',
    "<|close|>argument<|sep|>",
)  # fmt: skip


def kimi_k3_calls(text: str, tools: OfferedTools) -> list[ToolCall]:
    """Return the calls of Kimi K3, whose arguments are typed, or one JSON object."""
    if not (call := _KIMI_JSON.fullmatch(text)):
        return _KIMI_CALL(text, tools)
    members(call[2])
    return [tools.make_call(call[1], call[2])]


CHANNELS = "channels"
"""The form of gpt-oss, of which mlx-lm has no parser."""
READERS: dict[str, Reader] = {
    "function_gemma": Gemma("<escape>"), "gemma4": Gemma('<|"|>'), "glm47": GLM, "json_tools": json_calls,
    "kimi_k2": kimi_k2_calls, "kimi_k3": kimi_k3_calls, "laguna": GLM, "longcat": LONGCAT,
    "minicpm5": MINICPM, "minimax_m2": MINIMAX, "mistral": mistral_calls, "muse_spark": MUSE,
    "pythonic": pythonic_calls, "qwen3_coder": QWEN, CHANNELS: channel_calls,
}  # fmt: skip
"""Readers by the form of calls, with the name that mlx-lm gives to it."""
