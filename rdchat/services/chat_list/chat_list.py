"""The list of chats in the sidebar, and the commands that rename, delete, archive and search chats.

`ChatList` lives on the main thread; it reads the store there, a row when it comes into view. `ChatSearch` searches on a
thread of its own.
"""

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, Signal

from rdchat.chat.conversation import NEW_CHAT, Conversation, Message
from rdchat.chat.listing import ChatRow, FolderRow, Listing, chats_listing
from rdchat.chat.storage import MessageMatches, SearchAnswer, SearchQuery, SearchReader
from rdchat.chat.store import ConversationStore
from rdchat.errors import RdchatError, StorageError
from rdchat.inference.api import FinishReason
from rdchat.services.background_work import BackgroundWork
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat_list.chat_order import ChatOrder, Location, named
from rdchat.services.storage_watch import StorageWatch
from rdchat.work import Job


class ChatSearch(QObject):
    """Searches chats and the messages of one chat. Its thread starts with the first search.

    A search replaces an earlier one of its kind, which is cancelled.

    Args:
        store: The conversations.
        storage: Reports a search that fails.
        parent: The Qt parent.

    Attributes:
        models: Names of the models that wrote replies, after `look_for_models`.
    """

    answered = Signal(SearchAnswer)
    messages_matched = Signal(MessageMatches)
    models_listed = Signal()

    def __init__(self, store: ConversationStore, storage: StorageWatch, parent: QObject) -> None:
        super().__init__(parent)
        self._store = store
        self._reader = SearchReader(store.path)
        self._storage = storage
        self._work = BackgroundWork("chat search", self)
        # The newest search of each kind.
        self._jobs: dict[str, Job[Any]] = {}
        self.models: tuple[str, ...] = ()

    def search_chats(self, query: SearchQuery) -> None:
        """Search all conversations; `answered` follows."""
        self._ask("chats", partial(self._reader.search_chats, query), self.answered.emit)

    def find_in(self, conversation_id: int, text: str) -> None:
        """Search the messages of one conversation; `messages_matched` follows."""
        store = self._store.holder_of(conversation_id)
        reader = SearchReader(store.path, in_memory=True) if store.in_memory else self._reader
        self._ask("messages", partial(reader.messages_with, conversation_id, text), self.messages_matched.emit)

    def look_for_models(self) -> None:
        """Find the models that wrote replies; `models_listed` follows."""
        self._ask("models", self._reader.models, self._take_models)

    def end_thread(self) -> None:
        """End the thread."""
        for job in self._jobs.values():
            job.cancel_silently()
        self._work.finish_work()

    def _ask(self, kind: str, search: Callable[[], object], then: Callable[[Any], object]) -> None:
        """Run a search in place of the last one of its kind, and call `then` with the result."""
        if kind in self._jobs:
            self._jobs[kind].cancel_silently()

        def end(result: Any) -> None:
            if isinstance(result, RdchatError):
                self._storage.report(StorageError(f"Search failed: {result.message}.", "Try again."))
            else:
                then(result)

        self._jobs[kind] = self._work.run_job(partial(_result, self._reader, search), end)

    def _take_models(self, models: tuple[str, ...]) -> None:
        self.models = models
        self.models_listed.emit()


def _result(reader: SearchReader, search: Callable[[], object], job: Job[Any]) -> object:
    """Search on the thread; cancelling the job interrupts SQLite, whose error then becomes the cancellation."""

    def interrupt() -> None:
        with suppress(sqlite3.ProgrammingError):  # It has just ended.
            reader.interrupt()

    job.when_cancelled(interrupt)
    try:
        return search()
    except sqlite3.Error as error:
        job.check_cancelled()
        raise StorageError(str(error)) from error
    finally:
        job.when_cancelled(lambda: None)


class Activity(StrEnum):
    """The present activity in a conversation, as screen readers read it."""

    NONE = ""
    WRITING = "a reply is being written"
    WAITING = "a message is waiting"
    NEW = "a new reply"


