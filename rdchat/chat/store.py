"""Stores conversations, each a tree of messages, in one SQLite file."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.conversation import (
    NO_THINKING,
    ContextCut,
    Conversation,
    MadeWith,
    Message,
    MessageStatus,
    Notice,
    Thinking,
)
from rdchat.chat.message_path import MessagePath
from rdchat.chat.organiser import ChatOrganiser
from rdchat.chat.storage.chat_spans import ChatSpans
from rdchat.chat.storage.database import Database
from rdchat.chat.storage.file_check import WRITE_CHECK
from rdchat.chat.storage.message_bin import MessageBin
from rdchat.chat.storage.message_tree import ACTIVATE, LATEST, NEXT_ACTIVATED, SIBLINGS, MessageTree, mend_tree
from rdchat.chat.storage.messages import MessageReader, add_files, copy_files, insert_message, read_message
from rdchat.chat.storage.reader_notes import ReadingPlaces, UnsentTexts
from rdchat.chat.storage.rows import (
    CONVERSATION_COLUMNS,
    END_OF_DATES,
    assignment,
    conversation_from,
    json_column,
    message_row,
    text_column,
)
from rdchat.chat.storage.search import rebuild_search, search_condition
from rdchat.chat.titles import NEW_CHAT, tidy_title
from rdchat.errors import RdchatError, StorageError
from rdchat.inference.api.requests import Role, SamplingParams, ThinkingChoice
from rdchat.work.job import Job

_HERE = "deleted_at IS NULL AND unlisted = 0"
NEWEST_FIRST = f"updated_at < 0 OR updated_at >= {END_OF_DATES}, updated_at DESC, id DESC"  # without a date: last

_ENDING = (
    "text", "status", "model", "finish_reason", "statistics", "error", "drafting", "control_offsets", "thinking",
)  # fields that change while a reply is written and when it ends  # fmt: skip


class ConversationStore:
    """Keeps conversations and their messages. Belongs to the thread that opened it, and to one process at a time.

    What a method writes is on the disk when it returns: it waits for the one thread that writes. Every method raises
    StorageFullError, StorageLockedError or StorageError where the disk or another program is in the way; what was
    stored before stays, and the store works again when the condition ends.

    Messages form a tree: an edited prompt or another reply is a new child of the same parent, and nothing is
    overwritten. The active path of a conversation runs from a root to the message that was added or chosen last.

    Attributes:
        database: The file.
        organiser: Pins, folders, the archive, the bin and copies.
        message_bin: Deleted messages.
        spans: The conversations as the sidebar lists them, read in parts.
        places: Where the person was reading.
        unsent: What they typed and did not send.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self.database = database
        self._clock = clock
        self.organiser = ChatOrganiser(database, clock)
        self.message_bin = MessageBin(database, clock)
        self.spans = ChatSpans(database)
        self.places = ReadingPlaces(database)
        self.unsent = UnsentTexts(database)

    @classmethod
    def open(cls, path: Path, clock: Callable[[], float] = time.time) -> "ConversationStore":
        """Open or make the database at `path`; `notice` tells where one that could not be used was moved."""
        store = cls.begin(path, clock)
        store.wait()
        return store

    @classmethod
    def begin(cls, path: Path, clock: Callable[[], float] = time.time) -> "ConversationStore":
        """Open the database as `open`, while the caller does something else; `wait` comes before its use."""
        return cls(Database(path, tidy=_tidy_up, mend=rebuild_search, wait=False), clock)

    def wait(self) -> None:
        """Wait until the database is open; where it cannot be opened, close it and raise StorageError."""
        self.database.wait()

    @property
    def path(self) -> Path:
        return self.database.path

    @property
    def notice(self) -> Notice | None:
        """What was wrong with the file when it was opened, or None."""
        return self.database.notice

    def tell(self, on_notice: Callable[[Notice], object]) -> None:
        """Call `on_notice` with what the person should know of the file while it is in use."""
        self.database.on_notice = on_notice

    def close(self) -> None:
        """Let other processes have the file. Idempotent."""
        self.database.close()

    # Conversations

    def conversations(self, search: str = "") -> list[Conversation]:
        """Return the conversations that have every word of `search` in their title or in a message, newest first.

        Those in the archive too; those whose date is unknown come last.
        """
        condition, parameters = search_condition(search)
        where = _HERE + (f" AND {condition}" if condition else "")
        sql = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE {where} ORDER BY {NEWEST_FIRST}"
        return [conversation_from(row) for row in self.database.rows(sql, *parameters)]

    def conversation(self, conversation_id: int) -> Conversation:
        """Return one conversation; StorageError where it is deleted or never was."""
        sql = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE id = ? AND deleted_at IS NULL"
        rows = self.database.rows(sql, conversation_id)
        if not rows:
            raise StorageError("This chat no longer exists.", "Choose another one, or start a new chat.")
        return conversation_from(rows[0])

    def find(self, conversation_ids: Sequence[int]) -> dict[int, Conversation]:
        """Return some conversations by id, without those that are not listed or in the archive."""
        marks = ", ".join("?" * len(conversation_ids))
        sql = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE {_HERE} AND id IN ({marks})"
        return {row[0]: conversation_from(row) for row in self.database.rows(sql, *conversation_ids)}

    def newest_conversation(self) -> Conversation | None:
        """Return the conversation that is newest, none of the archive; None where there is none."""
        sql = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE {_HERE} AND archived_at IS NULL"
        for condition in (f"updated_at < {END_OF_DATES}", "TRUE"):  # those whose date is unknown are not the newest
            newest = f"{sql} AND {condition} ORDER BY updated_at DESC, id DESC LIMIT 1"
            if (rows := self.database.rows(newest)) and (rows[0][3] >= 0 or condition == "TRUE"):
                return conversation_from(rows[0])
        return None

    def has_title(self, title: str) -> bool:
        """Whether a conversation has a title."""
        return bool(self.database.rows(f"SELECT 1 FROM conversations WHERE {_HERE} AND title = ? LIMIT 1", title))

    def create_conversation(self, title: str = NEW_CHAT, *, from_prompt: bool = False) -> Conversation:
        """Make a conversation; a title made `from_prompt` may be replaced by one of the model's."""
        now = self._clock()
        sql = "INSERT INTO conversations (title, title_by, created_at, updated_at) VALUES (?, ?, ?, ?) RETURNING id"
        values = (text_column(tidy_title(title)) or NEW_CHAT, "prompt" if from_prompt else "person", now, now)
        made = self.database.write(lambda connection: connection.execute(sql, values).fetchone())
        return self.conversation(made[0])

    def rename_conversation(self, conversation_id: int, title: str) -> Conversation:
        """Give a conversation another title; an empty one leaves it as it is."""
        if tidy := text_column(tidy_title(title)):
            self._set("title = ?, title_by = 'person'", tidy, conversation_id)
        return self.conversation(conversation_id)

    def set_chat_options(
        self, conversation_id: int, system_prompt: str | None, sampling: SamplingParams | None
    ) -> Conversation:
        """Set the chat's own system prompt and sampling; None takes those of the preferences."""
        prompt = None if system_prompt is None else text_column(system_prompt)
        self._set("system_prompt = ?, sampling = ?", prompt, json_column(sampling), conversation_id)
        return self.conversation(conversation_id)

    def set_thinking_choice(self, conversation_id: int, choice: ThinkingChoice | None) -> Conversation:
        """Set whether or how much the model is to think in a chat; None leaves it to the model."""
        self._set("thinking = ?", choice, conversation_id)
        return self.conversation(conversation_id)

    def delete_conversation(self, conversation_id: int) -> None:
        """Put a conversation into the bin, where it can be restored from until `ChatOrganiser.expire` ends that."""
        self._set("deleted_at = ?", self._clock(), conversation_id)

    def delete_conversations(
        self, conversation_ids: Sequence[int], on_end: Callable[[RdchatError | None], object]
    ) -> Job[None]:
        """Put conversations, perhaps thousands, into the bin at once, without waiting for it.

        Args:
            conversation_ids: Which.
            on_end: Called on the writer's thread with None or the error.
        """
        values = [(self._clock(), each) for each in conversation_ids]

        def delete(connection: sqlite3.Connection) -> None:
            connection.executemany("UPDATE conversations SET deleted_at = ? WHERE id = ?", values)

        return self.database.submit(delete, on_end)

    def restore_conversation(self, conversation_id: int) -> Conversation:
        """Take a conversation out of the bin; StorageError where it is erased already."""
        self._set("deleted_at = CASE unlisted WHEN 0 THEN NULL ELSE deleted_at END", conversation_id)
        return self.conversation(conversation_id)

    def _set(self, assignment: str, *parameters: object) -> None:
        self.database.execute(f"UPDATE conversations SET {assignment} WHERE id = ?", *parameters)

    # Messages

    def messages(self, conversation_id: int) -> MessagePath:
        """Return the active path, from the root to its last message."""
        leaf = self.database.rows(LATEST, conversation_id)
        return MessageReader(self.database, conversation_id).path_to(leaf[0][0]) if leaf else MessagePath()

    def path_to(self, message_id: int) -> MessagePath:
        """Return the messages from the root to this one; none where there is no such message."""
        chat = self.database.rows("SELECT conversation_id FROM messages WHERE id = ?", message_id)
        return MessageReader(self.database, chat[0][0]).path_to(message_id) if chat else MessagePath()

    def message(self, message_id: int) -> Message:
        return read_message(self.database.rows, message_id)

    def add_message(
        self,
        conversation_id: int,
        parent_id: int | None,
        role: Role,
        text: str,
        *,
        files: Sequence[tuple[AttachedFile, str]] = (),
        files_of: int | None = None,
        **fields: Any,
    ) -> Message:
        """Add a child of `parent_id`, or another first message, and make it the end of the active path.

        Args:
            conversation_id: The conversation.
            parent_id: The message it follows; None for a first message.
            role: `user` or `assistant`.
            text: Markdown as written.
            files: Brought with it, each with its text.
            files_of: Another message, whose files it has too, before its own.
            fields: More of `Message`.
        """
        if parent_id is not None and self.message(parent_id).conversation_id != conversation_id:
            raise ValueError(f"message {parent_id} is not of conversation {conversation_id}")
        message = Message(0, conversation_id, parent_id, role, text, created_at=self._clock(), **fields)

        def add(connection: sqlite3.Connection) -> int:
            (activated,) = connection.execute(NEXT_ACTIVATED, (conversation_id,)).fetchone()
            message_id = insert_message(connection, message_row(replace(message, activated=activated)))
            if files_of is not None:
                copy_files(connection, files_of, message_id)
            add_files(connection, message_id, files)
            # a chat that the person goes on with leaves the archive
            sql = "UPDATE conversations SET updated_at = ?, archived_at = NULL WHERE id = ?"
            connection.execute(sql, (message.created_at, conversation_id))
            return message_id

        return self.message(self.database.write(add))

    def save_text(self, message_id: int, text: str, thinking: Thinking = NO_THINKING) -> None:
        """Store what is there of a reply that is being written; one that has ended stays as it ended."""
        sql, values = assignment(text=text, thinking=thinking)
        self.database.execute(f"UPDATE messages SET {sql} WHERE id = ? AND status = 'streaming'", *values, message_id)

    def finish_message(self, message: Message) -> Message:
        """Store how a reply ended: all of `_ENDING` of it."""
        return self._change(message.id, **{name: getattr(message, name) for name in _ENDING})

    def reopen_message(self, message_id: int, made_with: MadeWith | None = None) -> Message:
        """Let a reply be continued; `made_with` None keeps what it was asked for with."""
        made = {} if made_with is None else {"made_with": made_with}
        return self._change(message_id, status=MessageStatus.STREAMING, finish_reason=None, error="", **made)

    def _change(self, message_id: int, **fields: Any) -> Message:
        """Set fields of a message and the date of its chat."""
        sql, values = assignment(**fields)

        def change(connection: sqlite3.Connection) -> None:
            connection.execute(f"UPDATE messages SET {sql} WHERE id = ?", (*values, message_id))
            chat = "(SELECT conversation_id FROM messages WHERE id = ?)"
            connection.execute(
                f"UPDATE conversations SET updated_at = ? WHERE id = {chat}", (self._clock(), message_id)
            )

        self.database.write(change)
        return self.message(message_id)

    def set_context_cut(self, message_id: int, cut: ContextCut | None) -> Message:
        """Leave a message and those before it out of what the model is told; None tells it all again."""
        sql, values = assignment(context_cut=cut)
        self.database.execute(f"UPDATE messages SET {sql} WHERE id = ?", *values, message_id)
        return self.message(message_id)

    def save_trace(self, message_id: int, trace: bytes, *, onward: bool) -> None:
        """Store how a reply came about (`reply_trace`), `onward` behind what is there, else in its place."""
        before = self.trace(message_id) if onward else None
        sql = "INSERT OR REPLACE INTO message_traces (message_id, trace) VALUES (?, ?)"
        self.database.execute(sql, message_id, (before or b"") + trace)

    def trace(self, message_id: int) -> bytes | None:
        """Return how a reply came about; None where that was not recorded."""
        rows = self.database.rows("SELECT trace FROM message_traces WHERE message_id = ?", message_id)
        return rows[0][0] if rows else None

    def select_sibling(self, message_id: int, step: int) -> MessagePath:
        """Show the alternative `step` places on, with what was shown last below it; return the active path.

        At the first and the last alternative it stays.
        """
        siblings = [row[0] for row in self.database.rows(SIBLINGS, self.message(message_id).id)]
        chosen = self.message(siblings[max(0, min(siblings.index(message_id) + step, len(siblings) - 1))])
        leaf = MessageTree(self.database.rows, chosen.conversation_id).latest_below(chosen.id)[1]
        self.database.execute(ACTIVATE, leaf)
        return self.path_to(leaf)

    def alternatives(self, message_id: int) -> list[Message]:
        """Return a message and its alternatives, oldest first; of one that is deleted, those that are left."""
        return [self.message(row[0]) for row in self.database.rows(SIBLINGS, message_id)]

    def count_replies(self, prompt_id: int) -> int:
        """Return how many replies a prompt ever had, those that were deleted included."""
        sql = "SELECT count(*) FROM messages WHERE parent_id = ? AND role = 'assistant'"
        return int(self.database.rows(sql, prompt_id)[0][0])


def _tidy_up(connection: sqlite3.Connection) -> Notice | None:
    """Mend what a process that ended left: this one holds the lock. Return what to tell the person."""
    notice = mend_tree(connection)
    connection.execute("UPDATE messages SET status = 'interrupted' WHERE status = 'streaming'")
    # half of an import or a copy: what is 1 is erased
    connection.execute("UPDATE conversations SET unlisted = 1 WHERE unlisted = 2 AND unlisted <> 0")
    connection.executescript(WRITE_CHECK)
    return notice
