"""Long chats, of which only what is shown is read, and messages that wait."""

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QToolButton

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.chat.storage import stored_chats
from rdchat.chat.storage.connections import Rows
from rdchat.chat.storage.stored_chats import read_messages
from rdchat.errors import StorageError
from rdchat.inference.api import DraftSettings, FinishReason, LoadProgress, Mode, Role
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.sidebar.rows import ACTIVITY
from rdchat.ui.window.main_window import MainWindow
from tests.services.fakes import Gate
from tests.stores import written_by_hand
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import press_key

COUNT = 1200


@pytest.fixture
def long_chat(chat: Chat) -> int:
    made = chat.store.create_conversation("Long")
    with written_by_hand(chat.store) as connection:
        for number in range(1, COUNT + 1):
            connection.execute(
                "INSERT INTO messages (id, conversation_id, parent_id, activated, role, status, created_at, text)"
                " VALUES (?, ?, ?, ?, ?, 'complete', 1.0, ?)",
                (number, made.id, number - 1 or None, number, (Role.ASSISTANT, Role.USER)[number % 2], f"m{number}"),
            )
    return made.id


@pytest.mark.slow
def test_opening_a_long_chat_reads_what_is_shown(
    chat: Chat, window: MainWindow, long_chat: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def count(rows: Rows, chat: int, ids: Sequence[int]) -> list[Message]:
        read.extend(ids)
        return read_messages(rows, chat, ids)

    monkeypatch.setattr(stored_chats, "read_messages", count)
    chat.open.open_chat(long_chat)
    chat.qtbot.wait(600)  # the context is counted, and what is above is drawn
    transcript = window.conversation.transcript
    assert [widget.message.text for widget in transcript.widgets.values()][-2:] == [f"m{COUNT - 1}", f"m{COUNT}"]
    assert len(read) == len(set(read)) < 100
    press_key(transcript, "Home")
    assert next(iter(transcript.widgets.values())).message.text == "m1"
    transcript.hits.go_to(601)
    assert 601 in transcript.widgets
    assert len(read) == len(set(read)) < 300


@pytest.mark.slow
def test_messages_that_cannot_be_read_are_told_and_what_is_shown_stays(
    chat: Chat, window: MainWindow, long_chat: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_broken = False

    def read(rows: Rows, chat: int, ids: Sequence[int]) -> list[Message]:
        if is_broken:
            raise StorageError("The disk does not answer.", "Try again.")
        return read_messages(rows, chat, ids)

    monkeypatch.setattr(stored_chats, "read_messages", read)
    chat.open.open_chat(long_chat)
    transcript = window.conversation.transcript
    shown = [widget.message.id for widget in transcript.widgets.values()]
    is_broken = True
    transcript.scroll_to_start()
    transcript.hits.go_to(601)
    bar = transcript.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    assert [widget.message.id for widget in transcript.widgets.values()] == shown
    assert window.conversation.banners.banner("storage") is not None
    is_broken = False
    transcript.scroll_to_start()
    assert next(iter(transcript.widgets.values())).message.text == "m1"


class SlowDisk:
    """Holds whoever reads what the model is told, until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.begun = threading.Event()
        self.threads = set[int]()
        self.error: StorageError | None = None

        def read(rows: Rows, chat: int, ids: Sequence[int]) -> list[Message]:
            if threading.current_thread() is threading.main_thread():
                return read_messages(rows, chat, ids)
            self.threads.add(threading.get_ident())
            self.begun.set()
            assert self.go.wait(60)
            if self.error:
                raise self.error
            return read_messages(rows, chat, ids)

        monkeypatch.setattr(stored_chats, "read_messages", read)


@pytest.fixture
def slow_disk(chat: Chat, window: MainWindow, long_chat: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    disk = SlowDisk(monkeypatch)
    chat.start()
    chat.open.open_chat(long_chat)
    yield disk
    disk.go.set()


@pytest.mark.slow
def test_sending_waits_for_no_disk_and_keeps_what_is_typed_meanwhile(
    chat: Chat, window: MainWindow, slow_disk: SlowDisk
) -> None:
    field = window.conversation.composer.field
    seen = list[str]()
    chat.open.message_added.connect(lambda message: seen.append(f"added {message.role.value}"))
    chat.open.reply_grew.connect(lambda _id, _text: seen.append("text"))
    chat.qtbot.keyClicks(field, "And now?")
    press_key(field, "Return")
    assert slow_disk.begun.wait(60)
    chat.qtbot.keyClicks(field, "Next")
    assert seen == ["added user", "added assistant"]
    assert chat.writing
    assert not chat.engine.requests
    assert chat.store.messages(chat.path[-1].conversation_id)[-2].text == "And now?"
    slow_disk.go.set()
    chat.wait_for_reply()
    assert seen[:3] == ["added user", "added assistant", "text"]
    told = [message.content for message in chat.engine.last_request.messages]
    assert told[-COUNT - 1 :] == [*(f"m{number}" for number in range(1, COUNT + 1)), "And now?"]
    assert window.conversation.composer.text == "Next"
    assert threading.get_ident() not in slow_disk.threads


@pytest.mark.slow
def test_a_reply_whose_chat_is_still_read_can_be_stopped_and_asked_for_again(
    chat: Chat, window: MainWindow, slow_disk: SlowDisk
) -> None:
    chat.controller.send("And now?")
    assert slow_disk.begun.wait(60)
    chat.controller.stop_reply()
    assert not chat.writing
    stopped = chat.path[-1]
    assert stopped.finish_reason is FinishReason.CANCELLED
    chat.controller.regenerate(stopped.id)
    slow_disk.go.set()
    chat.wait_for_reply()
    assert len(chat.engine.requests) == 1
    assert chat.path[-1].text == "Hello, you!"


@pytest.mark.slow
def test_a_reply_goes_on_in_its_chat_while_another_one_is_opened(
    chat: Chat, window: MainWindow, slow_disk: SlowDisk
) -> None:
    chat.controller.send("And now?")
    reply = chat.path[-1].id
    assert slow_disk.begun.wait(60)
    chat.open.start_new()
    slow_disk.go.set()
    chat.qtbot.waitUntil(lambda: chat.store.message(reply).status is MessageStatus.COMPLETE)
    assert chat.store.message(reply).text == "Hello, you!"
    assert not chat.path


@pytest.mark.slow
def test_a_chat_that_cannot_be_read_fails_the_reply_in_words(
    chat: Chat, window: MainWindow, slow_disk: SlowDisk
) -> None:
    slow_disk.error = StorageError("The disk does not answer.", "Try again.")
    chat.controller.send("And now?")
    slow_disk.go.set()
    chat.wait_for_reply()
    failed = chat.path[-1]
    assert (failed.status, failed.error) == (MessageStatus.FAILED, "The disk does not answer. Try again.")
    slow_disk.error = None
    chat.controller.regenerate(failed.id)
    chat.wait_for_reply()
    assert chat.path[-1].text == "Hello, you!"


def pause(chat: Chat, prompt: str) -> None:
    chat.start()
    chat.pause_reply(prompt)


def press(window: MainWindow, name: str) -> None:
    buttons = window.conversation.waiting.findChildren(QToolButton)
    shown = [button for button in buttons if button.accessibleName().startswith(name) and button.isVisible()]
    shown[0].click()


def test_a_message_that_waits_for_the_drafter_says_so(
    chat: Chat, window: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header shows the model: it is loaded."""
    chat.start()
    gate = Gate(open_=False)

    def load(_settings: DraftSettings, on_progress: Callable[[LoadProgress], None]) -> None:
        on_progress(LoadProgress("Loading the draft model small", 0.5))
        gate.wait()

    monkeypatch.setattr(chat.engine, "load_drafters", load)
    chat.controller.drafting.change(DraftSettings(Mode.SPECULATIVE, draft_model="small"))
    chat.qtbot.waitUntil(lambda: chat.controller.drafting.checking)
    chat.controller.send("One")
    chat.controller.send("Two")
    assert window.conversation.waiting.title.text() == "Sent when rdchat is ready"
    gate.open()
    chat.wait_for(EngineState.IDLE)


@pytest.mark.slow
def test_a_message_waits_visibly_and_is_edited_or_removed(chat: Chat, window: MainWindow) -> None:
    pause(chat, "One")
    conversation = window.conversation
    for text in ("Two", "Three"):
        chat.qtbot.keyClicks(conversation.composer.field, text)
        press_key(conversation.composer.field, "Return")
    assert conversation.waiting.isVisible()
    assert conversation.waiting.title.text() == "Sent when the current reply is finished"
    press(window, "Edit")
    assert conversation.composer.text == "Two"
    press(window, "Remove")
    assert not conversation.waiting.isVisible()
    chat.finish_reply()
    assert [message.text for message in chat.path] == ["One", "Hello, you!"]
    assert conversation.composer.text == "Two"


@pytest.mark.slow
def test_another_chat_shows_its_own_queue_and_the_sidebar_says_what_goes_on(chat: Chat, window: MainWindow) -> None:
    pause(chat, "One")
    first = chat.open.conversation.id
    chat.open.start_new()
    chat.controller.send("Two")
    second = chat.open.conversation.id
    rows = window.sidebar.list.rows

    def activity(chat_id: int) -> str:
        return str(rows.index(rows.index_of(("chat", chat_id)) or 0).data(ACTIVITY))

    assert (activity(first), activity(second)) == ("a reply is being written", "a message is waiting")
    place = rows.index(rows.index_of(("chat", first)) or 0)
    assert place.data(Qt.ItemDataRole.AccessibleTextRole) == "One, a reply is being written"
    assert window.conversation.waiting.title.text() == "Sent when the current reply is finished"
    assert not window.conversation.welcome.isVisible(), "the chat has begun"
    chat.open.open_chat(first)
    assert not window.conversation.waiting.isVisible()
