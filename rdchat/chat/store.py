"""The conversations of one person: a tree of messages each, in one SQLite file."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.conversation import (
    NO_THINKING,
    ContextCut,
    Conversation,
    Drafting,
    MadeWith,
    Message,
    MessageStatus,
    Notice,
    Thinking,
)
from rdchat.chat.message_path import MessagePath
from rdchat.chat.organiser import ChatOrganiser
from rdchat.chat.reading_places import ReadingPlaces
from rdchat.chat.storage.chat_spans import ChatSpans
from rdchat.chat.storage.database import Database
from rdchat.chat.storage.file_check import WRITE_CHECK
from rdchat.chat.storage.files import OF_MESSAGE, add_files, copy_files, with_files
from rdchat.chat.storage.message_bin import MessageBin
from rdchat.chat.storage.message_reader import MessageReader
from rdchat.chat.storage.message_tree import (
    ACTIVATE,
    LATEST,
    MESSAGE,
    SIBLINGS,
    MessageRuns,
    mend_tree,
)
from rdchat.chat.storage.rows import (
    CONVERSATION_COLUMNS,
    END_OF_DATES,
    conversation_from,
    json_column,
    message_from,
    offsets_column,
    seed_column,
    text_column,
    thinking_column,
)
from rdchat.chat.storage.search import search_condition
from rdchat.chat.storage.unsent_texts import UnsentTexts
from rdchat.chat.titles import NEW_CHAT, tidy_title
from rdchat.errors import StorageError, StorageFullError, StorageLockedError
from rdchat.inference.api.events import FinishReason
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import Role, SamplingParams, ThinkingChoice

_HERE = "deleted_at IS NULL AND unlisted = 0"
_NEXT_ACTIVATED = "(SELECT coalesce(max(activated), 0) + 1 FROM messages WHERE conversation_id = ?)"


class ConversationStore:
    """Keeps conversations and their messages. Belongs to the thread that opened it, and to one process at a time.

    Every method raises StorageFullError, StorageLockedError or StorageError where the disk or another program is in
    the way; what was stored before stays, and the store works again when the condition ends.

    Messages form a tree: an edited prompt or another reply is a new child of the same parent, and nothing is
    overwritten. The active path of a conversation runs from a root to the message that was added or chosen last.

    Attributes:
        organiser: Pins, folders, the archive, the bin and copies.
        message_bin: Messages that were deleted with what hangs on them.
        spans: The conversations as the sidebar lists them, read in parts.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._tree_notice: Notice | None = None
        self.organiser = ChatOrganiser(database, clock)
        self.message_bin = MessageBin(database, clock)
        self.spans = ChatSpans(database)
        self.places = ReadingPlaces(database)
        self.unsent = UnsentTexts(database)
        try:
            self._tidy_up()
        except (StorageFullError, StorageLockedError):
            raise
        except StorageError:  # a search index that does not fit the chats keeps them from being changed
            database.rebuild_search()
            self._tidy_up()

    def _tidy_up(self) -> None:
        with self._database.writing() as connection:
            self._tree_notice = mend_tree(connection)
            # this process holds the lock, so whoever wrote these is gone
            connection.execute("UPDATE messages SET status = 'interrupted' WHERE status = 'streaming'")
            connection.executescript(WRITE_CHECK)

    @classmethod
    def open(cls, path: Path) -> "ConversationStore":
        """Open or make the database at `path`; `notice` tells where one that could not be used was moved."""
        database = Database(path)
        try:
            return cls(database)
        except BaseException:
            database.close()
            raise

    @property
    def path(self) -> Path:
        return self._database.path

    @property
    def notice(self) -> Notice | None:
        """What was wrong with the file when it was opened, or None."""
        return self._database.notice or self._tree_notice

    def tell(self, on_notice: Callable[[Notice], object]) -> None:
        """Have what the person should know of the file while it is in use go to `on_notice`."""
        self._database.on_notice = on_notice

    def share(self, shared: bool) -> None:
        """Go before a process that writes on behalf of this one, as long as `shared`."""
        self._database.share() if shared else self._database.unshare()

    def replace(self, replace: Callable[[], None]) -> None:
        """Have `replace` put another database, opened once by this version, in the place of the file."""
        self._database.replace(replace)

    def close(self) -> None:
        """Let other processes have the file. Idempotent."""
        self._database.close()

    # Conversations

    def conversations(self, search: str = "") -> list[Conversation]:
        """Return the conversations that have every word of `search` in their title or in a message, newest first.

        Those in the archive too; those whose date is unknown come last.
        """
        condition, parameters = search_condition(search)
        where = _HERE + (f" AND {condition}" if condition else "")
        sql = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE {where} ORDER BY updated_at DESC, id DESC"
        found = [conversation_from(row) for row in self._database.rows(sql, *parameters)]
        return sorted(found, key=lambda each: each.updated_at is None)

    def conversation(self, conversation_id: int) -> Conversation:
        """Return one conversation; StorageError where it is deleted or never was."""
        sql = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE id = ? AND deleted_at IS NULL"
        rows = self._database.rows(sql, conversation_id)
        if not rows:
            raise StorageError("This chat no longer exists.", "Choose another one, or start a new chat.")
        return conversation_from(rows[0])

    def find(self, conversation_ids: Sequence[int]) -> dict[int, Conversation]:
        """Return some conversations by id, without those that are not listed or in the archive."""
        marks = ", ".join("?" * len(conversation_ids))
        sql = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE {_HERE} AND id IN ({marks})"
        return {row[0]: conversation_from(row) for row in self._database.rows(sql, *conversation_ids)}

    def newest_conversation(self) -> Conversation | None:
        """Return the conversation that is newest, none of the archive; None where there is none."""
        sql = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE {_HERE} AND archived_at IS NULL"
        for condition in (f"updated_at < {END_OF_DATES}", "TRUE"):  # those whose date is unknown are not the newest
            newest = f"{sql} AND {condition} ORDER BY updated_at DESC, id DESC LIMIT 1"
            if (rows := self._database.rows(newest)) and (rows[0][3] >= 0 or condition == "TRUE"):
                return conversation_from(rows[0])
        return None

    def has_title(self, title: str) -> bool:
        """Whether a conversation has a title."""
        return bool(self._database.rows(f"SELECT 1 FROM conversations WHERE {_HERE} AND title = ? LIMIT 1", title))

    def create_conversation(self, title: str = NEW_CHAT, *, from_prompt: bool = False) -> Conversation:
        """Make a conversation; a title made `from_prompt` may be replaced by one of the model's."""
        now = self._clock()
        with self._database.writing() as connection:
            cursor = connection.execute(
                "INSERT INTO conversations (title, title_by, created_at, updated_at) VALUES (?, ?, ?, ?)",
                (text_column(tidy_title(title)) or NEW_CHAT, "prompt" if from_prompt else "person", now, now),
            )
        return self.conversation(_new_id(cursor))

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

    def restore_conversation(self, conversation_id: int) -> Conversation:
        """Take a conversation out of the bin; StorageError where it is erased already."""
        self._set("deleted_at = CASE unlisted WHEN 0 THEN NULL ELSE deleted_at END", conversation_id)
        return self.conversation(conversation_id)

    def _set(self, assignment: str, *parameters: object) -> None:
        with self._database.writing() as connection:
            connection.execute(f"UPDATE conversations SET {assignment} WHERE id = ?", parameters)

    # Messages

    def messages(self, conversation_id: int) -> MessagePath:
        """Return the active path, from the root to its last message."""
        leaf = self._database.rows(LATEST, conversation_id)
        return MessageReader(self._database, conversation_id).path_to(leaf[0][0]) if leaf else MessagePath()

    def path_to(self, message_id: int) -> MessagePath:
        """Return the messages from the root to this one; none where there is no such message."""
        chat = self._database.rows("SELECT conversation_id FROM messages WHERE id = ?", message_id)
        return MessageReader(self._database, chat[0][0]).path_to(message_id) if chat else MessagePath()

    def message(self, message_id: int) -> Message:
        rows = self._database.rows(MESSAGE, message_id)
        if not rows:
            raise StorageError("This message no longer exists.", "Open the chat again.")
        return with_files([message_from(rows[0])], self._database.rows(OF_MESSAGE, message_id))[0]

    def add_message(
        self,
        conversation_id: int,
        parent_id: int | None,
        role: Role,
        text: str,
        *,
        status: MessageStatus = MessageStatus.COMPLETE,
        model: str | None = None,
        seed: int | None = None,
        made_with: MadeWith | None = None,
        edited: bool = False,
        files: Sequence[tuple[AttachedFile, str]] = (),
        files_of: int | None = None,
    ) -> Message:
        """Add a child of `parent_id`, or another first message, and make it the end of the active path.

        It has `files`, each with its text, behind those of the message `files_of`.
        """
        if parent_id is not None and self.message(parent_id).conversation_id != conversation_id:
            raise ValueError(f"message {parent_id} is not of conversation {conversation_id}")
        now = self._clock()
        with self._database.writing() as connection:
            cursor = connection.execute(
                "INSERT INTO messages (conversation_id, parent_id, activated, role, status, created_at, model, seed,"
                f" made_with, edited, text) VALUES (?, ?, {_NEXT_ACTIVATED}, ?, ?, ?, ?, ?, ?, ?, ?)",
                (conversation_id, parent_id, conversation_id, role, status, now, model, seed_column(seed),
                 json_column(made_with), edited, text_column(text)),
            )  # fmt: skip
            if files_of is not None:
                copy_files(connection, files_of, _new_id(cursor))
            add_files(connection, _new_id(cursor), files)
            self._touch(connection, _new_id(cursor))
            connection.execute(
                "UPDATE conversations SET archived_at = NULL WHERE id = ? AND archived_at IS NOT NULL",
                (conversation_id,),
            )  # what is gone on with is no longer put aside
        return self.message(_new_id(cursor))

    def save_text(self, message_id: int, text: str, thinking: Thinking = NO_THINKING) -> None:
        """Store what is there of a reply that is being written; one that has ended stays as it ended."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE messages SET text = ?, thinking = ? WHERE id = ? AND status = 'streaming'",
                (text_column(text), thinking_column(thinking), message_id),
            )

    def finish_message(
        self,
        message_id: int,
        text: str,
        status: MessageStatus,
        *,
        finish_reason: FinishReason | None = None,
        statistics: Statistics | None = None,
        error: str = "",
        model: str | None = None,
        drafting: Drafting | None = None,
        control_offsets: Sequence[int] = (),
        thinking: Thinking = NO_THINKING,
    ) -> Message:
        """Store how a reply ended; `model` None keeps the name it has."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE messages SET text = ?, status = ?, finish_reason = ?, statistics = ?, error = ?,"
                " drafting = ?, control_offsets = ?, thinking = ?, model = coalesce(?, model) WHERE id = ?",
                (text_column(text), status, finish_reason, json_column(statistics), text_column(error),
                 json_column(drafting), offsets_column(control_offsets), thinking_column(thinking), model,
                 message_id),
            )  # fmt: skip
            self._touch(connection, message_id)
        return self.message(message_id)

    def reopen_message(self, message_id: int, made_with: MadeWith | None = None) -> Message:
        """Let a reply be continued: it is being written again; None keeps what it was asked for with."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE messages SET status = 'streaming', finish_reason = NULL, error = '',"
                " made_with = coalesce(?, made_with) WHERE id = ?",
                (json_column(made_with), message_id),
            )
            self._touch(connection, message_id)
        return self.message(message_id)

    def set_context_cut(self, message_id: int, cut: ContextCut | None) -> Message:
        """Leave a message and those before it out of what the model is told, or with None no longer."""
        with self._database.writing() as connection:
            connection.execute("UPDATE messages SET context_cut = ? WHERE id = ?", (json_column(cut), message_id))
        return self.message(message_id)

    def save_trace(self, message_id: int, trace: bytes, *, onward: bool) -> None:
        """Store how a reply came about (`trace_format`), `onward` behind what is there, else in the place of it."""
        before = self.trace(message_id) if onward else None
        with self._database.writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO message_traces (message_id, trace) VALUES (?, ?)",
                (message_id, (before or b"") + trace),
            )

    def trace(self, message_id: int) -> bytes | None:
        """Return how a reply came about; None where that was not recorded."""
        rows = self._database.rows("SELECT trace FROM message_traces WHERE message_id = ?", message_id)
        return rows[0][0] if rows else None

    def select_sibling(self, message_id: int, step: int) -> MessagePath:
        """Show the alternative `step` places on, with what was shown last below it; return the active path.

        At the first and the last alternative it stays.
        """
        siblings = [row[0] for row in self._database.rows(SIBLINGS, self.message(message_id).id)]
        chosen = self.message(siblings[max(0, min(siblings.index(message_id) + step, len(siblings) - 1))])
        leaf = MessageRuns(self._database.rows, chosen.conversation_id).latest_below(chosen.id)
        with self._database.writing() as connection:
            connection.execute(ACTIVATE, (leaf,))
        return self.path_to(leaf)

    def alternatives(self, message_id: int) -> list[Message]:
        """Return a message and its alternatives, oldest first; of one that is deleted, those that are left."""
        return [self.message(row[0]) for row in self._database.rows(SIBLINGS, message_id)]

    def count_replies(self, prompt_id: int) -> int:
        """Return how many replies a prompt ever had, those that were deleted included."""
        sql = "SELECT count(*) FROM messages WHERE parent_id = ? AND role = 'assistant'"
        return int(self._database.rows(sql, prompt_id)[0][0])

    def _touch(self, connection: sqlite3.Connection, message_id: int) -> None:
        connection.execute(
            "UPDATE conversations SET updated_at = ? WHERE id = (SELECT conversation_id FROM messages WHERE id = ?)",
            (self._clock(), message_id),
        )


def _new_id(cursor: sqlite3.Cursor) -> int:
    assert cursor.lastrowid is not None
    return cursor.lastrowid
