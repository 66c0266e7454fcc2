"""Chats into the store, off the main thread, while the app uses it.

The chats of a file are written a few at a time, shown nowhere, so that the app waits for no long transaction; one short
transaction at the end shows all of them. Where the process dies before that, the app erases them when it is started.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable

from rdchat.chat.storage.files import add_files
from rdchat.chat.storage.message_tree import KEPT
from rdchat.chat.storage.precedence import Precedence
from rdchat.chat.storage.rows import json_column, offsets_column, seed_column, text_column, thinking_column
from rdchat.chat.titles import NEW_CHAT, NEW_FOLDER, tidy_title, title_from_prompt
from rdchat.chat.transfer.portable import PortableChat, PortableMessage
from rdchat.inference.api.requests import Role

_BATCH_S, _LONG_BATCH_S = 0.008, 0.25  # of a transaction beside a window, and without one
_REST = 0.25  # after a transaction, in the time that it took
_MERGED_PAGES, _MOST_MERGES = 32, 12
# The search index merges its parts now and then, in the midst of a transaction: 85 ms each on a slow core. Merged a
# few pages at a time, between the transactions, none takes more than 20 ms.
_MERGE = f"INSERT INTO messages_index (messages_index, rank) VALUES ('merge', {_MERGED_PAGES})"
_UNKNOWN = -1.0  # a date that is none
_CHAT = """
    INSERT INTO conversations (title, created_at, updated_at, unlisted, system_prompt, sampling, thinking, pinned_at,
        archived_at)
    VALUES (?, ?, ?, 2, ?, ?, ?, ?, ?)
"""
_MESSAGE = """
    INSERT INTO messages (conversation_id, parent_id, activated, role, status, created_at, model, seed, finish_reason,
        error, statistics, drafting, control_offsets, thinking, context_cut, edited, made_with, text)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_DIGESTS = """coalesce((SELECT group_concat(digest, ' ') FROM
    (SELECT digest FROM message_files WHERE message_id = messages.id ORDER BY place)), '')"""
_TRACE = "INSERT INTO message_traces (message_id, trace) VALUES (?, ?)"


