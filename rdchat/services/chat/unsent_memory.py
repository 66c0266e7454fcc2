"""Keeps what was typed and not sent: texts with their files, and the messages that wait for the engine.

A text is typed in the message field of a chat or in the editor of one of its messages. `UnsentMemory` has the newest
state of each, and stores it soon after. For a message field the store has one text: the waiting messages of the chat,
with what is typed behind them.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.conversation import Origin
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError

_WAIT_MS = 500
"""Until typed text is stored, also while the person types on."""
# Letters of a piece of a text, by which words of others are found in what is sent, and of what is looked at.
_PIECE = 12
_LONGEST = 100_000
# Characters of the files that are stored with one message; 30 MB of images have so many.
_MAX_STORED = 40_000_000
_TOO_LARGE = "Files beyond 30 MB are not kept if rdchat quits before the message is sent."
# Each file comes with its text.
type _Files = tuple[tuple[AttachedFile, str], ...]
# Ids of a chat, None for a new one, and of the message that is edited, None for the chat's message field.
type _Key = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True, eq=False)
class WaitingMessage:
    """A message that is sent as soon as the engine is free."""

    chat: int
    text: str
    files: _Files = ()


class UnsentMemory(QObject):
    """Typed texts and the files of message fields, and the queue of waiting messages.

    Texts and files are stored half a second after they were typed or attached, a waiting message at once: after a crash
    or a quit its text is in its chat's message field again. What cannot be stored is kept until the app ends, without a
    notice: it is still where it was typed.

    Args:
        stored: Stores the texts; with None they end with the app.
        parent: The Qt parent.

    Attributes:
        waiting: The messages to send, of all chats, oldest first.
    """

    waiting_changed = Signal()
    # What becomes of files that are too large to be stored, a sentence.
    files_exceeded = Signal(str)

    def __init__(self, stored: ConversationStore | None = None, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._stored = stored
        self.waiting: list[WaitingMessage] = []
        # The typed texts of which the store has another version: an older one, or one with waiting messages before it.
        self._texts: dict[_Key, str] = {}
        # Of the links and pastes of this run, where they are from, by the hashes of their pieces.
        self._origins: dict[int, Origin] = {}
        # Those of the texts that have to be stored.
        self._changed: set[_Key] = set()
        # By chat: the files in the message field, and what is stored for it, with files of waiting messages.
        self._files: dict[int | None, _Files] = {}
        self._stored_files: dict[int | None, _Files] = {}
        self._timer = QTimer(self, singleShot=True, interval=_WAIT_MS)
        self._timer.timeout.connect(self.store)

    def unsent_text(self, conversation_id: int | None, message_id: int | None = None) -> str:
        """Return the text in the message field of a chat, or in the editor of a message; empty for none."""
        key = conversation_id, message_id
        if key not in self._texts and self._stored is not None:
            with suppress(StorageError):
                text = self._stored.unsent_text(*key)
                # After a start, nobody knows which of its words are others'.
                origin = self._stored.unsent_origin(*key)
                if origin and not self.origin_of(text):
                    self.note_origin(text, origin)
                return text
        return self._texts.get(key, "")

    def save_text(self, conversation_id: int | None, message_id: int | None, text: str) -> None:
        """Take the text that is typed there now, to be stored soon; an empty one is removed."""
        if text != self.unsent_text(conversation_id, message_id):
            self._take((conversation_id, message_id), text)

    def note_origin(self, text: str, origin: Origin = Origin.PASTE) -> None:
        """Remember that the words of a text, which a field has or gets, are not the person's own."""
        self._origins |= dict.fromkeys(_pieces(text, _PIECE), origin)

    def origin_of(self, text: str) -> Origin | None:
        """Return where a text is from, of which some words may be those of a link or paste; None for the person."""
        return next(filter(None, map(self._origins.get, _pieces(text, 1))), None)

    def take_files(self, conversation_id: int | None) -> _Files:
        """Return the files that an earlier run stored for the message field of a chat; nothing the next time."""
        if conversation_id in self._files or self._stored is None:
            return ()
        files: _Files = ()
        with suppress(StorageError):
            files = self._stored.unsent_files(conversation_id)
            self._files[conversation_id] = files
            self._stored_files[conversation_id] = files
        return files

    def save_files(self, conversation_id: int | None, files: _Files) -> None:
        """Take the files that are in the message field of a chat now, to be stored soon."""
        before = self._files.get(conversation_id, ())
        if files != before:
            # `store` goes by texts, so the text counts as changed with its files.
            self._take((conversation_id, None), self.unsent_text(conversation_id))
            self._files[conversation_id] = files
            if _size(before) <= _MAX_STORED < _size(files):
                self.files_exceeded.emit(_TOO_LARGE)

    def _take(self, key: _Key, text: str) -> None:
        """Have a text, and the files of its message field, stored soon."""
        self._texts[key] = text
        self._changed.add(key)
        if not self._timer.isActive():
            self._timer.start()

    def queue_message(self, message: WaitingMessage) -> None:
        """Add a message to the end of the queue, and store it."""
        # From now on the store has the message before the typed text.
        self._texts[message.chat, None] = self.unsent_text(message.chat)
        self.waiting.append(message)
        self._store_queue(message)

    def take_back(self, message: WaitingMessage) -> None:
        """Put a waiting message before the text that is typed in its chat."""
        typed = self.unsent_text(message.chat).strip()
        self.save_text(message.chat, None, "\n\n".join(text for text in (message.text, typed) if text))
        self.end_wait(message)

    def end_wait(self, message: WaitingMessage) -> None:
        """Take a message out of the queue: it was sent, taken back or removed."""
        self.waiting.remove(message)
        self._store_queue(message)

    def _store_queue(self, message: WaitingMessage) -> None:
        """Store the messages that wait in a message's chat now."""
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
        # A text that moves from the field of new chats to its chat is there before it goes here, in case of a crash.
        for chat, message_id in sorted(self._changed, key=lambda key: key == (None, None)):
            waiting = self.waiting_in(chat) if message_id is None else []
            texts = [*(message.text for message in waiting), self._texts[chat, message_id]]
            with suppress(StorageError):
                text = "\n\n".join(filter(None, texts))
                self._stored.save_unsent_text(chat, message_id, text, self.origin_of(text))
                self._changed.remove((chat, message_id))
                if not waiting:
                    # The store has the same text now.
                    del self._texts[chat, message_id]
            # The store takes files without waiting, so this raises no StorageError.
            if message_id is None:
                self._store_files(self._stored, chat, waiting)

    def _store_files(self, store: ConversationStore, chat: int | None, waiting: list[WaitingMessage]) -> None:
        """Store the files of a chat's waiting messages and message field, in this order.

        Each is stored if it and all before it are within `_MAX_STORED`.
        """
        files = tuple(file for message in waiting for file in message.files) + self._files.get(chat, ())
        if files != self._stored_files.get(chat, ()):
            store.save_unsent_files(chat, [each for n, each in enumerate(files, 1) if _size(files[:n]) <= _MAX_STORED])
            self._stored_files[chat] = files

    def forget_chat(self, conversation_id: int) -> None:
        """Forget all texts and files of a chat that is gone, and its waiting messages."""
        self.waiting = [message for message in self.waiting if message.chat != conversation_id]
        self._texts = {key: text for key, text in self._texts.items() if key[0] != conversation_id}
        self._changed &= self._texts.keys()
        self._files.pop(conversation_id, None)
        self._stored_files.pop(conversation_id, None)
        self.waiting_changed.emit()

    def hold_text(self, conversation_id: int | None) -> None:
        """Have the typed text of a chat, and that for a new chat, in memory, before the store is replaced."""
        for key in ((conversation_id, None), (None, None)):
            self._texts[key] = self.unsent_text(*key)

    def begin_anew(self, typed: str) -> list[tuple[AttachedFile, str]]:
        """Forget all texts after the store was replaced, except the one for a new chat, and return its files.

        It has the messages that waited in any chat, and behind them `typed`, that of the chat that was open. Where
        `typed` is empty, the text of the field for new chats follows, or else the one that the new store has.
        """
        waiting = self.waiting
        self.waiting = []
        typed = typed or self._texts.get((None, None), "")
        self._texts.clear()
        self._changed.clear()
        self._files.clear()
        self._stored_files.clear()
        texts = [*(message.text for message in waiting), typed or self.unsent_text(None)]
        self.save_text(None, None, "\n\n".join(filter(None, texts)))
        self.waiting_changed.emit()
        return [file for message in waiting for file in message.files]


def _pieces(text: str, step: int) -> Iterator[int]:
    """Yield the hash of a piece of a text from each `step`-th letter or digit on; other characters do not count.

    A message field makes line ends, blanks or nothing of some of them.
    """
    words = re.sub(r"\W+", "", text[:_LONGEST])
    for start in range(0, max(len(words) - _PIECE + 1, bool(words)), step):
        yield hash(words[start : start + _PIECE])


def _size(files: _Files) -> int:
    return sum(file.characters for file, _ in files)
