"""Reads calls whose arguments stand between tags, as Qwen3-Coder, GLM, MiniMax and others write them."""

import json
import re
from dataclasses import dataclass

from rdchat.inference.api.messages import ToolCall
from rdchat.inference.calls.json_form import json_calls, members
from rdchat.inference.calls.offered import OfferedTools


@dataclass(frozen=True, slots=True)
class TaggedForm:
    """The tags of a family.

    A value ends at the last end tag before the next argument, so that it may spell the tag itself.

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
        if not body.endswith(self.call_end):
            raise ValueError("a call without an end")
        body = body[: len(body) - len(self.call_end)]
        found = list(self.argument.finditer(body))
        starts = [*(each.start() for each in found), len(body)]
        if body[: starts[0]].strip():
            raise ValueError("text between the arguments")
        values = []
        for argument, end in zip(found, starts[1:], strict=True):
            value, mark, behind = body[argument.end() : end].rpartition(self.argument_end)
            if not mark or behind.strip():
                raise ValueError("an argument without an end")
            values.append(value)
        if self.lines and any(each.startswith("\n") for each in values):
            if not all(len(each) > 1 and each[0] == each[-1] == "\n" for each in values):
                raise ValueError("a value on half a line")
            values = [each[1:-1] for each in values]
        arguments = list[tuple[str, str]]()
        for each, value in zip(found, values, strict=True):
            key = each["name"].strip()
            arguments.append((key, self._value(name, key, each.groupdict().get("type"), value, tools)))
        return tools.call(name, arguments)

    def _value(self, name: str, key: str, kind: str | None, value: str, tools: OfferedTools) -> str:
        if (data := _CDATA.fullmatch(value)) is not None:
            value = data[1]
        if kind == "string":
            return json.dumps(value, ensure_ascii=False)
        return value.strip() if kind else tools.value(name, key, value)


_CDATA = re.compile(r"\s*<!\[CDATA\[(.*?)\]\]>\s*", re.DOTALL)
_NAMED = r"""\s++name\s*+=\s*+(?P<quote>["']?)(?P<name>[^"'<>]++)(?P=quote)"""


def _form(call: str, call_end: str, argument: str, argument_end: str, *, lines: bool = False) -> TaggedForm:
    return TaggedForm(re.compile(call), call_end, re.compile(argument), argument_end, lines)


QWEN = _form(
    r"<function=(?P<name>[^<>\s]+)>", "</function>", r"<parameter=(?P<name>[^<>\n]+)>", "</parameter>", lines=True
)
GLM, LONGCAT = (
    _form(rf"\A\s*(?P<name>[^<>\s]+)(?=\s*(?:<{mark}_key>|\Z))", "",
          rf"<{mark}_key>(?P<name>[^<>]++)</{mark}_key>\s*+<{mark}_value>", f"</{mark}_value>")
    for mark in ("arg", "longcat_arg")
)  # fmt: skip
MINIMAX = _form(rf"<invoke{_NAMED}\s*>", "</invoke>", rf"<parameter{_NAMED}\s*>", "</parameter>")
MUSE = _form(rf"<atem:invoke{_NAMED}\s*>", "</atem:invoke>", rf"<atem:parameter{_NAMED}\s*>", "</atem:parameter>")
# The block's own marks are those of the call.
MINICPM = _form(r"""\A\s*(?P<quote>["']?)(?P<name>[^"'<>\s]+)(?P=quote)\s*>""", "", rf"<param{_NAMED}\s*>", "</param>")
_KIMI_HEAD = r'<\|open\|>call\s(?:(?!\btool=")[^<])*+\btool="(?P<name>[^"<]++)"[^<]*+<\|sep\|>'
_KIMI_CALL = _form(
    _KIMI_HEAD, "<|close|>call<|sep|>",
    r'<\|open\|>argument\skey="(?P<name>[^"]++)"(?:\s++type="(?P<type>\w++)")?[^<]*+<\|sep\|>',
    "<|close|>argument<|sep|>",
)  # fmt: skip
_KIMI_JSON = re.compile(
    rf"\s*{_KIMI_HEAD}\s*<\|open\|>json[^<]*<\|sep\|>"
    r"(\{.*\})\s*<\|close\|>json<\|sep\|>\s*<\|close\|>call<\|sep\|>\s*",
    re.DOTALL,
)


def kimi_k3_calls(text: str, tools: OfferedTools) -> list[ToolCall]:
    """Return the calls of Kimi K3, whose arguments are typed, or one JSON object."""
    if (whole := _KIMI_JSON.fullmatch(text)) is None:
        return _KIMI_CALL(text, tools)
    members(whole[2])
    return [tools.call(whole[1], whole[2])]
