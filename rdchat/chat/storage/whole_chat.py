"""Reads and writes messages with their files, and whole chats, for copies, imports and exports.

The text of a file is stored once for all messages that have it.
"""

import base64
import sqlite3
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import batched
from typing import Any

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, image_data, printable_name
from rdchat.chat.conversation import Conversation, Message, MessagePath, MessageStatus
from rdchat.chat.storage.connections import Rows, rows_of
from rdchat.chat.storage.database import Database
from rdchat.chat.storage.message_tree import CUTS, MESSAGE, NOT_DELETED, MessageTree, messages_of
from rdchat.chat.storage.stored_rows import (
    CONVERSATION_COLUMNS,
    MESSAGE_COLUMNS,
    MESSAGE_FIELDS,
    conversation_from,
    message_from,
    message_row,
    options_columns,
    text_column,
)
from rdchat.errors import StorageError

# Texts that were tampered with may have any length.
_COLUMNS = (
    "f.message_id, substr(f.name, 1, 1000), f.kind, f.digest, f.characters, substr(f.taken, 1, 1000),"
    " substr(f.note, 1, 1000), i.width, i.height"
)
_TEXT = "SELECT t.text, i.data FROM file_texts t LEFT JOIN file_images i ON i.digest = t.digest WHERE t.digest = ?"
_DIGESTS = "SELECT DISTINCT digest FROM message_files WHERE conversation_id = ?"
# The ids of one statement; every build of SQLite accepts 999.
_AT_ONCE = 500
_NEW_FIELDS = MESSAGE_FIELDS[1:]  # SQLite gives a new message its id
_INSERT_MESSAGE = f"INSERT INTO messages ({', '.join(_NEW_FIELDS)}) VALUES ({', '.join('?' * len(_NEW_FIELDS))})"
_VISIBLE = "SELECT id FROM conversations WHERE deleted_at IS NULL AND unlisted = 0 ORDER BY updated_at DESC, id DESC"
_CHAT = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE id = ? AND deleted_at IS NULL AND unlisted = 0"
_FOLDER = """
    SELECT around.name, folder.name FROM folders folder
    LEFT JOIN folders around ON around.id = folder.parent_id AND around.deleted_at IS NULL
    WHERE folder.id = ? AND folder.deleted_at IS NULL
"""
_MESSAGES = f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE conversation_id = ? AND {NOT_DELETED} ORDER BY id"
_INSERT = """
    INSERT INTO conversations
        (title, created_at, updated_at, unlisted, system_prompt, sampling, thinking, answer_shape, own_options,
        folder_id, pinned_at, archived_at)
    VALUES (?, ?, ?, 2, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_INSERT_TRACE = "INSERT INTO message_traces (message_id, trace) VALUES (?, ?)"
_TRACES = """
    SELECT message_id, trace FROM message_traces JOIN messages ON messages.id = message_id WHERE conversation_id = ?
"""


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
        cuts = [row[0] for row in self._database.rows(CUTS, self._conversation_id)]
        path = MessagePath(ids, self.read_messages, cuts=cuts)
        path.read_tail()
        return path

    def read_messages(self, ids: Sequence[int]) -> list[Message]:
        """Read messages on any thread; raises StorageError."""
        messages: list[Message] = []
        for some in batched(ids, _AT_ONCE):
            messages += map(message_from, self._database.rows(messages_of(len(some)), self._conversation_id, *some))
        return with_files(messages, self._database.rows)


def read_message(rows: Rows, message_id: int) -> Message:
    """Return one message; StorageError if it does not exist."""
    read = rows(MESSAGE, message_id)
    if not read:
        raise StorageError("This message no longer exists.", "Open the chat again.")
    return with_files([message_from(read[0])], rows)[0]


def insert_message(connection: sqlite3.Connection, row: Sequence[Any]) -> int:
    """Store a new message, a row from `rows.message_row` whose id is ignored, and return its id."""
    cursor = connection.execute(_INSERT_MESSAGE, row[1:])
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def with_files(messages: Sequence[Message], rows: Rows) -> list[Message]:
    """Return the messages with their files, without the files' texts."""
    files: dict[int, list[AttachedFile]] = {}
    for some in batched(messages, _AT_ONCE):
        marks = ", ".join("?" * len(some))
        sql = (
            f"SELECT {_COLUMNS} FROM message_files f LEFT JOIN file_images i ON i.digest = f.digest"
            f" WHERE f.message_id IN ({marks}) ORDER BY f.message_id, f.position"
        )
        for row in rows(sql, *(each.id for each in some)):
            files.setdefault(row[0], []).append(file_from(row))
    return [replace(each, files=tuple(files[each.id])) if each.id in files else each for each in messages]


def file_from(row: Sequence[Any]) -> AttachedFile:
    """Return a file from a row with the fields of `AttachedFile` after its first column."""
    kind = FileKind(row[2]) if row[2] in FileKind else FileKind.TEXT
    size = (row[7] or 0, row[8] or 0)
    return AttachedFile(printable_name(row[1]), kind, row[3], max(row[4], 0), row[5], row[6], *size)


def file_text(rows: Rows, digest: str) -> str | None:
    """Return the text of a file, which is base64 for an image; None if it is lost."""
    result = rows(_TEXT, digest)
    if not result:
        return None
    text, data = result[0]
    # An image of an earlier version may have the digest of a text.
    return str(text) if text or data is None else base64.b64encode(data).decode()


