"""Calls of gpt-oss, which stand in messages of their own."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rdchat.inference.api import PartsReader
from rdchat.inference.decoding.tool_calls import call_marks, find_tool_calls
from rdchat.inference.prompts.template_fitting import CHANNEL_MARKERS
from tests.inference.calls.tools import TOOLS

_THOUGHT = "<|channel|>analysis<|message|>I look.<|end|><|start|>assistant"
HEADERS = (
    f"{_THOUGHT}<|channel|>commentary to=functions.{{}} <|constrain|>json<|message|>",
    f"{_THOUGHT} to=functions.{{}}<|channel|>commentary json<|message|>",
    "<|channel|>commentary to=functions.{}<|message|>",
    " to=functions.{}<|channel|>commentary <|constrain|>json<|message|>",
    "<|start|>assistant to=functions.{}<|channel|>commentary <|constrain|>json<|message|>",
    "<|start|>assistant to=functions.{}<|channel|>analysis code<|message|>\n",
)
_TEXTS = some.text('ab {}"\\<|>é漢\n', max_size=12)


def _read(text: str) -> tuple[list[tuple[str, Any]], str, str]:
    """Return the calls, the answer, and what a client has of it before the end."""
    reader = PartsReader(call_marks=call_marks(None, CHANNEL_MARKERS, json.dumps(TOOLS)))
    pieces = [piece for letter in text for piece in reader.add_text(letter)]
    told = reader.finish_reply(ended=True)
    calls, left = find_tool_calls(text, CHANNEL_MARKERS, None, json.dumps(TOOLS), answers=told.spans, ended=True)
    sent = "".join(piece.text for piece in pieces if not (piece.is_thought or piece.is_mark))
    return [(each.name, json.loads(each.arguments)) for each in calls], told.within(left).answer, sent


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("end", ["<|call|>", ""])
@given(
    path=some.text('ab {}"\\<|>é漢\n', max_size=12)
    | some.sampled_from(("<|call|>", "<|message|>", "to=functions.look"))
)
def test_a_call_in_a_channel_is_a_call_and_no_answer(header: str, end: str, path: str) -> None:
    calls, answer, sent = _read(header.format("look") + json.dumps({"path": path}) + end)
    assert (calls, answer.strip(), sent) == ([("look", {"path": path})], "", "")


@pytest.mark.parametrize("header", HEADERS)
def test_a_call_of_a_tool_that_is_not_offered_is_text(header: str) -> None:
    calls, answer, _ = _read(header.format("erase") + '{"path": "a"}<|call|>')
    assert not calls
    assert "erase" in answer
    assert '{"path": "a"}' in answer


def test_words_before_a_call_are_the_answer_and_a_call_in_code_is_text() -> None:
    words = "<|channel|>commentary<|message|>I look it up.<|end|><|start|>assistant"
    calls, answer, sent = _read(words + HEADERS[2].format("look") + '{"path": "a"}')
    assert (calls, answer, sent) == ([("look", {"path": "a"})], "I look it up.", "I look it up.")
    shown = "<|channel|>final<|message|>```\n" + HEADERS[2].format("look") + '{"path": "a"}\n```'
    assert _read(shown)[:1] == ([],)
