"""Messages that were deleted with what hangs on them: hidden first, erased later."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rdchat.chat.storage.bin_dates import expiry_limit
from rdchat.chat.storage.database import Database
from rdchat.chat.storage.message_tree import ACTIVATE, KEPT, LATEST, SIBLINGS, MessageRuns
from rdchat.errors import StorageError

_SLICE_S = 0.01  # of the main thread's time
_HIDE = f"""
    INSERT INTO deleted_messages (message_id, root_id, deleted_at)
    SELECT id, :root, :now FROM messages WHERE id = :first AND {KEPT}
    UNION ALL SELECT id, :root, :now FROM messages
        WHERE conversation_id = :chat AND parent_id >= :first AND parent_id < :end AND id = parent_id + 1 AND {KEPT}
"""  # a span of `MessageRuns.below`
_ROOTS = """
    SELECT d.root_id FROM deleted_messages d JOIN messages m ON m.id = d.root_id
    WHERE d.message_id = d.root_id AND m.conversation_id = ? ORDER BY d.deleted_at DESC, d.root_id DESC
"""
_GONE = "This message no longer exists.", "Open the chat again."


@dataclass(frozen=True, slots=True)
class DeletedMessage:
    """What takes a deletion back.

    Attributes:
        message_id: The message that was deleted with all below it.
        shown_id: The message that ended the shown path before.
        count: How many messages were deleted.
    """

    message_id: int
    shown_id: int
    count: int


class MessageBin:
    """Each command is one transaction; raises StorageError as `ConversationStore` does.

    Args:
        database: The store's.
        clock: Seconds since the epoch.
        timer: Seconds, for the length of slices.
    """

    def __init__(
        self, database: Database, clock: Callable[[], float], timer: Callable[[], float] = time.perf_counter
    ) -> None:
        self._database, self._clock, self._timer = database, clock, timer

    def delete(self, message_id: int) -> DeletedMessage:
        """Hide a message and all below it; shown is what was last shown of its alternatives, else what it follows."""
        with self._database.writing() as connection:
            row = connection.execute(
                f"SELECT conversation_id, parent_id FROM messages WHERE id = ? AND {KEPT}", (message_id,)
            ).fetchone()
            if row is None:
                raise StorageError(*_GONE)
            conversation_id, parent_id = row
            (shown_id,) = connection.execute(LATEST, (conversation_id,)).fetchone()
            runs, count = MessageRuns(self._database.rows, conversation_id), 0
            about = {"root": message_id, "now": self._clock(), "chat": conversation_id}
            for first, end in runs.below(message_id):
                count += connection.execute(_HIDE, about | {"first": first, "end": end}).rowcount
            if (next_id := _left_beside(connection, runs, message_id) or parent_id) is not None:
                connection.execute(ACTIVATE, (next_id,))
        return DeletedMessage(message_id, shown_id, count)

    def restore(self, deleted: DeletedMessage) -> None:
        """Take a deletion back, and show what was shown before it."""
        with self._database.writing() as connection:
            _restore(connection, deleted.message_id)
            connection.execute(ACTIVATE, (deleted.shown_id,))

    def restore_last(self, conversation_id: int) -> int | None:
        """Bring the message of a chat back that was deleted last, and return it; None where there is none."""
        if (message_id := self.last(conversation_id)) is None:
            return None
        with self._database.writing() as connection:
            _restore(connection, message_id)
            runs = MessageRuns(self._database.rows, conversation_id)
            connection.execute(ACTIVATE, (runs.latest_below(message_id),))
        return message_id

    def last(self, conversation_id: int) -> int | None:
        """Return the message of a chat that was deleted last; None where there is none."""
        rows = self._database.rows(f"{_ROOTS} LIMIT 1", conversation_id)
        return rows[0][0] if rows else None

    def erasing(self) -> Iterator[None]:
        """Erase what has been deleted for 30 days, a slice of about 10 ms a step.

        A message goes after those below it, so that what a crash leaves is hidden still, and erased the next time.
        """
        limit = expiry_limit(self._database, self._clock(), "deleted_messages")
        rows = self._database.rows(
            "SELECT message_id FROM deleted_messages WHERE deleted_at < ? ORDER BY message_id DESC", limit
        )
        place = 0
        while place < len(rows):
            until = self._timer() + _SLICE_S
            with self._database.writing() as connection:
                while place < len(rows):
                    # in trees that were made by hand a message may be younger than what follows it
                    connection.execute("UPDATE messages SET parent_id = NULL WHERE parent_id = ?", rows[place])
                    connection.execute("DELETE FROM messages WHERE id = ?", rows[place])
                    place += 1
                    if self._timer() >= until:
                        break
            yield


def _restore(connection: sqlite3.Connection, message_id: int) -> None:
    if not connection.execute("DELETE FROM deleted_messages WHERE root_id = ?", (message_id,)).rowcount:
        raise StorageError("This message is deleted for good.", "It was kept for 30 days.")


def _left_beside(connection: sqlite3.Connection, runs: MessageRuns, message_id: int) -> int | None:
    """Return the end of what was last shown of the alternatives that are left."""
    left = [row[0] for row in connection.execute(SIBLINGS, (message_id,))]
    ends = [runs.latest_below(each) for each in left]
    order = f"SELECT id FROM messages WHERE id IN ({', '.join('?' * len(ends))}) ORDER BY activated DESC LIMIT 1"
    return connection.execute(order, ends).fetchone()[0] if ends else None
