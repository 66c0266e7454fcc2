"""Long paths read messages only when needed, and equal a list of all messages."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.chat.attachments.attached_file import FileKind, ReadFile, attached
from rdchat.chat.conversation import Message, MessagePath, MessageStatus, from_cut, uncut
from rdchat.chat.storage import MessageTree, message_tree, stored_chats
from rdchat.chat.storage.connections import Rows
from rdchat.chat.storage.stored_chats import read_messages
from rdchat.chat.store import ConversationStore
from rdchat.chat.summaries import ContextCut
from rdchat.errors import StorageError
from rdchat.inference.api import Role
from tests.chat.conftest import OpenStore
from tests.chat.traces import STATISTICS
from tests.stores import cut_of, finish_message, written_by_hand

COUNT = 300


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of messages that are read on the store's connection, in order."""
    ids: list[int] = []

    def count(rows: Rows, chat: int, some: Sequence[int]) -> list[Message]:
        ids.extend(some)
        return read_messages(rows, chat, some)

    monkeypatch.setattr(stored_chats, "read_messages", count)
    return ids


@pytest.fixture(scope="module")
def stored_chat(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Message]]:
    """A closed store, and the messages of its chat: with statistics, an alternative, a file, and an empty one."""
    store = ConversationStore(tmp_path_factory.mktemp("long") / "chats.db")
    chat = store.create_conversation()
    parent = None
    for number in range(1, COUNT + 1):
        role = (Role.ASSISTANT, Role.USER)[number % 2]
        files = [(attached(ReadFile("a.txt", FileKind.TEXT, ("words",)), "words"), "words")] if number % 50 == 1 else []
        text = "" if number == 70 else f"m{number}"
        parent = store.add_message(chat.id, parent, role, text, files=files).id
        if number == 100:
            finish_message(store, parent, text, MessageStatus.COMPLETE, statistics=STATISTICS)
    other = store.add_message(chat.id, 19, Role.ASSISTANT, "another")
    finish_message(store, other.id, "another", MessageStatus.COMPLETE, statistics=STATISTICS)
    store.select_sibling(20, 0)
    messages = [store.message(number) for number in range(1, COUNT + 1)]
    store.close()
    return store.path, messages


@pytest.fixture
def messages(stored_chat: tuple[Path, list[Message]], database: Path) -> list[Message]:
    """The messages of the chat that `open_store` finds."""
    path, messages = stored_chat
    database.parent.mkdir()
    shutil.copyfile(path, database)
    return messages


@pytest.fixture
def store(messages: list[Message], open_store: OpenStore) -> ConversationStore:
    return open_store()


def test_opening_reads_the_end_alone_and_what_is_asked_for_then(
    store: ConversationStore, messages: list[Message], read: list[int]
) -> None:
    path = store.messages(1)
    assert len(path) == COUNT
    assert list(path.ids) == [message.id for message in messages]
    assert len(read) < 20
    assert path[-1] == messages[-1]
    assert path.find_message(100) == messages[99]
    assert path.find_message(100) is path[99]
    assert path.read_messages(96, 102) == messages[96:102]
    assert path.find_message(COUNT + 1) is None
    assert len(read) == len(set(read)) < COUNT
    assert path == messages
    assert path != messages[:-1]
    assert path != [*messages[:-1], messages[0]]
    assert len(read) == len(set(read)) == COUNT


def test_parts_and_both_directions_are_those_of_a_list(store: ConversationStore, messages: list[Message]) -> None:
    for part in (slice(None), slice(40, 90), slice(-1), slice(120, None)):
        assert list(store.messages(1)[part]) == messages[part]
        assert list(reversed(store.messages(1)[part])) == messages[part][::-1]


def test_the_last_cut_counts_wherever_it_is(store: ConversationStore, read: list[int]) -> None:
    store.set_context_cut(10, ContextCut("early"))
    store.set_context_cut(90, ContextCut('It says "shortens":true.'))
    store.set_context_cut(100, ContextCut(shortens=True))
    read.clear()
    path = store.messages(1)
    assert len(uncut(path)) == COUNT - 90
    assert len(read) < 20
    assert cut_of(path) == store.message(90)
    assert path.shortened_index == 99
    assert from_cut(path)[0].id == 90
    path.update_message(replace(path[89], context_cut=None))
    assert cut_of(path) == store.message(10)
    path.update_message(replace(path[9], context_cut=None))
    assert cut_of(path) is None
    assert len(from_cut(path)) == COUNT


def test_the_last_reply_is_one_that_ended_on_the_path(store: ConversationStore) -> None:
    path = store.messages(1)
    newest = next(each for each in reversed(path) if each.role is Role.ASSISTANT)
    assert path.last_reply == newest
    path.update_message(replace(newest, status=MessageStatus.STREAMING))
    assert path.last_reply is not None
    assert path.last_reply.id < newest.id
    assert MessagePath([], None).last_reply is None


def test_copies_change_apart_and_keep_what_is_not_stored(store: ConversationStore, messages: list[Message]) -> None:
    path = store.messages(1)
    copy = path[:]
    copy.update_message(replace(copy[40], text="written on"))
    copy.append(replace(messages[0], id=COUNT + 2, text="more"))
    assert path == messages
    assert [copy[40].text, copy[-1].text, copy.find_message(COUNT + 2)] == ["written on", "more", copy[-1]]


def test_a_message_that_is_gone_is_told_and_the_others_stay(store: ConversationStore, messages: list[Message]) -> None:
    path = store.messages(1)
    with written_by_hand(store) as connection:
        connection.execute("PRAGMA defer_foreign_keys = ON")
        connection.execute("UPDATE messages SET parent_id = 49 WHERE parent_id = 50")
        connection.execute("DELETE FROM messages WHERE id = 50")
    with pytest.raises(StorageError, match="no longer exists"):
        path.read_messages(40, 60)
    assert path.read_messages(51, 60) == messages[51:60]


def test_places_are_those_of_a_list_of_ids(store: ConversationStore) -> None:
    path = MessagePath([9, 4, 7], None)
    assert [path.index_of(each) for each in (9, 4, 7, 5)] == [0, 1, 2, None]
    message = store.add_message(store.create_conversation().id, None, Role.USER, "more")
    copy = path[:]
    path.append(message)
    assert (path.index_of(message.id), copy.index_of(message.id)) == (3, None)
    assert (path.ids, path[1:3].ids, path[::-2].ids) == ((9, 4, 7, message.id), (4, 7), (message.id, 4))
    assert path[1:3].index_of(7) == 1
    with pytest.raises(IndexError):
        path[4]


def test_a_long_chat_is_read_by_its_runs(store: ConversationStore) -> None:
    chat = store.create_conversation().id
    other = store.create_conversation().id
    parent = None
    for number in range(60):
        parent = store.add_message(chat, parent, (Role.USER, Role.ASSISTANT)[number % 2], f"m{number}").id
        if number % 20 == 19:
            store.add_message(other, None, Role.USER, "between")
    store.add_message(chat, store.messages(chat).ids[9], Role.USER, "an alternative")
    tree = MessageTree(store.rows, chat)
    assert (len(tree._parents), len(tree.path_to(parent or 0))) == (4, 60)
    plan = store.rows(f"EXPLAIN QUERY PLAN {message_tree._RUNS}", chat)
    assert "messages_runs" in plan[0][3]
