"""Reads messages of a conversation by their ids, and the path to one of them."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any

from rdchat.chat.conversation import Message
from rdchat.chat.message_path import MessagePath
from rdchat.chat.storage.database import Database
from rdchat.chat.storage.file_check import refuse_surprises, trust
from rdchat.chat.storage.files import of_messages, with_files
from rdchat.chat.storage.message_tree import CUTS, MEASURED, MessageRuns, Rows, messages_of
from rdchat.chat.storage.rows import message_from
from rdchat.errors import StorageError

_AT_ONCE = 500  # ids in a statement: every SQLite takes 999


class MessageReader:
    """The source of a `MessagePath`.

    Args:
        database: The store's.
        conversation_id: Whose messages are read.
    """

    def __init__(self, database: Database, conversation_id: int) -> None:
        self._database, self._conversation_id = database, conversation_id

    def path_to(self, message_id: int) -> MessagePath:
        """Return the path from the root to a message, with its end read."""
        ids = MessageRuns(self._database.rows, self._conversation_id).path_to(message_id)
        cuts = [row[0] for row in self._database.rows(CUTS, self._conversation_id)]
        path = MessagePath(ids, self, cuts=cuts)
        path.read_tail()
        return path

    def measured(self) -> list[int]:
        return [row[0] for row in self._database.rows(MEASURED, self._conversation_id)]

    def read(self, ids: Sequence[int]) -> list[Message]:
        """Read messages on the store's connection; raises StorageError."""
        if self._database.closed:  # what the window still draws while rdchat quits
            raise StorageError("The chats are closed.", "Start rdchat again.")
        return self._read(self._database.rows, ids, told=False)

    def read_told(self, ids: Sequence[int]) -> list[Message]:
        """Read messages on a connection of its own; raises StorageError."""
        address = f"{self._database.path.absolute().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(address, uri=True, autocommit=True)) as connection:
                connection.text_factory = lambda data: data.decode("utf-8", "replace")
                refuse_surprises(connection)
                trust(connection)
                return self._read(partial(_rows, connection), ids, told=True)
        except sqlite3.Error as error:
            raise StorageError(f"The chat cannot be read: {error}.", "Check the disk, then try again.") from error

    def _read(self, rows: Rows, ids: Sequence[int], *, told: bool) -> list[Message]:
        found: list[Message] = []
        for start in range(0, len(ids), _AT_ONCE):
            some = ids[start : start + _AT_ONCE]
            messages = map(message_from, rows(messages_of(len(some), told=told), self._conversation_id, *some))
            found += with_files(messages, rows(of_messages(len(some)), *some))
        return found


def _rows(connection: sqlite3.Connection, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    return connection.execute(sql, parameters).fetchall()
