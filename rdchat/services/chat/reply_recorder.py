"""Stores replies while they are written."""

import logging
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from PySide6.QtCore import QObject, Qt, QTimer

from rdchat.chat.conversation import (
    Conversation,
    Message,
    MessageStatus,
    Notice,
    Thinking,
)
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError
from rdchat.inference.api.events import TokenEvent
from rdchat.services.chat.chat_prompt import ChatPrompt
from rdchat.services.chat.reply import Reply
from rdchat.services.storage_watch import StorageWatch

_LOG = logging.getLogger(__name__)
# A crash may lose half a second of text, and a busy machine is late.
_SAVE_AFTER_S = 0.3
_RETRY_INTERVAL_MS = 1000


class ReplyRecorder(QObject):
    """Stores the text of replies within half a second, and tries again if it cannot be stored.

    Args:
        store: The conversations.
        storage: Reports that the text cannot be stored, and when it can be again.
        parent: The Qt parent.

    Attributes:
        clock: Returns seconds, as in `ReplyProgress.written_at`.
        held: Replies whose latest text is not stored, oldest first.
        trouble: Why they cannot be stored; None while they can.
    """

    def __init__(self, store: ConversationStore, storage: StorageWatch, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._storage = storage
        self.clock = time.monotonic
        self.held: list[Reply] = []
        self.trouble: Notice | None = None
        self._closed = False
        self._timer = QTimer(self, singleShot=True, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self.save)

    @property
    def live(self) -> list[Reply]:
        """The replies that have not ended, oldest first."""
        return [reply for reply in self.held if not reply.ended]

    @property
    def unsaved(self) -> list[Reply]:
        """The replies with text that the store does not have, oldest first."""
        return [reply for reply in self.held if reply.missing]

    def read_titles(self) -> None:
        """Read the titles of unsaved chats, which may have been renamed since; where that fails the old ones stay."""
        for reply in self.unsaved:
            with suppress(StorageError):
                chat = self._store.conversation(reply.message.conversation_id)
                reply.conversation = replace(reply.conversation, title=chat.title)

    def completed(self, message: Message) -> Message:
        """Return a stored message with the text that the store does not have yet."""
        unsaved = (reply.message for reply in reversed(self.held) if reply.message.id == message.id)
        return next(unsaved, message).with_siblings_of(message)

    def begin(self, message: Message, prompt: ChatPrompt, conversation: Conversation) -> Reply:
        """Return a reply, to be stored from now on, that continues the text that a message has."""
        saved_text = message.text
        if not saved_text.strip():
            message = replace(message, text="", control_offsets=(), thinking=Thinking(paired=True))
        message = replace(message, thinking=replace(message.thinking, parts=message.parts.parts))
        reply = Reply(message, prompt, conversation, len(message.text), saved_text=saved_text)
        self.held.append(reply)
        return reply

    def keep(self, message_id: int, stored: Message, conversation: Conversation) -> None:
        """Go on with a reply that was in no chat, if it is being written, as a message that was stored since."""
        for reply in (each for each in self.held if each.message.id == message_id):
            # The sampling of a reply that is being written is not stored yet.
            reply.message = replace(stored, made_with=reply.message.made_with)
            reply.conversation = conversation
            reply.saved_text = stored.text

    def add(self, reply: Reply, tokens: Sequence[TokenEvent], written_at: float | None = None) -> None:
        """Append what was written from `written_at` on, by default just now; it is stored soon."""
        reply.writing = True
        pieces = [piece for token in tokens for piece in token.pieces]
        written = reply.held + "".join(token.text for token in tokens)
        reply.held = written[sum(len(piece.text) for piece in pieces) :]
        if not pieces:
            return
        at = self.clock() if written_at is None else written_at
        reply.grow(pieces, at)
        if reply.unsaved_since is None:
            reply.unsaved_since = at
        left_s = reply.unsaved_since + _SAVE_AFTER_S - self.clock()
        if self.trouble is not None:
            return
        if left_s <= 0:  # A busy event loop may hold the timer up, but not while text comes in.
            self.save()
        elif not self._timer.isActive():
            self._timer.start(math.ceil(left_s * 1000))

    def save(self) -> bool:
        """Bring the store up to date, or try again later; return whether it has all texts."""
        try:
            self.flush()
        except StorageError as error:
            self._on_failure(error)
        return not self.unsaved

    def flush(self) -> None:
        """Bring the store up to date, or raise StorageError."""
        for reply in self.held[:]:
            self._save(reply)
            if reply.ended:
                self.held.remove(reply)
        self._timer.stop()
        if self.trouble is not None:
            self.trouble = None
            self._storage.recovered.emit()

    def _save(self, reply: Reply) -> None:
        message = reply.message
        if not message.conversation_id:
            pass
        elif reply.ended:
            self._store.finish_message(message)
        elif message.text != reply.saved_text:
            self._store.save_text(message.id, message.text, message.thinking)
        reply.saved_text = message.text
        reply.unsaved_since = None

    def close(self) -> None:
        """End open replies as interrupted and save for the last time."""
        self._closed = True
        self._timer.stop()
        for reply in self.live:
            reply.break_off(MessageStatus.INTERRUPTED)
        self.save()
        if self.held:
            _LOG.error("%d replies could not be saved", len(self.held))

    def _on_failure(self, error: StorageError) -> None:
        is_new = self.trouble is None
        self.trouble = Notice(error.message, error.hint)
        if not self._closed:
            self._timer.start(_RETRY_INTERVAL_MS)
        if is_new:
            self._storage.failed.emit(self.trouble)
