"""Chats out of the store, whole: with every alternative and trace."""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.storage.files import WITH_TEXTS, file_from
from rdchat.chat.storage.message_tree import KEPT
from rdchat.chat.storage.rows import CONVERSATION_COLUMNS, MESSAGE_COLUMNS, conversation_from, message_from
from rdchat.chat.transfer.portable import PortableChat, PortableMessage, parents_first
from rdchat.errors import StorageError

_VISIBLE = "SELECT id FROM conversations WHERE deleted_at IS NULL AND unlisted = 0 ORDER BY updated_at DESC, id DESC"
_CHAT = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE id = ? AND deleted_at IS NULL AND unlisted = 0"
_FOLDER = """
    SELECT around.name, folder.name FROM folders folder
    LEFT JOIN folders around ON around.id = folder.parent_id AND around.deleted_at IS NULL
    WHERE folder.id = ? AND folder.deleted_at IS NULL
"""
_MESSAGES = f"""
    SELECT {MESSAGE_COLUMNS}, activated, (SELECT trace FROM message_traces WHERE message_id = messages.id)
    FROM messages WHERE conversation_id = ? AND {KEPT} ORDER BY id
"""


def visible_ids(connection: sqlite3.Connection) -> list[int]:
    """Return the ids of all chats that are not deleted, newest first."""
    return [row[0] for row in connection.execute(_VISIBLE)]


def read_chat(connection: sqlite3.Connection, conversation_id: int) -> PortableChat:
    """Return a chat of the store.

    Raises:
        StorageError: If it is deleted, or never was.
    """
    row = connection.execute(_CHAT, (conversation_id,)).fetchone()
    if row is None:
        raise StorageError(f"There is no chat {conversation_id}.", "`rdchat chats list` shows those that there are.")
    about = conversation_from(row)
    return PortableChat(
        about.title,
        about.created_at,
        about.updated_at,
        about.system_prompt,
        about.sampling,
        tuple(_messages(connection, conversation_id)),
        pinned=about.pinned_at is not None,
        archived=about.archived,
        folder=tuple(name for name in connection.execute(_FOLDER, (about.folder_id,)).fetchone() or () if name),
        thinking_choice=about.thinking_choice,
    )


def _messages(connection: sqlite3.Connection, conversation_id: int) -> list[PortableMessage]:
    rows = connection.execute(_MESSAGES, (conversation_id,)).fetchall()
    files: dict[int, list[tuple[AttachedFile, str]]] = {}
    for *columns, text in connection.execute(WITH_TEXTS, (conversation_id,)):
        files.setdefault(columns[0], []).append((file_from(columns), text))
    by_id = {str(row[0]): row for row in rows}
    order = parents_first({each: None if row[2] is None else str(row[2]) for each, row in by_id.items()})
    places = {int(each): place for place, each in enumerate(order)}
    return [replace(_message(by_id[each], places), files=tuple(files.get(int(each), ()))) for each in order]


def _message(row: Sequence[Any], places: dict[int, int]) -> PortableMessage:
    *columns, activated, trace = row
    read = message_from((*columns, 0, 1))
    return PortableMessage(
        parent=None if read.parent_id is None else places.get(read.parent_id),
        role=read.role,
        text=read.text,
        activated=activated,
        status=read.status,
        created_at=read.created_at,
        model=read.model,
        seed=read.seed,
        finish_reason=read.finish_reason,
        error=read.error,
        statistics=read.statistics,
        drafting=read.drafting,
        control_offsets=read.control_offsets,
        thinking=read.thinking,
        context_cut=read.context_cut,
        edited=read.edited,
        made_with=read.made_with,
        trace=trace,
    )
