"""Reads and writes whole chats, for copies, imports and exports."""

import sqlite3
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace

from rdchat.chat.conversation import Conversation, Message, MessageStatus
from rdchat.chat.storage.connections import rows_of
from rdchat.chat.storage.message_tree import KEPT, MessageTree
from rdchat.chat.storage.messages import add_files, file_texts, insert_message, with_files
from rdchat.chat.storage.rows import (
    CONVERSATION_COLUMNS,
    MESSAGE_COLUMNS,
    conversation_from,
    json_column,
    message_from,
    message_row,
    text_column,
)
from rdchat.errors import StorageError

_VISIBLE = "SELECT id FROM conversations WHERE deleted_at IS NULL AND unlisted = 0 ORDER BY updated_at DESC, id DESC"
_CHAT = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE id = ? AND deleted_at IS NULL AND unlisted = 0"
_FOLDER = """
    SELECT around.name, folder.name FROM folders folder
    LEFT JOIN folders around ON around.id = folder.parent_id AND around.deleted_at IS NULL
    WHERE folder.id = ? AND folder.deleted_at IS NULL
"""
_MESSAGES = f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE conversation_id = ? AND {KEPT} ORDER BY id"
_INSERT = """
    INSERT INTO conversations
        (title, created_at, updated_at, unlisted, system_prompt, sampling, thinking, folder_id, pinned_at, archived_at)
    VALUES (?, ?, ?, 2, ?, ?, ?, ?, ?, ?)
"""
_INSERT_TRACE = "INSERT INTO message_traces (message_id, trace) VALUES (?, ?)"
_TRACES = """
    SELECT message_id, trace FROM message_traces JOIN messages ON messages.id = message_id WHERE conversation_id = ?
"""


class DamagedChatError(ValueError):
    """A chat cannot be taken whole, so nothing of it is; the text says why, as a sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class WholeChat:
    """A conversation with all its alternatives. Ids are of this chat alone: `id` of a message is its place in the list.

    Each message comes after the one it follows. Of `Message.activated` only the order counts.
    """

    about: Conversation  # without an id; the title is empty where the source has none
    messages: tuple[Message, ...]
    traces: Mapping[int, bytes] = field(default_factory=dict)  # how replies came about (`reply_trace`), by place
    texts: Mapping[str, str] = field(default_factory=dict)  # of the messages' files, by digest
    folder: tuple[str, ...] = ()  # name of the folder, behind that of the folder around it; empty outside of any
    without: Mapping[str, int] = field(default_factory=dict)  # parts that cannot be taken: `{"image": 2}`


def parents_first[K](parents: Mapping[K, K | None]) -> list[K]:
    """Put ids into an order in which each comes after its parent; those with one parent keep their order.

    Args:
        parents: By id: the parent's id. One that is not among the ids counts as none.

    Raises:
        DamagedChatError: If some are above themselves.
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
        raise DamagedChatError("Its messages follow one another in a circle")
    return order


def visible_ids(connection: sqlite3.Connection) -> list[int]:
    """Return the ids of all chats that are not deleted, newest first."""
    return [row[0] for row in connection.execute(_VISIBLE)]


def read_chat(connection: sqlite3.Connection, conversation_id: int, last_id: int | None = None) -> WholeChat:
    """Return a chat of the store.

    Args:
        connection: Reads the store.
        conversation_id: The chat.
        last_id: Only the path to this message is read; None reads all.

    Raises:
        StorageError: If it is deleted, or never was.
    """
    row = connection.execute(_CHAT, (conversation_id,)).fetchone()
    if row is None:
        raise StorageError(f"There is no chat {conversation_id}.", "`rdchat chats list` shows those that there are.")
    about, rows = conversation_from(row), rows_of(connection)
    messages = [message_from(row) for row in rows(_MESSAGES, conversation_id)]
    if last_id is not None:
        path = set(MessageTree(rows, conversation_id).path_to(last_id))
        messages = [message for message in messages if message.id in path]
    read = {message.id: message for message in with_files(messages, rows)}
    places = {each: place for place, each in enumerate(parents_first({each.id: each.parent_id for each in messages}))}
    return WholeChat(
        replace(about, id=0),
        tuple(
            replace(read[each], id=place, conversation_id=0, parent_id=places.get(read[each].parent_id or 0))
            for each, place in places.items()
        ),
        traces={places[each]: trace for each, trace in rows(_TRACES, conversation_id) if each in places},
        texts=file_texts(rows, conversation_id),
        folder=tuple(name for name in connection.execute(_FOLDER, (about.folder_id,)).fetchone() or () if name),
    )


def inserting(connection: sqlite3.Connection, chat: WholeChat) -> Generator[int, None, int]:
    """Insert a chat step by step, as bulk work; yield its id after each step and return it at the end.

    The chat stays unlisted (2). It has dates; a reply that is being written becomes an interrupted one.
    """
    about = chat.about
    prompt = None if about.system_prompt is None else text_column(about.system_prompt)
    archived_at = about.updated_at if about.archived else None
    choices = (prompt, json_column(about.sampling), about.thinking_choice)
    places = (about.folder_id, about.pinned_at, archived_at)
    values = (text_column(about.title), about.created_at, about.updated_at, *choices, *places)
    cursor = connection.execute(_INSERT, values)
    assert cursor.lastrowid is not None
    chat_id, ids = cursor.lastrowid, list[int]()
    yield chat_id
    order = sorted(chat.messages, key=lambda message: message.activated)
    activated = {message.id: number for number, message in enumerate(order, start=1)}
    for place, message in enumerate(chat.messages):
        parent_id = None if message.parent_id is None else ids[message.parent_id]
        streaming = message.status is MessageStatus.STREAMING
        status = MessageStatus.INTERRUPTED if streaming else message.status
        new = replace(message, conversation_id=chat_id, parent_id=parent_id, activated=activated[place], status=status)
        ids.append(insert_message(connection, message_row(new)))
        add_files(connection, ids[-1], ((file, chat.texts[file.digest]) for file in message.files))
        if place in chat.traces:
            connection.execute(_INSERT_TRACE, (ids[-1], chat.traces[place]))
        yield chat_id
    return chat_id
