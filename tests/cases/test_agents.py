"""Requests of agents, through the official clients, become prompts of every strict kind of template without a loss."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.cases.outcomes import INPUTS, Tokenizers
from tests.grids import share
from tests.server.conftest import anthropic, frequent_ticks, gate, make_server, no_proxy, openai, server  # noqa: F401  fixtures
from tests.server.fakes import ScriptedGate

if TYPE_CHECKING:
    from anthropic import Anthropic
    from openai import OpenAI

TEMPLATES = sorted(f"templates/{each.name}" for each in (INPUTS / "templates").iterdir())
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
CALL_ID = "toolu_01A09q90qw90lq917835lq9"


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory, default_model_folder: Any) -> Tokenizers:
    return Tokenizers(default_model_folder, tmp_path_factory.mktemp("tokenizers"))


def prompt_of(gate: ScriptedGate, tokenizers: Tokenizers, template: str) -> str:  # noqa: F811
    prompts, tokenizer = tokenizers.read(template)
    text: str = tokenizer.decode(prompts.encode_request(gate.requests[-1], 100_000))
    return text


def assert_in_order(prompt: str, *texts: str) -> None:
    assert re.search(".*".join(map(re.escape, texts)), prompt, re.DOTALL), prompt


@pytest.mark.slow
@pytest.mark.parametrize("template", share(TEMPLATES, 4))
def test_claude_code(
    template: str,
    anthropic: Anthropic,  # noqa: F811
    gate: ScriptedGate,  # noqa: F811
    tokenizers: Tokenizers,
) -> None:
    """System blocks, a reminder in the middle, thoughts, a call, a failed result with a picture, its own web search."""
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    result = {"tool_use_id": CALL_ID, "is_error": True, "content": [{"type": "text", "text": "NO FILE"}, picture]}
    reply = [
        {"type": "thinking", "thinking": "PLAN", "signature": "x"},
        {"type": "text", "text": "I READ"},
        {"type": "tool_use", "id": CALL_ID, "name": "Read", "input": {"path": "/etc"}},
    ]
    messages: Any = [
        {"role": "user", "content": [{"type": "text", "text": "REMINDER"}, {"type": "text", "text": "FIRST"}]},
        {"role": "assistant", "content": reply},
        {"role": "user", "content": [{"type": "tool_result"} | result, {"type": "text", "text": "GO ON"}]},
        {"role": "system", "content": "LATE"},
    ]
    tools: Any = [{"name": "Read", "input_schema": SCHEMA}, {"type": "web_search_20250305", "name": "web_search"}]
    system: Any = [{"type": "text", "text": "YOU ARE", "cache_control": {"type": "ephemeral"}}]

    anthropic.messages.create(model="m", max_tokens=8, system=system, messages=messages, tools=tools)

    prompt = prompt_of(gate, tokenizers, template)
    assert_in_order(prompt, "YOU ARE", "REMINDER", "FIRST", "I READ", "Read", "NO FILE", "[image]", "GO ON", "LATE")
    assert prompt.count(CALL_ID) in {0, 1}, "a call's id stands in its call alone, or is mapped"


@pytest.mark.parametrize("template", share(TEMPLATES, 4))
def test_aider(
    template: str,
    openai: OpenAI,  # noqa: F811
    gate: ScriptedGate,  # noqa: F811
    tokenizers: Tokenizers,
) -> None:
    """Examples as turns, two questions in a row, a system reminder before the last question, a begun reply."""
    messages: Any = [
        {"role": "system", "content": "ACT AS AN EXPERT"},
        {"role": "user", "content": "EXAMPLE"},
        {"role": "assistant", "content": "EDIT"},
        {"role": "user", "content": "FILES"},
        {"role": "user", "content": "ADDED"},
        {"role": "assistant", "content": "Ok."},
        {"role": "system", "content": "REMINDER"},
        {"role": "user", "content": "CHANGE IT"},
    ]

    openai.chat.completions.create(model="m", messages=messages)
    texts = ["ACT AS AN EXPERT", "EXAMPLE", "EDIT", "FILES", "ADDED", "Ok.", "REMINDER", "CHANGE IT"]
    assert_in_order(prompt_of(gate, tokenizers, template), *texts)

    openai.chat.completions.create(model="m", messages=[*messages, {"role": "assistant", "content": "<<<< SEARCH"}])
    assert prompt_of(gate, tokenizers, template).endswith("<<<< SEARCH")
