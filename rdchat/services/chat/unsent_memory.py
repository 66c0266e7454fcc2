"""Remembers texts that were typed and neither sent nor saved, across restarts."""

from PySide6.QtCore import QObject, QTimer

from rdchat.chat.storage.reader_notes import UnsentTexts
from rdchat.errors import StorageError

_WAIT_MS = 500  # after which what is typed is stored, also while the person types on

_Place = tuple[int | None, int | None]


class UnsentMemory(QObject):
    """Texts by chat and message.

    One that cannot be stored is kept until the app ends, without a notice: it is still where it was typed.

    Args:
        stored: Outlasts the app; None keeps them until then.
        parent: The Qt parent.
    """

    def __init__(self, stored: UnsentTexts | None = None, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._stored = stored
        self._texts: dict[_Place, str] = {}
        self._read: set[int | None] = set()  # chats
        self._changed: set[_Place] = set()
        self._timer = QTimer(self, singleShot=True, interval=_WAIT_MS)
        self._timer.timeout.connect(self.store)

    def text(self, conversation_id: int | None, message_id: int | None = None) -> str:
        """Return the text in the message field of a chat, or in the editor of a message; empty for none."""
        self._read_chat(conversation_id)
        return self._texts.get((conversation_id, message_id), "")

    def keep(self, conversation_id: int | None, message_id: int | None, text: str) -> None:
        """Take the text that is typed there now, to be stored soon; an empty one is removed."""
        if text != self.text(conversation_id, message_id):
            self._texts[conversation_id, message_id] = text
            self._changed.add((conversation_id, message_id))
            if not self._timer.isActive():
                self._timer.start()

    def store(self) -> None:
        """Store the changes now."""
        self._timer.stop()
        changed, self._changed = self._changed, set()
        if self._stored is None:
            return
        for place in changed:
            try:
                self._stored.keep(*place, self._texts[place])
            except StorageError:
                self._changed.add(place)  # the next change tries it again

    def begin_anew(self, typed: str) -> None:
        """Forget all texts, as the store is another one now, but keep what is typed for a new chat."""
        typed = typed or self._texts.get((None, None), "")
        self._texts, self._read, self._changed = {}, set(), set()
        self.keep(None, None, typed or self.text(None))

    def _read_chat(self, conversation_id: int | None) -> None:
        if self._stored is None or conversation_id in self._read:
            return
        try:
            texts = self._stored.of_chat(conversation_id)
        except StorageError:
            return
        self._read.add(conversation_id)
        for message_id, text in texts.items():
            self._texts.setdefault((conversation_id, message_id), text)
