"""With 100,000 chats, or 100,000 messages in one, a command costs what it changes and shows, not what is stored."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from rdchat.chat.conversation import Message
from rdchat.chat.listing import ChatRow
from rdchat.chat.storage import message_tree
from rdchat.chat.storage.connections import Rows, rows_of
from rdchat.chat.storage.database import Database
from rdchat.chat.storage.search import SearchQuery
from rdchat.inference.api import Role
from rdchat.services.chat_list.chat_order import Location
from rdchat.ui.window.main_window import MainWindow
from tests.stores import written_by_hand
from tests.ui.conftest import Chat

pytestmark = pytest.mark.slow

COUNT = 100_000
_MAX_ROWS = 2_000  # that Python reads for one command
_MAX_STEPS = 4_000_000  # of SQLite's machine: counting an index of all chats takes it half a million
_MAX_S = 1.0  # of the thread's processor time, on any machine; 0.1 s is the aim
_PER_CALL = 1000  # steps between two calls of the handler

type Do = Callable[[str, Callable[[], object]], None]


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


def test_a_command_does_not_depend_on_how_many_chats_there_are(chat: Chat, window: MainWindow, do: Do) -> None:
    add_chats(chat)
    controller, desk, order = chat.controller, chat.controller.chats, chat.controller.chats.order
    do("start", controller.open_last_chat)
    do("open", lambda: desk.chat.open_chat(5000))
    row = window.sidebar.list.current_row
    assert isinstance(row, ChatRow)
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


def test_a_command_does_not_depend_on_how_long_a_chat_is(chat: Chat, window: MainWindow, do: Do) -> None:
    conversation = add_messages(chat)
    controller, desk = chat.controller, chat.controller.chats

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
