"""Messages that are sent while the engine is busy wait in a queue, and nothing of them is lost."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rdchat.errors import ModelError
from rdchat.inference.api import BenchCell, BenchPlan, FinishReason, Prompt
from rdchat.services.chat_list.chat_list import Activity
from rdchat.services.engine.engine_request import EngineState
from tests.services.fakes import ScriptedEngine
from tests.services.window import WAIT_MS, Window, pause_midway


def waiting(window: Window) -> list[str]:
    return [message.text for message in window.controller.chat.unsent.waiting]


def prompts(engine: ScriptedEngine) -> list[str]:
    return [request.messages[-1].content for request in engine.requests]


def wait_for_replies(window: Window, engine: ScriptedEngine, count: int) -> None:
    replies = window.controller.replies
    window.qtbot.waitUntil(lambda: len(engine.requests) == count and replies.free, timeout=WAIT_MS)


def test_what_is_sent_while_a_reply_is_written_is_answered_in_order(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine, "One")
    window.controller.send("Two")
    window.controller.send("Three")
    assert waiting(window) == ["Two", "Three"]
    assert window.texts == ["One", "Hello,"]
    engine.gate.open()
    wait_for_replies(window, engine, 3)
    assert window.texts == ["One", "Hello, you!", "Two", "Hello, you!", "Three", "Hello, you!"]
    assert not waiting(window)
    assert not window.seen.refused


def test_a_message_of_another_chat_waits_and_is_answered_there(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine, "First")
    chat = window.controller.chat
    chats = window.controller.chats
    first = chat.conversation.id
    chat.start_new()
    window.controller.send("Second")
    second = chat.conversation.id
    assert window.titles == ["Second", "First"]
    assert (chats.activity(first), chats.activity(second)) == (Activity.WRITING, Activity.WAITING)
    chat.open_chat(first)
    engine.gate.open()
    wait_for_replies(window, engine, 2)
    assert window.texts == ["First", "Hello, you!"]
    assert [message.text for message in window.store.messages(second)] == ["Second", "Hello, you!"]
    assert prompts(engine) == ["First", "Second"]
    assert (chats.activity(first), chats.activity(second)) == (Activity.NONE, Activity.NEW)


def test_a_waiting_message_keeps_the_options_of_its_chat(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine, "First")
    chat = window.controller.chat
    first = chat.conversation.id
    chat.start_new()
    chat.set_options(system_prompt="Be brief.")
    window.controller.send("Second")
    chat.open_chat(first)
    engine.gate.open()
    wait_for_replies(window, engine, 2)
    assert [message.content for message in engine.requests[-1].messages] == ["Be brief.", "Second"]


def test_a_waiting_message_is_taken_back_before_what_is_typed(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine, "One")
    window.controller.send("Two")
    window.controller.chat.set_typed("And three")
    window.controller.chat.take_back(window.controller.chat.unsent.waiting[0])
    assert window.controller.chat.typed == "Two\n\nAnd three"
    engine.gate.open()
    window.wait_for(EngineState.IDLE)
    assert window.texts == ["One", "Hello, you!"]


def test_a_waiting_message_is_removed(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine, "One")
    window.controller.send("Two")
    window.controller.chat.unsent.end_wait(window.controller.chat.unsent.waiting[0])
    engine.gate.open()
    window.wait_for(EngineState.IDLE)
    assert window.texts == ["One", "Hello, you!"]
    assert window.controller.chat.typed == ""


def test_stopping_a_reply_gives_waiting_messages_back(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine, "One")
    window.controller.send("Two")
    window.controller.send("Three")
    window.controller.stop_reply()
    engine.gate.open()
    wait_for_replies(window, engine, 1)
    assert window.texts == ["One", "Hello,"]
    assert window.controller.chat.typed == "Two\n\nThree"
    assert not waiting(window)


def test_a_reply_that_another_model_stops_says_so(window: Window, engine: ScriptedEngine) -> None:
    reply = pause_midway(window, engine, "One")
    window.controller.model_slot.load_model("/models/other")
    engine.gate.open()
    window.wait_for(EngineState.IDLE)
    stopped = window.store.message(reply)
    assert stopped.finish_reason is FinishReason.CANCELLED
    assert stopped.error == "Stopped: another model was loaded."


def test_after_a_quit_a_waiting_message_is_in_its_message_field(
    window: Window, engine: ScriptedEngine, window_on: Callable[[Path], Window], tmp_path: Path
) -> None:
    pause_midway(window, engine, "One")
    files = window.controller.chat.files
    files.add_text("A long text")
    window.qtbot.waitUntil(lambda: not files.reason_to_wait(), timeout=WAIT_MS)
    window.controller.send("Two")
    window.controller.send("Three")
    window.controller.chat.set_typed("Typed")
    files.add_text("Another")
    stored = [text for _, text in window.store.unsent_files(window.controller.chat.id)]
    assert stored == ["A long text"]
    window.controller.shut_down()
    window.store.close()
    again = window_on(tmp_path)
    again.controller.open_last_chat()
    assert again.texts == ["One", "Hello,"]
    assert again.controller.chat.typed == "Two\n\nThree\n\nTyped"
    assert [text for _, text in again.controller.chat.files.to_send()] == ["A long text", "Another"]
    assert not waiting(again)


def test_a_crash_finds_a_waiting_message_stored(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine, "One")
    chat = window.controller.chat
    chat.start_new()
    window.controller.send("Two")
    assert window.store.unsent_text(chat.id, None) == "Two"
    assert chat.typed == ""
    engine.gate.open()
    wait_for_replies(window, engine, 2)
    assert window.store.unsent_text(chat.id, None) == ""


def test_a_message_of_a_chat_that_was_deleted_meanwhile_is_not_sent(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine, "First")
    chat = window.controller.chat
    first = chat.conversation.id
    chat.start_new()
    window.controller.send("Second")
    second = chat.conversation.id
    chat.open_chat(first)
    window.controller.chats.delete_conversation(second)
    engine.gate.open()
    window.qtbot.waitUntil(lambda: not waiting(window), timeout=WAIT_MS)
    assert prompts(engine) == ["First"]
    assert window.store.unsent_text(second, None) == "Second"


def test_a_message_waits_for_the_end_of_a_benchmark(window: Window, engine: ScriptedEngine) -> None:
    engine.gate.shut()
    window.controller.benchmark.run_plan(BenchPlan((BenchCell(),), (Prompt("Hi"),)), {})
    window.controller.send("One")
    assert waiting(window) == ["One"]
    window.controller.benchmark.end_runs()
    engine.gate.open()
    wait_for_replies(window, engine, 1)
    assert window.texts == ["One", "Hello, you!"]


@pytest.mark.parametrize("command", ["send", "edit", "regenerate"])
def test_without_a_model_the_chosen_one_is_loaded_and_answers(
    window: Window, engine: ScriptedEngine, command: str
) -> None:
    reply = window.ask("One")
    window.controller.model_slot.unload_model()
    window.wait_for(EngineState.NO_MODEL)
    if command == "send":
        window.controller.send("Two")
    elif command == "edit":
        window.controller.edit_message(window.controller.chat.path[0].id, "Two")
    else:
        window.controller.regenerate(reply.id)
    assert window.controller.replies.state is EngineState.LOADING
    wait_for_replies(window, engine, 2)
    assert window.texts[-1] == "Hello, you!"
    assert [model for model, _ in engine.loads] == [None, None]


def test_messages_wait_where_no_model_loads(window: Window, engine: ScriptedEngine) -> None:
    window.controller.model_slot.unload_model()
    engine.load_errors[None] = ModelError("The weights are cut short.")
    window.controller.send("One")
    window.controller.send("Two")
    window.wait_for(EngineState.NO_MODEL)
    assert window.controller.chat.path[-1].error == "The weights are cut short."
    assert waiting(window) == ["Two"]
    engine.load_errors.clear()
    window.controller.model_slot.retry()
    wait_for_replies(window, engine, 1)
    assert window.texts == ["One", "", "Two", "Hello, you!"]
