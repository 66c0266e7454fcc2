"""Reads and writes messages with their files; the text of a file is stored once, however many messages have it."""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import batched
from typing import Any

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, shown_name
from rdchat.chat.conversation import Message
from rdchat.chat.message_path import MessagePath
from rdchat.chat.storage.connections import Rows, errors_in_words, open_reader, rows_of
from rdchat.chat.storage.database import Database
from rdchat.chat.storage.message_tree import CUTS, MEASURED, MESSAGE, MessageTree, messages_of
from rdchat.chat.storage.rows import MESSAGE_FIELDS, message_from, text_column
from rdchat.errors import StorageError

# words that were tampered with may be of any length
_COLUMNS = (
    "f.message_id, substr(f.name, 1, 1000), f.kind, f.digest, f.characters, substr(f.taken, 1, 1000),"
    " substr(f.note, 1, 1000)"
)
_TEXTS = """
    SELECT DISTINCT f.digest, coalesce(t.text, '') FROM message_files f LEFT JOIN file_texts t ON t.digest = f.digest
    WHERE f.conversation_id = ?
"""
_KINDS = {each.value: each for each in FileKind}
_AT_ONCE = 500  # ids in a statement: every SQLite takes 999
_NEW_FIELDS = MESSAGE_FIELDS[1:]  # SQLite gives a new message its id
_INSERT = f"INSERT INTO messages ({', '.join(_NEW_FIELDS)}) VALUES ({', '.join('?' * len(_NEW_FIELDS))})"


class MessageReader:
    """Reads messages for a `MessagePath`.

    Args:
        database: The store's.
        conversation_id: Whose messages are read.
    """

    def __init__(self, database: Database, conversation_id: int) -> None:
        self._database, self._conversation_id = database, conversation_id

    def path_to(self, message_id: int) -> MessagePath:
        """Return the path from the root to a message, with its end read."""
        ids = MessageTree(self._database.rows, self._conversation_id).path_to(message_id)
        cuts = [row[0] for row in self._database.rows(CUTS, self._conversation_id)]
        path = MessagePath(ids, self, cuts=cuts)
        path.read_tail()
        return path

    def measured(self) -> list[int]:
        return [row[0] for row in self._database.rows(MEASURED, self._conversation_id)]

    def read(self, ids: Sequence[int]) -> list[Message]:
        """Read messages on the thread that opened the database; raises StorageError."""
        return self._read(self._database.rows, ids)

    def read_told(self, ids: Sequence[int]) -> list[Message]:
        """Read messages on any thread; raises StorageError."""
        path = self._database.path
        with errors_in_words(path), closing(open_reader(path)) as connection:
            return self._read(rows_of(connection), ids)

    def _read(self, rows: Rows, ids: Sequence[int]) -> list[Message]:
        found: list[Message] = []
        for some in batched(ids, _AT_ONCE):
            found += map(message_from, rows(messages_of(len(some)), self._conversation_id, *some))
        return with_files(found, rows)


def read_message(rows: Rows, message_id: int) -> Message:
    """Return one message; StorageError where there is none."""
    read = rows(MESSAGE, message_id)
    if not read:
        raise StorageError("This message no longer exists.", "Open the chat again.")
    return with_files([message_from(read[0])], rows)[0]


def insert_message(connection: sqlite3.Connection, row: Sequence[Any]) -> int:
    """Store a new message, a row of `rows.message_row` whose id does not count, and return its id."""
    cursor = connection.execute(_INSERT, row[1:])
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def with_files(messages: Sequence[Message], rows: Rows) -> list[Message]:
    """Return the messages with their files, without the files' texts."""
    files: dict[int, list[AttachedFile]] = {}
    for some in batched(messages, _AT_ONCE):
        marks = ", ".join("?" * len(some))
        sql = f"SELECT {_COLUMNS} FROM message_files f WHERE f.message_id IN ({marks}) ORDER BY f.message_id, f.place"
        for row in rows(sql, *(each.id for each in some)):
            files.setdefault(row[0], []).append(_file_from(row))
    return [replace(each, files=tuple(files[each.id])) if each.id in files else each for each in messages]


def file_texts(rows: Rows, conversation_id: int) -> dict[str, str]:
    """Return the texts of all files of a chat by digest."""
    return dict(rows(_TEXTS, conversation_id))


def _file_from(row: Sequence[Any]) -> AttachedFile:
    return AttachedFile(shown_name(row[1]), _KINDS.get(row[2], FileKind.TEXT), row[3], max(row[4], 0), row[5], row[6])


def add_files(connection: sqlite3.Connection, message_id: int, files: Iterable[tuple[AttachedFile, str]]) -> None:
    """Store the files of a new message; a text that is there already is not stored again."""
    first = connection.execute("SELECT count(*) FROM message_files WHERE message_id = ?", (message_id,)).fetchone()[0]
    for place, (file, text) in enumerate(files, start=first):
        connection.execute(
            "INSERT INTO file_texts (digest, text) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (file.digest, text_column(text)),
        )
        connection.execute(
            "INSERT INTO message_files"
            " (message_id, conversation_id, place, digest, kind, characters, taken, note, name)"
            " SELECT id, conversation_id, ?, ?, ?, ?, ?, ?, ? FROM messages WHERE id = ?",
            (place, file.digest, file.kind, file.characters, text_column(file.taken),
             text_column(file.note), text_column(file.name), message_id),
        )  # fmt: skip


def copy_files(connection: sqlite3.Connection, message_id: int, copy_id: int) -> None:
    """Give a copy or another version of a message the same files."""
    connection.execute(
        "INSERT INTO message_files (message_id, conversation_id, place, digest, kind, characters, taken, note, name)"
        " SELECT m.id, m.conversation_id, f.place, f.digest, f.kind, f.characters, f.taken, f.note, f.name"
        " FROM messages m CROSS JOIN message_files f WHERE m.id = ? AND f.message_id = ? ORDER BY f.place",
        (copy_id, message_id),
    )
