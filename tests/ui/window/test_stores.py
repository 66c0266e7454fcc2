"""The window on large stores, and on odd ones made by hand, of which it shows what it can."""

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.chat.storage import Database, SearchQuery, message_tree
from rdchat.chat.storage.connections import Rows, rows_of
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import FinishReason, Role, Statistics
from rdchat.services.chat_list.chat_order import Location
from rdchat.ui.window.main_window import MainWindow
from tests.grids import share
from tests.stores import connect_by_hand, finish_message, written_by_hand
from tests.ui.conftest import Chat
from tests.ui.hovering import rich_labels

COUNT = 25_000
_MAX_ROWS = 500  # that Python reads for one command: as many chats are in the archive
_MAX_STEPS = 40 * COUNT  # of SQLite's machine: counting an index of all chats takes it 5 for each
_MAX_S = 0.5  # of the thread's processor time, on any machine; 0.1 s is the aim
_PER_CALL = 1000  # steps between two calls of the handler

type Do = Callable[[str, Callable[[], object]], None]


@pytest.fixture
def panel_visible() -> bool:
    return True


@pytest.fixture
def do(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> Iterator[Do]:
    """Run a command on the main thread and count its work on the store, that of the writer's thread too.

    The engine's thread reads a long chat for its prompt meanwhile: a command does not wait for that.
    """
    read = 0
    steps = 0
    rows = Database.rows
    database = chat.store

    def count[T](found: list[T]) -> list[T]:
        nonlocal read
        read += len(found)
        return found

    def count_rows(database: Database, sql: str, *parameters: object) -> list[tuple[object, ...]]:
        found = rows(database, sql, *parameters)
        return count(found) if threading.get_ident() == database._owner else found

    def count_rows_of(connection: sqlite3.Connection) -> Rows:
        return lambda *statement: count(rows_of(connection)(*statement))

    def count_steps() -> int:
        nonlocal steps
        steps += _PER_CALL
        return 0

    def run(name: str, act: Callable[[], object]) -> None:
        nonlocal read, steps
        read = 0
        steps = 0
        began = time.thread_time()
        act()
        taken = time.thread_time() - began
        assert read <= _MAX_ROWS, f"{name} reads {read:,} rows"
        assert steps <= _MAX_STEPS, f"{name} takes SQLite {steps:,} steps"
        assert taken <= _MAX_S, f"{name} takes {taken:.2f} s"

    monkeypatch.setattr(Database, "rows", count_rows)
    monkeypatch.setattr(message_tree, "rows_of", count_rows_of)
    database.rows("SELECT 1")
    database._reader.set_progress_handler(count_steps, _PER_CALL)
    database.write(lambda connection: connection.set_progress_handler(count_steps, _PER_CALL))
    yield run
    if not database._closed:
        database._reader.set_progress_handler(None, 0)
        database.write(lambda connection: connection.set_progress_handler(None, 0))


def add_chats(chat: Chat) -> None:
    """Store chats of a message each: half of them in folders, some pinned, in the archive and in the Trash."""
    folders = [chat.store.organiser.create_folder(f"Folder {number}").id for number in range(20)]
    now = time.time()
    with written_by_hand(chat.store) as connection:
        connection.executemany(
            "INSERT INTO conversations (id, title, created_at, updated_at, folder_id, pinned_at, archived_at,"
            " deleted_at) VALUES (?, ?, 0, ?, ?, ?, ?, ?)",
            (
                (number, f"Chat {number}", now - 600 * number, folders[number % 20] if number % 2 else None,
                 now if number % 1000 == 0 else None, now if number % 50 == 7 else None,
                 now if number % 50 == 9 else None)
                for number in range(1, COUNT + 1)
            ),
        )  # fmt: skip
        connection.executemany(
            "INSERT INTO messages (conversation_id, activated, role, status, created_at, text)"
            " VALUES (?, 1, 'user', 'complete', 0, ?)",
            ((number, f"w{number % 100}") for number in range(1, COUNT + 1)),
        )


def add_messages(chat: Chat) -> int:
    """Store one chat, with an alternative of its second message, of one in the middle, and of the last."""
    conversation = chat.store.create_conversation("Long").id
    with written_by_hand(chat.store) as connection:
        connection.executemany(
            "INSERT INTO messages (id, conversation_id, parent_id, activated, role, status, created_at, text)"
            " VALUES (?, ?, ?, ?, ?, 'complete', 0, ?)",
            (
                (number, conversation, number - 1 or None, number, ("assistant", "user")[number % 2], f"w{number % 9}")
                for number in range(1, COUNT + 1)
            ),
        )
        connection.executemany(
            "INSERT INTO messages (conversation_id, parent_id, activated, role, status, created_at, text)"
            " VALUES (?, ?, 0, 'assistant', 'complete', 0, 'another')",
            ((conversation, parent) for parent in (1, COUNT // 2 - 1, COUNT - 1)),
        )
    return conversation


@pytest.mark.slow
def test_a_command_does_not_depend_on_how_many_chats_there_are(chat: Chat, window: MainWindow, do: Do) -> None:
    add_chats(chat)
    controller, desk, order = chat.controller, chat.chats, chat.chats.order
    do("start", controller.open_last_chat)
    do("open", lambda: desk.chat.open_chat(5000))
    row = window.sidebar.list.current_row
    assert row.conversation.id == 5000
    chat.start()
    do("send", lambda: controller.send("Hello"))
    chat.wait_for_reply()
    for name, act in {
        "rename": lambda: desk.rename_conversation(5002, "Another title"),
        "pin": lambda: order.set_pinned(chat.store.conversation(5002), True),
        "move": lambda: order.move(chat.store.conversation(5002), order.folders[3].id),
        "archive": lambda: desk.archive_conversation(5002),
        "delete": lambda: desk.delete_conversation(5000),
        "create a folder": lambda: order.create_folder("Another folder"),
        "delete a folder": lambda: order.delete_folder(order.folders[4]),
    }.items():
        do(name, act)
        do(f"undo of {name}", desk.undo)
    assert desk.chat.stored_conversation is not None
    do("duplicate", lambda: order.duplicate(chat.store.conversation(5002)))
    chat.qtbot.waitUntil(lambda: getattr(desk.chat.stored_conversation, "title", "") == "Chat 5002 copy")
    do("fold", lambda: order.set_expanded(order.folders[2], False))
    do("unfold", lambda: order.set_expanded(order.folders[2], True))
    for place in (Location.ARCHIVE, Location.TRASH, Location.CHATS):
        do(f"show {place}", lambda place=place: window.sidebar.show_location(place))  # type: ignore[misc]
    for query in (SearchQuery("w5"), SearchQuery(folder_id=order.folders[1].id)):
        do("search", lambda query=query: desk.list_hits(query))  # type: ignore[misc]
        chat.qtbot.waitUntil(lambda: desk.answer is not None and desk.answer.total > 0)
        do("end of the search", lambda: desk.list_hits(""))
    do("scroll", window.sidebar.list.scrollToBottom)
    do("close", window.close)


@pytest.mark.slow
def test_a_command_does_not_depend_on_how_long_a_chat_is(chat: Chat, window: MainWindow, do: Do) -> None:
    conversation = add_messages(chat)
    controller, desk = chat.controller, chat.chats

    def last() -> Message:
        return controller.chat.path[-1]

    do("start", controller.open_last_chat)
    assert len(controller.chat.path) == COUNT
    chat.start()
    desk.chat.start_new()
    do("open", lambda: desk.chat.open_chat(conversation))

    def reply(name: str, ask: Callable[[], object]) -> None:
        do(name, ask)
        controller.stop_reply()  # before all of the chat is read for the engine
        assert not chat.writing

    reply("send", lambda: controller.send("Hello"))
    reply("regenerate", lambda: controller.regenerate(last().id))
    do("an alternative", lambda: controller.chat.show_alternative(last().id, -1))
    reply("edit", lambda: controller.edit_message(controller.chat.path[-2].id, "Hello again"))
    do("edit a reply", lambda: controller.edit_message(last().id, "Another reply"))
    do("delete", lambda: controller.delete_message(last().id))
    do("undo", desk.undo)
    do("back to the first question", lambda: controller.chat.show_alternative(controller.chat.path[-2].id, -1))
    for number in (COUNT // 2, 2):
        do("an alternative far up", lambda number=number: controller.chat.show_alternative(number, 1))  # type: ignore[misc]
        assert len(controller.chat.path) == number
        do("back", lambda: controller.chat.show_alternative(last().id, -1))
        assert len(controller.chat.path) > COUNT
    reply("regenerate far up", lambda: controller.regenerate(COUNT // 2))
    assert [message.role for message in controller.chat.path[-2:]] == [Role.USER, Role.ASSISTANT]
    do("back", lambda: controller.chat.show_alternative(last().id, -2))
    do("to the start", window.conversation.transcript.scroll_to_start)
    do("to the end", window.conversation.transcript.scroll_to_end)
    do("rename", lambda: desk.rename_conversation(conversation, "Another title"))
    do("delete the chat", lambda: desk.delete_conversation(conversation))
    do("bring it back", desk.undo)
    do("send", lambda: controller.send("Hello"))
    do("close", controller.shut_down)


MARKUP = "<img src=/dev/zero><h1>big</h1>" + "x" * 5000
_NUMBERS = ("prompt_tokens", "generated_tokens", "rounds", "drafted", "accepted", "target_calls", "peak_memory_bytes")
_TIMES = ("prefill_ms", "ttft_ms", "decode_ms", "plain_step_ms")


def counters(number: int, time: float, lengths: list[int]) -> str:
    named = dict.fromkeys(_NUMBERS, number) | dict.fromkeys(_TIMES, time)
    return json.dumps(named | {"drafted_lengths": lengths, "accepted_lengths": lengths})


ODD: dict[str, str] = {
    "dates": "UPDATE conversations SET created_at = 1e300, updated_at = 9e999",
    "dates before": "UPDATE conversations SET created_at = -1e300, updated_at = -9e999",
    "words": "UPDATE messages SET role = 'tool', status = 'odd', finish_reason = 'odd'",
    "markup": f"UPDATE messages SET model = '{MARKUP}', error = '{MARKUP}', status = 'failed'",
    "title": f"UPDATE conversations SET title = '{MARKUP}' || char(10, 0, 8238)",
    "no title": "UPDATE conversations SET title = ''",
    "negative": f"UPDATE messages SET statistics = '{counters(-7, -1e-300, [-1])}'",
    "large": f"UPDATE messages SET statistics = '{counters(2**63, 1e308, [2**63])}'",
    "small": f"UPDATE messages SET statistics = '{counters(2**63, 5e-324, [0] * 1000)}'",
    "many": f"UPDATE messages SET statistics = '{counters(3, 1.0, [2**40] * 100_000)}'",
    "drafting": """UPDATE messages SET drafting = '{"mode": "odd", "drafter": 3, "reason": "<b>why</b>"}'""",
    "sampling": """UPDATE conversations SET sampling = '{"temperature": 1e308, "max_tokens": -1, "stop": [1]}'""",
    "seed": "UPDATE messages SET seed = -1",
    "cycle": "UPDATE messages SET parent_id = 2 WHERE id = 1",
}


@pytest.fixture
def odd(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A chat in the store that the window opens, with one oddity."""
    path = tmp_path / "conversations.db"
    with closing(ConversationStore(path)) as store:
        chat = store.create_conversation("Sea")
        prompt = store.add_message(chat.id, None, Role.USER, "Tell me of the sea")
        reply = store.add_message(chat.id, prompt.id, Role.ASSISTANT, "", status=MessageStatus.STREAMING, seed=7)
        finish_message(
            store,
            reply.id,
            "It is wet.",
            MessageStatus.COMPLETE,
            finish_reason=FinishReason.EOS,
            statistics=Statistics(3, 1),
        )
    with closing(connect_by_hand(path)) as by_hand, by_hand:
        by_hand.execute(ODD[request.param])


@pytest.mark.parametrize("odd", share(ODD, 15), indirect=True)
def test_a_window_opens_on_it_and_the_chat_goes_on(odd: None, chat: Chat, window: MainWindow) -> None:
    chat.start()
    assert len(chat.path) == 2
    window.grab()
    assert rich_labels(window) == []
    for reply in chat.path:
        window.windows.show_tokens(reply.id)
    chat.say("And then?")
    assert [message.text for message in chat.path][3:] == ["Hello, you!"]
    window.grab()
    for other in window.findChildren(QWidget, options=Qt.FindChildOption.FindDirectChildrenOnly):
        if other.isWindow():
            other.close()
