"""Remembers where the person was reading in each chat, across restarts."""

from PySide6.QtCore import QObject

from rdchat.chat.storage.reader_notes import ReadingPlace
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError


class ReaderMemory(QObject):
    """Places by chat. One that cannot be stored is kept until the app ends, without a notice."""

    def __init__(self, store: ConversationStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._places = store.places
        self._known: dict[int, ReadingPlace | None] = {}

    def place(self, conversation_id: int) -> ReadingPlace | None:
        """Return the place in a chat; None for its end."""
        if conversation_id not in self._known:
            try:
                self._known[conversation_id] = self._places.find(conversation_id)
            except StorageError:
                return None
        return self._known[conversation_id]

    def begin_anew(self) -> None:
        """Forget the places: the store is another one now."""
        self._known.clear()

    def keep(self, conversation_id: int, place: ReadingPlace | None) -> None:
        """Take the place where the person is now; None for the end."""
        if place == self.place(conversation_id):
            return
        self._known[conversation_id] = place
        try:
            self._places.keep(conversation_id, place)
        except StorageError:
            return
