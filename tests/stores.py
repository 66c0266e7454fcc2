"""Stores for tests: made quickly, since all steps of the schema take 11 ms, and changed by hand."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rdchat.chat.conversation import NO_THINKING, Conversation, Message, MessagePath, MessageStatus
from rdchat.chat.storage import Database, connections
from rdchat.chat.storage.connections import add_functions
from rdchat.chat.storage.file_check import MIGRATIONS, migrate, schema_version
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Role


@pytest.fixture(autouse=True)
def quick_stores() -> Iterator[None]:
    """Let an empty file become a store by copying an empty one, page by page, in the place of step by step.

    It is for the rooms whose `conftest` imports it: of their tests, `test_schema` alone is about how a store is made.
    Nothing is flushed to the disk meanwhile: each window flushes a dozen times, 3 ms each, against a loss of power.
    """
    make_writable = connections.make_writable

    def open_unflushed(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA synchronous = OFF")  # the log's beginning is flushed, too
        make_writable(connection)
        connection.execute("PRAGMA synchronous = OFF")

    def fill(connection: sqlite3.Connection) -> None:
        if schema_version(connection) == 0:
            _empty_store().backup(connection)
        else:
            migrate(connection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "make_writable", open_unflushed)
        patch.setattr(connections, "migrate", fill)
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield


@cache
def _empty_store() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", autocommit=True, check_same_thread=False)
    migrate(connection)
    return connection


def connect_by_hand(path: Path | str, *, autocommit: bool = sqlite3.LEGACY_TRANSACTION_CONTROL) -> sqlite3.Connection:  # type: ignore[assignment]
    """Connect to a database behind the app's back, with the function that its triggers call."""
    connection = sqlite3.connect(path, autocommit=autocommit)
    add_functions(connection)
    return connection


def change_by_hand(path: Path, *statements: str) -> None:
    """Run statements on a database behind the app's back."""
    with closing(connect_by_hand(path, autocommit=True)) as by_hand:
        for statement in statements:
            by_hand.execute(statement)


@contextmanager
def old_store(path: Path, version: int) -> Iterator[sqlite3.Connection]:
    """Make a store of an earlier version; give a connection that writes into it, in one transaction."""
    with closing(connect_by_hand(path, autocommit=True)) as connection:
        migrate(connection, MIGRATIONS[:version])
        connection.execute("BEGIN")
        yield connection
        connection.execute("COMMIT")


@contextmanager
def written_by_hand(store: ConversationStore | Database) -> Iterator[sqlite3.Connection]:
    """Give a connection that writes into an open database behind its back, in one transaction."""
    with closing(connect_by_hand(store.path, autocommit=True)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")


def finish_message(
    store: ConversationStore, message_id: int, text: str, status: MessageStatus, **fields: Any
) -> Message:
    """Store how a reply ended; of `fields`, the model stays unless it is named."""
    ended = replace(store.message(message_id), text=text, status=status, error="", thinking=NO_THINKING,
                    finish_reason=None, statistics=None, drafting=None, control_offsets=())  # fmt: skip
    return store.finish_message(replace(ended, **fields))


def add_long_path(store: ConversationStore, chat: Conversation) -> None:
    """Add a path of 300 messages, so that erasing or copying the chat takes several turns."""
    last = None
    for number in range(300):
        last = store.add_message(chat.id, last, Role.USER, f"word{number} " * 200).id


def cut_of(path: Sequence[Message]) -> Message | None:
    """Return the message with the last context cut; None where the model gets all of the path."""
    index = MessagePath.as_path(path).cut_index
    return path[index] if index >= 0 else None


def kept_databases(database: Path) -> dict[str, bytes]:
    """Name and content of every database that was set aside."""
    return {path.name: path.read_bytes() for path in database.parent.glob("*.db") if path != database}


def assert_set_aside(database: Path) -> None:
    """Assert that a new database is in use, and that the damaged one is kept untouched where the notice says."""
    content = database.read_bytes()
    with closing(ConversationStore(database)) as store:
        assert store.notice is not None
        assert store.notice.title == "Your chats could not be read"
        assert store.conversations() == []
        store.create_conversation("after")
        kept = kept_databases(database)
        assert list(kept.values()) == [content]
        (name,) = kept
        assert name.startswith("conversations-damaged-")
        assert str(database.with_name(name)) in store.notice.detail
    with closing(ConversationStore(database)) as store:
        assert store.notice is None
        assert [chat.title for chat in store.conversations()] == ["after"]
