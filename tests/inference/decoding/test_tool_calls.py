"""Tool calls in replies, as mlx-lm's own parsers read them; what they cannot read stays text."""

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from rdchat.errors import InvalidSettingError
from rdchat.inference.api import FinishReason, ToolCall, split_thoughts
from rdchat.inference.decoding.tool_calls import find_tool_calls
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.inference.fakes import ALPHABET, CharacterPrompts, CharacterTokenizer, ask, reply_end, tiny_llama

TOOLS = json.dumps([
    {"type": "function", "function": {
        "name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }},
])  # fmt: skip
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'
WEATHER = ToolCall("weather", '{"city": "Köln"}')


def find(text: str, parser: str = "json_tools", *, begun: bool = False, ended: bool = True) -> tuple[object, str]:
    module = import_module(f"mlx_lm.tool_parsers.{parser}")
    markers = (module.tool_call_start, module.tool_call_end)
    answers = split_thoughts(text, begun=begun, ended=ended).spans
    calls, spans = find_tool_calls(text, markers, module.parse_tool_call, TOOLS, answers=answers, ended=ended)
    return calls, "".join(text[start:end] for start, end in spans)


CASES = [
    case
    for case in json.loads((Path(__file__).parent / "mlx_lm_cases" / "tool_calls.json").read_text())
    if not case["text"].startswith("multiply a=")  # no template writes this form
]


def offered(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tools of a case, and those that it calls without offering them: only what is offered is called."""
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    tools = [*(case["tools"] or [])]
    for call in case["calls"]:
        if all(tool["function"]["name"] != call["name"] for tool in tools):
            types = {key: {"type": kinds.get(type(value), "null")} for key, value in call["arguments"].items()}
            function = {"name": call["name"], "parameters": {"type": "object", "properties": types}}
            tools.append({"type": "function", "function": function})
    return tools


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["parser"])
def test_the_cases_of_mlx_lm(case: dict[str, Any]) -> None:
    module = import_module(f"mlx_lm.tool_parsers.{case['parser']}")
    markers = (module.tool_call_start, module.tool_call_end)
    text = f"I look.{markers[0]}{case['text']}{markers[1]}"
    tools = json.dumps(offered(case))
    spans = ((0, len(text)),)
    calls, rest = find_tool_calls(text, markers, module.parse_tool_call, tools, answers=spans, ended=True)
    assert [(call.name, json.loads(call.arguments), call.call_id) for call in calls] == [
        (wanted["name"], wanted["arguments"], wanted.get("id", "")) for wanted in case["calls"]
    ]
    assert "".join(text[start:end] for start, end in rest) == "I look."


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        ("json_tools", '<tool_call>{"name": "weather", "arguments": {"city": "Köln"}</tool_call>'),
        ("json_tools", "<tool_call>{'name': 'weather', 'arguments': {'city': 'Köln'}}</tool_call>"),
        ("qwen3_coder", "<function=weather>\n<parameter=city>\nKöln\n</parameter>\n</function>\n</tool_call>"),
    ],
)  # fmt: skip
def test_a_call_says_that_its_slips_were_mended(parser: str, text: str) -> None:
    assert find("I look." + text, parser) == ((replace(WEATHER, mended=True),), "I look.")


def test_a_call_behind_a_marker_that_is_none_and_behind_a_thought_is_found() -> None:
    thought = f"<think>\nPerhaps {CALL}\n</think>\nNo."
    assert find(thought) == ((), thought)
    assert find(f"<think>\n{CALL}</think>\nThe tag <tool_call> says {CALL}") == (
        (WEATHER,),
        f"<think>\n{CALL}</think>\nThe tag <tool_call> says ",
    )
    assert find(f"so {CALL}</think>\n{CALL}", begun=True) == ((WEATHER,), f"so {CALL}</think>\n")


def test_a_call_that_the_model_ended_without_its_marker_counts_and_one_that_was_cut_off_does_not() -> None:
    text = CALL.removesuffix("</tool_call>")
    assert find(text) == ((WEATHER,), "")
    assert find(text, ended=False) == ((), text)
    cut = '[TOOL_CALLS]weather[ARGS]{"city": "Köln"}'
    assert find(cut, "mistral", ended=False) == ((), cut)


class CallingTokenizer(CharacterTokenizer):
    """Its calls of one tool are `:text.`, in a form that rdchat does not know."""

    has_tool_calling = True
    tool_call_start = ":"
    tool_call_end = "."

    @staticmethod
    def tool_parser(text: str, tools: list[dict[str, object]]) -> dict[str, object]:
        assert tools == json.loads(TOOLS)
        if ":" in text or "." in text:
            raise ValueError("more than a call")
        return {"name": "weather", "arguments": {"text": text}}


def saying(text: str) -> LoadedModel:
    """Return a model that says a text whatever it is asked."""
    model = tiny_llama()
    tokenizer = CallingTokenizer()
    ids = [*tokenizer.encode(text), 0]
    prompt = len(model.encode_chat(ask().messages))
    plain = type(model.network).__call__

    class Scripted(type(model.network)):  # type: ignore[misc]
        def __call__(self, inputs: mx.array, cache: list[object] | None = None) -> mx.array:
            start = cache[0].offset if cache else 0  # type: ignore[attr-defined]
            logits = plain(self, inputs, cache=cache)
            said = [ids[min(max(start + row + 1 - prompt, 0), len(ids) - 1)] for row in range(inputs.shape[1])]
            return mx.zeros_like(logits) + 100.0 * (mx.arange(len(ALPHABET)) == mx.array(said)[:, None])[None]

    model.network.__class__ = Scripted
    info = replace(model.info, tool_markers=(":", "."), trained_for_tools=True)
    return replace(model, tokenizer=tokenizer, info=info, prompts=CharacterPrompts(tokenizer))


def test_a_reply_to_a_request_with_tools_has_its_calls() -> None:
    asked = ask(temperature=0, max_tokens=40)
    end = reply_end(ChatSession(saying("well :weather.")).generate(replace(asked, tools=TOOLS)))
    assert (end.text, end.finish_reason) == ("well :weather.", FinishReason.EOS)
    assert (end.tool_calls, end.told.text) == ((ToolCall("weather", '{"text": "weather"}'),), "well ")
    end = reply_end(ChatSession(saying("well :weather.")).generate(asked))
    assert (end.tool_calls, end.told.text) == ((), "well :weather.")


def test_a_stop_text_ends_the_answer_and_no_call() -> None:
    stopping = replace(ask(temperature=0, max_tokens=40, stop=("do",)), tools=TOOLS)
    end = reply_end(ChatSession(saying("so :do it. we do that")).generate(stopping))
    assert (end.text, end.stop, end.finish_reason) == ("so :do it. we ", "do", FinishReason.STOP_STRING)
    end = reply_end(ChatSession(saying("so :do it. we do that")).generate(replace(stopping, tools="")))
    assert end.text == "so :"


def test_offsets_of_control_tokens_in_the_text_and_in_what_calls_leave_of_it() -> None:
    model = saying("so :do. no :to. o")
    model.prompts.control = {ALPHABET.index("o"): "o"}
    end = reply_end(ChatSession(model).generate(replace(ask(temperature=0, max_tokens=40), tools=TOOLS)))
    assert (end.told.text, end.told.control) == ("so  no  o", (1, 5, 8))


def test_tools_that_are_no_list_are_refused() -> None:
    for tools in ("{}", "[1]", "[", '"a"'):
        with pytest.raises(InvalidSettingError, match="JSON list"):
            replace(ask(), tools=tools)
