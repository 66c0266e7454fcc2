"""Requests of agents, through the official clients, become prompts of every strict kind of template without a loss.

`agents` has two successive requests of each agent, as it sent them to rdchat's server with a scripted engine: a
question, then the result of a call, or a second question. Each text is replaced by one of ours (`text-1-`).
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from rdchat.inference.api import DraftSettings, GenerationRequest
from rdchat.server.interfaces.anthropic_messages import Messages
from rdchat.server.interfaces.chat_completions import ChatCompletions
from rdchat.server.interfaces.fields import Fields
from rdchat.server.interfaces.responses import Responses
from tests.cases.outcomes import INPUTS, Tokenizers
from tests.grids import grid, share
from tests.server.conftest import anthropic, frequent_ticks, gate, make_server, no_proxy, openai, server  # noqa: F401  fixtures
from tests.server.fakes import MODEL, ScriptedGate
from tests.server.interfaces.sample_requests import texts_of

if TYPE_CHECKING:
    from anthropic import Anthropic
    from openai import OpenAI

TEMPLATES = sorted(f"templates/{each.name}" for each in (INPUTS / "templates").iterdir())
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
CALL_ID = "toolu_01A09q90qw90lq917835lq9"
AGENTS_FOLDER = INPUTS.parent / "agents"
AGENTS = sorted(each.stem for each in AGENTS_FOLDER.iterdir())
INTERFACES: dict[str, Any] = {
    "/v1/chat/completions": ChatCompletions,
    "/v1/messages": Messages,
    "/v1/responses": Responses,
}
# Tokens of a first prompt that are read again: the end of a prompt that asks for no thought, and aider's last message,
# which has a reminder only while it is the last.
READ_AGAIN = {"aider": 28}
END_OF_THOUGHT = 5
# These write a call without its arguments, so they get it as text, and neighbours of one role joined: a few lines are
# read again.
NO_ARGUMENTS = {"templates/reads-properties.jinja", "templates/writes-types.jinja"}
JOINED = 50
# Mistral's kind of template has the tools behind the last question alone, so they move.
MOVES_TOOLS = "templates/answers-every-call.jinja"


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
    assert_in_order(prompt, "YOU ARE", "REMINDER", "FIRST", "I READ", "Read", "NO FILE", "(an image", "GO ON", "LATE")
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


def recorded(agent: str) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return the bodies of an agent's two requests, and what they are read as."""
    given = json.loads((AGENTS_FOLDER / f"{agent}.json").read_text())
    bodies = [given["first"], given["first"] | given["then"]]
    return bodies, [INTERFACES[given["path"]]().read_request(Fields(body)) for body in bodies]


def asked_of_model(agent: str) -> list[GenerationRequest]:
    return [each.request(0, MODEL, DraftSettings(), "p") for each in recorded(agent)[1]]


@pytest.mark.parametrize("agent", AGENTS)
def test_no_text_of_an_agent_vanishes(agent: str) -> None:
    for body, read, request in zip(*recorded(agent), asked_of_model(agent), strict=True):
        given_to_model = json.dumps([asdict(each) for each in request.messages]) + request.tools
        for text, names in texts_of(body):
            assert text in given_to_model or names & {*read.ignored}, (text, sorted(names), read.ignored)


@pytest.mark.parametrize("agent", [each for each in AGENTS if each != "aider"])
def test_the_thought_of_an_agent_is_with_its_call(agent: str) -> None:
    """aider sends no thoughts back."""
    (reply,) = (each for each in asked_of_model(agent)[1].messages if each.tool_calls)
    assert re.fullmatch(r"text-\d+-", reply.thought), "once, though it may come in several fields"


@pytest.mark.parametrize(("agent", "template"), grid(AGENTS, TEMPLATES))
def test_an_agents_prompt_has_all_its_messages_and_is_read_once(
    agent: str, template: str, tokenizers: Tokenizers
) -> None:
    prompts, tokenizer = tokenizers.read(template)
    requests = asked_of_model(agent)
    first, second = (list(prompts.encode_request(each, 100_000)) for each in requests)
    for request, tokens in zip(requests, (first, second), strict=True):
        texts = [text for message in request.messages for text in re.findall(r"text-\d+-", message.content)]
        assert_in_order(tokenizer.decode(tokens), *texts)
    pairs = zip(first, second, strict=False)
    read_again = len(first) - next((at for at, (token, now) in enumerate(pairs) if token != now), len(first))
    limit = JOINED if template in NO_ARGUMENTS else READ_AGAIN.get(agent, END_OF_THOUGHT)
    assert template == MOVES_TOOLS or read_again <= limit
