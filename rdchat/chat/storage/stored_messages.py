"""Reads and writes messages with their attached files.

A file's text is stored once, by its digest, for all messages that have the file. An image's data is stored likewise.
"""

import base64
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import batched
from typing import Any

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, image_data, printable_name
from rdchat.chat.conversation import Folder, Message, MessagePath, Project
from rdchat.chat.storage.connections import Rows
from rdchat.chat.storage.database import Database
from rdchat.chat.storage.message_tree import CUTS, MESSAGE, MessageTree, messages_of
from rdchat.chat.storage.stored_rows import (
    FOLDER_COLUMNS,
    MESSAGE_FIELDS,
    folder_from,
    json_column,
    message_from,
    text_column,
)
from rdchat.errors import StorageError

# The columns that `file_from` reads. Texts that were tampered with may have any length.
_FILE_COLUMNS = (
    "f.message_id, substr(f.name, 1, 1000), f.kind, f.digest, f.characters, substr(f.taken, 1, 1000),"
    " substr(f.note, 1, 1000), i.width, i.height"
)
_FILE_TEXT = "SELECT t.text, i.data FROM file_texts t LEFT JOIN file_images i ON i.digest = t.digest WHERE t.digest = ?"
# The ids of one statement; every build of SQLite accepts 999.
_IDS_AT_ONCE = 500
_NEW_FIELDS = MESSAGE_FIELDS[1:]  # SQLite gives a new message its id
_INSERT_MESSAGE = f"INSERT INTO messages ({', '.join(_NEW_FIELDS)}) VALUES ({', '.join('?' * len(_NEW_FIELDS))})"


class MessageReader:
    """Reads messages for a `MessagePath`.

    Args:
        database: The store's database.
        conversation_id: The conversation to read.
    """

    def __init__(self, database: Database, conversation_id: int) -> None:
        self._database = database
        self._conversation_id = conversation_id

    def path_to(self, message_id: int) -> MessagePath:
        """Return the path from the root to a message, with its last messages read."""
        ids = MessageTree(self._database.rows, self._conversation_id).path_to(message_id)
        cuts = {row[0]: bool(row[1]) for row in self._database.rows(CUTS, self._conversation_id)}
        path = MessagePath(ids, self.read_messages, cuts=cuts)
        path.read_tail()
        return path

    def read_messages(self, ids: Sequence[int]) -> list[Message]:
        """Read messages on any thread; raises StorageError."""
        messages: list[Message] = []
        for some in batched(ids, _IDS_AT_ONCE):
            messages += map(message_from, self._database.rows(messages_of(len(some)), self._conversation_id, *some))
        return with_files(messages, self._database.rows)


def read_message(rows: Rows, message_id: int) -> Message:
    """Return one message; StorageError if it does not exist."""
    read = rows(MESSAGE, message_id)
    if not read:
        raise StorageError("This message no longer exists.", "Open the chat again.")
    return with_files([message_from(read[0])], rows)[0]


def insert_message(connection: sqlite3.Connection, row: Sequence[Any]) -> int:
    """Store a new message and return its id; `row` is of `stored_rows.message_row`, and its own id is ignored."""
    cursor = connection.execute(_INSERT_MESSAGE, row[1:])
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def with_files(messages: Sequence[Message], rows: Rows) -> list[Message]:
    """Return the messages with their files, without the files' texts."""
    files: dict[int, list[AttachedFile]] = {}
    for some in batched(messages, _IDS_AT_ONCE):
        marks = ", ".join("?" * len(some))
        sql = (
            f"SELECT {_FILE_COLUMNS} FROM message_files f LEFT JOIN file_images i ON i.digest = f.digest"
            f" WHERE f.message_id IN ({marks}) ORDER BY f.message_id, f.position"
        )
        for row in rows(sql, *(each.id for each in some)):
            files.setdefault(row[0], []).append(file_from(row))
    return [replace(each, files=tuple(files[each.id])) if each.id in files else each for each in messages]


def file_from(row: Sequence[Any]) -> AttachedFile:
    """Return a file from a row of `_FILE_COLUMNS`; columns after them are ignored."""
    kind = FileKind(row[2]) if row[2] in FileKind else FileKind.TEXT
    size = (row[7] or 0, row[8] or 0)
    return AttachedFile(printable_name(row[1]), kind, row[3], max(row[4], 0), row[5], row[6], *size)


def file_text(rows: Rows, digest: str) -> str | None:
    """Return the text of a file, which is base64 for an image; None if it is lost."""
    result = rows(_FILE_TEXT, digest)
    if not result:
        return None
    text, data = result[0]
    # An image of an earlier version may have the digest of a text.
    return str(text) if text or data is None else base64.b64encode(data).decode()


