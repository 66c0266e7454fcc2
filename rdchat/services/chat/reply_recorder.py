"""Replies that are being written, and those whose end is not on the disk yet."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from rdchat.chat.conversation import NO_THINKING, Drafting, Message, MessageStatus, Notice, Thinking
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError
from rdchat.inference.api.events import FinishReason
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import GenerationRequest
from rdchat.thoughts import may_part

_LOG = logging.getLogger(__name__)
_SAVE_AFTER_S = 0.3  # a crash may lose half a second of text, and a busy machine is late
_RETRY_INTERVAL_MS = 1000


@dataclass(slots=True)
class LiveReply:
    """A reply on its way into the store.

    Attributes:
        request: What the engine was or will be asked.
        message: The reply as it is to be shown, the new text included.
        begins_at: Number of characters that were there before, where a reply is continued.
        read: The request has the messages; otherwise they are being read.
        sent: The engine has the request; otherwise it waits for them, or for a model.
        stopping: It was asked to stop.
        writing: The first token has come.
        saved_text: What the store has.
        in_thought: The text ends inside a thought.
        thought_until: When it was last known to think; None outside of thoughts, and before it is written.
        unsaved_since: When the first text was written that the store does not have; None where it has all.
    """

    request: GenerationRequest
    message: Message
    begins_at: int = 0
    read: bool = False
    sent: bool = False
    stopping: bool = False
    writing: bool = False
    saved_text: str = ""
    in_thought: bool = False
    thought_until: float | None = None
    unsaved_since: float | None = None

    @property
    def missing(self) -> int:
        """Number of characters that the store does not have."""
        text, saved = self.message.text, self.saved_text
        kept = min(len(text), len(saved)) if text.startswith(saved) or saved.startswith(text) else 0
        return len(text) - kept

    @property
    def ended(self) -> bool:
        return self.message.status is not MessageStatus.STREAMING


class ReplyRecorder(QObject):
    """Keeps every reply in memory until the store has its end, and tries again where the disk does not take it.

    Args:
        store: The conversations.
        parent: The Qt parent.
        clock: Seconds, as `ReplyProgress.written_at` has them.

    Attributes:
        trouble: Why the store does not take what there is; None while it does.
    """

    storage_failed = Signal(Notice)
    storage_recovered = Signal()

    def __init__(
        self, store: ConversationStore, parent: QObject | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(parent)
        self._store, self._clock = store, clock
        self._replies: dict[int, LiveReply] = {}  # by request id
        self.trouble: Notice | None = None
        self._closed = False
        self._timer = QTimer(self, singleShot=True, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self.save)

    @property
    def live(self) -> list[LiveReply]:
        """The replies that have not ended, oldest first."""
        return [reply for reply in self._replies.values() if not reply.ended]

    @property
    def unsaved(self) -> list[LiveReply]:
        """The replies with text that the store does not have, oldest first."""
        return [reply for reply in self._replies.values() if reply.missing]

    @property
    def held(self) -> list[int]:
        """The ids of messages that the store does not have as they are shown."""
        return [reply.message.id for reply in self._replies.values()]

    def find(self, request_id: int) -> LiveReply | None:
        """Return a reply that has not ended."""
        reply = self._replies.get(request_id)
        return None if reply is None or reply.ended else reply

    def shown(self, message: Message) -> Message:
        """Return the message with what the store does not have yet."""
        for reply in reversed(self._replies.values()):
            if reply.message.id == message.id:
                return replace(reply.message, sibling=message.sibling, siblings=message.siblings)
        return message

    def begin(self, request: GenerationRequest, message: Message) -> LiveReply:
        """Take charge of a reply; what `message` has already stays only where the request continues it."""
        kept = message
        if not request.continue_last:
            kept = replace(message, text="", control_offsets=(), thinking=NO_THINKING)
        reply = LiveReply(request, kept, len(kept.text), saved_text=message.text, in_thought=kept.parts.open)
        self._replies[request.request_id] = reply
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
        reply.message = replace(reply.message, text=reply.message.text + text)
        at = self._clock() if written_at is None else written_at
        _time_thought(reply, text, at)
        if reply.unsaved_since is None:
            reply.unsaved_since = at
        if self.trouble is None:
            self._save_in_time(reply.unsaved_since)

    def _save_in_time(self, unsaved_since: float) -> None:
        """Save what has waited long enough: a busy event loop may hold the timer up, but not while text comes in."""
        left_s = unsaved_since + _SAVE_AFTER_S - self._clock()
        if left_s <= 0:
            self.save()
        elif not self._timer.isActive():
            self._timer.start(math.ceil(left_s * 1000))

    def finish(
        self,
        reply: LiveReply,
        text: str,
        reason: FinishReason,
        *,
        statistics: Statistics | None = None,
        drafting: Drafting | None = None,
        model: str | None = None,
        control_offsets: Sequence[int] = (),
    ) -> None:
        """End a reply with the text of the engine's last word on it; of a continued one, it knows the last part."""
        if drafting is not None and reply.begins_at:
            drafting = replace(drafting, last_part=True)  # each part has a prefill: the counters would not add up
        before = reply.message.control_offsets
        reply.message = replace(
            reply.message,
            text=reply.message.text[: reply.begins_at] + text,
            control_offsets=(*before, *(reply.begins_at + offset for offset in control_offsets)),
            status=MessageStatus.COMPLETE,
            finish_reason=reason,
            statistics=statistics or reply.message.statistics,
            drafting=drafting or reply.message.drafting,
            model=model or reply.message.model,
        )
        self.save()

    def fail(self, reply: LiveReply, error: str) -> None:
        """End a reply that cannot be carried on with the text that it got."""
        reply.message = replace(reply.message, status=MessageStatus.FAILED, error=error)
        self.save()

    def interrupt(self, reply: LiveReply) -> None:
        """End a reply that rdchat closes on, with the text that it got."""
        reply.message = replace(reply.message, status=MessageStatus.INTERRUPTED)
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
        for request_id, reply in list(self._replies.items()):
            self._save(reply)
            if reply.ended:
                del self._replies[request_id]
        self._timer.stop()
        if self.trouble is not None:
            self.trouble = None
            self.storage_recovered.emit()

    def _save(self, reply: LiveReply) -> None:
        message = reply.message
        if reply.ended:
            self._store.finish_message(
                message.id,
                message.text,
                message.status,
                finish_reason=message.finish_reason,
                statistics=message.statistics,
                error=message.error,
                model=message.model,
                drafting=message.drafting,
                control_offsets=message.control_offsets,
                thinking=message.thinking,
            )
        elif message.text != reply.saved_text:
            self._store.save_text(message.id, message.text, message.thinking)
        reply.saved_text, reply.unsaved_since = message.text, None

    def close(self) -> None:
        """End what is still open as interrupted and save for the last time."""
        self._closed = True
        self._timer.stop()  # the store may be closed before it could be tried again
        for reply in self.live:
            self.interrupt(reply)
        self.save()
        if self._replies:
            _LOG.error("%d replies could not be saved", len(self._replies))

    def _on_failure(self, error: StorageError) -> None:
        is_new, self.trouble = self.trouble is None, Notice(error.message, error.hint)
        if not self._closed:
            self._timer.start(_RETRY_INTERVAL_MS)
        if is_new:
            self.storage_failed.emit(self.trouble)


def _time_thought(reply: LiveReply, text: str, at: float) -> None:
    """Count the time that a reply thinks, now that it gained a text that was written from `at` on."""
    if reply.in_thought and reply.thought_until is not None:
        thinking = reply.message.thinking
        thinking = replace(thinking, ms=thinking.ms + max(0.0, at - reply.thought_until) * 1000)
        reply.message = replace(reply.message, thinking=thinking)
    if may_part(text):
        reply.in_thought = reply.message.parts.open
    reply.thought_until = at if reply.in_thought else None
