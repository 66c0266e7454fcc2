"""The conversations as the sidebar lists them."""

from rdchat.chat.conversation import Conversation
from rdchat.chat.store import ConversationStore


class ConversationList:
    """What a search leaves, newest first, and the way back for the conversation that was deleted last.

    Methods that reach the store raise StorageError and leave the list as it was.

    Attributes:
        shown: The conversations, as they were at the last `refresh`.
        search: Words that each of them has; empty for all.
    """

    def __init__(self, store: ConversationStore) -> None:
        self._store = store
        self._last_deleted: int | None = None
        self.shown: list[Conversation] = []
        self.search = ""

    def refresh(self) -> None:
        self.shown = self._store.conversations(self.search)

    def delete(self, conversation_id: int) -> Conversation:
        """Delete a conversation, until `restore_last`; return it."""
        conversation = self._store.conversation(conversation_id)
        self._store.delete_conversation(conversation_id)
        self._last_deleted = conversation_id
        return conversation

    def restore_last(self) -> Conversation | None:
        """Bring back the conversation that was deleted last; None if there is none."""
        if self._last_deleted is None:
            return None
        restored = self._store.restore_conversation(self._last_deleted)
        self._last_deleted = None
        return restored

    def forget_deleted(self) -> None:
        """Let the conversation that was deleted last be: the store is another one now."""
        self._last_deleted = None

    def neighbour_of(self, conversation_id: int) -> Conversation | None:
        """Return the conversation below, or else above, the given one."""
        ids = [conversation.id for conversation in self.shown]
        others = [conversation for conversation in self.shown if conversation.id != conversation_id]
        place = ids.index(conversation_id) if conversation_id in ids else 0
        return others[min(place, len(others) - 1)] if others else None