def add_files(connection: sqlite3.Connection, message_id: int, files: Iterable[tuple[AttachedFile, str]]) -> None:
    """Store the files of a new message; a text that is already stored is not stored again."""
    files = list(files)
    add_texts(connection, files)
    first = connection.execute("SELECT count(*) FROM message_files WHERE message_id = ?", (message_id,)).fetchone()[0]
    for position, (file, _) in enumerate(files, start=first):
        connection.execute(
            "INSERT INTO message_files"
            " (message_id, conversation_id, position, digest, kind, characters, taken, note, name)"
            " SELECT id, conversation_id, ?, ?, ?, ?, ?, ?, ? FROM messages WHERE id = ?",
            (position, *file_row(file), message_id),
        )


def folders_listed(rows: Rows) -> list[Folder]:
    """Return the folders by name; one whose parent is gone or nested itself is shown at the top."""
    folders = [folder_from(row) for row in rows(f"SELECT {FOLDER_COLUMNS} FROM folders WHERE deleted_at IS NULL")]
    top = {folder.id for folder in folders if folder.parent_id is None}
    files = _folder_files(rows)
    parents = {each.id: each.parent_id if each.parent_id in top else None for each in folders}
    listed = [replace(each, parent_id=parents[each.id], files=files.get(each.id, ())) for each in folders]
    return sorted(listed, key=lambda folder: (folder.name.casefold(), folder.id))


def _folder_files(rows: Rows) -> dict[int, tuple[AttachedFile, ...]]:
    """Return the files of all folders by the folder's id, without their texts."""
    columns = _FILE_COLUMNS.replace("f.message_id", "f.folder_id")
    join = "LEFT JOIN file_images i ON i.digest = f.digest"
    files: dict[int, tuple[AttachedFile, ...]] = {}
    for row in rows(f"SELECT {columns} FROM folder_files f {join} ORDER BY f.folder_id, f.position"):
        files[row[0]] = (*files.get(row[0], ()), file_from(row))
    return files


def store_project(connection: sqlite3.Connection, folder_id: int, project: Project) -> None:
    """Store what the chats of a folder share, but for its files."""
    tidy = replace(project, instructions=text_column(project.instructions))
    column = None if tidy == Project() else json_column(tidy)
    connection.execute("UPDATE folders SET project = ? WHERE id = ?", (column, folder_id))


def set_folder_files(connection: sqlite3.Connection, folder_id: int, files: Sequence[tuple[AttachedFile, str]]) -> None:
    """Store the files of a folder in place of those that it has, each with its text."""
    add_texts(connection, files)
    # The texts that stay have a row at all times.
    (last,) = connection.execute("SELECT max(rowid) FROM folder_files").fetchone()
    for position, (file, _) in enumerate(files):
        connection.execute(
            "INSERT INTO folder_files (position, digest, kind, characters, taken, note, name, folder_id)"
            " SELECT ?, ?, ?, ?, ?, ?, ?, id FROM folders WHERE id = ?",
            (position, *file_row(file), folder_id),
        )
    connection.execute("DELETE FROM folder_files WHERE folder_id = ? AND rowid <= ?", (folder_id, last or 0))


def file_row(file: AttachedFile) -> tuple[object, ...]:
    """Return a file for the columns digest, kind, characters, taken, note and name."""
    texts = map(text_column, (file.taken, file.note, file.name))
    return file.digest, file.kind, file.characters, *texts


def add_texts(connection: sqlite3.Connection, files: Iterable[tuple[AttachedFile, str]]) -> None:
    """Store the texts of files, each with its file, that are not stored already."""
    for file, text in files:
        is_image = file.kind is FileKind.IMAGE
        connection.execute(
            "INSERT INTO file_texts (digest, text) VALUES (?, ?)"
            " ON CONFLICT (digest) DO UPDATE SET text = excluded.text WHERE text = '' AND excluded.text != ''",
            (file.digest, "" if is_image else text_column(text)),
        )
        if is_image and text:
            add_image(connection, file, text)


def add_image(connection: sqlite3.Connection, file: AttachedFile, text: str) -> None:
    """Store the data of an image; nothing happens if they are there, or no message has the image."""
    connection.execute(
        "INSERT INTO file_images (digest, width, height, data)"
        " SELECT digest, ?, ?, ? FROM file_texts WHERE digest = ? ON CONFLICT DO NOTHING",
        (file.width, file.height, image_data(text), file.digest),
    )
