"""Files of messages in the database: what is known of them with the message, their texts apart and each once."""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, shown_name
from rdchat.chat.conversation import Message
from rdchat.chat.storage.rows import text_column

# words that were tampered with may be of any length
_COLUMNS = (
    "f.message_id, substr(f.name, 1, 1000), f.kind, f.digest, f.characters, substr(f.taken, 1, 1000),"
    " substr(f.note, 1, 1000)"
)
OF_MESSAGE = f"SELECT {_COLUMNS} FROM message_files f WHERE f.message_id = ? ORDER BY f.place"
WITH_TEXTS = f"""
    SELECT {_COLUMNS}, coalesce(t.text, '') FROM message_files f LEFT JOIN file_texts t ON t.digest = f.digest
    WHERE f.conversation_id = ? ORDER BY f.message_id, f.place
"""
TEXT = "SELECT text FROM file_texts WHERE digest = ?"
_KINDS = {each.value: each for each in FileKind}


def of_messages(count: int) -> str:
    """Return the query for the files of so many messages."""
    marks = ", ".join("?" * count)
    return f"SELECT {_COLUMNS} FROM message_files f WHERE f.message_id IN ({marks}) ORDER BY f.message_id, f.place"


def file_from(row: Sequence[Any]) -> AttachedFile:
    """Read a row of the columns above."""
    return AttachedFile(shown_name(row[1]), _KINDS.get(row[2], FileKind.TEXT), row[3], max(row[4], 0), row[5], row[6])


def with_files(messages: Iterable[Message], rows: Sequence[Sequence[Any]]) -> list[Message]:
    """Return messages with those of the files that are theirs."""
    files: dict[int, list[AttachedFile]] = {}
    for row in rows:
        files.setdefault(row[0], []).append(file_from(row))
    return [replace(each, files=tuple(files[each.id])) if each.id in files else each for each in messages]


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
