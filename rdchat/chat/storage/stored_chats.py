"""Reads and writes messages with their files, and full chats.

The first half serves the open chat, a message or a path at a time. A file's text is stored once, by its digest, for all
messages that have the file. An image's data is stored likewise. The second half, from `DamagedChatError` on, serves
copies, imports and exports: a `FullChat` has all messages of a chat.

The column `unlisted` of a conversation says whether the chat is shown: 0 if it is, 1 while it is erased, 2 while it is
inserted. Erasing and inserting take many transactions, and a chat that is half there is seen nowhere. Whoever inserts a
chat sets 0 at the end; `ConversationStore` sets 1 at the next start where a crash has left a 2.
"""

import base64
import sqlite3
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import batched
from typing import Any

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, image_data, printable_name
from rdchat.chat.conversation import NEW_CHAT, Conversation, Message, MessagePath, MessageStatus
from rdchat.chat.projects import Folder, Project
from rdchat.chat.storage.connections import Rows, rows_of
from rdchat.chat.storage.message_tree import CUTS, MESSAGE, NOT_DELETED, MessageTree, messages_of
from rdchat.chat.storage.stored_rows import (
    CONVERSATION_COLUMNS,
    FOLDER_COLUMNS,
    MESSAGE_COLUMNS,
    MESSAGE_FIELDS,
    conversation_from,
    folder_from,
    json_column,
    message_from,
    message_row,
    options_columns,
    text_column,
)
from rdchat.errors import StorageError
from rdchat.inference.api import Role

# The columns that `file_from` reads: f is message_files or folder_files, i is file_images. Texts that were tampered
# with may have any length.
_FILE_COLUMNS = (
    "f.message_id, substr(f.name, 1, 1000), f.kind, f.digest, f.characters, substr(f.taken, 1, 1000),"
    " substr(f.note, 1, 1000), i.width, i.height"
)
_FILE_TEXT = "SELECT t.text, i.data FROM file_texts t LEFT JOIN file_images i ON i.digest = t.digest WHERE t.digest = ?"
# The ids of one statement; every build of SQLite accepts 999.
_IDS_AT_ONCE = 500
_NEW_FIELDS = MESSAGE_FIELDS[1:]  # SQLite gives a new message its id
_INSERT_MESSAGE = f"INSERT INTO messages ({', '.join(_NEW_FIELDS)}) VALUES ({', '.join('?' * len(_NEW_FIELDS))})"
_TEXT_DIGESTS = "SELECT DISTINCT digest FROM message_files WHERE conversation_id = ? AND kind <> 'image'"
_VISIBLE = "SELECT id FROM conversations WHERE deleted_at IS NULL AND unlisted = 0 ORDER BY updated_at DESC, id DESC"
_CHAT = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE id = ? AND deleted_at IS NULL AND unlisted = 0"
# The name of a folder, after that of the folder around it.
_FOLDER_NAMES = """
    SELECT around.name, folder.name FROM folders folder
    LEFT JOIN folders around ON around.id = folder.parent_id AND around.deleted_at IS NULL
    WHERE folder.id = ? AND folder.deleted_at IS NULL
"""
_NOTES = "SELECT text FROM notes WHERE folder_id = ? ORDER BY id"
_MESSAGES = f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE conversation_id = ? AND {NOT_DELETED} ORDER BY id"
_INSERT_CHAT = """
    INSERT INTO conversations
        (title, created_at, updated_at, unlisted, system_prompt, sampling, thinking, answer_shape, own_options,
        folder_id, pinned_at, archived_at)
    VALUES (?, ?, ?, 2, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_INSERT_TRACE = "INSERT INTO message_traces (message_id, trace) VALUES (?, ?)"
_TRACES = """
    SELECT message_id, trace FROM message_traces JOIN messages ON messages.id = message_id WHERE conversation_id = ?
