"""Messages that are sent while the engine is busy wait in a queue, and nothing of them is lost."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rdchat.chat.conversation import MessageStatus
from rdchat.errors import ModelError
from rdchat.inference.api import Role
from rdchat.services.chat_list.chat_list import Activity
from rdchat.services.engine.engine_request import EngineState
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.window import Window, collected, pause_midway, restarted


def waiting(window: Window) -> list[str]:
    return [message.text for message in window.chat.unsent.waiting]


def prompts(engine: ScriptedEngine) -> list[str]:
    return [request.messages[-1].content for request in engine.requests]


def wait_for_replies(window: Window, engine: ScriptedEngine, count: int) -> None:
    replies = window.replies
    window.wait_until(lambda: len(engine.requests) == count and replies.free)


def test_what_is_sent_while_a_reply_is_written_is_answered_in_order(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine, "One")
    window.send("Two")
    window.send("Three")
    assert waiting(window) == ["Two", "Three"]
    assert window.texts == ["One", "Hello,"]
    engine.gate.open()
    wait_for_replies(window, engine, 3)
    assert window.texts == ["One", "Hello, you!", "Two", "Hello, you!", "Three", "Hello, you!"]
    assert not waiting(window)
    assert not window.seen.refused


def test_a_message_of_another_chat_waits_and_is_answered_there(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine, "First")
    chat = window.chat
    chats = window.chats
    first = chat.conversation.id
    chat.start_new()
    chat.set_options(system_prompt="Be brief.")
    window.send("Second")
    second = chat.conversation.id
    assert window.titles == ["Second", "First"]
    assert (chats.activity(first), chats.activity(second)) == (Activity.WRITING, Activity.WAITING)
    chat.open_chat(first)
    engine.gate.open()
    wait_for_replies(window, engine, 2)
    assert window.texts == ["First", "Hello, you!"]
    assert [message.text for message in window.store.messages(second)] == ["Second", "Hello, you!"]
    assert prompts(engine) == ["First", "Second"]
    assert engine.last_contents == ["Be brief.", "Second"], "the options of its chat"
    assert "".join(window.seen.grown) == "Hello, you!", "of the open chat alone"
    assert (chats.activity(first), chats.activity(second)) == (Activity.NONE, Activity.NEW)


def test_a_waiting_message_is_taken_back_before_what_is_typed(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine, "One")
    window.send("Two")
    window.chat.set_typed("And three")
    window.chat.take_back(window.chat.unsent.waiting[0])
    assert window.chat.typed == "Two\n\nAnd three"
    engine.gate.open()
    window.wait_until_idle()
    assert window.texts == ["One", "Hello, you!"]


def test_a_waiting_message_is_removed(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine, "One")
    window.send("Two")
    window.chat.unsent.end_wait(window.chat.unsent.waiting[0])
    engine.gate.open()
    window.wait_until_idle()
    assert window.texts == ["One", "Hello, you!"]
    assert window.chat.typed == ""


def test_stopping_a_reply_gives_waiting_messages_back(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine, "One")
    window.send("Two")
    window.send("Three")
    window.stop_reply()
    engine.gate.open()
    wait_for_replies(window, engine, 1)
    assert window.texts == ["One", "Hello,"]
    assert window.chat.typed == "Two\n\nThree"
    assert not waiting(window)


def test_after_a_quit_a_waiting_message_is_in_its_message_field(
    window: Window, engine: ScriptedEngine, window_on: Callable[[Path], Window]
) -> None:
    pause_midway(window, engine, "One")
    files = window.chat.files
    files.add_text("A long text")
    window.wait_until(lambda: not files.reason_to_wait())
    window.send("Two")
    window.send("Three")
    window.chat.set_typed("Typed")
    files.add_text("Another")
    stored = [text for _, text in window.store.unsent_files(window.chat.id)]
    assert stored == ["A long text"]
    again = restarted(window, window_on)
    assert again.texts == ["One", "Hello,"]
    assert again.chat.typed == "Two\n\nThree\n\nTyped"
    assert [text for _, text in again.chat.files.to_send()] == ["A long text", "Another"]
    assert not waiting(again)


def test_a_crash_finds_a_waiting_message_stored(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine, "One")
    chat = window.chat
    chat.start_new()
    window.send("Two")
    assert window.store.unsent_text(chat.id, None) == "Two"
    assert chat.typed == ""
    engine.gate.open()
    wait_for_replies(window, engine, 2)
    assert window.store.unsent_text(chat.id, None) == ""


def test_a_message_of_a_chat_that_was_deleted_meanwhile_is_not_sent(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine, "First")
    chat = window.chat
    first = chat.conversation.id
    chat.start_new()
    window.send("Second")
    second = chat.conversation.id
    chat.open_chat(first)
    window.chats.delete_conversation(second)
    engine.gate.open()
    window.wait_until(lambda: not waiting(window))
    assert prompts(engine) == ["First"]
    assert window.store.unsent_text(second, None) == "Second"


@pytest.mark.parametrize("command", ["send", "edit", "regenerate", "continue"])
def test_without_a_model_the_chosen_one_is_loaded_and_answers(
    window: Window, engine: ScriptedEngine, command: str
) -> None:
    reply = window.ask("One")
    window.slot.unload_model()
    window.wait_for(EngineState.NO_MODEL)
    match command:
        case "send":
            window.send("Two")
        case "edit":
            window.edit_message(window.chat.path[0].id, "Two")
        case "regenerate":
            window.controller.regenerate(reply.id)
        case _:
            window.continue_reply(reply.id)
    assert window.replies.state is EngineState.LOADING
    wait_for_replies(window, engine, 2)
    assert window.texts[-1].endswith("Hello, you!")
    assert [model for model, _ in engine.loads] == [None, None]


def test_messages_wait_where_no_model_loads(window: Window, engine: ScriptedEngine) -> None:
    window.slot.unload_model()
    engine.load_errors[None] = ModelError("The weights are cut short.")
    window.send("One")
    window.send("Two")
    window.wait_for(EngineState.NO_MODEL)
    assert window.last.error == "The weights are cut short."
    assert waiting(window) == ["Two"]
    engine.load_errors.clear()
    window.slot.retry()
    wait_for_replies(window, engine, 1)
    assert window.texts == ["One", "", "Two", "Hello, you!"]


def test_an_edited_reply_is_an_alternative_and_what_the_model_is_told(window: Window, engine: ScriptedEngine) -> None:
    own = window.ask("Hi")
    window.edit_message(own.id, "Good day!")
    assert window.texts == ["Hi", "Good day!"]
    edited = window.last
    assert (edited.edited, edited.sibling, edited.siblings, edited.model) == (True, 1, 2, "tiny")
    assert (edited.statistics, edited.drafting, edited.made_with) == (None, None, None)
    assert window.store.message(own.id).text == "Hello, you!"
    window.ask("Who are you?")
    assert [(turn.role, turn.content) for turn in engine.last_request.messages] == [
        (Role.USER, "Hi"),
        (Role.ASSISTANT, "Good day!"),
        (Role.USER, "Who are you?"),
    ]


def test_an_edit_that_changes_nothing_adds_nothing(window: Window, engine: ScriptedEngine) -> None:
    engine.replies = [Reply(("<think>hm</think>", "\n\nYes."))]
    own = window.ask("Hi")
    window.edit_message(own.id, "Yes.")
    assert window.last.siblings == 1
    window.edit_message(own.id, "  \n")
    assert window.last.siblings == 1
    assert window.seen.notices[-1].title == "The message is empty"


def test_an_edited_reply_that_names_a_thoughts_tag_is_said_whole(window: Window) -> None:
    own = window.ask("Hi")
    window.edit_message(own.id, "Models begin thoughts with <think> tags.")
    assert window.last.parts.answer == "Models begin thoughts with <think> tags."


def test_an_edited_reply_is_written_on(window: Window, engine: ScriptedEngine) -> None:
    own = window.ask("Hi")
    window.edit_message(own.id, "Good day")
    edited = window.last
    window.continue_reply(edited.id)
    window.wait_until(lambda: window.texts[-1] == "Good dayHello, you!" and not window.writing)
    assert engine.last_request.continue_last
    assert engine.last_request.messages[-1].content == "Good day"
    whole = window.store.message(edited.id)
    assert (whole.edited, whole.status) == (True, MessageStatus.COMPLETE)
    assert whole.drafting is not None
    assert whole.drafting.last_part  # the figures are of what the model wrote


def test_editing_stops_the_reply_that_is_being_written(window: Window, engine: ScriptedEngine) -> None:
    own = window.ask("Hi")
    pause_midway(window, engine, "More")
    window.edit_message(own.id, "Good day!")
    engine.gate.open()
    window.wait_until(lambda: not window.writing)
    assert window.texts == ["Hi", "Good day!"]
    window.chat.show_alternative(window.last.id, -1)
    assert window.texts == ["Hi", "Hello, you!", "More", "Hello,"]


def test_a_deleted_message_comes_back_with_undo(window: Window) -> None:
    own = window.ask("Hi")
    window.ask("More")
    before = window.texts
    offered = collected(window.chats.order.undo_offered)
    window.delete_message(own.id)
    assert window.texts == ["Hi"]
    assert offered == ["Deleted the reply and the 2 messages after it"]
    window.chat.start_new()
    window.chats.undo()
    assert window.texts == before, "in the chat that it was deleted from"


def test_a_reply_is_asked_for_again_where_the_only_one_was_deleted(window: Window, engine: ScriptedEngine) -> None:
    own = window.ask("Hi")
    window.delete_message(own.id)
    window.controller.regenerate(window.last.id)
    window.wait_until(lambda: window.texts == ["Hi", "Hello, you!"] and not window.writing)
    assert engine.last_request.seed != engine.requests[0].seed


def test_nothing_is_deleted_where_a_reply_is_being_written(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine)
    first = window.chat.path[0]
    window.delete_message(first.id)
    assert window.seen.notices[-1].title == "A reply is being written below it"
    window.chat.show_alternative(first.id, 0)
    engine.gate.open()
    window.wait_until(lambda: window.texts == ["Hi", "Hello, you!"] and not window.writing)
    window.delete_message(first.id)
    assert window.texts == []


def test_beside_a_reply_that_is_being_written_messages_are_deleted(window: Window, engine: ScriptedEngine) -> None:
    own = window.ask("Hi")
    engine.gate.shut()
    window.controller.regenerate(own.id)
    window.wait_until(lambda: window.writing)
    window.delete_message(own.id)
    engine.gate.open()
    window.wait_until(lambda: not window.writing)
    assert window.texts == ["Hi", "Hello, you!"]
    assert window.last.siblings == 1


def test_the_last_deleted_message_is_restored_later_and_that_is_undone(window: Window) -> None:
    own = window.ask("Hi")
    controller = window.controller
    chat_id = own.conversation_id
    assert not controller.has_deleted(chat_id)
    window.delete_message(own.id)
    assert controller.has_deleted(chat_id)
    window.chat.start_temporary()
    window.ask("In between")
    controller.restore_deleted(chat_id)
    assert controller.has_deleted(chat_id), "a temporary chat is not left without a question"
    window.chat.discard()
    window.chat.start_new()
    controller.restore_deleted(chat_id)
    assert (window.texts, controller.has_deleted(chat_id)) == (["Hi", "Hello, you!"], False)
    window.chats.undo()
    assert window.texts == ["Hi"]


def test_a_branch_is_opened_and_named_after_its_chat(window: Window) -> None:
    own = window.ask("Hi")
    window.ask("More")
    window.chat.set_options(system_prompt="Be brief.")
    window.chats.order.copied.connect(window.chat.open_chat)  # as the sidebar does
    window.controller.branch(own.id)
    window.wait_until(lambda: window.texts == ["Hi", "Hello, you!"])
    assert window.titles == ["Branch of Hi", "Hi"]
    assert window.chat.conversation.system_prompt == "Be brief."
    window.chats.undo()
    assert window.titles == ["Hi"]
    assert window.texts[-2:] == ["More", "Hello, you!"]  # the chat that it came from is open
