"""Requests of agents become prompts of every strict kind of template without a loss.

`agents` has two successive requests of each agent, as it sent them to rdchat's server with a scripted engine: a
question, then the result of a call, or a second question. Each text is replaced by one of ours (`text-1-`).
"""

import json
import re
from dataclasses import asdict
from typing import Any

import pytest

from rdchat.inference.api import DraftSettings, GenerationRequest
from rdchat.server.interfaces.anthropic_messages import Messages
from rdchat.server.interfaces.chat_completions import ChatCompletions
from rdchat.server.interfaces.fields import Fields
from rdchat.server.interfaces.responses import Responses
from tests.cases import INPUTS
from tests.cases.outcomes import Tokenizers
from tests.grids import grid
from tests.server.fakes import MODEL
from tests.server.interfaces.sample_requests import texts_of

TEMPLATES = sorted(f"templates/{each.name}" for each in (INPUTS / "templates").iterdir())
AGENTS_FOLDER = INPUTS.parent / "agents"
AGENTS = sorted(each.stem for each in AGENTS_FOLDER.iterdir())
INTERFACES: dict[str, Any] = {
    "/v1/chat/completions": ChatCompletions,
    "/v1/messages": Messages,
    "/v1/responses": Responses,
}
# Tokens of a first prompt that are read again: the end of a prompt that asks for no thought, and aider's last message,
# which has a reminder only while it is the last. They are tokens of a small vocabulary.
READ_AGAIN = {"aider": 33}
END_OF_THOUGHT = 7
# These write a call without its arguments, so they get it as text, and neighbours of one role joined: a few lines are
# read again.
NO_ARGUMENTS = {"templates/reads-properties.jinja", "templates/writes-types.jinja"}
JOINED = 54
# Mistral's kind of template has the tools behind the last question alone, so they move.
MOVES_TOOLS = "templates/answers-every-call.jinja"


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory, default_model_folder: Any) -> Tokenizers:
    return Tokenizers(default_model_folder, tmp_path_factory.mktemp("tokenizers"))


def assert_in_order(prompt: str, *texts: str) -> None:
    assert re.search(".*".join(map(re.escape, texts)), prompt, re.DOTALL), prompt


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