class ChatWriter:
    """Writes the chats of one file. `show` shows them, `discard` takes them away; one of both is called at the end.

    Args:
        connection: Of `connections.writing`.
        precedence: Of a window that uses the store too; None where there is none.
    """

    def __init__(self, connection: sqlite3.Connection, precedence: Precedence | None = None) -> None:
        self._connection, self._precedence = connection, precedence
        self._began: float | None = None
        self._folders: dict[int, tuple[str, ...]] = {}
        self.chats: list[int] = []

    def add(self, chat: PortableChat, fallback_date: float) -> int:
        """Write a chat, not shown yet; return its id.

        Args:
            chat: The chat.
            fallback_date: When it was made, where it does not say.
        """
        created = chat.created_at or min((m.created_at for m in chat.messages if m.created_at), default=fallback_date)
        updated = chat.updated_at or max((m.created_at for m in chat.messages if m.created_at), default=created)
        self._begin()
        cursor = self._connection.execute(
            _CHAT,
            (title_of(chat), created, updated, _text(chat.system_prompt), json_column(chat.sampling),
             chat.thinking_choice, updated if chat.pinned and not chat.archived else None,
             updated if chat.archived else None),
        )  # fmt: skip
        assert cursor.lastrowid is not None
        conversation = cursor.lastrowid
        self.chats.append(conversation)
        if chat.folder:
            self._folders[conversation] = chat.folder
        order = sorted(range(len(chat.messages)), key=lambda place: chat.messages[place].activated)
        activated = {place: number for number, place in enumerate(order, start=1)}
        ids: list[int] = []
        for place, message in enumerate(chat.messages):
            self._begin()
            ids.append(self._add_message(conversation, message, ids, activated[place]))
            self._pause()
        self._pause()
        return conversation

    def show(self) -> None:
        """Show all chats, at once, in folders of the names that theirs had."""
        self._commit()
        self._begin()
        for conversation, names in self._folders.items():
            parent: int | None = None
            for name in names:
                parent = self._folder(name, parent)
            self._connection.execute("UPDATE conversations SET folder_id = ? WHERE id = ?", (parent, conversation))
        self._each("UPDATE conversations SET unlisted = 0 WHERE id = ?", self.chats)
        self._commit()

    def discard(self) -> None:
        """Take away what was written, none of which was shown."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
            self._began = None
        for conversation in self.chats:
            ids = [row[0] for row in self._connection.execute(
                "SELECT id FROM messages WHERE conversation_id = ? ORDER BY id DESC", (conversation,)
            )]  # fmt: skip
            for each in ids:  # the last ones first: nothing follows them
                self._begin()
                self._connection.execute("DELETE FROM messages WHERE id = ?", (each,))
                self._pause()
            self._begin()
            self._connection.execute("DELETE FROM conversations WHERE id = ?", (conversation,))
            self._pause()
        self._commit()
        self.chats.clear()

    def _add_message(self, conversation: int, message: PortableMessage, ids: list[int], activated: int) -> int:
        cursor = self._connection.execute(
            _MESSAGE,
            (conversation, None if message.parent is None else ids[message.parent], activated, message.role,
             message.status, _UNKNOWN if message.created_at is None else message.created_at, message.model,
             seed_column(message.seed), message.finish_reason, text_column(message.error),
             json_column(message.statistics), json_column(message.drafting),
             offsets_column(message.control_offsets), thinking_column(message.thinking),
             json_column(message.context_cut), message.edited, json_column(message.made_with),
             text_column(message.text)),
        )  # fmt: skip
        assert cursor.lastrowid is not None
        add_files(self._connection, cursor.lastrowid, message.files)
        if message.trace is not None:
            self._connection.execute(_TRACE, (cursor.lastrowid, message.trace))
        return cursor.lastrowid

    def _folder(self, name: str, parent: int | None) -> int:
        """Return the folder of a name in another one, or at the top; a new one where there is none."""
        tidy = text_column(tidy_title(name)) or NEW_FOLDER
        found = self._connection.execute(
            "SELECT id FROM folders WHERE name = ? AND parent_id IS ? AND deleted_at IS NULL", (tidy, parent)
        ).fetchone()
        if found is not None:
            return int(found[0])
        values = (parent, tidy, time.time())
        cursor = self._connection.execute("INSERT INTO folders (parent_id, name, created_at) VALUES (?, ?, ?)", values)
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def _each(self, sql: str, ids: Iterable[int]) -> None:
        self._connection.executemany(sql, [(each,) for each in ids])

    def _begin(self) -> None:
        if self._began is None:
            if self._precedence:
                self._precedence.wait()
            self._connection.execute("BEGIN IMMEDIATE")
            self._began = time.monotonic()

    def _pause(self) -> None:
        """End a transaction that others have waited for long enough, and let them have their turn."""
        longest = _BATCH_S if self._precedence else _LONG_BATCH_S
        if self._began is None or time.monotonic() - self._began <= longest:
            return
        took = self._commit()
        if self._precedence:
            time.sleep(took * _REST)
            self._merge_index()

    def _merge_index(self) -> None:
        """Merge what the search index has gathered, in transactions that are short."""
        for _ in range(_MOST_MERGES):
            before = self._connection.total_changes
            self._begin()
            self._connection.execute(_MERGE)
            time.sleep(self._commit() * _REST)
            if self._connection.total_changes - before < 2:  # SQLite's own sign that nothing is left to merge
                return

    def _commit(self) -> float:
        if self._began is None:
            return 0.0
        self._connection.execute("COMMIT")
        took, self._began = time.monotonic() - self._began, None
        return took


class KnownChats:
    """Tells whether a chat is in the store already: the same title, and the same messages and files.

    Args:
        connection: Of `connections.writing`.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._ids: dict[str, list[int]] = {}
        for conversation, title in connection.execute(
            "SELECT id, title FROM conversations WHERE deleted_at IS NULL AND unlisted = 0"
        ):
            self._ids.setdefault(title, []).append(conversation)

    def have(self, chat: PortableChat) -> bool:
        """Tell whether the store has this chat."""
        wanted = sorted(
            (each.role.value, text_column(each.text), " ".join(file.digest for file, _ in each.files))
            for each in chat.messages
        )
        return any(sorted(self._contents(each)) == wanted for each in self._ids.get(title_of(chat), []))

    def _contents(self, conversation: int) -> list[tuple[str, str, str]]:
        sql = f"SELECT role, text, {_DIGESTS} FROM messages WHERE conversation_id = ? AND {KEPT}"
        return self._connection.execute(sql, (conversation,)).fetchall()

    def add(self, chats: Iterable[tuple[int, str]]) -> None:
        """Know chats that were shown since, by id and title."""
        for conversation, title in chats:
            self._ids.setdefault(title, []).append(conversation)


def title_of(chat: PortableChat) -> str:
    """Return a chat's title as the store has it: its own, or one made of its first prompt."""
    first = next((message.text for message in chat.messages if message.role is Role.USER), "")
    return text_column(tidy_title(chat.title)) or (text_column(title_from_prompt(first)) if first else NEW_CHAT)


def hide_chats(connection: sqlite3.Connection, ids: Iterable[int], now: Callable[[], float] = time.time) -> None:
    """Delete chats as the person deletes one, all at once: it can be undone as that can."""
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("UPDATE conversations SET deleted_at = ? WHERE id = ?", [(now(), each) for each in ids])
    connection.execute("COMMIT")


def _text(text: str | None) -> str | None:
    return None if text is None else text_column(text)
