"""The conversations as the sidebar lists them."""

import time
from collections.abc import Sequence

from rdchat.chat.conversation import Conversation
from rdchat.chat.listing import ChatRow, FolderRow, Row, rows_of
from rdchat.chat.storage.search_reader import SearchAnswer, SearchQuery
from rdchat.chat.store import ConversationStore
from rdchat.services.order.chat_order import ChatOrder, Place


class ConversationList:
    """What is listed: the chats, the archive, the bin, or what a search found.

    Methods that reach the store raise StorageError and leave the list as it was.

    Args:
        store: The conversations.
        order: Has the folders and the bin.

    Attributes:
        place: Which conversations are listed, unless there is a query.
        query: What is looked for; empty where nothing is.
        answer: What was found; of an earlier query until `query` is answered.
        archived: How many conversations the archive has.
        deleted: How many conversations and folders the bin has.
    """

    def __init__(self, store: ConversationStore, order: ChatOrder) -> None:
        self._store, self._order = store, order
        self._all: list[Conversation] = []  # but those in the bin
        self._bin: list[Row] = []
        self.place, self.query = Place.CHATS, SearchQuery()
        self.answer: SearchAnswer | None = None
        self.archived = self.deleted = 0

    def refresh(self) -> None:
        self._all = self._store.conversations()
        self._order.refresh()
        folders = [FolderRow(folder, 0, 0) for folder in self._order.deleted_folders()]
        self._bin = [*folders, *map(ChatRow, self._order.deleted())]
        self.archived = sum(chat.archived for chat in self._all)
        self.deleted = len(self._bin)

    @property
    def shown(self) -> list[Conversation]:
        """The conversations that the search leaves, newest first; without one, those that are not put away."""
        if self.query:
            return [row.conversation for row in self._found()]
        return [chat for chat in self._all if not chat.archived]

    @property
    def all(self) -> Sequence[Conversation]:
        """All conversations but those in the bin."""
        return self._all

    def rows(self) -> list[Row]:
        """Return the rows of the list."""
        if self.query:
            return list(self._found())
        if self.place is Place.ARCHIVE:
            return [ChatRow(chat) for chat in self._all if chat.archived]
        if self.place is Place.BIN:
            return list(self._bin)
        return rows_of(self.shown, self._order.folders, time.time())

    @property
    def found(self) -> int:
        """How many conversations the search found."""
        return self.answer.found if self.answer is not None else 0

    def _found(self) -> list[ChatRow]:
        """Return what was found, as it is now: it may have been renamed, moved or deleted since."""
        if self.answer is None:
            return []
        now = {chat.id: chat for chat in self._all}
        hits = [hit for hit in self.answer.hits if hit.conversation.id in now]
        return [
            ChatRow(chat, 0, hit.snippet, hit.messages, self._place_of(chat))
            for hit in hits
            for chat in [now[hit.conversation.id]]
        ]

    def _place_of(self, chat: Conversation) -> str:
        if chat.archived:
            return "Archive"
        folder = self._order.folder(chat.folder_id)
        return folder.name if folder else ""

    def neighbour_of(self, conversation_id: int) -> Conversation | None:
        """Return the conversation below, or else above, the given one."""
        listed = [row.conversation for row in self.rows() if isinstance(row, ChatRow)]
        ids = [conversation.id for conversation in listed]
        others = [conversation for conversation in listed if conversation.id != conversation_id]
        if self.place is Place.BIN and not self.query:
            return next(iter(self.shown), None)
        place = ids.index(conversation_id) if conversation_id in ids else 0
        return others[min(place, len(others) - 1)] if others else None
