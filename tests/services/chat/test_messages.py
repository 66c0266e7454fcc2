"""Messages that are sent while the engine is busy wait in a queue, and nothing of them is lost."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rdchat.chat.conversation import MessageStatus
from rdchat.errors import ModelError
from rdchat.inference.api import BenchCell, BenchPlan, FinishReason, Prompt, Role
from rdchat.services.chat_list.chat_list import Activity
from rdchat.services.engine.engine_request import EngineState
from tests.services.fakes import Reply, ScriptedEngine
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


def test_an_edited_reply_is_an_alternative_and_what_the_model_is_told(window: Window, engine: ScriptedEngine) -> None:
    own = window.ask("Hi")
    window.controller.edit_message(own.id, "Good day!")
    assert window.texts == ["Hi", "Good day!"]
    edited = window.controller.chat.path[-1]
    assert (edited.edited, edited.sibling, edited.siblings, edited.model) == (True, 1, 2, "tiny")
    assert (edited.statistics, edited.drafting, edited.made_with) == (None, None, None)
    assert window.store.message(own.id).text == "Hello, you!"
    window.ask("Who are you?")
    assert [(turn.role, turn.content) for turn in engine.requests[-1].messages] == [
        (Role.USER, "Hi"),
        (Role.ASSISTANT, "Good day!"),
        (Role.USER, "Who are you?"),
    ]


def test_an_edit_that_changes_nothing_adds_nothing(window: Window, engine: ScriptedEngine) -> None:
    engine.replies = [Reply(("<think>hm</think>", "\n\nYes."))]
    own = window.ask("Hi")
    window.controller.edit_message(own.id, "Yes.")
    assert window.controller.chat.path[-1].siblings == 1
    window.controller.edit_message(own.id, "  \n")
    assert window.controller.chat.path[-1].siblings == 1
    assert window.seen.notices[-1].title == "The message is empty"


def test_an_edited_reply_that_names_a_thoughts_tag_is_said_whole(window: Window) -> None:
    own = window.ask("Hi")
    window.controller.edit_message(own.id, "Models begin thoughts with <think> tags.")
    assert window.controller.chat.path[-1].parts.answer == "Models begin thoughts with <think> tags."


def test_an_edited_reply_is_written_on(window: Window, engine: ScriptedEngine) -> None:
    own = window.ask("Hi")
    window.controller.edit_message(own.id, "Good day")
    edited = window.controller.chat.path[-1]
    window.controller.continue_reply(edited.id)
    window.qtbot.waitUntil(lambda: window.texts[-1] == "Good dayHello, you!" and not window.writing)
    assert engine.requests[-1].continue_last
    assert engine.requests[-1].messages[-1].content == "Good day"
    whole = window.store.message(edited.id)
    assert (whole.edited, whole.status) == (True, MessageStatus.COMPLETE)
    assert whole.drafting is not None
    assert whole.drafting.last_part  # the figures are of what the model wrote


def test_editing_stops_the_reply_that_is_being_written(window: Window, engine: ScriptedEngine) -> None:
    own = window.ask("Hi")
    pause_midway(window, engine, "More")
    window.controller.edit_message(own.id, "Good day!")
    engine.gate.open()
    window.qtbot.waitUntil(lambda: not window.writing)
    assert window.texts == ["Hi", "Good day!"]
    window.controller.chat.show_alternative(window.controller.chat.path[-1].id, -1)
    assert window.texts == ["Hi", "Hello, you!", "More", "Hello,"]


def test_a_deleted_message_comes_back_with_undo(window: Window) -> None:
    own = window.ask("Hi")
    window.ask("More")
    before = window.texts
    offered: list[str] = []
    window.controller.chats.order.undo_offered.connect(offered.append)
    window.controller.delete_message(own.id)
    assert window.texts == ["Hi"]
    assert offered == ["Deleted the reply and the 2 messages after it"]
    assert window.controller.chats.order.history.last is not None
    window.controller.chats.undo()
    assert window.texts == before


def test_undo_goes_back_to_the_chat_that_it_was_deleted_from(window: Window) -> None:
    own = window.ask("Hi")
    window.controller.delete_message(own.id)
    window.controller.chat.start_new()
    window.controller.chats.undo()
    assert window.texts == ["Hi", "Hello, you!"]


def test_a_reply_is_asked_for_again_where_the_only_one_was_deleted(window: Window, engine: ScriptedEngine) -> None:
    own = window.ask("Hi")
    window.controller.delete_message(own.id)
    window.controller.regenerate(window.controller.chat.path[-1].id)
    window.qtbot.waitUntil(lambda: window.texts == ["Hi", "Hello, you!"] and not window.writing)
    assert engine.requests[-1].seed != engine.requests[0].seed


def test_nothing_is_deleted_where_a_reply_is_being_written(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine)
    first = window.controller.chat.path[0]
    window.controller.delete_message(first.id)
    assert window.seen.notices[-1].title == "A reply is being written below it"
    window.controller.chat.show_alternative(first.id, 0)
    engine.gate.open()
    window.qtbot.waitUntil(lambda: window.texts == ["Hi", "Hello, you!"] and not window.writing)
    window.controller.delete_message(first.id)
    assert window.texts == []


def test_beside_a_reply_that_is_being_written_messages_are_deleted(window: Window, engine: ScriptedEngine) -> None:
    own = window.ask("Hi")
    engine.gate.shut()
    window.controller.regenerate(own.id)
    window.qtbot.waitUntil(lambda: window.writing)
    window.controller.delete_message(own.id)
    engine.gate.open()
    window.qtbot.waitUntil(lambda: not window.writing)
    assert window.texts == ["Hi", "Hello, you!"]
    assert window.controller.chat.path[-1].siblings == 1


def test_the_last_deleted_message_is_restored_later_and_that_is_undone(window: Window) -> None:
    own = window.ask("Hi")
    text = window.controller
    assert not text.has_deleted
    text.delete_message(own.id)
    assert text.has_deleted
    text.restore_deleted()
    assert (window.texts, text.has_deleted) == (["Hi", "Hello, you!"], False)
    window.controller.chats.undo()
    assert window.texts == ["Hi"]


def test_a_branch_is_opened_and_named_after_its_chat(window: Window) -> None:
    own = window.ask("Hi")
    window.ask("More")
    window.controller.chat.set_options(system_prompt="Be brief.")
    window.controller.chats.order.copied.connect(window.controller.chat.open_chat)  # as the sidebar does
    window.controller.branch(own.id)
    window.qtbot.waitUntil(lambda: window.texts == ["Hi", "Hello, you!"])
    assert window.titles == ["Branch of Hi", "Hi"]
    assert window.controller.chat.conversation.system_prompt == "Be brief."
    window.controller.chats.undo()
    assert window.titles == ["Hi"]
    assert window.texts[-2:] == ["More", "Hello, you!"]  # the chat that it came from is open
