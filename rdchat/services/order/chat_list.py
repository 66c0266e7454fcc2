"""The list of conversations: which ones the sidebar shows, and renaming, deleting and searching them."""

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.conversation import Conversation
from rdchat.chat.listing import ChatRow, ChatRows, FolderRow, Listing, chats_listing
from rdchat.chat.storage.search_reader import SearchAnswer, SearchQuery
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.storage_watch import StorageWatch
from rdchat.services.order.chat_order import ChatOrder, Place, named
from rdchat.services.order.chat_search import ChatSearch


class ChatList(QObject):
    """Lists, renames, deletes and searches conversations; another one is opened where the open one goes.

    Args:
        store: The conversations.
        chat: The open one.
        storage: Guards every command, and reports those that fail.
    """

    conversations_changed = Signal()
    conversation_removed = Signal(int)  # its id, before another one is opened in its place
    store_replaced = Signal()  # an id is another chat's from now on

    def __init__(self, store: ConversationStore, chat: OpenChat, storage: StorageWatch) -> None:
        super().__init__(chat)
        self.store, self.storage, self.chat = store, storage, chat
        self.order = ChatOrder(store, storage, self)  # pins, folders, the archive, the bin, and undoing
        self.finder = ChatSearch(store.path, self)
        self.place = Place.CHATS  # that is listed, unless there is a query
        self.query = SearchQuery()  # empty where nothing is searched for
        self.answer: SearchAnswer | None = None  # of an earlier query until `query` is answered
        self.archived = 0  # conversations in the archive
        self.deleted = 0  # conversations and folders in the bin
        self.rows = Listing()  # of the sidebar; conversations are read when they are shown
        self.order.changed.connect(self.refresh)
        for changed in (chat.path_changed, chat.stored):
            changed.connect(self.refresh)  # the newest chat is the first one
        self.finder.answered.connect(self._on_answered)
        self.finder.failed.connect(self._on_search_failed)

    def start(self) -> None:
        """List the conversations, open the newest one, and tidy the bin."""
        self.open_latest()
        self.order.start()

    def close(self) -> None:
        """End the search thread and bulk work, and store typed texts."""
        self.finder.close()
        self.order.close()
        self.chat.unsent.store()

    # What is listed

    def refresh(self) -> None:
        """List the conversations anew; where the open one is gone, open the newest."""
        with self.storage.reading():
            self._read_rows()
            if (chat := self.chat.conversation) is not None:  # it may have been pinned, moved or titled meanwhile
                if (changed := self.store.find([chat.id]).get(chat.id)) is not None:
                    self.chat.update(changed)
                else:
                    self.conversation_removed.emit(chat.id)
                    self._open_newest()
        if self.query:
            self.finder.ask(self.query)
        self.conversations_changed.emit()

    def _read_rows(self) -> None:
        self.order.refresh()
        spans, order = self.store.spans, self.order
        archived, deleted, folders = spans.archived(), spans.deleted(), order.deleted_folders()
        if self.query:
            self.rows = Listing(self._found())
        elif self.place is Place.ARCHIVE:
            self.rows = Listing(map(ChatRows, archived), spans)
        elif self.place is Place.BIN:
            self.rows = Listing([*(FolderRow(folder, 0, 0) for folder in folders), ChatRows(deleted)], spans)
        else:
            self.rows = chats_listing(spans, order.folders, time.time())
        self.archived = sum(span.count for span in archived)
        self.deleted = len(folders) + deleted.count

    def _found(self) -> list[ChatRow]:
        """Return what was found, as it is now: it may have been renamed, moved or deleted since."""
        hits = self.answer.hits if self.answer is not None else ()
        now = self.store.find([hit.conversation.id for hit in hits])
        return [
            ChatRow(chat, 0, hit.snippet, hit.messages, "Archive" if chat.archived else self.order.folder_name(chat))
            for hit in hits
            if (chat := now.get(hit.conversation.id)) is not None
        ]

    def find(self, conversation_id: int) -> Conversation | None:
        """Return a conversation that is listed or in the archive; None where there is none, or it cannot be read."""
        return self.storage.read(lambda: self.store.find([conversation_id]).get(conversation_id), None)

    def title_of(self, conversation_id: int) -> str:
        """Return the title of a conversation that is listed or open; "A chat" where the store cannot be read."""
        if self.chat.conversation is not None and self.chat.conversation.id == conversation_id:
            return self.chat.conversation.title
        with suppress(StorageError):
            return self.store.conversation(conversation_id).title
        return "A chat"

    def show(self, place: Place) -> None:
        """List the chats, the archive or the bin."""
        self.place = place
        self.refresh()

    def search(self, query: SearchQuery | str) -> None:
        """List the hits of a query as soon as they are found; an empty query lists everything."""
        self.query = SearchQuery(query) if isinstance(query, str) else query
        if not self.query:
            self.answer = None
        self.refresh()

    @Slot(SearchAnswer)
    def _on_answered(self, answer: SearchAnswer) -> None:
        if answer.query == self.query:
            self.answer = answer
            with self.storage.reading():
                self._read_rows()
            self.conversations_changed.emit()

    @Slot(str)
    def _on_search_failed(self, why: str) -> None:
        self.storage.report(StorageError(f"The chats could not be searched: {why}.", "Search again."))

    # Commands

    def rename_conversation(self, conversation_id: int, title: str) -> None:
        """Give a conversation another title; a blank one leaves it as it is."""
        if (chat := self.find(conversation_id)) is not None:
            rename = partial(self.store.rename_conversation, conversation_id)
            self.order.do(f"Rename {named(chat.title)}", partial(rename, title), partial(rename, chat.title))

    def delete_conversation(self, conversation_id: int) -> None:
        """Put a conversation into the bin; where it was open, its neighbour in the list is opened."""
        with self.storage.writing():
            is_open, neighbour = self.chat.is_open(conversation_id), self._neighbour_of(conversation_id)
            deleted = self.store.conversation(conversation_id)
            self.store.delete_conversation(conversation_id)
            self.order.history.add(f"Delete {named(deleted.title)}", lambda: self._bring_back(conversation_id))
            self.conversation_removed.emit(conversation_id)
            if is_open:
                self._open_or_new(neighbour)
            self.refresh()
            self.order.offered_undo.emit(f"Deleted {named(deleted.title)}")

    def archive_conversation(self, conversation_id: int) -> None:
        """Put a conversation into the archive; where it was open, its neighbour in the list is opened."""
        with self.storage.reading():
            neighbour = self._neighbour_of(conversation_id)
            self.order.set_archived(self.store.conversation(conversation_id), archived=True)
            if self.chat.is_open(conversation_id):
                self._open_or_new(neighbour)

    def undo(self) -> None:
        """Take back what was done last to the list of conversations."""
        with self.storage.writing():
            self.order.history.undo()
        self.refresh()  # the open chat may have been a copy, or a branch

    def _bring_back(self, conversation_id: int) -> None:
        self.store.restore_conversation(conversation_id)
        self.chat.open(conversation_id)

    # Opening

    def open_latest(self) -> None:
        """List the conversations and open the newest one, or a new one where there is none."""
        self.refresh()
        self._open_newest()

    def begin_anew(self) -> None:
        """List what the store has after it was replaced, and open the newest."""
        self.store_replaced.emit()
        if self.chat.conversation is not None:
            self.conversation_removed.emit(self.chat.conversation.id)
        self.order.begin_anew()
        self.chat.forget_all()
        self.open_latest()

    def drop(self, conversation_ids: Sequence[int], being_written: set[int]) -> None:
        """Take conversations that were deleted elsewhere off the list.

        Args:
            conversation_ids: Perhaps thousands; `conversation_removed` names only those that are open or being written.
            being_written: Conversations with a reply that has not ended.
        """
        for each in being_written.intersection(conversation_ids):
            self.conversation_removed.emit(each)
        self.refresh()

    def _open_newest(self) -> None:
        self._open_or_new(self.storage.read(self._newest, None))

    def _newest(self) -> Conversation | None:
        if self.query:
            return next((row.conversation for row in self._found()), None)
        return self.store.newest_conversation()

    def _neighbour_of(self, conversation_id: int) -> Conversation | None:
        """Return the conversation below, or else above, the given one."""
        if self.place is Place.BIN and not self.query:
            return self._newest()
        return self.rows.chat_near(conversation_id)

    def _open_or_new(self, conversation: Conversation | None) -> None:
        if conversation:
            self.chat.open(conversation.id)
        else:
            self.chat.start_new()
