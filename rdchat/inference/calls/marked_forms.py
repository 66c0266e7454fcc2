"""Reads calls of the families that write a name, and the arguments as JSON or in a form like it."""

import ast
import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from rdchat.inference.api.messages import ToolCall
from rdchat.inference.calls.json_form import after_blanks, json_calls, value_end
from rdchat.inference.calls.offered import NUMBER, OfferedTools, object_text

_MISTRAL = re.compile(
    r"\s*(?:\[TOOL_CALLS\]\s*)?(?P<name>[^\s\[\]{}]+)\s*(?:\[CALL_ID\]\s*(?P<id>\w+)\s*)?(?:\[ARGS\]\s*)?(?={)"
)
_KIMI = re.compile(
    r"\s*<\|tool_call_begin\|>\s*(?P<id>(?:functions\.)?(?P<name>[^\s<]+?):\d+)\s*<\|tool_call_argument_begin\|>\s*"
)
_CHANNEL = re.compile(
    r"(?P<name>[^\s<]++)\s*+(?:<\|channel\|>\w++\s*+)?(?:<\|constrain\|>)?\w*+\s*+<\|message\|>\s*(?P<id>)(?={)"
)


def mistral_calls(text: str, tools: OfferedTools) -> list[ToolCall]:
    """Return the calls of Mistral's models: a list of JSON, or names with arguments and perhaps ids."""
    return json_calls(text, tools) if text.lstrip()[:1] == "[" else _named_calls(text, tools, _MISTRAL, "")


def channel_calls(text: str, tools: OfferedTools) -> list[ToolCall]:
    """Return the call in a message of gpt-oss to a tool."""
    return _named_calls(text, tools, _CHANNEL, "")


def mistral_end(text: str, tools: OfferedTools) -> int:
    """Return where the last whole call of Mistral's models ends, which no mark says; 0 without one.

    There is none either where the text behind it may belong to its arguments.
    """
    end = 0
    with suppress(ValueError, RecursionError):
        if text.lstrip()[:1] == "[":
            end = value_end(text, after_blanks(text, 0))
        while (found := _MISTRAL.match(text, end)) and found["name"] in tools.schemas:
            end = value_end(text, found.end())
    return 0 if text[end:].lstrip()[:1] in {*",:}]"} else end


def kimi_k2_calls(text: str, tools: OfferedTools) -> list[ToolCall]:
    """Return the calls in a section of Kimi K2."""
    return _named_calls(text, tools, _KIMI, "<|tool_call_end|>")


def _named_calls(text: str, tools: OfferedTools, head: re.Pattern[str], mark: str) -> list[ToolCall]:
    calls = list[ToolCall]()
    at = 0
    while at < len(text.rstrip()):
        if (found := head.match(text, at)) is None:
            raise ValueError("text between the calls")
        end = value_end(text, found.end())
        calls.append(tools.call(found["name"], text[found.end() : end], found["id"] or ""))
        at = after_blanks(text, end)
        if not text.startswith(mark, at):
            raise ValueError("a call without an end")
        at += len(mark)
    return calls


# Gemma

_CALL = re.compile(r"[\s,]*call:\s*([^\s{}]+)\s*(?={)")
_KEY = re.compile(r"""\s*(["']?)([^\s:{}\[\],<>"'\\]+)\1\s*:\s*""")
# A text in the quotes of Python; in those of JSON it is read as JSON.
_SINGLE = re.compile(r"'[^'\\\n]*'")
_WORD = re.compile(rf"{NUMBER.pattern}|true|false|null")


@dataclass(frozen=True, slots=True)
class Gemma:
    """Gemma's form: JSON with bare names, and marks around texts; models slip into other quotes.

    Attributes:
        quote: The mark.
    """

    quote: str

    def __call__(self, text: str, tools: OfferedTools) -> list[ToolCall]:
        """Return the calls of a text that is nothing but calls; raise ValueError if it is anything else."""
        calls = list[ToolCall]()
        at = 0
        while (head := _CALL.match(text, at)) is not None:
            arguments, at = self._value(text, head.end())
            calls.append(tools.call(head[1], arguments))
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
        if (single := _SINGLE.match(text, at)) is not None:
            return json.dumps(single[0][1:-1], ensure_ascii=False), single.end()
        if (word := _WORD.match(text, at)) is None:
            raise ValueError("no value")
        return word[0], word.end()

    def _several(self, text: str, at: int) -> tuple[str, int]:
        """Return the JSON of the object or the list at an offset, and where it ends."""
        is_object = text[at] == "{"
        closing = "}" if text[at] == "{" else "]"
        found = list[tuple[str, str]]()
        at = after_blanks(text, at + 1)
        while text[at] != closing:
            key = _KEY.match(text, at) if is_object else None
            if is_object and key is None:
                raise ValueError("a value without a name")
            value, at = self._value(text, key.end() if key else at)
            found.append((key[2] if key else str(len(found)), value))
            at = after_blanks(text, at)
            if text[at] not in (",", closing):
                raise ValueError("text between the values")
            at = after_blanks(text, at + 1) if text[at] == "," else at
        return object_text(found) if is_object else f"[{', '.join(value for _, value in found)}]", at + 1


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
        calls.append(tools.call(stand_ins.back(ast.unparse(each.func)), arguments))
    return calls


class _StandIns:
    """Names of tools and of their arguments that are no names in Python, and what stands for them meanwhile."""

    def __init__(self, tools: OfferedTools) -> None:
        properties = (schema.get("properties") for schema in tools.schemas.values())
        names = {*tools.schemas, *(key for each in properties if isinstance(each, dict) for key in each)}
        odd = sorted((name for name in names if not name.isidentifier()), key=len, reverse=True)
        self._names = {f"_stand_in_{number}_": name for number, name in enumerate(odd)}

    def put(self, text: str) -> str:
        if "_stand_in_" in text:
            raise ValueError("it could not be told from a stand-in")
        for stand_in, name in self._names.items():
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?=\(|=)", stand_in, text)
        return text

    def back(self, text: str) -> str:
        for stand_in, name in self._names.items():
            text = text.replace(stand_in, name)
        return text


def _python_json(node: ast.expr, source: str, back: Callable[[str], str]) -> str:
    """Return the JSON of a literal; raise ValueError if it is none."""
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
    number = ast.get_source_segment(source, node) or ""
    if NUMBER.fullmatch(number) is None:
        raise ValueError("no literal")
    return number
