"""Quitting while the store does not take what was written."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtWidgets import QMessageBox

from rdchat.chat.conversation import NEW_CHAT, Message
from rdchat.chat.storage import connections
from rdchat.inference.api import Role
from rdchat.services.chat.chat_prompt import ChatPrompt
from rdchat.services.chat.reply_recorder import Reply as ChatReply
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.window.main_window import MainWindow
from rdchat.ui.window.unsaved_question import detail_text, question_text
from tests.grids import share
from tests.processes import held_by_another_process
from tests.services.fakes import Reply
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import answer_question

TEXT = "Once upon a time, " + "there was a sea. " * 37


@pytest.fixture(autouse=True)
def impatient_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only briefly for a program that holds the database: here one holds it for a whole test."""
    monkeypatch.setattr(connections, "_BUSY_S", 0.02)


@contextmanager
def reply_while_locked(chat: Chat, question: str, title: str = "") -> Iterator[None]:
    """Let a reply end while another program holds the database; first give the chat another title."""
    chat.start()
    chat.hold_reply(question)
    if title:
        chat.chats.rename_conversation(chat.open.conversation.id, title)
    with held_by_another_process(chat.store.path):
        chat.finish_reply()
        yield


@pytest.fixture
def locked(chat: Chat, window: MainWindow) -> Iterator[None]:
    chat.engine.replies = [Reply(tokens=("Once upon a time, ", "there was a sea. " * 37))]
    with reply_while_locked(chat, "Tell me a story"):
        yield


def boxes(window: MainWindow) -> list[QMessageBox]:
    return [box for box in window.findChildren(QMessageBox, "unsaved") if box.isVisible()]


def unsaved(title: str, text: str, missing: int) -> ChatReply:
    message = Message(1, 1, None, Role.ASSISTANT, text)
    conversation = replace(NEW_CHAT, title=title)
    return ChatReply(message, ChatPrompt((), ""), conversation, saved_text=text[: len(text) - missing])


def rescued(chat: Chat) -> list[Path]:
    return list(chat.store.path.parent.glob("unsaved-replies-*.md"))


def test_quitting_says_what_is_not_saved_and_keeps_it_in_a_file(locked: None, chat: Chat, window: MainWindow) -> None:
    assert not window.close()
    assert window.isVisible()
    (box,) = boxes(window)
    assert box.text() == f"Quit without saving {len(TEXT)} characters of “Tell me a story”?"
    assert f"Another program is using {chat.store.path}." in box.informativeText()
    assert f"“Tell me a story”: {len(TEXT)} of {len(TEXT)} characters" in box.informativeText()
    assert not window.close()
    assert len(boxes(window)) == 1  # asked once
    answer_question(window, "Cancel")
    assert window.isVisible()
    assert chat.controller.replies.state is EngineState.IDLE  # nothing was ended
    assert not window.close()
    answer_question(window, "Quit Anyway")
    assert not window.isVisible()
    assert [file.read_text() for file in rescued(chat)] == [f"# Tell me a story\n\n{TEXT.rstrip()}\n"]


@pytest.mark.slow
def test_trying_again_asks_again_while_nothing_has_changed(locked: None, chat: Chat, window: MainWindow) -> None:
    window.close()
    answer_question(window, "Try Again")
    assert window.isVisible()
    answer_question(window, "Try Again")
    assert len(boxes(window)) == 1
    answer_question(window, "Quit Anyway")
    assert not window.isVisible()


@pytest.mark.slow
def test_a_signal_waits_for_an_answer_for_some_time_only_and_keeps_the_text(
    locked: None, chat: Chat, window: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdchat.ui.window.main_window._ANSWER_MS", 300)
    window.close_soon()
    assert len(boxes(window)) == 1
    chat.qtbot.waitUntil(lambda: not window.isVisible())
    assert len(rescued(chat)) == 1


@pytest.mark.slow
def test_a_second_signal_waits_for_nobody(locked: None, chat: Chat, window: MainWindow) -> None:
    window.close_soon()
    assert window.isVisible()
    window.close_soon()
    assert not window.isVisible()
    assert len(rescued(chat)) == 1


def test_the_question_has_the_title_that_the_chat_was_renamed_to(chat: Chat, window: MainWindow) -> None:
    with reply_while_locked(chat, "Tell me a story", "A story"):
        assert not window.close()
        (box,) = boxes(window)
        assert box.text() == "Quit without saving 11 characters of “A story”?"


def test_words_name_chats_and_characters() -> None:
    one = unsaved("Sea", "x" * 640, 606)
    assert question_text([one]) == "Quit without saving 606 characters of “Sea”?"
    assert question_text([one, unsaved("Land", "xy", 1)]) == "Quit without saving 607 characters of 2 chats?"
    many = detail_text([unsaved("S" * 50, "xy", 1)] * 7, None).splitlines()
    assert len(many) == 8
    assert many[0] == f"“{'S' * 39}…”: 1 of 2 characters"
    assert many[-3] == "and 2 more replies"


CLOSING = {
    "server": "end_server",
    "earlier": "end_work",
    "titles": "stop_writing",
    "context": "end_threads",
    "chats": "close_list",
    "recorder": "end_replies",
    "traces": "end_traces",
    "_engine": "shutdown",
}


@pytest.mark.parametrize("part", share([*CLOSING], 9))
def test_an_error_while_quitting_does_not_keep_the_text_from_being_rescued(
    locked: None, chat: Chat, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    closed = getattr(chat.controller, part)
    name = CLOSING[part]
    close = getattr(closed, name)

    def fail(*_arguments: object) -> None:
        close()
        raise TypeError("a mistake")

    monkeypatch.setattr(closed, name, fail)
    chat.controller.shut_down()
    assert len(rescued(chat)) == 1
