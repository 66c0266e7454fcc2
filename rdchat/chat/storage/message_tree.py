"""Paths in the tree of messages. Every walk ends, also in a tree that was made by hand and has cycles."""

import sqlite3
from collections.abc import Iterable

from rdchat.chat.conversation import Notice
from rdchat.chat.storage.connections import Rows
from rdchat.chat.storage.rows import MESSAGE_COLUMNS

_DELETED = "(SELECT message_id FROM deleted_messages)"
KEPT = f"id NOT IN {_DELETED}"
_PLACE = f"""
    (SELECT count(*) FROM messages s WHERE s.parent_id IS m.parent_id AND s.conversation_id = m.conversation_id
        AND s.role = m.role AND s.id < m.id AND s.{KEPT}),
    (SELECT count(*) FROM messages s WHERE s.parent_id IS m.parent_id AND s.conversation_id = m.conversation_id
        AND s.role = m.role AND s.{KEPT})
"""
MESSAGE = f"SELECT {MESSAGE_COLUMNS}, {_PLACE} FROM messages m WHERE id = ?"

# an index has all that these three read: the messages of a long chat are spread over megabytes of the file
_PARENTS = "SELECT id, parent_id FROM messages WHERE conversation_id = ?"
CUTS = "SELECT id FROM messages WHERE conversation_id = ? AND context_cut IS NOT NULL"
MEASURED = "SELECT id FROM messages WHERE conversation_id = ? AND statistics IS NOT NULL"
_LATEST_FIRST = f"SELECT id FROM messages WHERE conversation_id = ? AND {KEPT} ORDER BY activated DESC"
LATEST = f"{_LATEST_FIRST} LIMIT 1"
SIBLINGS = f"""
    SELECT s.id FROM messages m JOIN messages s
        ON s.parent_id IS m.parent_id AND s.conversation_id = m.conversation_id AND s.role = m.role AND s.{KEPT}
    WHERE m.id = ? ORDER BY s.id
"""
NEXT_ACTIVATED = "SELECT coalesce(max(activated), 0) + 1 FROM messages WHERE conversation_id = ?"
ACTIVATE = """
    UPDATE messages SET activated = (SELECT max(activated) + 1 FROM messages m
        WHERE m.conversation_id = messages.conversation_id) WHERE id = ?
"""  # it ends the path that is shown from now on

_STRAYS = """
    SELECT m.id FROM messages m LEFT JOIN messages p ON p.id = m.parent_id
    WHERE m.parent_id IS NOT NULL AND p.conversation_id IS NOT m.conversation_id
"""  # the parent is of another chat, or there is none
# ids grow: without one there is no cycle; an index has the messages for which the first condition holds
_UNUSUAL = "SELECT EXISTS (SELECT 1 FROM messages WHERE parent_id IS NOT id - 1 AND parent_id >= id)"


def messages_of(count: int) -> str:
    """Return the query for so many messages of a conversation, in no order."""
    marks = ", ".join("?" * count)
    # the plus keeps SQLite from the conversation's index: it would look through a whole chat for a few messages
    return f"SELECT {MESSAGE_COLUMNS}, {_PLACE} FROM messages m WHERE +conversation_id = ? AND id IN ({marks})"


class MessageTree:
    """The ids of all messages of one conversation, deleted ones too, as a tree.

    Args:
        rows: Reads the database.
        conversation_id: The conversation.
    """

    def __init__(self, rows: Rows, conversation_id: int) -> None:
        self._rows, self._conversation_id = rows, conversation_id
        self._parents: dict[int, int | None] = dict(rows(_PARENTS, conversation_id))

    def path_to(self, message_id: int) -> list[int]:
        """Return the ids from the root to a message; a cycle is cut where it would begin again."""
        path: dict[int, None] = {}
        step: int | None = message_id
        while step in self._parents and step not in path:
            path[step] = None
            step = self._parents[step]
        return [*reversed(path)]

    def below(self, message_ids: Iterable[int]) -> set[int]:
        """Return the ids of some messages and of all below them."""
        children: dict[int | None, list[int]] = {}
        for child, parent in self._parents.items():
            children.setdefault(parent, []).append(child)
        found: set[int] = set()
        waiting = list(message_ids)
        while waiting:
            if (step := waiting.pop()) not in found:
                found.add(step)
                waiting += children.get(step, ())
        return found

    def latest_below(self, message_ids: Iterable[int]) -> int | None:
        """Return the message that was shown last of some and all below them that are not deleted."""
        below = self.below(message_ids)
        return next((row[0] for row in self._rows(_LATEST_FIRST, self._conversation_id) if row[0] in below), None)


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
