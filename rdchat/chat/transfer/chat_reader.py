"""Reads whole chats from the store, with every alternative, trace and file."""

import sqlite3
from dataclasses import replace

from rdchat.chat.storage.connections import rows_of
from rdchat.chat.storage.message_tree import KEPT
from rdchat.chat.storage.messages import files_with_texts
from rdchat.chat.storage.rows import CONVERSATION_COLUMNS, MESSAGE_COLUMNS, conversation_from, message_from
from rdchat.chat.transfer.whole_chat import WholeChat, parents_first
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
