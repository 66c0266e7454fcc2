"""Walks along the tree of messages. They end in any tree, also in one that was made by hand and is none."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from rdchat.chat.conversation import Notice
from rdchat.chat.storage.rows import MESSAGE_COLUMNS, TOLD_COLUMNS

_DELETED = "(SELECT message_id FROM deleted_messages)"
KEPT = f"id NOT IN {_DELETED}"
_PLACE = f"""
    (SELECT count(*) FROM messages s WHERE s.parent_id IS m.parent_id AND s.conversation_id = m.conversation_id
        AND s.role = m.role AND s.id < m.id AND s.{KEPT}),
    (SELECT count(*) FROM messages s WHERE s.parent_id IS m.parent_id AND s.conversation_id = m.conversation_id
        AND s.role = m.role AND s.{KEPT})
"""
MESSAGE = f"SELECT {MESSAGE_COLUMNS}, {_PLACE} FROM messages m WHERE id = ?"

# UNION and not UNION ALL: all columns follow from the id, so a message that comes again ends the walk
_STEPS = """
    WITH RECURSIVE path (step, up, chat) AS (
        SELECT id, parent_id, conversation_id FROM messages WHERE id = ?
        UNION SELECT m.id, m.parent_id, m.conversation_id
            FROM path JOIN messages m ON m.id = path.up AND m.conversation_id = path.chat
    )
"""
PATH_IDS = f"{_STEPS} SELECT step, chat, up FROM path"  # in no order: see `from_root`
# an index has all that these three read: the messages of a long chat are spread over megabytes of the file
STEPS = "SELECT id, parent_id FROM messages WHERE conversation_id = ?"
CUTS = "SELECT id FROM messages WHERE conversation_id = ? AND context_cut IS NOT NULL"
MEASURED = "SELECT id FROM messages WHERE conversation_id = ? AND statistics IS NOT NULL"
LATEST = f"SELECT id FROM messages WHERE conversation_id = ? AND {KEPT} ORDER BY activated DESC LIMIT 1"
LATEST_BELOW = f"""
    WITH RECURSIVE below (id, activated, chat) AS (
        SELECT id, activated, conversation_id FROM messages WHERE id = ?
        UNION SELECT m.id, m.activated, m.conversation_id
            FROM below JOIN messages m ON m.parent_id = below.id AND m.conversation_id = below.chat AND m.{KEPT}
    )
    SELECT id FROM below ORDER BY activated DESC LIMIT 1
"""
SIBLINGS = f"""
    SELECT s.id FROM messages m JOIN messages s
        ON s.parent_id IS m.parent_id AND s.conversation_id = m.conversation_id AND s.role = m.role AND s.{KEPT}
    WHERE m.id = ? ORDER BY s.id
"""
ACTIVATE = """
    UPDATE messages SET activated = (SELECT max(activated) + 1 FROM messages m
        WHERE m.conversation_id = messages.conversation_id) WHERE id = ?
"""  # it ends the path that is shown from now on

_STRAYS = """
    SELECT m.id FROM messages m LEFT JOIN messages p ON p.id = m.parent_id
    WHERE m.parent_id IS NOT NULL AND p.conversation_id IS NOT m.conversation_id
"""  # the parent is of another chat, or there is none
_UNUSUAL = "SELECT EXISTS (SELECT 1 FROM messages WHERE parent_id >= id)"  # ids grow: without one there is no cycle


def messages_of(count: int, *, told: bool) -> str:
    """Return the query for so many messages of a conversation, in no order; `told` leaves out what no model is told."""
    columns = f"{TOLD_COLUMNS}, 0, 1" if told else f"{MESSAGE_COLUMNS}, {_PLACE}"
    marks = ", ".join("?" * count)
    return f"SELECT {columns} FROM messages m WHERE conversation_id = ? AND id IN ({marks})"


def up_from(parents: dict[int, int | None], last_id: int) -> list[int]:
    """Return the ids from the root to a message; a cycle is cut where it would begin again.

    Args:
        parents: By id, of all messages of the conversation; those on the way are taken out.
        last_id: The message that the path ends with.
    """
    path: list[int] = []
    step: int | None = last_id
    while step is not None and step in parents:
        path.append(step)
        step = parents.pop(step)
    return path[::-1]


def from_root(rows: Iterable[Sequence[Any]], last_id: int) -> list[Sequence[Any]]:
    """Put the rows of `PATH_IDS` into the order in which they were said, by their parents.

    Args:
        rows: With the id first and the parent's third.
        last_id: The message that the path ends with.
    """
    by_id = {row[0]: row for row in rows}
    path, step = [], last_id
    while (row := by_id.pop(step, None)) is not None:  # each once: a cycle is cut where it would begin again
        path.append(row)
        step = row[2]
    return path[::-1]


def mend_tree(connection: sqlite3.Connection) -> Notice | None:
    """Make a first message of whatever has a parent in another chat, one that does not exist, or itself above it.

    Otherwise such messages could neither be reached nor deleted. 70 ms for 100,000 messages, where nothing is wrong.

    Returns:
        What to tell the person, or None where all was right.
    """
    loose = [row[0] for row in connection.execute(_STRAYS)]
    if connection.execute(_UNUSUAL).fetchone()[0]:
        loose += _heads_of_cycles(dict(connection.execute("SELECT id, parent_id FROM messages").fetchall()), loose)
    if not loose:
        return None
    connection.executemany("UPDATE messages SET parent_id = NULL WHERE id = ?", [(each,) for each in loose])
    return Notice(
        "Some messages were not where they belong",
        "The file of your chats names a wrong message before them, so parts of those chats may be shown as"
        " alternatives of their first message. Nothing was deleted.",
    )


def _heads_of_cycles(parents: dict[int, int | None], loose: Iterable[int]) -> list[int]:
    """Return the oldest message of every cycle; those in `loose` have no parent any more."""
    parents = parents | dict.fromkeys(loose)
    heads: list[int] = []
    walk_of: dict[int, int] = {}  # the message whose walk came by first
    for start in parents:
        step: int | None = start
        while step is not None and step not in walk_of:
            walk_of[step] = start
            step = parents.get(step)
        if step is not None and walk_of[step] == start:
            heads.append(_oldest_of_cycle(parents, step))
    return heads


def _oldest_of_cycle(parents: dict[int, int | None], first: int) -> int:
    oldest, step = first, parents[first]
    while step is not None and step != first:
        oldest, step = min(oldest, step), parents[step]
    return oldest