class ChatList(QObject):
    """Lists, renames, deletes and searches conversations. When the open one is removed, another one is opened.

    Args:
        store: The conversations.
        chat: The open one.
        storage: Runs every command, and reports failures.

    Attributes:
        order: Pins, folders, the archive, the Trash, and undoing.
        finder: Searches.
        location: The list that is visible, unless there is a query.
        query: The search; empty for none.
        answer: The answer to the last query that was answered.
        archived: Number of conversations in the archive.
        deleted: Number of conversations and folders in the Trash.
        new_replies: Ids of conversations with a reply that ended while another one was open, the first one first: the
            keys of the dict, as a set has no order.
        rows: Rows of the sidebar; conversations are read when they come into view.

    Signals:
        conversations_changed: The rows have changed.
        conversation_removed: A conversation, by its id, before another one is opened instead.
        activity_changed: `activity` has changed for some conversation.
        store_replaced: Ids now belong to other chats.
    """

    conversations_changed = Signal()
    conversation_removed = Signal(int)
    activity_changed = Signal()
    store_replaced = Signal()

    def __init__(self, store: ConversationStore, chat: OpenChat, storage: StorageWatch) -> None:
        super().__init__(chat)
        self.store = store
        self.storage = storage
        self.chat = chat
        self.order = ChatOrder(store, storage)
        self.finder = ChatSearch(store, storage, self)
        self.location = Location.CHATS
        self.query = SearchQuery()
        self.answer: SearchAnswer | None = None
        self.archived = 0
        self.deleted = 0
        self.rows = Listing()
        for changed in (self.order.changed, chat.path_changed, chat.stored):
            changed.connect(self.update_list)
        for changed in (chat.replies.state_changed, chat.unsent.waiting_changed):
            changed.connect(self.activity_changed)
        self.finder.answered.connect(self._on_answered)
        self.new_replies: dict[int, None] = {}
        chat.replies.ended.connect(self._note_reply)
        chat.opened.connect(self._note_opened)

    def open_list(self, last: int | None) -> None:
        """List the conversations, open the one viewed last, else the newest, and empty the Trash of old items."""
        self.open_latest(last)
        self.order.start_emptying_trash()

    def close_list(self) -> None:
        """End the search thread and bulk work; store typed texts."""
        self.finder.end_thread()
        self.order.stop_bulk_work()
        self.chat.unsent.store()

    # What is listed

    def update_list(self) -> None:
        """Update the list; if the open conversation was removed, open the newest."""
        with self.storage.reading():
            self._read_rows()
            if self.new_replies:
                results = self.store.find_chats(list(self.new_replies))
                self.new_replies = {each: None for each in self.new_replies if each in results}
            if (chat := self.chat.stored_conversation) is not None:
                if chat.id in self.store.find_chats([chat.id]):
                    # It may have been pinned, moved or renamed.
                    self.chat.update_chat(self.store.conversation(chat.id))
                else:
                    self.conversation_removed.emit(chat.id)
                    self._open_or_new(self.storage.read_or_default(self._newest, None))
        if self.query:
            self.finder.search_chats(self.query)
        self.conversations_changed.emit()

    def _read_rows(self) -> None:
        """Read the rows of the list that is visible, and count the archive and the Trash."""
        self.order.read_folders()
        spans = self.store.spans
        order = self.order
        archived = spans.archived()
        deleted = spans.deleted()
        folders = self.store.organiser.deleted_folders()
        if self.query:
            self.rows = Listing(self._hits())
        elif self.location is Location.ARCHIVE:
            self.rows = Listing([archived], spans)
        elif self.location is Location.TRASH:
            self.rows = Listing([*(FolderRow(folder, 0, 0) for folder in folders), deleted], spans)
        else:
            self.rows = chats_listing(spans, order.folders, time.time())
        self.archived = archived.count
        self.deleted = len(folders) + deleted.count

    def _hits(self) -> list[ChatRow]:
        """Return the hits with their present titles and folders, without deleted ones."""
        hits = self.answer.hits if self.answer is not None else ()
        chats = self.store.find_chats([hit.conversation.id for hit in hits])
        names = {folder.id: folder.name for folder in self.order.folders}
        rows = []
        for hit in hits:
            if (chat := chats.get(hit.conversation.id)) is not None:
                place = "Archive" if chat.archived else names.get(chat.folder_id or 0, "")
                rows.append(ChatRow(chat, 0, hit.snippet, hit.messages, place))
        return rows

    def find_chat(self, conversation_id: int) -> Conversation | None:
        """Return a conversation outside the Trash; None if there is none or it cannot be read."""
        return self.storage.read_or_default(lambda: self.store.find_chats([conversation_id]).get(conversation_id), None)

    def newest(self, limit: int) -> list[Conversation]:
        """Return the newest conversations outside the archive; none if they cannot be read."""
        return self.storage.read_or_default(lambda: self.store.newest_conversations(limit), [])

    def activity(self, conversation_id: int) -> Activity:
        """Return what happens in a conversation; if several things do, the first of writing, waiting, a new reply."""
        if conversation_id in self.chat.replies.chats_being_written:
            return Activity.WRITING
        if self.chat.unsent.waiting_in(conversation_id):
            return Activity.WAITING
        return Activity.NEW if conversation_id in self.new_replies else Activity.NONE

    def _note_reply(self, reply: Message) -> None:
        """Mark a chat that is not open as one with a new reply."""
        is_elsewhere = reply.conversation_id not in (NEW_CHAT.id, self.chat.id)
        if is_elsewhere and reply.finish_reason is not FinishReason.CANCELLED:
            self.new_replies[reply.conversation_id] = None
            self.activity_changed.emit()

    def _note_opened(self) -> None:
        if self.chat.id in self.new_replies:
            del self.new_replies[self.chat.id]
            self.activity_changed.emit()

    def show_location(self, location: Location) -> None:
        """List the chats, the archive or the Trash."""
        self.location = location
        self.update_list()

    def list_hits(self, query: SearchQuery | str) -> None:
        """List the hits of a query; an empty query lists everything."""
        self.query = SearchQuery(query) if isinstance(query, str) else query
        if not self.query:
            self.answer = None
        self.update_list()

    def _on_answered(self, answer: SearchAnswer) -> None:
        if answer.query == self.query:
            self.answer = answer
            with self.storage.reading():
                self._read_rows()
            self.conversations_changed.emit()

    # Commands

    def rename_conversation(self, conversation_id: int, title: str) -> None:
        """Rename a conversation; a blank title is ignored."""
        if (chat := self.find_chat(conversation_id)) is not None:
            rename = partial(self.store.rename_conversation, conversation_id)
            self.order.do(partial(rename, title), partial(rename, chat.title))

    def delete_conversation(self, conversation_id: int) -> None:
        """Move a conversation to the Trash; if it was open, open its neighbour in the list."""
        with self.storage.writing():
            # Both before it is deleted: then its row is gone, and so may be the open chat.
            is_open = self.chat.id == conversation_id
            neighbour = self._neighbour_of(conversation_id)
            deleted = self.store.conversation(conversation_id)
            self.store.delete_conversation(conversation_id)
            self.order.history.add_step(lambda: self._restore(conversation_id))
            self.conversation_removed.emit(conversation_id)
            if is_open:
                self._open_or_new(neighbour)
            self.update_list()
            self.order.undo_offered.emit(f"Deleted {named(deleted.title)}")

    def archive_conversation(self, conversation_id: int) -> None:
        """Move a conversation to the archive; if it was open, open its neighbour in the list."""
        with self.storage.reading():
            neighbour = self._neighbour_of(conversation_id)
            self.order.set_archived(self.store.conversation(conversation_id), archived=True)
            if self.chat.id == conversation_id:
                self._open_or_new(neighbour)

    def undo(self) -> None:
        """Undo the last command."""
        with self.storage.writing():
            self.order.history.undo()
        self.update_list()  # The open chat may have been a copy, or a branch.

    def _restore(self, conversation_id: int) -> None:
        self.store.restore_conversation(conversation_id)
        self.chat.open_chat(conversation_id)

    # Opening

    def open_near(self, by: int) -> None:
        """Open the chat below the open one in the list, or for -1 the one above; at its end nothing changes."""
        with self.storage.reading():
            # A chat that is not stored has no row; then it is the first one of the list.
            chat = self.rows.chat_near(self.chat.id or 0, by)
            if chat is not None and self.location is not Location.TRASH:
                self.chat.open_chat(chat.id)

    def open_new_reply(self) -> None:
        """Open the chat whose unseen reply ended first."""
        if self.new_replies:
            self.chat.open_chat(next(iter(self.new_replies)))

    def open_latest(self, last: int | None = None) -> None:
        """List the conversations and open the one viewed last, else the newest, or a new one if there is none."""
        self.update_list()
        self._open_or_new((self.find_chat(last) if last else None) or self.storage.read_or_default(self._newest, None))

    def begin_anew(self) -> None:
        """Read the list again after the store was replaced, and open the newest conversation."""
        self.store_replaced.emit()
        self.new_replies.clear()
        if self.chat.stored_conversation is not None:
            self.conversation_removed.emit(self.chat.stored_conversation.id)
        self.order.begin_anew()
        self.chat.forget_all()
        self.open_latest()

    def drop(self, conversation_ids: Sequence[int]) -> None:
        """Remove conversations, perhaps thousands, that were deleted elsewhere from the list.

        `conversation_removed` is emitted for those that are being written, and by `update_list` for the open one.
        """
        for each in self.chat.replies.chats_being_written.intersection(conversation_ids):
            self.conversation_removed.emit(each)
        self.update_list()

    def _newest(self) -> Conversation | None:
        """Return the first hit of the query; without a query, the newest conversation outside the archive."""
        if self.query:
            return next((row.conversation for row in self._hits()), None)
        return next(iter(self.store.newest_conversations(1)), None)

    def _neighbour_of(self, conversation_id: int) -> Conversation | None:
        """Return the conversation below, or else above, the given one; the newest where the Trash is listed."""
        if self.location is Location.TRASH and not self.query:
            return self._newest()
        return self.rows.chat_near(conversation_id, 1) or self.rows.chat_near(conversation_id, -1)

    def _open_or_new(self, conversation: Conversation | None) -> None:
        if conversation:
            self.chat.open_chat(conversation.id)
        else:
            self.chat.start_new()
