"""Edits of replies, deletions of messages and branches, through a real controller and a real store."""

from rdchat.chat.conversation import MessageStatus
from rdchat.inference.api import Role
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.window import Window, pause_midway


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
