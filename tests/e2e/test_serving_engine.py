"""What the engine does for the server, on the real default model."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat.inference.api import (
    ChatMessage,
    DraftSettings,
    Dtype,
    FinishReason,
    GenerationRequest,
    Mode,
    ReplyEnd,
    Role,
    SamplingParams,
    TokenEvent,
)
from rdchat.inference.local_engine import LocalEngine
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_request import (
    FINAL,
    Command,
    EngineEvent,
    Failure,
    LoadModel,
    ReplyProgress,
    UnloadModel,
)
from tests.e2e.model_replies import reply
from tests.slow_replies import slow_replies

pytestmark = [pytest.mark.slow, pytest.mark.across_rows]

GREEDY = SamplingParams(temperature=0, max_tokens=12)


def ask(*texts: str, **options: object) -> GenerationRequest:
    roles = (Role.USER, Role.ASSISTANT)
    messages = tuple(ChatMessage(roles[place % 2], text) for place, text in enumerate(texts))
    return GenerationRequest(messages, GREEDY, draft=DraftSettings(Mode.LOOKUP), **options)  # type: ignore[arg-type]


def test_a_text_is_continued_without_a_template(model: LoadedModel) -> None:
    asked = GenerationRequest((), GREEDY, draft=DraftSettings(Mode.OFF), text="The capital of France is")
    end = reply(ChatSession(model), asked)
    assert end.statistics.prompt_tokens == len(model.tokenizer.encode("The capital of France is"))
    assert "Paris" in end.text


def test_the_bytes_of_tokens_are_those_of_the_text(model: LoadedModel) -> None:
    asked = replace(ask("Repeat these signs: 🦔🦊 漢字 ✈"), draft=DraftSettings(Mode.OFF), top_log_probs=5)
    *events, end = ChatSession(model).generate(asked)
    assert isinstance(end, ReplyEnd)
    tokens = [event for event in events if isinstance(event, TokenEvent)]
    if end.finish_reason is FinishReason.EOS:
        tokens.pop()
    said = b"".join(event.data for event in tokens).decode(errors="ignore")
    assert said.lstrip() == end.text.lstrip()
    for event in tokens:
        assert event.alternatives[0].token_id == event.token_id
        assert event.alternatives[0].log_prob == pytest.approx(event.log_prob, abs=1e-4)
        assert len(event.alternatives) == 5
    for text in ("🦔", "漢", "é"):
        ids = model.tokenizer.encode(text, add_special_tokens=False)
        assert b"".join(model.token_data(token) for token in ids).decode() == text


def test_the_servers_reply_goes_on_after_the_persons_and_ends_when_the_model_goes(
    qtbot: QtBot, default_model_folder: Path, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = EngineClient(LocalEngine, nullcontext)
    events: dict[str, list[EngineEvent]] = {name: [] for name in ("load", "server", "window", "last", "unload")}

    def submit(name: str, command: Command, *, direct: bool = False) -> None:
        client.submit(command, events[name].append, direct=direct)

    def has_ended(name: str) -> bool:
        return bool(events[name]) and isinstance(events[name][-1], FINAL)

    def wait_for(condition: Callable[[], bool]) -> None:
        qtbot.waitUntil(condition, timeout=120_000)

    long = replace(ask("Count from one to ten.", partition="key"), sampling=SamplingParams(0, max_tokens=30))
    try:
        submit("load", LoadModel(str(default_model_folder), Dtype.AUTO))
        wait_for(lambda: has_ended("load"))
        slow_replies(monkeypatch, 0.05)
        submit("server", long, direct=True)
        wait_for(lambda: any(isinstance(event, ReplyProgress) for event in events["server"]))
        submit("window", ask("Name a fruit."))
        wait_for(lambda: has_ended("window") and has_ended("server"))
        submit("last", replace(long, sampling=SamplingParams(0, max_tokens=1000)), direct=True)
        wait_for(lambda: any(isinstance(event, ReplyProgress) for event in events["last"]))
        submit("unload", UnloadModel())
        wait_for(lambda: has_ended("unload"))
    finally:
        assert client.shutdown(60)
    server, window, last = (events[name][-1] for name in ("server", "window", "last"))
    assert isinstance(server, ReplyEnd)
    assert isinstance(window, ReplyEnd)
    assert server.token_ids == reply(ChatSession(model), long).token_ids
    assert window.token_ids == reply(ChatSession(model), ask("Name a fruit.")).token_ids
    assert isinstance(last, Failure)
    assert last.message == "The model was changed in the window."
