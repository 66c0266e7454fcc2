"""Requests in the forms that other programs send: fields, names of models, waits."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from rdchat.errors import PromptTooLongError
from rdchat.inference.api import ThinkingChoice
from rdchat.server.interfaces.fields import ApiError
from rdchat.server.server import Server
from rdchat.server.server_settings import Limits
from tests.late_module import LateModule
from tests.server.conftest import MakeServer, openai_client, send, streamed, wait_until
from tests.server.fakes import Script, ScriptedGate

if TYPE_CHECKING:
    from openai import OpenAI

openai_module = LateModule("openai")
ASK: dict[str, Any] = {"model": "tiny/model", "messages": [{"role": "user", "content": "Hi"}]}


def test_the_loaded_model_answers_for_one_that_is_not_installed(openai: OpenAI, gate: ScriptedGate) -> None:
    assert gate.model
    gate.model = replace(gate.model, name="tiny/модель")
    for name in ("gpt-9", "/etc/passwd", "../tiny/model", "gpt\n9"):
        raw = openai.chat.completions.with_raw_response.create(**(ASK | {"model": name}))
        assert raw.headers["x-rdchat-model-substituted"] == quote("tiny/модель")
        assert raw.parse().model == "tiny/модель"
    for name in ("", "tiny/модель"):
        raw = openai.chat.completions.with_raw_response.create(**(ASK | {"model": name}))
        assert "x-rdchat-model-substituted" not in raw.headers
    with pytest.raises(openai_module.NotFoundError):
        openai.models.retrieve("gpt-9")


def test_unknown_model_is_refused(make_server: MakeServer) -> None:
    with openai_client(make_server(substitutes_models=False)) as openai:
        for name in ("gpt-9", "other/model", "/etc/passwd", "../tiny/model"):
            with pytest.raises(openai_module.NotFoundError) as missing:
                openai.chat.completions.create(**(ASK | {"model": name}))
            assert missing.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({"max_tokens": -1}, 2048),
        ({"max_completion_tokens": -1.0}, 2048),
        ({"max_completion_tokens": -1, "max_tokens": 5}, 2048),
        ({"max_completion_tokens": 7, "max_tokens": -1}, 7),
        ({"max_tokens": 5}, 5),
    ],
)
def test_token_limit_may_say_that_there_is_none(
    openai: OpenAI, gate: ScriptedGate, given: dict[str, Any], limit: int
) -> None:
    openai.chat.completions.create(**ASK, extra_body=given)
    assert gate.requests[-1].sampling.max_tokens == limit
    if "max_completion_tokens" not in given:
        openai.completions.create(model="", prompt="x", extra_body=given)
        assert gate.requests[-1].sampling.max_tokens == limit


def test_top_p_0_keeps_the_best_token(openai: OpenAI, gate: ScriptedGate) -> None:
    openai.chat.completions.create(**ASK, top_p=0)
    assert 0 < gate.requests[0].sampling.top_p < 1e-6


@pytest.mark.parametrize(
    ("given", "thinking", "ignored"),
    [
        ({"chat_template_kwargs": {"enable_thinking": False, "colour": 1}}, ThinkingChoice.OFF, "colour"),
        ({"enable_thinking": False, "reasoning_effort": "high"}, ThinkingChoice.OFF, ""),
        ({"enable_thinking": True}, ThinkingChoice.ON, ""),
        ({"chat_template_kwargs": {"enable_thinking": None}}, None, ""),
    ],
)
def test_the_switch_for_thinking(
    openai: OpenAI, gate: ScriptedGate, given: dict[str, Any], thinking: ThinkingChoice | None, ignored: str
) -> None:
    assert gate.model
    gate.model = replace(gate.model, thinking=(ThinkingChoice.ON, ThinkingChoice.OFF))
    raw = openai.chat.completions.with_raw_response.create(**ASK, extra_body=given)
    assert gate.requests[0].thinking is thinking
    assert ignored in raw.headers.get("x-rdchat-ignored", "")
    assert "enable_thinking" not in raw.headers.get("x-rdchat-ignored", "")


def test_times_of_models(make_server: MakeServer, gate: ScriptedGate) -> None:
    gate.cards = (replace(gate.cards[0], changed=0.0), replace(gate.cards[0], name="old", changed=1_700_000_000.0))
    with openai_client(make_server(may_load_models=True)) as client:
        created = {each.id: each.created for each in client.models.list()}
    assert created.pop("old") == 1_700_000_000
    assert [abs(each - time.time()) < 600 for each in created.values()] == [True, True]


def test_a_full_context_is_known_by_its_code_and_words(openai: OpenAI, gate: ScriptedGate) -> None:
    full = ApiError(400, "This chat has 9 tokens. Shorten it.", code="context_length_exceeded")
    gate.scripts = [Script(refusal=full)]
    for stream in (False, True):
        with pytest.raises(openai_module.BadRequestError, match=r"maximum context length.*9 tokens") as refused:
            openai.chat.completions.create(**ASK, stream=stream)
        assert refused.value.code == "context_length_exceeded"


@pytest.fixture
def impatient(make_server: MakeServer, gate: ScriptedGate) -> Server:
    """A server that sends pings soon, in front of an engine that is busy."""
    gate.gate.shut()
    return make_server(Limits(silent_seconds=0.05))


def test_a_stream_that_waits_is_not_silent(impatient: Server, gate: ScriptedGate) -> None:
    with streamed(impatient, ASK) as running, streamed(impatient, ASK) as waiting:
        assert running.readline() == waiting.readline() == b": please wait\n"
        assert waiting.headers["content-type"].startswith("text/event-stream")
        assert {waiting.readline(), waiting.readline()} == {b"\n", b": please wait\n"}
        gate.gate.open()
        assert b"Hello" in running.read()
        assert waiting.read().endswith(b"data: [DONE]\n\n")


def test_a_stream_that_waits_with_a_full_context_is_refused_with_a_status(
    impatient: Server, gate: ScriptedGate
) -> None:
    with streamed(impatient, ASK):
        long = [{"role": "user", "content": "word " * 3000}]
        with streamed(impatient, ASK | {"messages": long}) as refused:
            assert (refused.status, json.loads(refused.read())["error"]["code"]) == (400, "context_length_exceeded")
        gate.count_error = PromptTooLongError("Far too long.", "Shorten it.")
        with streamed(impatient, ASK) as refused:
            assert (refused.status, json.loads(refused.read())["error"]["code"]) == (400, "context_length_exceeded")


def test_an_error_behind_a_ping_is_an_event(impatient: Server, gate: ScriptedGate) -> None:
    with streamed(impatient, ASK) as running, streamed(impatient, ASK) as waiting:
        wait_until(lambda: bool(gate.requests))
        gate.scripts = [Script(refusal=ApiError(400, "It is broken."))]
        assert waiting.readline() == b": please wait\n"
        gate.gate.open()
        running.read()
        assert b'data: {"error":{"message":"It is broken."' in waiting.read()


@pytest.mark.parametrize(("path", "allowed"), [("/v1/chat/completions", "POST"), ("/v1/models", "GET, HEAD")])
def test_a_method_that_is_not_allowed_is_told_which_ones_are(server: Server, path: str, allowed: str) -> None:
    status, _, headers = send(server, path=path, method="DELETE")
    assert (status, headers["allow"]) == (405, allowed)


def test_a_response_repeats_only_what_a_response_has(openai: OpenAI) -> None:
    more: Any = {"reasoning": {"effort": "low", "mode": "new"}, "text": {"format": {"type": "text"}, "new": 1}}
    raw = openai.responses.with_raw_response.create(model="", input="Hi", **more)
    told = json.loads(raw.text)
    assert (told["reasoning"], told["text"]) == ({"effort": "low", "summary": None}, {"format": {"type": "text"}})
    assert raw.headers["x-rdchat-ignored"] == "reasoning.mode, text.new"
