"""The rows of the sidebar: chats, the archive, the bin, or the result of a search."""

import time
from collections.abc import Sequence

from rdchat.chat.conversation import Conversation
from rdchat.chat.listing import ChatRow, ChatRows, FolderRow, Listing, chats_listing
from rdchat.chat.storage.search_reader import SearchAnswer, SearchQuery
from rdchat.chat.store import ConversationStore
from rdchat.services.order.chat_order import ChatOrder, Place


class ConversationList:
    """Methods that reach the store raise StorageError and leave the rows as they were.

    Args:
        store: The conversations.
        order: Has the folders and the bin.
    """

    def __init__(self, store: ConversationStore, order: ChatOrder) -> None:
        self._store, self._order = store, order
        self.place = Place.CHATS  # that is listed, unless there is a query
        self.query = SearchQuery()  # empty where nothing is searched for
        self.answer: SearchAnswer | None = None  # of an earlier query until `query` is answered
        self.archived = 0  # conversations in the archive
        self.deleted = 0  # conversations and folders in the bin
        self.rows = Listing()  # conversations are read when they are shown

    def refresh(self) -> None:
        """List what the store has now."""
        self._order.refresh()
        spans = self._store.spans
        archived, deleted, folders = spans.archived(), spans.deleted(), self._order.deleted_folders()
        if self.query:
            rows = Listing(self._found())
        elif self.place is Place.ARCHIVE:
            rows = Listing(map(ChatRows, archived), spans)
        elif self.place is Place.BIN:
            rows = Listing([*(FolderRow(folder, 0, 0) for folder in folders), ChatRows(deleted)], spans)
        else:
            rows = chats_listing(spans, self._order.folders, time.time())
        self.rows = rows
        self.archived = sum(span.count for span in archived)
        self.deleted = len(folders) + deleted.count

    @property
    def shown(self) -> Sequence[Conversation]:
        """The conversations that the search leaves, newest first; without one, those that are not put away.

        All of them are read: `newest` is much faster.
        """
        if self.query:
            return [row.conversation for row in self._found()]
        return [chat for chat in self._store.conversations() if not chat.archived]

    @property
    def newest(self) -> Conversation | None:
        """The first of `shown`."""
        if self.query:
            return next((row.conversation for row in self._found()), None)
        return self._store.newest_conversation()

    @property
    def found(self) -> int:
        """How many conversations the search found."""
        return self.answer.found if self.answer is not None else 0

    def _found(self) -> list[ChatRow]:
        """Return what was found, as it is now: it may have been renamed, moved or deleted since."""
        if self.answer is None:
            return []
        now = self._store.find([hit.conversation.id for hit in self.answer.hits])
        return [
            ChatRow(chat, 0, hit.snippet, hit.messages, self._place_of(chat))
            for hit in self.answer.hits
            if (chat := now.get(hit.conversation.id)) is not None
        ]

    def _place_of(self, chat: Conversation) -> str:
        if chat.archived:
            return "Archive"
        folder = self._order.folder(chat.folder_id)
        return folder.name if folder else ""

    def neighbour_of(self, conversation_id: int) -> Conversation | None:
        """Return the conversation below, or else above, the given one."""
        if self.place is Place.BIN and not self.query:
            return self.newest
        return self.rows.chat_near(conversation_id)
