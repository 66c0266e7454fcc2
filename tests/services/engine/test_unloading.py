"""The model is freed when the person asks for it; what was asked of it ends, and the chat says so."""

import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import MessageStatus
from rdchat.inference.api import Mode
from rdchat.services.engine.engine_request import EngineState
from tests.services.fakes import ScriptedEngine
from tests.services.window import Window, pause_midway


def test_memory_comes_back_and_the_chat_has_no_model(qtbot: QtBot, window: Window, engine: ScriptedEngine) -> None:
    slot = window.controller.model_slot
    with qtbot.waitSignal(slot.unloaded) as told:
        slot.unload_model()
        assert window.controller.replies.state is EngineState.NO_MODEL
    assert told.args == [4000]
    assert engine.loaded is None
    assert slot.failure is None
    assert window.controller.drafting.option(Mode.AUTO) is None


def test_a_reply_under_way_is_stopped_with_what_it_has(qtbot: QtBot, window: Window, engine: ScriptedEngine) -> None:
    reply = pause_midway(window, engine)
    slot = window.controller.model_slot
    with qtbot.waitSignal(slot.unloaded):
        slot.unload_model()
    ended = next(message for message in window.controller.chat.path if message.id == reply)
    assert ended.text == "Hello,"
    assert ended.status is not MessageStatus.STREAMING


def test_a_reply_that_waits_for_the_model_says_that_there_is_none(
    qtbot: QtBot, unstarted: Window, engine: ScriptedEngine
) -> None:
    engine.load_gate.shut()
    unstarted.controller.open_last_chat()
    unstarted.controller.send("Hello")
    slot = unstarted.controller.model_slot
    with qtbot.waitSignal(slot.unloaded):
        slot.unload_model()
        engine.load_gate.open()
    assert unstarted.controller.chat.path[-1].status is MessageStatus.FAILED
    assert unstarted.controller.replies.state is EngineState.NO_MODEL


@pytest.mark.parametrize("gated", [False, True])
def test_a_load_takes_an_unloads_place(window: Window, engine: ScriptedEngine, gated: bool) -> None:
    slot = window.controller.model_slot
    if gated:
        engine.unload_gate.shut()
    slot.unload_model()
    slot.load_model("/models/other")
    engine.unload_gate.open()
    window.wait_for(EngineState.IDLE)
    assert slot.info is not None
    assert slot.info.name == "/models/other"
