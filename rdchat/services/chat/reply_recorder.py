"""Keeps replies that are being written until the store has them."""

import logging
import math
import time
from dataclasses import dataclass, field, replace
from functools import partial

from PySide6.QtCore import QObject, Qt, QTimer, Slot

from rdchat.chat.conversation import (
    NEW_CHAT,
    NO_THINKING,
    Conversation,
    Drafting,
    Message,
    MessageStatus,
    Notice,
    Thinking,
)
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError
from rdchat.inference.api.events import FinishReason, ReplyEnd
from rdchat.inference.api.requests import SamplingParams
from rdchat.services.chat.chat_prompt import ChatPrompt
from rdchat.services.chat.storage_watch import StorageWatch
from rdchat.services.engine.engine_request import EngineRequest
from rdchat.thoughts import may_part

_LOG = logging.getLogger(__name__)
_SAVE_AFTER_S = 0.3  # a crash may lose half a second of text, and a busy machine is late
_RETRY_INTERVAL_MS = 1000


@dataclass(slots=True, eq=False)
class LiveReply:
    """A reply on its way into the store."""

    message: Message  # with all of its text
    begins_at: int = 0  # characters that were there before, where the reply is continued
    sampling: SamplingParams | None = None  # that it is asked for with; None for the usual one of its model
    prompt: ChatPrompt = field(default_factory=partial(ChatPrompt, (), ""))
    conversation: Conversation = NEW_CHAT  # its chat
    request: EngineRequest | None = None  # None until there is a model
    stopping: bool = False
    writing: bool = False  # the first token has come
    saved_text: str = ""  # the text that the store has
    unsaved_since: float | None = None  # when the first text was written that the store lacks
    in_thought: bool = False  # the text ends inside a thought
    thought_until: float | None = None  # when it was last known to think; None outside of thoughts

    @property
    def missing(self) -> int:
        """Number of characters that the store does not have."""
        text, saved = self.message.text, self.saved_text
        kept = min(len(text), len(saved)) if text.startswith(saved) or saved.startswith(text) else 0
        return len(text) - kept

    @property
    def ended(self) -> bool:
        return self.message.status is not MessageStatus.STREAMING

    def grow(self, text: str, at: float) -> None:
        """Append text that was written from `at` on, and count the time of its thoughts."""
        thinking = self.message.thinking
        if self.in_thought and self.thought_until is not None:
            thinking = replace(thinking, ms=thinking.ms + max(0.0, at - self.thought_until) * 1000)
        self.message = replace(self.message, text=self.message.text + text, thinking=thinking)
        if may_part(text):
            self.in_thought = self.message.parts.open
        self.thought_until = at if self.in_thought else None