def add_files(connection: sqlite3.Connection, message_id: int, files: Iterable[tuple[AttachedFile, str]]) -> None:
    """Store the files of a new message; a text that is already stored is not stored again."""
    first = connection.execute("SELECT count(*) FROM message_files WHERE message_id = ?", (message_id,)).fetchone()[0]
    for position, (file, text) in enumerate(files, start=first):
        is_image = file.kind is FileKind.IMAGE
        connection.execute(
            "INSERT INTO file_texts (digest, text) VALUES (?, ?)"
            " ON CONFLICT (digest) DO UPDATE SET text = excluded.text WHERE text = '' AND excluded.text != ''",
            (file.digest, "" if is_image else text_column(text)),
        )
        if is_image:
            connection.execute(
                "INSERT INTO file_images (digest, width, height, data) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (file.digest, file.width, file.height, image_data(text)),
            )
        connection.execute(
            "INSERT INTO message_files"
            " (message_id, conversation_id, position, digest, kind, characters, taken, note, name)"
            " SELECT id, conversation_id, ?, ?, ?, ?, ?, ?, ? FROM messages WHERE id = ?",
            (position, file.digest, file.kind, file.characters, text_column(file.taken),
             text_column(file.note), text_column(file.name), message_id),
        )  # fmt: skip


class DamagedChatError(ValueError):
    """A chat is damaged, so nothing of it is used; the text gives the reason, as a sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class FullChat:
    """A conversation with all alternatives. Ids are local: `id` of a message is its index in the list.

    Each message comes after its parent. Only the order of `Message.activated` matters.

    Attributes:
        about: The conversation without an id; its title may be empty.
        traces: Traces of replies (`reply_trace`), by the message's index.
        texts: Texts of the messages' files, by digest.
        folder: Name of the folder, after that of the folder around it; empty outside of folders.
        without: Number of parts of each kind that cannot be taken: `{"image": 2}`.
    """

    about: Conversation
    messages: tuple[Message, ...]
    traces: Mapping[int, bytes] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    folder: tuple[str, ...] = ()
    without: Mapping[str, int] = field(default_factory=dict)


def parents_first[K](parents: Mapping[K, K | None]) -> list[K]:
    """Sort ids so that each comes after its parent; those with the same parent keep their order.

    Args:
        parents: Parent by id. A parent that is not among the ids is ignored.

    Raises:
        DamagedChatError: If there is a cycle.
    """
    children: dict[K | None, list[K]] = {}
    for each, parent in parents.items():
        children.setdefault(parent if parent in parents else None, []).append(each)
    order: list[K] = []
    waiting = list(reversed(children.get(None, [])))
    while waiting:
        step = waiting.pop()
        order.append(step)
        waiting += reversed(children.get(step, []))
    if len(order) < len(parents):
        raise DamagedChatError("Its messages form a cycle")
    return order


def visible_ids(connection: sqlite3.Connection) -> list[int]:
    """Return the ids of all chats that are not deleted, newest first."""
    return [row[0] for row in connection.execute(_VISIBLE)]


def read_chat(connection: sqlite3.Connection, conversation_id: int, last_id: int | None = None) -> FullChat:
    """Return a chat of the store.

    Args:
        connection: Reads the store.
        conversation_id: The chat.
        last_id: Read only the path to this message; None reads all.

    Raises:
        StorageError: If it does not exist or is deleted.
    """
    row = connection.execute(_CHAT, (conversation_id,)).fetchone()
    if row is None:
        raise StorageError(f"There is no chat {conversation_id}.", "`rdchat chats list` shows all chats.")
    conversation = conversation_from(row)
    rows = rows_of(connection)
    messages = [message_from(row) for row in rows(_MESSAGES, conversation_id)]
    if last_id is not None:
        path = set(MessageTree(rows, conversation_id).path_to(last_id))
        messages = [message for message in messages if message.id in path]
    read = {message.id: message for message in with_files(messages, rows)}
    indexes = {each: index for index, each in enumerate(parents_first({each.id: each.parent_id for each in messages}))}
    return FullChat(
        replace(conversation, id=0),
        tuple(
            replace(read[each], id=index, conversation_id=0, parent_id=indexes.get(read[each].parent_id or 0))
            for each, index in indexes.items()
        ),
        traces={indexes[each]: trace for each, trace in rows(_TRACES, conversation_id) if each in indexes},
        texts={digest: file_text(rows, digest) or "" for (digest,) in rows(_DIGESTS, conversation_id)},
        folder=tuple(name for name in connection.execute(_FOLDER, (conversation.folder_id,)).fetchone() or () if name),
    )


def inserting(connection: sqlite3.Connection, chat: FullChat) -> Generator[int, None, int]:
    """Insert a chat step by step, as bulk work; yield its id after each step and return it at the end.

    The chat stays unlisted (2). It needs dates; a reply that is being written becomes an interrupted one.
    """
    conversation = chat.about
    archived_at = conversation.updated_at if conversation.archived else None
    location = (conversation.folder_id, conversation.pinned_at, archived_at)
    values = (text_column(conversation.title), conversation.created_at, conversation.updated_at,
              *options_columns(conversation), *location)  # fmt: skip
    cursor = connection.execute(_INSERT, values)
    assert cursor.lastrowid is not None
    chat_id = cursor.lastrowid
    ids = list[int]()
    yield chat_id
    order = sorted(chat.messages, key=lambda message: message.activated)
    activated = {message.id: number for number, message in enumerate(order, start=1)}
    for index, message in enumerate(chat.messages):
        parent_id = None if message.parent_id is None else ids[message.parent_id]
        streaming = message.status is MessageStatus.STREAMING
        status = MessageStatus.INTERRUPTED if streaming else message.status
        new = replace(message, conversation_id=chat_id, parent_id=parent_id, activated=activated[index], status=status)
        ids.append(insert_message(connection, message_row(new)))
        add_files(connection, ids[-1], ((file, chat.texts[file.digest]) for file in message.files))
        if index in chat.traces:
            connection.execute(_INSERT_TRACE, (ids[-1], chat.traces[index]))
        yield chat_id
    return chat_id
