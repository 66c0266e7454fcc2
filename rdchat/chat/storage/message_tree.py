"""Paths in the tree of messages, and its deleted messages: hidden at first, erased after 30 days.

Every walk ends, even in a tree made by hand that has cycles.
"""

import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import batched, chain

from rdchat.chat.conversation import Notice
from rdchat.chat.storage.connections import Rows, rows_of
from rdchat.chat.storage.database import Database
from rdchat.chat.storage.stored_rows import MESSAGE_COLUMNS
from rdchat.errors import StorageError

# The spans of one statement; every build of SQLite accepts 999 parameters.
_SPANS_AT_ONCE = 200
# End of the last span: larger than any id.
_BEYOND = 2**62

_DELETED = "(SELECT message_id FROM deleted_messages)"
NOT_DELETED = f"id NOT IN {_DELETED}"
_SIBLING_POSITION = f"""
    (SELECT count(*) FROM messages s WHERE s.parent_id IS m.parent_id AND s.conversation_id = m.conversation_id
        AND s.role = m.role AND s.id < m.id AND s.{NOT_DELETED}),
    (SELECT count(*) FROM messages s WHERE s.parent_id IS m.parent_id AND s.conversation_id = m.conversation_id
        AND s.role = m.role AND s.{NOT_DELETED})
"""
MESSAGE = f"SELECT {MESSAGE_COLUMNS}, {_SIBLING_POSITION} FROM messages m WHERE id = ?"

# The first message of each run (see `MessageTree`), with its parent. An index covers this query and the next: the
# messages of a long chat are spread over megabytes of the file.
_RUNS = "SELECT id, parent_id FROM messages WHERE conversation_id = ? AND parent_id IS NOT id - 1"
# The messages at which the prompt is cut, and whether the cut only shortens results of tools.
CUTS = """
    SELECT id, context_cut LIKE '%"shortens":true%' FROM messages WHERE conversation_id = ? AND context_cut IS NOT NULL
"""
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
# Makes a message the end of the visible path.
ACTIVATE = """
    UPDATE messages SET activated = (SELECT max(activated) + 1 FROM messages m
        WHERE m.conversation_id = messages.conversation_id) WHERE id = ?
"""

# Messages whose parent is in another chat or missing, or has no smaller id: every cycle has one of these.
_STRAYS = """
    SELECT m.id FROM messages m LEFT JOIN messages p ON p.id = m.parent_id
    WHERE m.parent_id IS NOT NULL AND (p.conversation_id IS NOT m.conversation_id OR m.parent_id >= m.id)
"""
TRASH_DAYS = 30
"""Days that a deleted chat or folder stays in the Trash, and that a deleted message can be restored."""
_DAY_S = 86_400.0
# A date that expired this long ago is doubtful: the clock jumped, or the app was not opened.
_DOUBTFUL_DAYS = 365
# Hides a span from `MessageTree.below`: its first message, and those of the chat in it whose id follows their parent's.
_HIDE = f"""
    INSERT INTO deleted_messages (message_id, root_id, deleted_at)
    SELECT id, :root, :now FROM messages WHERE id = :first AND {NOT_DELETED}
    UNION ALL SELECT id, :root, :now FROM messages
        WHERE conversation_id = :chat AND parent_id >= :first AND parent_id < :end AND id = parent_id + 1
        AND {NOT_DELETED}
"""
# The messages of a chat that were deleted by themselves, not with one above, the last deleted first.
_ROOTS = """
    SELECT d.root_id FROM deleted_messages d JOIN messages m ON m.id = d.root_id
    WHERE d.message_id = d.root_id AND m.conversation_id = ? ORDER BY d.deleted_at DESC, d.root_id DESC
"""


