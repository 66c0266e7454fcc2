"""Remembers texts that were typed and neither sent nor saved, across restarts."""

from contextlib import suppress

from PySide6.QtCore import QObject, QTimer

from rdchat.chat.storage.reader_notes import UnsentTexts
from rdchat.errors import StorageError

_WAIT_MS = 500  # until typed text is stored, also while the person types on


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
        self._texts: dict[int | None, dict[int | None, str]] = {}  # of the chats that were read, by message
        self._changed: set[tuple[int | None, int | None]] = set()
        self._timer = QTimer(self, singleShot=True, interval=_WAIT_MS)
        self._timer.timeout.connect(self.store)

    def text(self, conversation_id: int | None, message_id: int | None = None) -> str:
        """Return the text in the message field of a chat, or in the editor of a message; empty for none."""
        return self._of_chat(conversation_id).get(message_id, "")

    def keep(self, conversation_id: int | None, message_id: int | None, text: str) -> None:
        """Take the text that is typed there now, to be stored soon; an empty one is removed."""
        if text != self.text(conversation_id, message_id):
            self._of_chat(conversation_id)[message_id] = text
            self._changed.add((conversation_id, message_id))
            if not self._timer.isActive():
                self._timer.start()

    def store(self) -> None:
        """Store the changes now."""
        self._timer.stop()
        if self._stored is None:
            return
        changed, self._changed = self._changed, set()
        for place in changed:
            try:
                self._stored.keep(*place, self.text(*place))
            except StorageError:
                self._changed.add(place)  # the next change tries it again

    def begin_anew(self, typed: str) -> None:
        """Forget all texts after the store was replaced, but keep the one that is typed for a new chat."""
        typed = typed or self._texts.get(None, {}).get(None, "")
        self._texts, self._changed = {}, set()
        self.keep(None, None, typed or self.text(None))

    def _of_chat(self, conversation_id: int | None) -> dict[int | None, str]:
        if conversation_id not in self._texts:
            self._texts[conversation_id] = {}
            if self._stored is not None:
                with suppress(StorageError):
                    self._texts[conversation_id] = self._stored.of_chat(conversation_id)
        return self._texts[conversation_id]
