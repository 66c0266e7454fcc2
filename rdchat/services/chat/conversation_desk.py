"""Conversations as the window commands them; no engine is needed for any of it."""

from collections.abc import Sequence, Set

from PySide6.QtCore import QObject, Signal

from rdchat.chat.conversation import Conversation
from rdchat.chat.store import ConversationStore
from rdchat.inference.api.requests import SamplingParams
from rdchat.services.chat.conversation_list import ConversationList
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.storage_watch import StorageWatch


class ConversationDesk(QObject):
    """Lists, opens, renames, deletes and searches conversations, and keeps the open one's own options.

    Args:
        store: The conversations.
        chat: The open conversation; who adds messages to it has it too.
        storage: Stands around every command, and tells of those that fail.
        parent: The Qt parent.
    """

    conversations_changed = Signal()
    conversation_opened = Signal()
    conversation_removed = Signal(int)  # its id, before another one is opened in its place
    conversation_deleted = Signal(Conversation)

    def __init__(
        self, store: ConversationStore, chat: OpenChat, storage: StorageWatch, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._store, self._chat, self._storage = store, chat, storage
        self._list = ConversationList(store)

    def conversations(self) -> list[Conversation]:
        """The conversations that the search leaves, newest first."""
        return list(self._list.shown)

    @property
    def conversation(self) -> Conversation | None:
        """The open conversation; None for a new chat that has no message yet."""
        return self._chat.conversation

    @property
    def chat_system_prompt(self) -> str | None:
        """The open chat's own system prompt; None where it takes the one of the preferences."""
        return self._chat.system_prompt

    @property
    def chat_sampling(self) -> SamplingParams | None:
        """The open chat's own sampling; None where it takes the one of the preferences."""
        return self._chat.sampling

    def new_chat(self) -> None:
        self._chat.start_new()
        self.conversation_opened.emit()

    def open_conversation(self, conversation_id: int) -> None:
        with self._storage.reading():
            self._chat.open(conversation_id)
            self.conversation_opened.emit()

    def rename_conversation(self, conversation_id: int, title: str) -> None:
        """Give a conversation another title; a blank one leaves it as it is."""
        with self._storage.writing():
            self._chat.update(self._store.rename_conversation(conversation_id, title))
        self.refresh()

    def delete_conversation(self, conversation_id: int) -> None:
        """Delete a conversation, until `undo_delete`; where it was open, its neighbour in the list is opened."""
        with self._storage.writing():
            neighbour = self._list.neighbour_of(conversation_id)
            deleted = self._list.delete(conversation_id)
            self.conversation_removed.emit(conversation_id)
            self.refresh()
            if self._chat.is_open(conversation_id):
                self._open_or_new(neighbour)
            self.conversation_deleted.emit(deleted)

    def undo_delete(self) -> None:
        """Bring back the conversation that was deleted last, and open it."""
        with self._storage.writing():
            if restored := self._list.restore_last():
                self.refresh()
                self.open_conversation(restored.id)

    def search(self, text: str) -> None:
        """List only the conversations that have these words."""
        self._list.search = text
        self.refresh()

    def set_chat_options(self, system_prompt: str | None, sampling: SamplingParams | None) -> None:
        """Give the open chat its own system prompt and sampling; None takes those of the preferences."""
        stored = self.conversation is not None
        with self._storage.writing() if stored else self._storage.reading():
            self._chat.set_options(system_prompt, sampling)

    def title_of(self, conversation_id: int) -> str:
        """Return the title of a conversation that is listed or open, without the store; others are "A chat"."""
        known = [*self._list.shown, *([self.conversation] if self.conversation else [])]
        return next((chat.title for chat in known if chat.id == conversation_id), "A chat")

    def open_latest(self) -> None:
        """List the conversations and open the newest one, or a new one where there is none."""
        self.refresh()
        self._open_or_new(next(iter(self._list.shown), None))

    def begin_anew(self) -> None:
        """List what the store has after it was replaced, and open the newest."""
        if self.conversation is not None:
            self.conversation_removed.emit(self.conversation.id)
        self._list.forget_deleted()
        self._chat.start_new()
        self.open_latest()

    def drop(self, conversation_ids: Sequence[int], being_written: Set[int]) -> None:
        """Take conversations that were deleted behind the desk off the list; where one was open, open the newest.

        Args:
            conversation_ids: Perhaps thousands: only what is open or being written is told as removed.
            being_written: Conversations with a reply that has not ended.
        """
        is_open = {self.conversation.id} if self.conversation is not None else set()
        for each in set(conversation_ids) & (being_written | is_open):
            self.conversation_removed.emit(each)
        self.refresh()
        if is_open & set(conversation_ids):
            self._open_or_new(next(iter(self._list.shown), None))

    def refresh(self) -> None:
        """List the conversations anew."""
        with self._storage.reading():
            self._list.refresh()
        self.conversations_changed.emit()

    def _open_or_new(self, conversation: Conversation | None) -> None:
        if conversation:
            self.open_conversation(conversation.id)
        else:
            self.new_chat()
