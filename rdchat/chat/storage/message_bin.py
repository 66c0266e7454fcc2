"""Deleted messages: hidden at first, erased after 30 days, like chats and folders in the bin."""

import sqlite3
from collections.abc import Callable, Generator
from dataclasses import dataclass

from rdchat.chat.storage.connections import rows_of
from rdchat.chat.storage.database import Database
from rdchat.chat.storage.message_tree import ACTIVATE, LATEST, NOT_DELETED, SIBLINGS, MessageTree
from rdchat.errors import StorageError

BIN_DAYS = 30  # days in the bin
_DAY_S = 86_400.0
_DOUBTFUL_DAYS = 365  # this long after its expiry a date is doubtful: the clock jumped, or the app was not opened
_HIDE = f"""
    INSERT INTO deleted_messages (message_id, root_id, deleted_at)
    SELECT id, :root, :now FROM messages WHERE id = :first AND {NOT_DELETED}
    UNION ALL SELECT id, :root, :now FROM messages
        WHERE conversation_id = :chat AND parent_id >= :first AND parent_id < :end AND id = parent_id + 1
        AND {NOT_DELETED}
"""  # a span from `MessageTree.below`
_ROOTS = """
    SELECT d.root_id FROM deleted_messages d JOIN messages m ON m.id = d.root_id
    WHERE d.message_id = d.root_id AND m.conversation_id = ? ORDER BY d.deleted_at DESC, d.root_id DESC
"""
_NO_MESSAGE = "This message no longer exists.", "Open the chat again."


@dataclass(frozen=True, slots=True)
class DeletedMessage:
    """A deletion, for `restore` to undo."""

    message_id: int  # the deleted message; all below it were deleted too
    listed_id: int  # the end of the path shown before
    count: int  # number of deleted messages


class MessageBin:
    """Each command is one transaction. Methods raise StorageError as `ConversationStore` does.

    Args:
        database: The store's database.
        clock: Returns seconds since the epoch.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database, self._clock = database, clock

    def delete(self, message_id: int) -> DeletedMessage:
        """Hide a message and all below it; then the alternative shown last is shown, or else the parent."""

        def delete(connection: sqlite3.Connection) -> DeletedMessage:
            row = connection.execute(
                f"SELECT conversation_id, parent_id FROM messages WHERE id = ? AND {NOT_DELETED}", (message_id,)
            ).fetchone()
            if row is None:
                raise StorageError(*_NO_MESSAGE)
            conversation_id, parent_id = row
            (listed_id,) = connection.execute(LATEST, (conversation_id,)).fetchone()
            tree, count = MessageTree(rows_of(connection), conversation_id), 0
            parameters = {"root": message_id, "now": self._clock(), "chat": conversation_id}
            for first, end in tree.below(message_id):
                count += connection.execute(_HIDE, parameters | {"first": first, "end": end}).rowcount
            remaining = [row[0] for row in connection.execute(SIBLINGS, (message_id,))]
            next_id = max(map(tree.latest_below, remaining))[1] if remaining else parent_id
            if next_id is not None:
                connection.execute(ACTIVATE, (next_id,))
            return DeletedMessage(message_id, listed_id, count)

        return self._database.write(delete)

    def restore(self, deleted: DeletedMessage) -> None:
        """Undo a deletion, and show what was shown before it."""
        self._database.write(lambda connection: _restore(connection, deleted.message_id, lambda: deleted.listed_id))

    def restore_last(self, conversation_id: int) -> int | None:
        """Restore the message of a chat that was deleted last, and return its id; None without one."""
        if (message_id := self.last(conversation_id)) is None:
            return None

        def restore(connection: sqlite3.Connection) -> None:
            tree = MessageTree(rows_of(connection), conversation_id)
            _restore(connection, message_id, lambda: tree.latest_below(message_id)[1])

        self._database.write(restore)
        return message_id

    def last(self, conversation_id: int) -> int | None:
        """Return the id of the message of a chat that was deleted last; None without one."""
        rows = self._database.rows(f"{_ROOTS} LIMIT 1", conversation_id)
        return rows[0][0] if rows else None


def erasing_messages(database: Database, now: float) -> Generator[None]:
    """Erase the messages that have been deleted for 30 days, as bulk work."""
    limit = expiry_limit(database.connection, now, "deleted_messages")
    # messages below come first: what a crash leaves is still hidden, and erased the next time
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
    and rows that expired a year ago get one more day, in which the person can see them in the bin.

    Args:
        connection: The writer's.
        now: Seconds since the epoch.
        tables: Tables with a column `deleted_at`.
    """
    limit = now - BIN_DAYS * _DAY_S
    doubtful = limit - _DOUBTFUL_DAYS * _DAY_S
    for table in tables:
        connection.execute(
            f"UPDATE {table} SET deleted_at = CASE WHEN deleted_at > ? THEN ? ELSE ? END"
            " WHERE deleted_at > ? OR deleted_at < ?",
            (now, now, limit + _DAY_S, now, doubtful),
        )
    return limit


def _restore(connection: sqlite3.Connection, message_id: int, shown: Callable[[], int]) -> None:
    if not connection.execute("DELETE FROM deleted_messages WHERE root_id = ?", (message_id,)).rowcount:
        raise StorageError("This message was deleted for good.", "Deleted messages are kept for 30 days.")
    connection.execute(ACTIVATE, (shown(),))
