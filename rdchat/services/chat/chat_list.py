"""The list of conversations, and what is done to them as a whole: renaming, deleting, searching."""

from collections.abc import Sequence, Set
from contextlib import suppress

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.conversation import Conversation
from rdchat.chat.storage.search_reader import SearchAnswer, SearchQuery
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError
from rdchat.services.chat.conversation_list import ConversationList
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.storage_watch import StorageWatch
from rdchat.services.order.chat_order import ChatOrder, Place, named
from rdchat.services.order.chat_search import ChatSearch


class ChatList(QObject):
    """Lists, renames, deletes and searches conversations; another one is opened where the open one goes.

    Args:
        store: The conversations.
        chat: The open one.
        storage: Stands around every command, and tells of those that fail.
        parent: The Qt parent.
    """

    conversations_changed = Signal()
    conversation_removed = Signal(int)  # its id, before another one is opened in its place
    store_replaced = Signal()  # an id is another chat's from now on

    def __init__(
        self, store: ConversationStore, chat: OpenChat, storage: StorageWatch, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._store, self._storage = store, storage
        self.chat = chat
        self.order = ChatOrder(store, storage, self)  # pins, folders, the archive, the bin, and undoing
        self.finder = ChatSearch(store.path, self)
        self.listing = ConversationList(store, self.order)  # what the sidebar shows
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
        """End what goes on behind the window."""
        self.finder.close()
        self.order.close()
        self.chat.unsent.store()

    def conversations(self) -> Sequence[Conversation]:
        """The conversations that the search leaves, newest first; all of them are read. Raises StorageError."""
        return self.listing.shown

    def find(self, conversation_id: int) -> Conversation | None:
        """Return a conversation that is listed or in the archive; None where there is none, or it cannot be read."""
        found: dict[int, Conversation] = {}
        with self._storage.reading():
            found = self._store.find([conversation_id])
        return found.get(conversation_id)

    def rename_conversation(self, conversation_id: int, title: str) -> None:
        """Give a conversation another title; a blank one leaves it as it is."""
        with self._storage.writing():
            before = self._store.conversation(conversation_id).title
            self.chat.update(self._store.rename_conversation(conversation_id, title))
            self.order.history.add(
                f"Rename {named(before)}",
                lambda: self.chat.update(self._store.rename_conversation(conversation_id, before)),
            )
        self.refresh()

    def delete_conversation(self, conversation_id: int) -> None:
        """Put a conversation into the bin; where it was open, its neighbour in the list is opened."""
        with self._storage.writing():
            neighbour = self.listing.neighbour_of(conversation_id)
            deleted = self._store.conversation(conversation_id)
            self._store.delete_conversation(conversation_id)
            self.order.history.add(f"Delete {named(deleted.title)}", lambda: self._bring_back(conversation_id))
            self.conversation_removed.emit(conversation_id)
            self.refresh()
            if self.chat.is_open(conversation_id):
                self._open_or_new(neighbour)
            self.order.offered_undo.emit(f"Deleted {named(deleted.title)}")

    def archive_conversation(self, conversation_id: int) -> None:
        """Put a conversation into the archive; where it was open, its neighbour in the list is opened."""
        with self._storage.reading():
            neighbour = self.listing.neighbour_of(conversation_id)
            self.order.set_archived(self._store.conversation(conversation_id), archived=True)
            if self.chat.is_open(conversation_id):
                self._open_or_new(neighbour)

    def undo(self) -> None:
        """Take back what was done last to the list of conversations."""
        with self._storage.writing():
            self.order.history.undo()
        self.refresh()
        with self._storage.reading():
            chat = self.chat.conversation
            if chat is not None and not self._store.find([chat.id]):  # it was a copy, or a branch
                self.conversation_removed.emit(chat.id)
                self._open_newest()

    def _bring_back(self, conversation_id: int) -> None:
        self._store.restore_conversation(conversation_id)
        self.chat.open(conversation_id)

    def show(self, place: Place) -> None:
        """List the chats, the archive or the bin."""
        self.listing.place = place
        self.refresh()

    def search(self, query: SearchQuery | str) -> None:
        """List only what is found, as soon as it is; an empty query lists everything."""
        self.listing.query = SearchQuery(query) if isinstance(query, str) else query
        if not self.listing.query:
            self.listing.answer = None
        self.refresh()

    @Slot(SearchAnswer)
    def _on_answered(self, answer: SearchAnswer) -> None:
        if answer.query == self.listing.query:
            self.listing.answer = answer
            with self._storage.reading():
                self.listing.refresh()
            self.conversations_changed.emit()

    @Slot(str)
    def _on_search_failed(self, why: str) -> None:
        self._storage.report(StorageError(f"The chats could not be searched: {why}.", "Search again."))

    def title_of(self, conversation_id: int) -> str:
        """Return the title of a conversation that is listed or open; "A chat" where the store cannot be read."""
        if self.chat.conversation is not None and self.chat.conversation.id == conversation_id:
            return self.chat.conversation.title
        with suppress(StorageError):
            return self._store.conversation(conversation_id).title
        return "A chat"

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

    def drop(self, conversation_ids: Sequence[int], being_written: Set[int]) -> None:
        """Take conversations that were deleted elsewhere off the list; where one was open, open the newest.

        Args:
            conversation_ids: Perhaps thousands; `conversation_removed` names only those that are open or being written.
            being_written: Conversations with a reply that has not ended.
        """
        is_open = {self.chat.conversation.id} if self.chat.conversation is not None else set()
        for each in set(conversation_ids) & (being_written | is_open):
            self.conversation_removed.emit(each)
        self.refresh()
        if is_open & set(conversation_ids):
            self._open_newest()

    def refresh(self) -> None:
        """List the conversations anew."""
        with self._storage.reading():
            self.listing.refresh()
            if (chat := self.chat.conversation) is not None:  # it may have been pinned, moved or titled meanwhile
                for changed in self._store.find([chat.id]).values():
                    self.chat.update(changed)
        if self.listing.query:
            self.finder.ask(self.listing.query)
        self.conversations_changed.emit()

    def _open_newest(self) -> None:
        newest: Conversation | None = None
        with self._storage.reading():
            newest = self.listing.newest
        self._open_or_new(newest)

    def _open_or_new(self, conversation: Conversation | None) -> None:
        if conversation:
            self.chat.open(conversation.id)
        else:
            self.chat.start_new()
