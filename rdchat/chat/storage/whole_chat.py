"""A whole chat as plain data, for copies, imports and exports: `read_chat` reads it, `insert_in_steps` inserts it.

The column `unlisted` of a conversation says whether the chat is shown: 0 if it is, 1 while it is erased, 2 while it is
inserted. Erasing and inserting take many transactions, and a chat that is half there is seen nowhere. Whoever inserts a
chat sets 0 at the end; `ConversationStore` sets 1 at the next start where a crash has left a 2.
"""

import sqlite3
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace

from rdchat.chat.conversation import NEW_CHAT, Conversation, Folder, Message, MessageStatus
from rdchat.chat.storage.connections import Rows, rows_of
from rdchat.chat.storage.message_tree import NOT_DELETED, MessageTree
from rdchat.chat.storage.stored_messages import add_files, file_text, insert_message, with_files
from rdchat.chat.storage.stored_rows import (
    CONVERSATION_COLUMNS,
    MESSAGE_COLUMNS,
    conversation_from,
    message_from,
    message_row,
    options_columns,
    text_column,
)
from rdchat.errors import StorageError
from rdchat.inference.api import Role

_TEXT_DIGESTS = "SELECT DISTINCT digest FROM message_files WHERE conversation_id = ? AND kind <> 'image'"
_VISIBLE = "SELECT id FROM conversations WHERE deleted_at IS NULL AND unlisted = 0 ORDER BY updated_at DESC, id DESC"
_CHAT = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE id = ? AND deleted_at IS NULL AND unlisted = 0"
_FOLDER_NAMES = """
    SELECT around.name, folder.name FROM folders folder
    LEFT JOIN folders around ON around.id = folder.parent_id AND around.deleted_at IS NULL
    WHERE folder.id = ? AND folder.deleted_at IS NULL
"""
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


class DamagedChatError(ValueError):
    """A chat is damaged, so nothing of it is used; the text gives the reason, as a sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class FullChat:
    """A conversation with all alternatives.

    Its ids are those of no store: `id` of a message is its index in `messages`, `parent_id` the index of its parent,
    which comes before it. Only the order of `Message.activated` matters.

    Attributes:
        about: The conversation without an id; its title may be empty.
        traces: Traces of replies (`reply_trace`), by the message's index.
        texts: Texts of the messages' files, by digest; that of an image may be empty, and come later (`add_image`).
        folder: Name of the folder, after that of the folder around it; empty outside of folders.
        is_project: Whether it is no chat, but what the chats of its folder share: its system prompt, and the files of
            its only message.
        without: Number of parts of each kind that cannot be taken: `{"image": 2}`.
    """

    about: Conversation
    messages: tuple[Message, ...]
    traces: Mapping[int, bytes] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    folder: tuple[str, ...] = ()
    is_project: bool = False
    without: Mapping[str, int] = field(default_factory=dict)


class _StoredTexts(dict[str, str]):
    """Texts of files by digest. That of an image is read each time it is needed: all images may not fit into memory.

    Args:
        rows: Reads the store.
    """

    def __init__(self, rows: Rows) -> None:
        super().__init__()
        self._rows = rows

    def __missing__(self, digest: str) -> str:
        return file_text(self._rows, digest) or ""


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
    texts = _StoredTexts(rows)
    texts.update((digest, texts[digest]) for (digest,) in rows(_TEXT_DIGESTS, conversation_id))
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
        texts=texts,
        folder=_folder_names(connection, conversation.folder_id),
    )


def _folder_names(connection: sqlite3.Connection, folder_id: int | None) -> tuple[str, ...]:
    return tuple(filter(None, connection.execute(_FOLDER_NAMES, (folder_id,)).fetchone() or ()))


def read_project(connection: sqlite3.Connection, folder: Folder) -> FullChat:
    """Return what the chats of a folder share, but for what belongs to this computer."""
    about = replace(NEW_CHAT, title=folder.name, system_prompt=folder.project.instructions)
    message = Message(0, 0, None, Role.USER, "", files=folder.files)
    texts = _StoredTexts(rows_of(connection))
    messages = (message,) if folder.files else ()
    return FullChat(about, messages, texts=texts, folder=_folder_names(connection, folder.id), is_project=True)


def insert_in_steps(connection: sqlite3.Connection, chat: FullChat) -> Generator[int, None, int]:
    """Insert a chat as bulk work: a step for its row, and one for each message.

    The chat stays unlisted. A reply that is being written becomes an interrupted one.

    Args:
        connection: Writes the store.
        chat: The chat; it needs dates.

    Yields:
        The chat's id, after each step.

    Returns:
        The chat's id.
    """
    conversation = chat.about
    archived_at = conversation.updated_at if conversation.archived else None
    location = (conversation.folder_id, conversation.pinned_at, archived_at)
    values = (text_column(conversation.title), conversation.created_at, conversation.updated_at,
              *options_columns(conversation), *location)  # fmt: skip
    cursor = connection.execute(_INSERT_CHAT, values)
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