def messages_of(count: int) -> str:
    """Return the query for this many messages of a conversation, in any order."""
    marks = ", ".join("?" * count)
    # The plus keeps SQLite from using the conversation's index, with which it would scan the whole chat.
    return (
        f"SELECT {MESSAGE_COLUMNS}, {_SIBLING_POSITION} FROM messages m WHERE +conversation_id = ? AND id IN ({marks})"
    )


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
        self._rows = rows
        self._conversation_id = conversation_id
        # The keys are the first ids of the runs.
        self._parents: dict[int, int | None] = dict(rows(_RUNS, conversation_id))
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
            Spans in ascending order, each (first id, id after the last). Each ends where the next run begins, so it may
            contain ids of other conversations after its last message. In the example of the class, 2 to 3 and 9 are
            below 2, as are 7 and 8: (2, 7), (7, 9) and (9, `_BEYOND`).
        """
        # The runs by the message above them, so that those below a span stand side by side.
        runs = sorted((parent, first) for first, parent in self._parents.items() if parent is not None)
        spans: dict[int, int] = {}
        waiting = [message_id]
        while waiting:
            if (first := waiting.pop()) in spans:
                continue
            index = bisect_right(self._firsts, first)
            end = self._firsts[index] if index < len(self._firsts) else _BEYOND
            spans[first] = end
            below = runs[bisect_left(runs, (first,)) : bisect_left(runs, (end,))]
            waiting += (first_below for _, first_below in below)
        return sorted(spans.items())

    def latest_below(self, message_id: int) -> tuple[int, int]:
        """Return (counter, id) of the last visible message among one and all below it, without deleted ones."""
        latest = (-1, message_id)
        for spans in batched(self.below(message_id), _SPANS_AT_ONCE):
            within = " OR ".join(["id >= ? AND id < ?"] * len(spans))
            latest = max([latest, *self._rows(_LATEST_OF.format(within=within), self._conversation_id, *chain(*spans))])
        return latest


def repair_tree(connection: sqlite3.Connection) -> Notice | None:
    """Turn messages whose parent is missing, in another chat, or not older into first messages.

    Otherwise they could neither be reached nor deleted. Takes 70 ms for 100,000 messages if nothing is wrong.

    Returns:
        A notice for the person, or None if nothing was wrong.
    """
    strays = connection.execute(_STRAYS).fetchall()
    if not strays:
        return None
    connection.executemany("UPDATE messages SET parent_id = NULL WHERE id = ?", strays)
    return Notice(
        "Some messages were moved",
        "The file of your chats links them wrongly, so parts of those chats may appear as"
        " alternatives of their first message. Nothing was deleted.",
    )


@dataclass(frozen=True, slots=True)
class DeletedMessage:
    """A deletion, for `restore` to undo.

    Attributes:
        message_id: The deleted message; all messages below it were deleted too.
        visible_id: The last message of the path that was visible before.
        count: Number of deleted messages.
    """

    message_id: int
    visible_id: int
    count: int


class MessageTrash:
    """Deletes and restores messages; each method is one transaction. They raise StorageError as the store does.

    Args:
        database: The store's database.
        clock: Returns seconds since the epoch.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    def delete(self, message_id: int) -> DeletedMessage:
        """Hide a message and all below it; the alternative that was visible last appears, or else the parent."""

        def delete(connection: sqlite3.Connection) -> DeletedMessage:
            row = connection.execute(
                f"SELECT conversation_id, parent_id FROM messages WHERE id = ? AND {NOT_DELETED}", (message_id,)
            ).fetchone()
            if row is None:
                raise StorageError("This message no longer exists.", "Open the chat again.")
            conversation_id, parent_id = row
            (visible_id,) = connection.execute(LATEST, (conversation_id,)).fetchone()
            # Of each span from the message downwards, what was not deleted before is hidden.
            tree = MessageTree(rows_of(connection), conversation_id)
            parameters = {"root": message_id, "now": self._clock(), "chat": conversation_id}
            spans = ({"first": first, "end": end} for first, end in tree.below(message_id))
            count = sum(connection.execute(_HIDE, parameters | span).rowcount for span in spans)
            remaining = [row[0] for row in connection.execute(SIBLINGS, (message_id,))]
            next_id = max(map(tree.latest_below, remaining))[1] if remaining else parent_id
            if next_id is not None:
                connection.execute(ACTIVATE, (next_id,))
            return DeletedMessage(message_id, visible_id, count)

        return self._database.write(delete)

    def restore(self, deleted: DeletedMessage) -> None:
        """Undo a deletion, and return to the path that was visible before it."""

        def restore(connection: sqlite3.Connection) -> None:
            _unhide(connection, deleted.message_id)
            connection.execute(ACTIVATE, (deleted.visible_id,))

        self._database.write(restore)

    def restore_last(self, conversation_id: int) -> int | None:
        """Restore the message of a chat that was deleted last, and return its id; None without one."""
        if (message_id := self.last(conversation_id)) is None:
            return None

        def restore(connection: sqlite3.Connection) -> None:
            _unhide(connection, message_id)
            _, last_visible = MessageTree(rows_of(connection), conversation_id).latest_below(message_id)
            connection.execute(ACTIVATE, (last_visible,))

        self._database.write(restore)
        return message_id

    def last(self, conversation_id: int) -> int | None:
        """Return the id of the message of a chat that was deleted last; None without one."""
        rows = self._database.rows(f"{_ROOTS} LIMIT 1", conversation_id)
        return rows[0][0] if rows else None


def erasing_messages(database: Database, now: float) -> Generator[None]:
    """Erase the messages that have been deleted for 30 days, as bulk work."""
    limit = expiry_limit(database.connection, now, "deleted_messages")
    # Messages below come first: what a crash leaves is still hidden, and erased the next time.
    sql = "SELECT message_id FROM deleted_messages WHERE deleted_at < ? ORDER BY message_id DESC"
    for (message_id,) in database.connection.execute(sql, (limit,)).fetchall():
        erase_message(database.connection, message_id)
        yield


def erase_message(connection: sqlite3.Connection, message_id: int) -> None:
    """Delete a message for good. In trees made by hand, messages below it may remain; they become roots."""
    connection.execute("UPDATE messages SET parent_id = NULL WHERE parent_id = ?", (message_id,))
    connection.execute("DELETE FROM messages WHERE id = ?", (message_id,))


def expiry_limit(connection: sqlite3.Connection, now: float, *tables: str) -> float:
    """Return the time before which deleted rows have expired.

    A clock may be years wrong until it has a network, so impossible dates are changed first: future ones become `now`,
    and rows that expired a year ago get one more day, in which the person can see them in the Trash.

    Args:
        connection: The writer's.
        now: Seconds since the epoch.
        tables: Tables with a column `deleted_at`.
    """
    limit = now - TRASH_DAYS * _DAY_S
    doubtful = limit - _DOUBTFUL_DAYS * _DAY_S
    for table in tables:
        connection.execute(
            f"UPDATE {table} SET deleted_at = CASE WHEN deleted_at > ? THEN ? ELSE ? END"
            " WHERE deleted_at > ? OR deleted_at < ?",
            (now, now, limit + _DAY_S, now, doubtful),
        )
    return limit


def _unhide(connection: sqlite3.Connection, message_id: int) -> None:
    """Restore a message and all that was deleted with it; raises StorageError if they are erased."""
    if not connection.execute("DELETE FROM deleted_messages WHERE root_id = ?", (message_id,)).rowcount:
        raise StorageError("This message was deleted for good.", "Deleted messages are kept for 30 days.")