"""


def path_to(rows: Rows, conversation_id: int, message_id: int) -> MessagePath:
    """Return the path from the root of a chat to a message, with its last messages read."""
    ids = MessageTree(rows, conversation_id).path_to(message_id)
    cuts = {row[0]: bool(row[1]) for row in rows(CUTS, conversation_id)}
    path = MessagePath(ids, lambda some: read_messages(rows, conversation_id, some), cuts=cuts)
    path.read_tail()
    return path


def read_messages(rows: Rows, conversation_id: int, ids: Sequence[int]) -> list[Message]:
    """Return messages of a chat by their ids, without those that are gone."""
    messages: list[Message] = []
    for some in batched(ids, _IDS_AT_ONCE):
        messages += map(message_from, rows(messages_of(len(some)), conversation_id, *some))
    return with_files(messages, rows)


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


def folders_listed(rows: Rows, where: str = "deleted_at IS NULL", *parameters: object) -> list[Folder]:
    """Return the folders for which an SQL condition holds, by name, with their files."""
    read = rows(f"SELECT {FOLDER_COLUMNS} FROM folders WHERE {where}", *parameters)
    columns = _FILE_COLUMNS.replace("f.message_id", "f.folder_id")
    join = "LEFT JOIN file_images i ON i.digest = f.digest"
    among = f"f.folder_id IN (SELECT id FROM folders WHERE {where})"
    files = defaultdict[int, list[AttachedFile]](list)
    for row in rows(
        f"SELECT {columns} FROM folder_files f {join} WHERE {among} ORDER BY f.folder_id, f.position", *parameters
    ):
        files[row[0]].append(file_from(row))
    listed = [replace(folder_from(row), files=tuple(files[row[0]])) for row in read]
    return sorted(listed, key=lambda folder: (folder.name.casefold(), folder.id))


def store_project(connection: sqlite3.Connection, folder_id: int, project: Project) -> None:
    """Store what the chats of a folder share, but for its files."""
    tidy = replace(project, instructions=text_column(project.instructions))
    column = None if tidy == Project() else json_column(tidy)
    connection.execute("UPDATE folders SET project = ? WHERE id = ?", (column, folder_id))


def set_folder_files(connection: sqlite3.Connection, folder_id: int, files: Sequence[tuple[AttachedFile, str]]) -> None:
    """Store the files of a folder in place of those that it has, each with its text."""
    add_texts(connection, files)
    # The new rows come before the old ones are deleted: a trigger deletes a text with its last row.
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
    """Store the texts of files, each with its file, that are not stored already; a text replaces an empty one.

    For an image an empty text is stored, and its data apart (`add_image`).
    """
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


# Full chats


class DamagedChatError(ValueError):
    """A chat is damaged, so nothing of it is used; the text gives the reason, as a sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class FullChat:
    """A conversation with all alternatives.

    Its ids are those of no store: `id` of a message is its index in `messages`, `parent_id` the index of its parent,
    which comes before it. Only the order of `Message.activated` matters.

    Attributes:
        conversation: The conversation without an id; its title may be empty.
        traces: Traces of replies (`reply_trace`), by the message's index.
        texts: Texts of the messages' files, by digest; that of an image may be empty, and come later (`add_image`).
        folder: Name of the folder, after that of the folder around it; empty outside of folders.
        is_project: Whether it is no chat, but what the chats of its folder share: its system prompt, and the files of
            its only message. Without a folder it has notes alone.
        key: Id of the project in its file, by which notes name it.
        notes: Notes of a project, each behind the key of another project, or behind an empty one.
        without: Number of parts of each kind that cannot be taken: `{"image": 2}`.
    """

    conversation: Conversation
    messages: tuple[Message, ...]
    traces: Mapping[int, bytes] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    folder: tuple[str, ...] = ()
    is_project: bool = False
    key: str = ""
    notes: tuple[tuple[str, str], ...] = ()
    without: Mapping[str, int] = field(default_factory=dict)


class _StoredTexts(dict[str, str]):
    """Texts of files by digest. One that is not in the dict, such as an image's, is read each time it is needed.

    All images of a chat may not fit into memory.

    Args:
        rows: Reads the store.
    """

    def __init__(self, rows: Rows) -> None:
        super().__init__()
        self._rows = rows

    def __missing__(self, digest: str) -> str:
        return file_text(self._rows, digest) or ""


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
    texts = _StoredTexts(rows)
    texts.update((digest, texts[digest]) for (digest,) in rows(_TEXT_DIGESTS, conversation_id))
    messages = [message_from(row) for row in rows(_MESSAGES, conversation_id)]
    if last_id is not None:
        path = set(MessageTree(rows, conversation_id).path_to(last_id))
        messages = [message for message in messages if message.id in path]
    indexes = dict[int, int]()
    numbered = list[Message]()
    for message in with_files(messages, rows):
        # The order is that of the ids. A message whose parent does not come before it is a first one (`repair_tree`).
        parent_id = indexes.get(message.parent_id or 0)
        indexes[message.id] = len(numbered)
        numbered.append(replace(message, id=len(numbered), conversation_id=0, parent_id=parent_id))
    return FullChat(
        replace(conversation, id=0),
        tuple(numbered),
        traces={indexes[each]: trace for each, trace in rows(_TRACES, conversation_id) if each in indexes},
        texts=texts,
        folder=_folder_names(connection, conversation.folder_id),
    )


def _folder_names(connection: sqlite3.Connection, folder_id: int | None) -> tuple[str, ...]:
    return tuple(filter(None, connection.execute(_FOLDER_NAMES, (folder_id,)).fetchone() or ()))


def read_project(connection: sqlite3.Connection, folder: Folder) -> FullChat:
    """Return what the chats of a folder share, as the chat that an export has of it (`FullChat.is_project`)."""
    conversation = replace(NEW_CHAT, title=folder.name, system_prompt=folder.project.instructions)
    message = Message(0, 0, None, Role.USER, "", files=folder.files)
    rows = rows_of(connection)
    messages = (message,) if folder.files else ()
    names = _folder_names(connection, folder.id)
    notes = tuple(("", text) for (text,) in rows(_NOTES, folder.id))
    return FullChat(conversation, messages, texts=_StoredTexts(rows), folder=names, is_project=True, notes=notes)


def insert_in_steps(connection: sqlite3.Connection, chat: FullChat) -> Generator[int, None, int]:
    """Insert a chat as bulk work: a step for its row, and one for each message.

    The chat stays unlisted. A reply that is being written becomes an interrupted one. `activated` is numbered anew from
    1, in the same order.

    Args:
        connection: Writes the store.
        chat: The chat; it needs dates.

    Yields:
        The chat's id, after each step.

    Returns:
        The chat's id.
    """
    conversation = chat.conversation
    archived_at = conversation.updated_at if conversation.archived else None
    values = (
        text_column(conversation.title),
        conversation.created_at,
        conversation.updated_at,
        *options_columns(conversation),
        conversation.folder_id,
        conversation.pinned_at,
        archived_at,
    )
    chat_id = connection.execute(_INSERT_CHAT, values).lastrowid
    assert chat_id is not None
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
