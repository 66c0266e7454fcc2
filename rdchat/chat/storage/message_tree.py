"""Paths in the tree of messages. Every walk ends, even in a tree made by hand that has cycles."""

import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import batched, chain

from rdchat.chat.conversation import Notice
from rdchat.chat.storage.connections import Rows
from rdchat.chat.storage.rows import MESSAGE_COLUMNS

_SPANS_AT_ONCE = 200  # in a statement: every build of SQLite accepts 999 parameters
_BEYOND = 2**62  # larger than any id

_DELETED = "(SELECT message_id FROM deleted_messages)"
NOT_DELETED = f"id NOT IN {_DELETED}"
_PLACE = f"""
    (SELECT count(*) FROM messages s WHERE s.parent_id IS m.parent_id AND s.conversation_id = m.conversation_id
        AND s.role = m.role AND s.id < m.id AND s.{NOT_DELETED}),
    (SELECT count(*) FROM messages s WHERE s.parent_id IS m.parent_id AND s.conversation_id = m.conversation_id
        AND s.role = m.role AND s.{NOT_DELETED})
"""
MESSAGE = f"SELECT {MESSAGE_COLUMNS}, {_PLACE} FROM messages m WHERE id = ?"

# an index covers these two queries: the messages of a long chat are spread over megabytes of the file
_RUNS = "SELECT id, parent_id FROM messages WHERE conversation_id = ? AND parent_id IS NOT id - 1"
CUTS = "SELECT id FROM messages WHERE conversation_id = ? AND context_cut IS NOT NULL"
LATEST = f"SELECT id FROM messages WHERE conversation_id = ? AND {NOT_DELETED} ORDER BY activated DESC LIMIT 1"
_LATEST_OF = f"""
    SELECT activated, id FROM messages WHERE conversation_id = ? AND ({{within}}) AND {NOT_DELETED}
    ORDER BY activated DESC LIMIT 1
"""
SIBLINGS = f"""
    SELECT s.id FROM messages m JOIN messages s
        ON s.parent_id IS m.parent_id AND s.conversation_id = m.conversation_id AND s.role = m.role AND s.{NOT_DELETED}
    WHERE m.id = ? ORDER BY s.id
"""
NEXT_ACTIVATED = "SELECT coalesce(max(activated), 0) + 1 FROM messages WHERE conversation_id = ?"
ACTIVATE = """
    UPDATE messages SET activated = (SELECT max(activated) + 1 FROM messages m
        WHERE m.conversation_id = messages.conversation_id) WHERE id = ?
"""  # the message then ends the shown path

_STRAYS = """
    SELECT m.id FROM messages m LEFT JOIN messages p ON p.id = m.parent_id
    WHERE m.parent_id IS NOT NULL AND p.conversation_id IS NOT m.conversation_id
"""  # the parent is in another chat or missing
# a parent's id is smaller, so without such a row there is no cycle; an index covers the first condition
_UNUSUAL = "SELECT EXISTS (SELECT 1 FROM messages WHERE parent_id IS NOT id - 1 AND parent_id >= id)"


def messages_of(count: int) -> str:
    """Return the query for this many messages of a conversation, in any order."""
    marks = ", ".join("?" * count)
    # the plus keeps SQLite from using the conversation's index, with which it would scan the whole chat
    return f"SELECT {MESSAGE_COLUMNS}, {_PLACE} FROM messages m WHERE +conversation_id = ? AND id IN ({marks})"


class MessageTree:
    """The messages of one conversation as runs: each message of a run has the id after its parent's.

    A message is mostly written right after its parent, so even a chat of 100,000 messages has only a few runs, and only
    these are read. For the messages 1, 2 (below 1), 3 (below 2), 7 (below 3), 8 (below 7) and 9 (below 2) the runs are
    1 to 3, 7 to 8 below 3, and 9 below 2. `messages_runs` in the schema indexes their first messages.

    Args:
        rows: Reads the database.
        conversation_id: The conversation.
    """

    def __init__(self, rows: Rows, conversation_id: int) -> None:
        self._rows, self._conversation_id = rows, conversation_id
        self._parents: dict[int, int | None] = dict(rows(_RUNS, conversation_id))  # by the first id of a run
        self._firsts = sorted(self._parents)

    def path_to(self, message_id: int) -> list[int]:
        """Return the ids from the root to a message; a cycle is cut where it would repeat."""
        runs: list[range] = []
        passed: set[int] = set()
        step: int | None = message_id
        while step is not None and (index := bisect_right(self._firsts, step)):
            first = self._firsts[index - 1]
            if first in passed:
                break
            passed.add(first)
            runs.append(range(first, step + 1))
            step = self._parents[first]
        return list(chain.from_iterable(reversed(runs)))

    def below(self, message_id: int) -> list[tuple[int, int]]:
        """Return the ids of a message and all below it, deleted ones included.

        Returns:
            Spans in ascending order, each (first id, id after the last). Each ends where a run ends, so it may contain
            ids of other conversations after its last message.
        """
        children = sorted((parent, first) for first, parent in self._parents.items() if parent is not None)
        spans: dict[int, int] = {}
        waiting = [message_id]
        while waiting:
            if (first := waiting.pop()) in spans:
                continue
            index = bisect_right(self._firsts, first)
            end = spans[first] = self._firsts[index] if index < len(self._firsts) else _BEYOND
            waiting += (child for _, child in children[bisect_left(children, (first,)) : bisect_left(children, (end,))])
        return sorted(spans.items())

    def latest_below(self, message_id: int) -> tuple[int, int]:
        """Return (counter, id) of the message shown last among one and all below it, without deleted ones."""
        latest = (-1, message_id)
        for spans in batched(self.below(message_id), _SPANS_AT_ONCE):
            within = " OR ".join(["id >= ? AND id < ?"] * len(spans))
            latest = max([latest, *self._rows(_LATEST_OF.format(within=within), self._conversation_id, *chain(*spans))])
        return latest


def repair_tree(connection: sqlite3.Connection) -> Notice | None:
    """Turn messages whose parent is missing, in another chat, or in a cycle into first messages.

    Otherwise they could neither be reached nor deleted. Takes 70 ms for 100,000 messages if nothing is wrong.

    Returns:
        A notice for the person, or None if nothing was wrong.
    """
    strays = [row[0] for row in connection.execute(_STRAYS)]
    if connection.execute(_UNUSUAL).fetchone()[0]:
        strays += _heads_of_cycles(dict(connection.execute("SELECT id, parent_id FROM messages").fetchall()), strays)
    if not strays:
        return None
    connection.executemany("UPDATE messages SET parent_id = NULL WHERE id = ?", [(each,) for each in strays])
    return Notice(
        "Some messages were moved",
        "The file of your chats links them wrongly, so parts of those chats may appear as"
        " alternatives of their first message. Nothing was deleted.",
    )


def _heads_of_cycles(parents: dict[int, int | None], strays: Iterable[int]) -> list[int]:
    """Return the oldest message of every cycle; those in `loose` no longer have a parent."""
    parents = parents | dict.fromkeys(strays)
    heads: list[int] = []
    walk_of: dict[int, int] = {}  # the message whose walk visited it first
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
