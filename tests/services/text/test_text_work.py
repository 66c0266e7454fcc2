"""Edits of replies, deletions of messages and branches, through a real controller and a real store."""

from rdchat.chat.conversation import MessageStatus
from rdchat.inference.api.requests import Role
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.window import Window, pause_midway


def test_an_edited_reply_is_an_alternative_and_what_the_model_is_told(window: Window, engine: ScriptedEngine) -> None:
    own = window.ask("Hi")
    window.controller.edit_message(own.id, "Good day!")
    assert window.texts == ["Hi", "Good day!"]
    edited = window.controller.messages[-1]
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
    window.controller.edit_message(own.id, own.parts.answer)
    assert window.controller.messages[-1].siblings == 1
    window.controller.edit_message(own.id, "  \n")
    assert window.controller.messages[-1].siblings == 1
    assert window.seen.notices[-1].title == "The message is empty"


def test_an_edited_reply_is_written_on(window: Window, engine: ScriptedEngine) -> None:
    own = window.ask("Hi")
    window.controller.edit_message(own.id, "Good day")
    edited = window.controller.messages[-1]
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
    window.controller.show_alternative(window.controller.messages[-1].id, -1)
    assert window.texts == ["Hi", "Hello, you!", "More", "Hello,"]
