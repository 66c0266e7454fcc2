"""The engine as the server sees it, and the window's model beside it."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.settings import Settings
from rdchat.errors import ModelError, PromptTooLongError
from rdchat.inference.api import (
    ChatMessage,
    FinishReason,
    GenerationRequest,
    ModelCard,
    ModelInfo,
    PrefillProgress,
    ReplyEnd,
    Role,
    TokenEvent,
)
from rdchat.server.interfaces.fields import ApiError
from rdchat.services.engine.engine_client import EngineClient, ModelSlot
from rdchat.services.server_control import SharedEngine
from tests.services.fakes import Reply, ScriptedEngine

ASK = GenerationRequest((ChatMessage(Role.USER, "Hi"),))
OTHER = ModelCard("other", "folder/other", "tests", Path("folder/other"))
BROKEN = ModelCard("broken", "folder/broken", "tests", problem="It is broken.")


def find() -> Sequence[ModelCard]:
    return (OTHER, BROKEN)


@pytest.fixture
def slot(make_client: Callable[..., EngineClient], qtbot: QtBot) -> ModelSlot:
    slot = ModelSlot(make_client(), Settings())
    slot.load_model("tiny")
    qtbot.waitUntil(lambda: slot.info is not None, timeout=60_000)
    return slot


@pytest.fixture
def shared(slot: ModelSlot) -> SharedEngine:
    return SharedEngine(slot, find)


def from_a_thread(qtbot: QtBot, begin: Callable[[Callable[[Any], object]], object]) -> list[Any]:
    """Begin something from a thread, as the server does; return its events once it has ended."""
    events: list[Any] = []
    caller = threading.Thread(target=begin, args=(events.append,))
    caller.start()
    ends = (ReplyEnd, ApiError, ModelInfo)
    qtbot.waitUntil(lambda: bool(events) and isinstance(events[-1], ends), timeout=60_000)
    caller.join()
    return events


def test_a_reply(shared: SharedEngine, qtbot: QtBot) -> None:
    events = from_a_thread(qtbot, lambda take: shared.generate(ASK, take))
    assert [type(event) for event in events] == [PrefillProgress] * 2 + [TokenEvent] * 4 + [ReplyEnd]


def test_tokens_are_counted(shared: SharedEngine) -> None:
    assert shared.count_tokens(ASK) == 2  # a word, and one for the message


def test_a_request_that_is_wrong_and_one_that_failed(
    shared: SharedEngine, engine: ScriptedEngine, qtbot: QtBot
) -> None:
    engine.replies = [Reply(refusal=PromptTooLongError("Long.", "Cut it.")), Reply(error=ModelError("Bad."))]
    refused = from_a_thread(qtbot, lambda take: shared.generate(ASK, take))
    assert refused == [ApiError(400, "Long. Cut it.", code="context_length_exceeded")]
    assert from_a_thread(qtbot, lambda take: shared.generate(ASK, take))[-1] == ApiError(500, "Bad.")


def test_a_reply_that_is_cancelled(shared: SharedEngine, engine: ScriptedEngine, qtbot: QtBot) -> None:
    engine.gate.shut()
    end = from_a_thread(qtbot, lambda take: shared.generate(ASK, take)())[-1]
    assert end.finish_reason is FinishReason.CANCELLED


def test_only_models_that_can_be_loaded(shared: SharedEngine) -> None:
    assert shared.installed() == (OTHER,)


def test_a_load_by_the_server_shows_in_the_window(shared: SharedEngine, slot: ModelSlot, qtbot: QtBot) -> None:
    shown: list[str] = []
    slot.load_started.connect(lambda: shown.append("started"))
    slot.loaded.connect(lambda info: shown.append(info.name))
    assert [each.name for each in from_a_thread(qtbot, lambda take: shared.load(OTHER, take))] == ["folder/other"]
    assert shared.model
    assert shared.model.name == "folder/other"
    qtbot.waitUntil(lambda: slot.info is not None, timeout=60_000)
    assert (slot.name, slot.chosen, shown) == ("folder/other", "folder/other", ["started", "folder/other"])


def test_a_load_that_fails_brings_the_model_from_before_back(
    shared: SharedEngine, slot: ModelSlot, engine: ScriptedEngine, qtbot: QtBot
) -> None:
    engine.load_errors["folder/other"] = ModelError("It is damaged.")
    assert from_a_thread(qtbot, lambda take: shared.load(OTHER, take)) == [ApiError(500, "It is damaged.")]
    qtbot.waitUntil(lambda: shared.model is not None, timeout=60_000)
    assert shared.model
    assert (shared.model.name, slot.name, slot.chosen) == ("tiny", "tiny", "tiny")


def test_the_person_chooses_another_model_while_the_server_loads_one(
    shared: SharedEngine, slot: ModelSlot, engine: ScriptedEngine, qtbot: QtBot
) -> None:
    engine.load_gate.shut()
    ends: list[Any] = []
    caller = threading.Thread(target=shared.load, args=(OTHER, ends.append))
    caller.start()
    qtbot.waitUntil(lambda: slot.loading, timeout=60_000)
    failed: list[object] = []
    slot.failed.connect(failed.append)
    slot.load_model("new")
    engine.load_gate.open()
    qtbot.waitUntil(lambda: slot.info is not None, timeout=60_000)
    caller.join()
    assert [type(end) for end in ends] == [ApiError]
    assert (slot.name, slot.chosen, failed) == ("new", "new", [])
    assert shared.model
    assert shared.model.name == "new"


def test_the_app_does_not_start_with_a_model_that_the_server_loaded(
    shared: SharedEngine, slot: ModelSlot, qtbot: QtBot
) -> None:
    from_a_thread(qtbot, lambda take: shared.load(OTHER, take))
    qtbot.waitUntil(lambda: slot.info is not None, timeout=60_000)
    settings = Settings(model="tiny")
    assert slot.remembered_in(settings) == settings


def test_a_load_in_the_window(shared: SharedEngine, slot: ModelSlot, engine: ScriptedEngine, qtbot: QtBot) -> None:
    engine.load_gate.shut()
    slot.load_model("new")
    assert shared.model is None
    engine.load_gate.open()
    qtbot.waitUntil(lambda: shared.model is not None, timeout=60_000)
    assert shared.model
    assert shared.model.name == "new"
    slot.unload_model()
    assert shared.model is None


def test_a_remote_model_answers_no_other_programs(shared: SharedEngine, slot: ModelSlot, qtbot: QtBot) -> None:
    slot.load_model("remote:studio/qwen")
    qtbot.waitUntil(lambda: slot.info is not None)
    assert shared.model is None
