"""The store of chats, each a tree of messages, in one SQLite file."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import astuple, replace
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any, Concatenate

from rdchat.chat.attachments.attached_file import AttachedFile, image_data
from rdchat.chat.conversation import (
    LARGEST_ID,
    NEW_CHAT,
    NO_THINKING,
    Conversation,
    MadeWith,
    Message,
    MessagePath,
    MessageStatus,
    Notice,
    Origin,
    ReadingPosition,
    Thinking,
    is_temporary,
)
from rdchat.chat.listing import ChatSpans
from rdchat.chat.organiser import ChatOrganiser
from rdchat.chat.reply_tokens import ReplyTokens
from rdchat.chat.storage import (
    ACTIVATE,
    END_OF_DATES,
    LATEST,
    NEXT_ACTIVATED,
    NO_DATE,
    SIBLINGS,
    WRITE_CHECK,
    Database,
    MessageTrash,
    MessageTree,
    add_files,
    assignment,
    check_index,
    conversations,
    file_from,
    file_text,
    index_messages,
    insert_in_steps,
    insert_message,
    listed_chats,
    matching_chats,
    message_row,
    options_columns,
    path_to,
    read_chat,
    read_message,
    rebuild_search,
    repair_tree,
    text_column,
)
from rdchat.chat.summaries import ContextCut
from rdchat.chat.titles import NEW_CHAT as NEW_TITLE, tidy_title
from rdchat.errors import StorageError
from rdchat.files import temporary_folder
from rdchat.inference.api import Role, ToolCall
from rdchat.work import Job

# The ids that each temporary chat has for itself and its messages: 16,000 such chats in a run have ids that differ.
_IDS_OF_A_CHAT = 1 << 16
# The condition of chats that are neither in the Trash nor half copied or erased.
_HERE = "deleted_at IS NULL AND unlisted = 0"
_NEWEST_FIRST = "updated_at DESC, id DESC"

_SET_OPTIONS = """
    UPDATE conversations SET system_prompt = ?, sampling = ?, thinking = ?, answer_shape = ?, own_options = ?
    WHERE id = ?
"""
# Chats that were stored for their first question, and whose process was killed before it was stored, too.
_END_UNASKED = """
    UPDATE conversations SET unlisted = 1
    WHERE title_by = 'prompt' AND unlisted = 0 AND updated_at = created_at
        AND NOT EXISTS (SELECT 1 FROM messages WHERE conversation_id = conversations.id)
        AND NOT EXISTS (SELECT 1 FROM unsent_texts WHERE conversation_id = conversations.id)
        AND NOT EXISTS (SELECT 1 FROM unsent_files WHERE conversation_id = conversations.id)
