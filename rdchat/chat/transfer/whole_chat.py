"""A whole chat outside of the store, for imports and exports."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rdchat.chat.conversation import Conversation, Message
from rdchat.chat.storage.connections import rows_of
from rdchat.chat.storage.message_tree import KEPT
from rdchat.chat.storage.messages import files_with_texts
from rdchat.chat.storage.rows import CONVERSATION_COLUMNS, MESSAGE_COLUMNS, conversation_from, message_from
from rdchat.errors import StorageError

_VISIBLE = "SELECT id FROM conversations WHERE deleted_at IS NULL AND unlisted = 0 ORDER BY updated_at DESC, id DESC"
_CHAT = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE id = ? AND deleted_at IS NULL AND unlisted = 0"
_FOLDER = """
    SELECT around.name, folder.name FROM folders folder
    LEFT JOIN folders around ON around.id = folder.parent_id AND around.deleted_at IS NULL
    WHERE folder.id = ? AND folder.deleted_at IS NULL
"""
_MESSAGES = f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE conversation_id = ? AND {KEPT} ORDER BY id"
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

    about: Conversation  # without an id or a folder; the title is empty where the source has none
    messages: tuple[Message, ...]
    traces: Mapping[int, bytes] = field(default_factory=dict)  # how replies came about (`reply_trace`), by place
    texts: Mapping[str, str] = field(default_factory=dict)  # of the messages' files, by digest
    folder: tuple[str, ...] = ()  # name of the folder, behind that of the folder around it; empty outside of any
    without: Mapping[str, int] = field(default_factory=dict)  # parts that cannot be taken: `{"image": 2}`


def shown_path(messages: Sequence[Message]) -> list[Message]:
    """Return the path that is shown: from a first message to the one that was activated last."""
    step = max(messages, key=lambda message: message.activated, default=None)
    path = []
    while step is not None:
        path.append(step)
        step = None if step.parent_id is None else messages[step.parent_id]
    return path[::-1]


def alternatives(messages: Sequence[Message], message: Message) -> list[Message]:
    """Return the message and its alternatives, in the order in which they were written."""
    return [each for each in messages if (each.parent_id, each.role) == (message.parent_id, message.role)]


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


def read_chat(connection: sqlite3.Connection, conversation_id: int) -> WholeChat:
    """Return a chat of the store.

    Raises:
        StorageError: If it is deleted, or never was.
    """
    row = connection.execute(_CHAT, (conversation_id,)).fetchone()
    if row is None:
        raise StorageError(f"There is no chat {conversation_id}.", "`rdchat chats list` shows those that there are.")
    about = conversation_from(row)
    read = {row[0]: message_from(row) for row in connection.execute(_MESSAGES, (conversation_id,))}
    order = parents_first({each: message.parent_id for each, message in read.items()})
    places = {each: place for place, each in enumerate(order)}
    files = files_with_texts(rows_of(connection), conversation_id)
    messages = (
        replace(
            read[each],
            id=place,
            conversation_id=0,
            parent_id=places.get(read[each].parent_id or 0),
            files=tuple(file for file, _ in files.get(each, ())),
        )
        for place, each in enumerate(order)
    )
    traces = connection.execute(_TRACES, (conversation_id,)).fetchall()
    return WholeChat(
        replace(about, id=0, folder_id=None),
        tuple(messages),
        traces={places[each]: trace for each, trace in traces if each in places},
        texts={file.digest: text for each in places for file, text in files.get(each, ())},
        folder=tuple(name for name in connection.execute(_FOLDER, (about.folder_id,)).fetchone() or () if name),
    )
