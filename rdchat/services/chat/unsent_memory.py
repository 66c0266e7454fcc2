"""Typed texts that were neither sent nor saved, and the messages that wait to be sent."""

from contextlib import suppress
from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError

_WAIT_MS = 500
"""Until typed text is stored, also while the person types on."""


@dataclass(frozen=True, slots=True, eq=False)
class WaitingMessage:
    """A message that is sent as soon as the engine is free; each file comes with its text."""

    chat: int
    text: str
    files: tuple[tuple[AttachedFile, str], ...] = ()


class UnsentMemory(QObject):
    """Texts by chat and message, stored half a second after they were typed, and the queue of waiting messages.

    A waiting message is stored at once, in front of the text that is typed in its chat: after a crash or a quit it is
    in the message field again, without its files. So is a text that was pasted as a file. A text that cannot be stored
    is kept until the app ends, without a notice: it is still where it was typed.

    Args:
        stored: Stores the texts; None has them end with the app.
        parent: The Qt parent.

    Attributes:
        waiting: The messages to send, of all chats, oldest first.
    """

    waiting_changed = Signal()

    def __init__(self, stored: ConversationStore | None = None, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._stored = stored
        self.waiting: list[WaitingMessage] = []
        # By chat and message, where the store has other texts.
        self._texts: dict[tuple[int | None, int | None], str] = {}
        # Those of them that are not stored yet.
        self._changed: set[tuple[int | None, int | None]] = set()
        # Texts that are files of the unsent message, by chat.
        self._pasted: dict[int | None, tuple[str, ...]] = {}
        self._timer = QTimer(self, singleShot=True, interval=_WAIT_MS)
        self._timer.timeout.connect(self.store)

    def text(self, conversation_id: int | None, message_id: int | None = None) -> str:
        """Return the text in the message field of a chat, or in the editor of a message; empty for none."""
        key = conversation_id, message_id
        if key not in self._texts and self._stored is not None:
            with suppress(StorageError):
                return self._stored.unsent_text(*key)
        return self._texts.get(key, "")

    def save(self, conversation_id: int | None, message_id: int | None, text: str) -> None:
        """Take the text that is typed there now, to be stored soon; an empty one is removed."""
        if text != self.text(conversation_id, message_id):
            self._take(conversation_id, message_id, text)

    def save_pasted(self, conversation_id: int | None, texts: tuple[str, ...]) -> None:
        """Store these before the text that is typed in a chat, soon; they are not part of its `text`."""
        if texts != self._pasted.get(conversation_id, ()):
            self._take(conversation_id, None, self.text(conversation_id))
            self._pasted[conversation_id] = texts

    def _take(self, conversation_id: int | None, message_id: int | None, text: str) -> None:
        self._texts[conversation_id, message_id] = text
        self._changed.add((conversation_id, message_id))
        if not self._timer.isActive():
            self._timer.start()

    def wait(self, message: WaitingMessage) -> None:
        """Add a message to the end of the queue, and store it."""
        self._texts[message.chat, None] = self.text(message.chat)
        self.waiting.append(message)
        self._end_change(message)

    def take_back(self, message: WaitingMessage) -> None:
        """Put a waiting message before the text that is typed in its chat."""
        typed = self.text(message.chat).strip()
        self.save(message.chat, None, "\n\n".join(text for text in (message.text, typed) if text))
        self.end_wait(message)

    def end_wait(self, message: WaitingMessage) -> None:
        """Take a message out of the queue: it was sent, taken back or removed."""
        self.waiting.remove(message)
        self._end_change(message)

    def _end_change(self, message: WaitingMessage) -> None:
        self._changed.add((message.chat, None))
        self.store()
        self.waiting_changed.emit()

    def waiting_in(self, conversation_id: int | None) -> list[WaitingMessage]:
        """Return the waiting messages of one chat."""
        return [message for message in self.waiting if message.chat == conversation_id]

    def store(self) -> None:
        """Store the changes now; the next change tries again what fails."""
        self._timer.stop()
        if self._stored is None:
            return
        for key in list(self._changed):
            before = [message.text for message in self.waiting_in(key[0])] if key[1] is None else []
            before += self._pasted.get(key[0], ()) if key[1] is None else ()
            with suppress(StorageError):
                self._stored.save_unsent_text(*key, "\n\n".join(text for text in (*before, self._texts[key]) if text))
                self._changed.remove(key)
                if not before:
                    del self._texts[key]

    def begin_anew(self, typed: str) -> None:
        """Forget all texts after the store was replaced, except the one that is typed for a new chat."""
        typed = typed or self._texts.get((None, None), "")
        self._texts, self._changed, self._pasted, self.waiting = {}, set(), {}, []
        self.save(None, None, typed or self.text(None))
        self.waiting_changed.emit()