"""
ENDING = (
    "text", "status", "model", "finish_reason", "statistics", "error", "drafting", "control_offsets", "thinking",
    "made_with", "tool_calls",
)  # fmt: skip
"""The fields of a message that change while a reply is written and when it ends."""


def _by_id[K: int | Conversation | Message | None, **P, R](
    method: "Callable[Concatenate[ConversationStore, K, P], R]",
) -> "Callable[Concatenate[ConversationStore, K, P], R]":
    """Have a method work on the store that has the chat or message of its first argument, given by id or as a whole.

    None, as for the message field of a new chat, is in the store of files.
    """

    @wraps(method)
    def call(self: "ConversationStore", key: K, /, *args: P.args, **kwargs: P.kwargs) -> R:
        any_id = key if key is None or isinstance(key, int) else key.id
        return method(self.holder_of(any_id), key, *args, **kwargs)

    return call


class ConversationStore(Database):
    """The file of the chats, with commands for conversations and their messages.

    When a method returns, its change is on disk: it waits for the writer's thread. Every method raises
    StorageFullError, StorageLockedError or StorageError if the disk is full, another program locks the file, or it
    cannot be used. Stored data stays, and the store works again when the problem is solved.

    Messages form a tree: an edited prompt or another reply is a new child of the same parent, and nothing is
    overwritten. The active path of a conversation ends with the message that was added or chosen last.

    A temporary chat is in a store of its own, in memory, which this one has and passes on to. Its ids are above those
    of files, so a method that gets one finds nothing here once that chat has ended.

    Args:
        path: The file; see `Database`.
        clock: Returns seconds since the epoch.
        wait: Whether to wait until the file is open.
        in_memory: Whether it is the store of a temporary chat.

    Attributes:
        organiser: Pins, folders, notes, the archive, the Trash and copies.
        message_trash: Deleted messages.
        spans: The parts of the sidebar's list.
        reply_tokens: Token ids of replies, to draft from.
        indexing: Indexes what an earlier version stored; a search reads what is not indexed yet.
    """

    def __init__(
        self, path: Path, clock: Callable[[], float] = time.time, *, wait: bool = True, in_memory: bool = False
    ) -> None:
        # These come before the base class, which closes the store if opening fails: `close` needs them.
        self._clock = clock
        self._temporary: ConversationStore | None = None
        self._temporary_folder = ExitStack()
        self._first_ids = count(LARGEST_ID, _IDS_OF_A_CHAT)
        self.organiser = ChatOrganiser(self, clock)
        self.message_trash = MessageTrash(self, clock)
        self.spans = ChatSpans(self)
        self.reply_tokens = ReplyTokens(self)
        super().__init__(path, wait=wait, in_memory=in_memory)
        self.indexing: Job[None] = self.run_bulk(index_messages(self))

    def _tidy_up(self, connection: sqlite3.Connection) -> Notice | None:
        """Repair what an ended process left; this process has the lock. Return a notice for the person."""
        check_index(connection)
        self.images.delete_files()
        notice = repair_tree(connection)
        connection.execute("UPDATE messages SET status = 'interrupted' WHERE status = 'streaming'")
        sql = "UPDATE conversations SET updated_at = ? WHERE deleted_at IS NULL AND updated_at >= ?"
        # A value that is not a date is listed last.
        connection.execute(sql, (NO_DATE, END_OF_DATES))
        # A half-finished import or copy becomes 1, and is erased. With `<> 0` SQLite uses an index of hidden chats.
        connection.execute("UPDATE conversations SET unlisted = 1 WHERE unlisted = 2 AND unlisted <> 0")
        connection.execute(_END_UNASKED)
        # If the search index accepts no word, this raises, and `_mend` makes the index anew.
        connection.executescript(WRITE_CHECK)
        return notice

    def _mend(self, connection: sqlite3.Connection) -> None:
        rebuild_search(connection)

    # The temporary chat

    def holder_of(self, any_id: int | None) -> "ConversationStore":
        """Return the store that has a chat or message: this one, or that of the temporary chat."""
        return self._temporary if self._temporary is not None and is_temporary(any_id) else self

    def begin_temporary(self, like: Conversation) -> Conversation:
        """Begin a chat that is in memory only, with the options of another one, and end the one before."""
        self.end_temporary()
        folder = self._temporary_folder.enter_context(temporary_folder())
        temporary = ConversationStore(folder / "chat.db", self._clock, in_memory=True)
        first = next(self._first_ids)
        # SQLite numbers new rows from these numbers on.
        sql = "INSERT INTO sqlite_sequence (name, seq) VALUES ('conversations', ?1), ('messages', ?1)"
        temporary.execute(sql, first)
        self._temporary = temporary
        return temporary.create_conversation("Temporary chat", like=like)

    def delete_temporary_images(self) -> None:
        """Delete the files of the temporary chat's images, which nothing reads now."""
        if self._temporary is not None:
            self._temporary.images.delete_files()

    def end_temporary(self) -> None:
        """Forget the temporary chat, if there is one. Idempotent."""
        temporary = self._temporary
        self._temporary = None
        if temporary is not None:
            temporary.close()
        self._temporary_folder.close()

    def keep_temporary(self, conversation: Conversation, title: str) -> Conversation:
        """Copy the temporary chat into this store with another title, and list it."""
        holder = self.holder_of(conversation.id)
        chat = holder.write(lambda connection: read_chat(connection, conversation.id))
        chat = replace(chat, conversation=replace(chat.conversation, title=tidy_title(title)))

        def insert(connection: sqlite3.Connection) -> int:
            *_, chat_id = insert_in_steps(connection, chat)
            connection.execute("UPDATE conversations SET unlisted = 0, title_by = 'prompt' WHERE id = ?", (chat_id,))
            return chat_id

        return self.conversation(self.write(insert))

    def close(self) -> None:
        """End the temporary chat too; see `Database`."""
        self.end_temporary()
        super().close()

    def _holder_of_file(self, file: AttachedFile) -> "ConversationStore":
        """Return the store that has a file's text: that of the temporary chat, or this one."""
        temporary = self._temporary
        if temporary is not None and temporary.rows("SELECT 1 FROM file_texts WHERE digest = ?", file.digest):
            return temporary
        return self

    # Conversations

    def conversations(self, search: str = "") -> list[Conversation]:
        """Return the conversations with every word of `search` in their title or a message; see `matching_chats`."""
        return matching_chats(self.rows, search)

    @_by_id
    def conversation(self, conversation_id: int) -> Conversation:
        """Return one conversation; StorageError if it does not exist or is deleted."""
        rows = conversations(self.rows, "id = ? AND deleted_at IS NULL", conversation_id)
        if not rows:
            raise StorageError("This chat no longer exists.", "Choose another one, or start a new chat.")
        return rows[0]

    def find_chats(self, conversation_ids: Sequence[int]) -> dict[int, Conversation]:
        """Return some conversations by id, including archived ones, without unlisted and deleted ones.

        Their options are not read, as those of `newest_conversations`; see `conversation`.
        """
        where = f"{_HERE} AND id IN ({', '.join('?' * len(conversation_ids))})"
        return {each.id: each for each in listed_chats(self.rows, where, *conversation_ids)}

    def newest_conversations(self, limit: int) -> list[Conversation]:
        """Return the newest conversations outside the archive, newest first."""
        where = f"{_HERE} AND archived_at IS NULL ORDER BY {_NEWEST_FIRST} LIMIT ?"
        return listed_chats(self.rows, where, limit)

    def has_title(self, title: str) -> bool:
        """Return whether a conversation has this title."""
        return bool(self.rows(f"SELECT 1 FROM conversations WHERE {_HERE} AND title = ? LIMIT 1", title))

    def create_conversation(
        self, title: str = NEW_TITLE, *, from_prompt: bool = False, like: Conversation = NEW_CHAT
    ) -> Conversation:
        """Create a conversation, perhaps with the options of another one.

        Args:
            title: Its title.
            from_prompt: Whether the title was made from a prompt, so that the model may replace it.
            like: Gives its options and its folder.
        """
        now = self._clock()
        sql = """
            INSERT INTO conversations (title, title_by, created_at, updated_at, folder_id)
            VALUES (?, ?, ?, ?, (SELECT id FROM folders WHERE id = ?)) RETURNING id
        """
        title_by = "prompt" if from_prompt else "person"
        values = (text_column(tidy_title(title)) or NEW_TITLE, title_by, now, now, like.folder_id)

        def create(connection: sqlite3.Connection) -> int:
            (chat_id,) = connection.execute(sql, values).fetchone()
            connection.execute(_SET_OPTIONS, (*options_columns(like), chat_id))
            return int(chat_id)

        return self.conversation(self.write(create))

    def rename_conversation(self, conversation_id: int, title: str) -> Conversation:
        """Rename a conversation; an empty title changes nothing."""
        if tidy := text_column(tidy_title(title)):
            self._set("title = ?, title_by = 'person'", tidy, conversation_id)
        return self.conversation(conversation_id)

    @_by_id
    def set_chat_options(self, like: Conversation) -> Conversation:
        """Store the options of `like`."""
        self.execute(_SET_OPTIONS, *options_columns(like), like.id)
        return self.conversation(like.id)

    def delete_conversation(self, conversation_id: int) -> None:
        """Move a conversation to the Trash, from which it can be restored until `ChatOrganiser.expire`."""
        self._set("deleted_at = ?", self._clock(), conversation_id)

    def restore_conversation(self, conversation_id: int) -> Conversation:
        """Restore a conversation from the Trash; StorageError if it is already erased."""
        self._set("deleted_at = CASE unlisted WHEN 0 THEN NULL ELSE deleted_at END", conversation_id)
        return self.conversation(conversation_id)

    def _set(self, assignment: str, *parameters: object) -> None:
        self.execute(f"UPDATE conversations SET {assignment} WHERE id = ?", *parameters)

    # Messages

    @_by_id
    def messages(self, conversation_id: int) -> MessagePath:
        """Return the active path, from the root to its last message."""
        leaf = self.rows(LATEST, conversation_id)
        return path_to(self.rows, conversation_id, leaf[0][0]) if leaf else MessagePath()

    @_by_id
    def path_to(self, message_id: int) -> MessagePath:
        """Return the messages from the root to this one; empty if it does not exist."""
        chat = self.rows("SELECT conversation_id FROM messages WHERE id = ?", message_id)
        return path_to(self.rows, chat[0][0], message_id) if chat else MessagePath()

    @_by_id
    def message(self, message_id: int) -> Message:
        return read_message(self.rows, message_id)

    def file_text(self, file: AttachedFile) -> str:
        """Return the text of an attached file; any thread may call this."""
        text = file_text(self._holder_of_file(file).rows, file.digest)
        return "(The text of this file is lost.)" if text is None else text

    def image_path(self, file: AttachedFile) -> Path:
        """Return a private copy of an image as a file, until the store is closed; any thread may call this."""
        images = self._holder_of_file(file).images
        return images.path_of(file.digest, lambda: image_data(self.file_text(file)))

    def set_image_size(self, file: AttachedFile, width: int, height: int) -> Job[object]:
        """Store the size of an image that was stored before it was decoded, without waiting."""
        sql = "UPDATE file_images SET width = ?, height = ? WHERE digest = ?"
        store = self._holder_of_file(file)
        return store.submit(lambda connection: connection.execute(sql, (width, height, file.digest)))

    @_by_id
    def add_message(
        self,
        conversation_id: int,
        /,
        parent_id: int | None,
        role: Role,
        text: str,
        *,
        files: Sequence[tuple[AttachedFile, str]] = (),
        **fields: Any,
    ) -> Message:
        """Add a child of `parent_id`, or a first message, and make it the end of the active path.

        Args:
            conversation_id: The conversation.
            parent_id: The message it follows; None for a first message.
            role: `user`, `assistant` or `tool`.
            text: Markdown as written.
            files: Attached files, each with its text.
            fields: Further fields of `Message`.
        """
        if parent_id is not None and self.message(parent_id).conversation_id != conversation_id:
            raise ValueError(f"message {parent_id} is not of conversation {conversation_id}")
        message = Message(0, conversation_id, parent_id, role, text, created_at=self._clock(), **fields)
        return self.message(self.write(lambda connection: self._add(connection, message, files)))

    @_by_id
    def add_results(self, reply: Message, calls: Sequence[ToolCall]) -> list[Message]:
        """Add empty results of calls, all or none, each the child of the one before.

        Args:
            reply: The end of a path: the reply with the calls, or a result of another one.
            calls: The calls.
        """

        def add(connection: sqlite3.Connection) -> list[int]:
            ids = [reply.id]
            for call in calls:
                result = Message(
                    0,
                    reply.conversation_id,
                    ids[-1],
                    Role.TOOL,
                    "",
                    MessageStatus.STREAMING,
                    self._clock(),
                    tool_call_id=call.call_id,
                    tool_name=call.name,
                )
                ids.append(self._add(connection, result))
            return ids[1:]

        return [self.message(each) for each in self.write(add)]

    def _add(
        self, connection: sqlite3.Connection, message: Message, files: Sequence[tuple[AttachedFile, str]] = ()
    ) -> int:
        (activated,) = connection.execute(NEXT_ACTIVATED, (message.conversation_id,)).fetchone()
        message_id = insert_message(connection, message_row(replace(message, activated=activated)))
        add_files(connection, message_id, files)
        # Writing in an archived chat takes it out of the archive.
        sql = "UPDATE conversations SET updated_at = ?, archived_at = NULL WHERE id = ?"
        connection.execute(sql, (message.created_at, message.conversation_id))
        return message_id

    @_by_id
    def save_text(self, message_id: int, text: str, thinking: Thinking = NO_THINKING) -> None:
        """Store the present text of a reply that is being written; a finished reply is not changed."""
        sql, values = assignment(text=text, thinking=thinking)
        self.execute(f"UPDATE messages SET {sql} WHERE id = ? AND status = 'streaming'", *values, message_id)

    @_by_id
    def finish_message(self, message: Message) -> Message:
        """Store the end of a reply: the fields in `ENDING`."""
        return self._change(message.id, **{name: getattr(message, name) for name in ENDING})

    @_by_id
    def attach(self, message_id: int, files: Sequence[tuple[AttachedFile, str]]) -> Message:
        """Add files to a message, each with its text."""
        self.write(lambda connection: add_files(connection, message_id, files))
        return self.message(message_id)

    @_by_id
    def reopen_message(self, message_id: int, made_with: MadeWith | None = None) -> Message:
        """Reopen a reply to continue it; `made_with` None keeps its options.

        A cut there is removed: its summary would not have the new text.
        """
        fields: dict[str, Any] = {} if made_with is None else {"made_with": made_with}
        return self._change(
            message_id, status=MessageStatus.STREAMING, finish_reason=None, error="", context_cut=None, **fields
        )

    def _change(self, message_id: int, **fields: Any) -> Message:
        """Set fields of a message, and the date of its chat."""
        sql, values = assignment(**fields)

        def change(connection: sqlite3.Connection) -> None:
            connection.execute(f"UPDATE messages SET {sql} WHERE id = ?", (*values, message_id))
            chat = "(SELECT conversation_id FROM messages WHERE id = ?)"
            connection.execute(
                f"UPDATE conversations SET updated_at = ? WHERE id = {chat}", (self._clock(), message_id)
            )

        self.write(change)
        return self.message(message_id)

    @_by_id
    def set_context_cut(self, message_id: int, cut: ContextCut | None) -> Message:
        """Hide a message and those before it from the model; None shows them again.

        An earlier summary there is also overwritten on disk: `erase` empties SQLite's log.
        """
        sql, values = assignment(context_cut=cut)
        self.execute(f"UPDATE messages SET {sql} WHERE id = ?", *values, message_id)
        self.organiser.erase()
        return self.message(message_id)

    @_by_id
    def save_trace(self, message_id: int, trace: bytes, *, onward: bool) -> None:
        """Store the trace of a reply (`reply_trace`), unless the reply is gone.

        With `onward` the trace is that of a continuation, and is appended to the stored one.
        """
        before = self.trace(message_id) if onward else None
        sql = "INSERT OR REPLACE INTO message_traces (message_id, trace) SELECT id, ? FROM messages WHERE id = ?"
        self.execute(sql, (before or b"") + trace, message_id)

    @_by_id
    def trace(self, message_id: int) -> bytes | None:
        """Return the trace of a reply; None if it was not recorded."""
        rows = self.rows("SELECT trace FROM message_traces WHERE message_id = ?", message_id)
        return rows[0][0] if rows else None

    @_by_id
    def has_trace(self, message_id: int) -> bool:
        """Return whether the trace of a reply was recorded."""
        return bool(self.rows("SELECT 1 FROM message_traces WHERE message_id = ?", message_id))

    @_by_id
    def select_sibling(self, message_id: int, step: int) -> MessagePath:
        """Show the alternative `step` further on, with what was shown last below it; return the active path.

        At the first and last alternative nothing changes.
        """
        siblings = [row[0] for row in self.rows(SIBLINGS, self.message(message_id).id)]
        chosen = self.message(siblings[max(0, min(siblings.index(message_id) + step, len(siblings) - 1))])
        leaf = MessageTree(self.rows, chosen.conversation_id).latest_below(chosen.id)[1]
        self.execute(ACTIVATE, leaf)
        return self.path_to(leaf)

    @_by_id
    def alternatives(self, message_id: int) -> list[Message]:
        """Return a message and its alternatives, oldest first; without deleted ones."""
        return [self.message(row[0]) for row in self.rows(SIBLINGS, message_id)]

    @_by_id
    def count_replies(self, prompt_id: int) -> int:
        """Return how many replies a prompt ever had, including deleted ones."""
        sql = "SELECT count(*) FROM messages WHERE parent_id = ? AND role = 'assistant'"
        return int(self.rows(sql, prompt_id)[0][0])

    # Where the person was reading and typing

    @_by_id
    def reading_position(self, conversation_id: int) -> ReadingPosition | None:
        """Return the reading position in a chat; None for its end."""
        rows = self.rows("SELECT message_id, above FROM reading_positions WHERE conversation_id = ?", conversation_id)
        return ReadingPosition(*rows[0]) if rows else None

    @_by_id
    def save_reading_position(self, conversation_id: int, position: ReadingPosition | None) -> None:
        """Store a position; None for the chat's end. Nothing is stored for a message that no longer exists."""
        message_id, above = (position.message_id, position.above) if position else (None, 0)

        def save(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM reading_positions WHERE conversation_id = ?", (conversation_id,))
            sql = "SELECT conversation_id, id, ? FROM messages WHERE id = ? AND conversation_id = ?"
            connection.execute(f"INSERT INTO reading_positions {sql}", (above, message_id, conversation_id))

        self.write(save)

    @_by_id
    def unsent_text(self, conversation_id: int | None, message_id: int | None) -> str:
        """Return a text that was typed and not sent; empty where there is none.

        Args:
            conversation_id: The chat; None for a new one, which only has a message field.
            message_id: The message being edited; None for the chat's message field.
        """
        sql = "SELECT text FROM unsent_texts WHERE conversation_id IS ? AND message_id IS ?"
        rows = self.rows(sql, conversation_id, message_id)
        return rows[0][0] if rows else ""

    @_by_id
    def unsent_origin(self, conversation_id: int | None, message_id: int | None) -> Origin | None:
        """Return where such a text is from, perhaps in part; None for the person."""
        sql = "SELECT origin FROM unsent_texts WHERE conversation_id IS ? AND message_id IS ? AND origin IS NOT NULL"
        return next((Origin(row[0]) for row in self.rows(sql, conversation_id, message_id)), None)

    @_by_id
    def save_unsent_text(
        self, conversation_id: int | None, message_id: int | None, text: str, origin: Origin | None = None
    ) -> None:
        """Replace the stored text. It is not stored if it is empty, or its chat or message no longer exists."""
        sql = """
            INSERT INTO unsent_texts (conversation_id, message_id, text, origin) SELECT ?1, ?2, ?3, ?4
            WHERE ?3 <> '' AND (?1 IS NULL OR EXISTS (SELECT 1 FROM conversations WHERE id = ?1))
                AND (?2 IS NULL OR EXISTS (SELECT 1 FROM messages WHERE id = ?2))
        """
        key = (conversation_id, message_id)

        def save(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM unsent_texts WHERE conversation_id IS ? AND message_id IS ?", key)
            connection.execute(sql, (*key, text_column(text), origin))

        self.write(save)

    @_by_id
    def unsent_files(self, conversation_id: int | None) -> tuple[tuple[AttachedFile, str], ...]:
        """Return the files of a message that was not sent, each with its text; None is the message of a new chat."""
        sql = "SELECT * FROM unsent_files WHERE conversation_id IS ? ORDER BY rowid"
        # The chat's id comes first, where `file_from` expects a message's, which it does not read.
        return tuple((file_from(row), row[-1]) for row in self.rows(sql, conversation_id))

    @_by_id
    def save_unsent_files(self, conversation_id: int | None, files: Sequence[tuple[AttachedFile, str]]) -> None:
        """Replace the stored files, unless the chat no longer exists, without waiting: they may be large."""
        sql = """
            INSERT INTO unsent_files SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10
            WHERE ?1 IS NULL OR EXISTS (SELECT 1 FROM conversations WHERE id = ?1)
        """

        def save(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM unsent_files WHERE conversation_id IS ?", (conversation_id,))
            # The columns are the chat, then the fields of `AttachedFile` in order, then the text.
            rows = ((conversation_id, *astuple(file), text_column(text)) for file, text in files)
            connection.executemany(sql, rows)

        self.submit(save)
