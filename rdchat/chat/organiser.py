"""How conversations are kept in order: pins, folders, the archive, the bin, copies."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from rdchat.chat.conversation import Conversation, Folder
from rdchat.chat.storage.bin_dates import expiry_limit
from rdchat.chat.storage.database import Database
from rdchat.chat.storage.files import copy_files
from rdchat.chat.storage.message_tree import ACTIVATE, KEPT, MessageRuns
from rdchat.chat.storage.rows import (
    CONVERSATION_COLUMNS,
    FOLDER_COLUMNS,
    conversation_from,
    folder_from,
    text_column,
)
from rdchat.chat.titles import NEW_FOLDER, tidy_title
from rdchat.errors import StorageError

_SLICE_S = 0.01  # of the main thread's time, for what takes long with a long conversation
_TOO_OLD = "deleted_at IS NOT NULL AND unlisted = 0 AND deleted_at < ?"  # the first two: as an index has it
_GONE = "This folder no longer exists.", "Choose another one."
_NESTED = "A folder in a folder cannot hold others.", "Move it out first."

# a column that says how a message stands among others is not copied as it is: `parent_id`, `conversation_id`
_COPIED = (
    "activated, role, CASE status WHEN 'streaming' THEN 'interrupted' ELSE status END, created_at, model, seed,"
    " finish_reason, error, statistics, text, drafting, control_offsets, thinking, context_cut, edited, made_with"
)
_COPIES = (
    "activated, role, status, created_at, model, seed, finish_reason, error, statistics, text, drafting,"
    " control_offsets, thinking, context_cut, edited, made_with"
)


class ChatOrganiser:
    """Changes of one conversation or folder are one transaction each; raises StorageError as `ConversationStore` does.

    Args:
        database: The store's.
        clock: Seconds since the epoch.
        timer: Seconds, for the length of slices.
    """

    def __init__(
        self, database: Database, clock: Callable[[], float], timer: Callable[[], float] = time.perf_counter
    ) -> None:
        self._database, self._clock, self._timer = database, clock, timer

    # Conversations

    def set_pinned(self, conversation_id: int, pinned: bool, at: float | None = None) -> None:
        """Pin or unpin a conversation; a pin takes it out of the archive.

        Args:
            conversation_id: The conversation.
            pinned: Whether it is pinned from now on.
            at: When it was pinned, by which pinned ones are sorted; None is now.
        """
        if pinned:
            at = self._clock() if at is None else at
            self._set("pinned_at = coalesce(pinned_at, ?), archived_at = NULL", at, conversation_id)
        else:
            self._set("pinned_at = NULL", conversation_id)

    def set_archived(self, conversation_id: int, archived: bool) -> None:
        self._set("archived_at = ?", self._clock() if archived else None, conversation_id)

    def move(self, conversation_id: int, folder_id: int | None) -> None:
        """Put a conversation into a folder, or out of any."""
        if folder_id is not None:
            self.folder(folder_id)
        self._set("folder_id = ?", folder_id, conversation_id)

    def set_title_by_model(self, conversation_id: int, title: str) -> bool:
        """Take a model's title, or none where it is empty; whether the person's own did not stand in the way.

        Either way the model is not asked for it again.
        """
        tidy = text_column(tidy_title(title))
        with self._database.writing() as connection:
            changed = connection.execute(
                "UPDATE conversations SET title_by = 'model', title = coalesce(?, title)"
                " WHERE id = ? AND title_by = 'prompt' AND deleted_at IS NULL",
                (tidy or None, conversation_id),
            )
        return changed.rowcount > 0 and bool(tidy)

    def without_title(self, most: int = 20) -> list[int]:
        """Return the conversations whose title the model may still make, newest first."""
        return [
            row[0]
            for row in self._database.rows(
                "SELECT id FROM conversations WHERE title_by = 'prompt' AND deleted_at IS NULL AND unlisted = 0"
                " ORDER BY updated_at DESC LIMIT ?",
                most,
            )
        ]

    def copying(self, conversation_id: int, title: str, last_id: int | None = None) -> Iterator[int]:
        """Copy a conversation with everything in it, a slice of about 10 ms a step; yield the copy's id.

        The copy is listed from the end of the last step on. What a crash leaves of it is erased later.

        Args:
            conversation_id: The conversation.
            title: Of the copy.
            last_id: Only the path to this message is copied; None copies all.
        """
        now = self._clock()
        with self._database.writing() as connection:
            cursor = connection.execute(
                "INSERT INTO conversations (title, created_at, updated_at, system_prompt, sampling, thinking,"
                " folder_id, unlisted) SELECT ?, ?, ?, system_prompt, sampling, thinking, folder_id, 1"
                " FROM conversations WHERE id = ? AND deleted_at IS NULL",
                (text_column(tidy_title(title)), now, now, conversation_id),
            )
            if cursor.rowcount < 1 or cursor.lastrowid is None:
                raise StorageError("This chat no longer exists.", "Choose another one.")
            copy_id = cursor.lastrowid
        if last_id is None:
            rows = self._database.rows(
                f"SELECT id, parent_id FROM messages WHERE conversation_id = ? AND {KEPT} ORDER BY id", conversation_id
            )
        else:
            path = MessageRuns(self._database.rows, conversation_id).path_to(last_id)
            rows = list(zip(path, chain((None,), path), strict=False))
        copies: dict[int, int] = {}
        for _ in self._slices(rows, lambda connection, row: _copy(connection, row[0], copy_id, copies)):
            yield copy_id
        # parents in a step of their own: in a tree made by hand they may come after their children
        pairs = [(copies[parent], copies[child]) for child, parent in rows if parent in copies]
        for _ in self._slices(pairs, _set_parent):
            yield copy_id
        with self._database.writing() as connection:
            if last_id in copies:
                connection.execute(ACTIVATE, (copies[last_id],))
                # nothing would be told of a branch that ends with a cut
                connection.execute("UPDATE messages SET context_cut = NULL WHERE id = ?", (copies[last_id],))
            connection.execute("UPDATE conversations SET unlisted = 0 WHERE id = ?", (copy_id,))
        yield copy_id

    # The bin

    def bin(self) -> list[Conversation]:
        """Return the deleted conversations, the last one deleted first."""
        return [
            conversation_from(row)
            for row in self._database.rows(
                f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE deleted_at IS NOT NULL AND unlisted = 0"
                " ORDER BY deleted_at DESC, id DESC"
            )
        ]

    def erase_later(self, conversation_ids: Sequence[int]) -> None:
        """Delete conversations for good: they are gone from now on, and `erasing` makes room."""
        with self._database.writing() as connection:
            connection.executemany(
                "UPDATE conversations SET unlisted = 1 WHERE id = ? AND deleted_at IS NOT NULL",
                [(each,) for each in conversation_ids],
            )

    def drop_half_imports(self) -> None:
        """Delete for good what an import that was killed left; no import may be under way."""
        if self._database.rows("SELECT 1 FROM conversations WHERE unlisted = 2 AND unlisted <> 0 LIMIT 1"):
            with self._database.writing() as connection:
                connection.execute("UPDATE conversations SET unlisted = 1 WHERE unlisted = 2 AND unlisted <> 0")

    def expire(self) -> None:
        """Delete for good what has been in the bin for `KEPT_DAYS`."""
        limit = expiry_limit(self._database, self._clock(), "conversations", "folders")
        if self._database.rows(f"SELECT 1 FROM conversations WHERE {_TOO_OLD} LIMIT 1", limit):
            with self._database.writing() as connection:
                connection.execute(f"UPDATE conversations SET unlisted = 1 WHERE {_TOO_OLD}", (limit,))
        if self._database.rows("SELECT 1 FROM folders WHERE deleted_at < ? LIMIT 1", limit):
            with self._database.writing() as connection:
                connection.execute("DELETE FROM folders WHERE deleted_at < ?", (limit,))

    def erasing(self, copies: frozenset[int] = frozenset()) -> Iterator[None]:
        """Erase what was deleted for good and what a crash left half copied, a slice of about 10 ms a step.

        Args:
            copies: Copies under way, which stay.
        """
        for (conversation_id,) in self._database.rows(
            "SELECT id FROM conversations WHERE unlisted = 1 AND unlisted <> 0"
        ):
            if conversation_id in copies:
                continue
            # the youngest first: a message's parent is older, but in trees that were made by hand
            rows = self._database.rows(
                "SELECT id FROM messages WHERE conversation_id = ? ORDER BY id DESC", conversation_id
            )
            yield from self._slices(rows, _erase_message)
            with self._database.writing() as connection:
                connection.execute("DELETE FROM conversations WHERE id = ? AND unlisted = 1", (conversation_id,))
            yield

    def _slices[T](self, items: Sequence[T], work: Callable[[sqlite3.Connection, T], object]) -> Iterator[None]:
        """Do the work for all items, a transaction of about 10 ms a step."""
        place = 0
        while place < len(items):
            until = self._timer() + _SLICE_S
            with self._database.writing() as connection:
                while place < len(items):
                    work(connection, items[place])
                    place += 1
                    if self._timer() >= until:
                        break
            yield

    # Folders

    def folders(self) -> list[Folder]:
        """Return the folders by name; one whose parent is gone, or is in a folder itself, is at the top."""
        rows = self._database.rows(f"SELECT {FOLDER_COLUMNS} FROM folders WHERE deleted_at IS NULL")
        found = [folder_from(row) for row in rows]
        top = {folder.id for folder in found if folder.parent_id is None}
        placed = [
            folder if folder.parent_id in top else Folder(folder.id, folder.name, None, folder.expanded)
            for folder in found
        ]
        return sorted(placed, key=lambda folder: (folder.name.casefold(), folder.id))

    def deleted_folders(self) -> list[Folder]:
        """Return the folders in the bin, the last one deleted first."""
        rows = self._database.rows(
            f"SELECT {FOLDER_COLUMNS} FROM folders WHERE deleted_at IS NOT NULL ORDER BY deleted_at DESC, id DESC"
        )
        return [folder_from(row) for row in rows]

    def folder(self, folder_id: int) -> Folder:
        """Return one folder; StorageError where it is deleted or never was."""
        found = next((folder for folder in self.folders() if folder.id == folder_id), None)
        if found is None:
            raise StorageError(*_GONE)
        return found

    def create_folder(self, name: str = NEW_FOLDER, parent_id: int | None = None) -> Folder:
        """Make a folder, at the top or in one that is there; StorageError where it would be nested twice."""
        if parent_id is not None and self.folder(parent_id).parent_id is not None:
            raise StorageError(*_NESTED)
        with self._database.writing() as connection:
            cursor = connection.execute(
                "INSERT INTO folders (parent_id, name, created_at) VALUES (?, ?, ?)",
                (parent_id, text_column(tidy_title(name)) or NEW_FOLDER, self._clock()),
            )
        assert cursor.lastrowid is not None
        return self.folder(cursor.lastrowid)

    def rename_folder(self, folder_id: int, name: str) -> None:
        """Give a folder another name; an empty one leaves it as it is."""
        if tidy := text_column(tidy_title(name)):
            self._set_folder("name = ?", tidy, folder_id)

    def move_folder(self, folder_id: int, parent_id: int | None) -> None:
        """Put a folder into another one, or to the top; StorageError where it would be nested twice."""
        if parent_id is not None:
            holds = any(folder.parent_id == folder_id for folder in self.folders())
            if holds or parent_id == folder_id or self.folder(parent_id).parent_id is not None:
                raise StorageError("Folders can be nested once only.", "Choose a folder that is in no other.")
        self._set_folder("parent_id = ?", parent_id, folder_id)

    def set_expanded(self, folder_id: int, expanded: bool) -> None:
        self._set_folder("expanded = ?", int(expanded), folder_id)

    def delete_folder(self, folder_id: int) -> None:
        """Put a folder into the bin; its conversations stay in the list, and come back into it with it."""
        self._set_folder("deleted_at = ?", self._clock(), folder_id)

    def restore_folder(self, folder_id: int) -> None:
        self._set_folder("deleted_at = NULL", folder_id)

    def erase_folder(self, folder_id: int) -> None:
        """Delete a folder in the bin for good; what was in it stays outside."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM folders WHERE id = ? AND deleted_at IS NOT NULL", (folder_id,))

    def _set(self, assignment: str, *parameters: object) -> None:
        with self._database.writing() as connection:
            connection.execute(f"UPDATE conversations SET {assignment} WHERE id = ?", parameters)

    def _set_folder(self, assignment: str, *parameters: object) -> None:
        with self._database.writing() as connection:
            connection.execute(f"UPDATE folders SET {assignment} WHERE id = ?", parameters)


def _copy(connection: sqlite3.Connection, message_id: int, copy_id: int, copies: dict[int, int]) -> None:
    """Copy a message, its files and its trace, without its parent; note the copy's id."""
    cursor = connection.execute(
        f"INSERT INTO messages (conversation_id, {_COPIES}) SELECT ?, {_COPIED} FROM messages WHERE id = ?",
        (copy_id, message_id),
    )
    if cursor.rowcount < 1 or cursor.lastrowid is None:
        return
    copies[message_id] = cursor.lastrowid
    copy_files(connection, message_id, cursor.lastrowid)
    connection.execute(
        "INSERT INTO message_traces (message_id, trace) SELECT ?, trace FROM message_traces WHERE message_id = ?",
        (cursor.lastrowid, message_id),
    )


def _set_parent(connection: sqlite3.Connection, pair: tuple[int, int]) -> None:
    connection.execute("UPDATE messages SET parent_id = ? WHERE id = ?", pair)


def _erase_message(connection: sqlite3.Connection, row: Sequence[int]) -> None:
    connection.execute("UPDATE messages SET parent_id = NULL WHERE parent_id = ?", (row[0],))
    connection.execute("DELETE FROM messages WHERE id = ?", (row[0],))
