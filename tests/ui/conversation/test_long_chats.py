"""A long chat in the window: only what is shown is read, and it is the same chat."""

from collections.abc import Sequence

import pytest
from PySide6.QtCore import Qt

from rdchat.chat.conversation import Message
from rdchat.chat.storage.message_reader import MessageReader
from rdchat.errors import StorageError
from rdchat.inference.api.requests import Role
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat

COUNT = 1200


@pytest.fixture
def long_chat(chat: Chat) -> int:
    made = chat.store.create_conversation("Long")
    with chat.store._database.writing() as connection:
        for number in range(1, COUNT + 1):
            connection.execute(
                "INSERT INTO messages (id, conversation_id, parent_id, activated, role, status, created_at, text)"
                " VALUES (?, ?, ?, ?, ?, 'complete', 1.0, ?)",
                (number, made.id, number - 1 or None, number, (Role.ASSISTANT, Role.USER)[number % 2], f"m{number}"),
            )
    return made.id


def test_opening_a_long_chat_reads_what_is_shown(
    chat: Chat, window: MainWindow, long_chat: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    whole = MessageReader.read

    def count(reader: MessageReader, ids: Sequence[int]) -> list[Message]:
        read.extend(ids)
        return whole(reader, ids)

    monkeypatch.setattr(MessageReader, "read", count)
    chat.controller.desk.open_conversation(long_chat)
    chat.qtbot.wait(600)  # the context is counted, and what is above is drawn
    transcript = window.conversation.transcript
    assert [widget.message.text for widget in transcript._column.widgets()][-2:] == [f"m{COUNT - 1}", f"m{COUNT}"]
    assert len(read) == len(set(read)) < 100
    chat.qtbot.keyClick(transcript._column, Qt.Key.Key_Home)
    assert next(iter(transcript._column.widgets())).message.text == "m1"
    transcript.show_hit(601)
    assert transcript._column.widget_of(601) is not None
    assert len(read) == len(set(read)) < 300


def test_the_model_is_told_all_of_a_long_chat(chat: Chat, window: MainWindow, long_chat: int) -> None:
    chat.start()
    chat.controller.desk.open_conversation(long_chat)
    chat.controller.send("And now?")
    chat.qtbot.waitUntil(lambda: bool(chat.engine.requests), timeout=5000)
    told = [message.content for message in chat.engine.requests[-1].messages]
    assert told[-COUNT - 1 :] == [*(f"m{number}" for number in range(1, COUNT + 1)), "And now?"]


def test_messages_that_cannot_be_read_are_told_and_what_is_shown_stays(
    chat: Chat, window: MainWindow, long_chat: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat.controller.desk.open_conversation(long_chat)
    transcript = window.conversation.transcript
    shown = [widget.message.id for widget in transcript._column.widgets()]
    whole = MessageReader.read

    def fail(_reader: MessageReader, _ids: Sequence[int]) -> list[Message]:
        raise StorageError("The disk does not answer.", "Try again.")

    monkeypatch.setattr(MessageReader, "read", fail)
    transcript.scroll_to_start()
    transcript.show_hit(601)
    assert [widget.message.id for widget in transcript._column.widgets()] == shown
    assert window.conversation.banners.banner("storage") is not None
    monkeypatch.setattr(MessageReader, "read", whole)
    transcript.scroll_to_start()
    assert next(iter(transcript._column.widgets())).message.text == "m1"