class ReplyRecorder(QObject):
    """Stores the text of replies within half a second, and tries again where the disk does not take it.

    Args:
        store: The conversations.
        storage: Reports that the store does not take the text, and when it does again.
        parent: The Qt parent.

    Attributes:
        clock: Seconds, as `ReplyProgress.written_at` has them.
    """

    def __init__(self, store: ConversationStore, storage: StorageWatch, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store, self._storage, self.clock = store, storage, time.monotonic
        self.held: list[LiveReply] = []  # replies that the store does not have as they are, oldest first
        self.trouble: Notice | None = None  # why the store does not take them; None while it does
        self._closed = False
        self._timer = QTimer(self, singleShot=True, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self.save)

    @property
    def live(self) -> list[LiveReply]:
        """The replies that have not ended, oldest first."""
        return [reply for reply in self.held if not reply.ended]

    @property
    def unsaved(self) -> list[LiveReply]:
        """The replies with text that the store does not have, oldest first."""
        return [reply for reply in self.held if reply.missing]

    def shown(self, message: Message) -> Message:
        """Return a stored message with what the store does not have yet."""
        held = (reply.message for reply in reversed(self.held) if reply.message.id == message.id)
        return next(held, message).beside(message)

    def begin(self, message: Message, sampling: SamplingParams | None = None) -> LiveReply:
        """Take charge of a reply, which continues the text that it has."""
        kept = message
        if not message.text.strip():
            kept = replace(message, text="", control_offsets=(), thinking=NO_THINKING)
        reply = LiveReply(kept, len(kept.text), sampling, saved_text=message.text, in_thought=kept.parts.open)
        self.held.append(reply)
        return reply

    def begin_in_thought(self, reply: LiveReply) -> None:
        """Take note that the chat template began a thought for a reply that has no text yet."""
        if not reply.message.text:
            reply.in_thought = True
            reply.message = replace(reply.message, thinking=Thinking(begun=True))

    def add_text(self, reply: LiveReply, text: str, written_at: float | None = None) -> None:
        """Append what was written from `written_at` on, by default just now; it is stored soon."""
        reply.writing = True
        if not text:
            return
        at = self.clock() if written_at is None else written_at
        reply.grow(text, at)
        if reply.unsaved_since is None:
            reply.unsaved_since = at
        if self.trouble is None:
            self._save_in_time(reply.unsaved_since)

    def _save_in_time(self, unsaved_since: float) -> None:
        """Save what has waited long enough: a busy event loop may hold the timer up, but not while text comes in."""
        left_s = unsaved_since + _SAVE_AFTER_S - self.clock()
        if left_s <= 0:
            self.save()
        elif not self._timer.isActive():
            self._timer.start(math.ceil(left_s * 1000))

    def finish(self, reply: LiveReply, end: ReplyEnd | None = None, model: str | None = None) -> None:
        """End a reply as the engine says; without `end` it was stopped before the engine had it.

        The engine's final text counts; of a continued reply it knows the last part.
        """
        message, begins_at = reply.message, reply.begins_at
        ended = replace(
            message,
            text=message.text[:begins_at] + (end.text if end else ""),
            status=MessageStatus.COMPLETE,
            finish_reason=end.finish_reason if end else FinishReason.CANCELLED,
        )
        if end is not None:
            own_control = (begins_at + offset for offset in end.control_offsets)
            # each part of a continued reply has a prefill: the counters would not add up
            drafting = Drafting(end.mode, end.mode_reason or "", end.drafter or "", begins_at > 0, end.kind)
            ended = replace(
                ended,
                control_offsets=(*message.control_offsets, *own_control),
                statistics=end.statistics,
                drafting=drafting,
                model=model or message.model,
            )
        reply.message = ended
        self.save()

    def break_off(self, reply: LiveReply, status: MessageStatus, error: str = "") -> None:
        """End a reply that failed, or that rdchat closes on, with the text that it got."""
        reply.message = replace(reply.message, status=status, error=error)
        self.save()

    @Slot()
    def save(self) -> None:
        """Bring the store up to date, or try again later."""
        try:
            self.flush()
        except StorageError as error:
            self._on_failure(error)

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

    def _save(self, reply: LiveReply) -> None:
        message = reply.message
        if reply.ended:
            self._store.finish_message(message)
        elif message.text != reply.saved_text:
            self._store.save_text(message.id, message.text, message.thinking)
        reply.saved_text, reply.unsaved_since = message.text, None

    def close(self) -> None:
        """End open replies as interrupted and save for the last time."""
        self._closed = True
        self._timer.stop()  # the store may be closed before it could be tried again
        for reply in self.live:
            self.break_off(reply, MessageStatus.INTERRUPTED)
        self.save()
        if self.held:
            _LOG.error("%d replies could not be saved", len(self.held))

    def _on_failure(self, error: StorageError) -> None:
        is_new, self.trouble = self.trouble is None, Notice(error.message, error.hint)
        if not self._closed:
            self._timer.start(_RETRY_INTERVAL_MS)
        if is_new:
            self._storage.failed.emit(self.trouble)
