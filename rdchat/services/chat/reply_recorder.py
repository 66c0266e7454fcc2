"""Stores replies while they are written: `ReplyRecorder` their texts, `TraceRecorder` their traces.

A `Reply` is one that is being written, or that is not completely stored. A trace is a reply's tokens, with the drafts
that each came from.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from rdchat.chat.conversation import Conversation, Drafting, MadeWith, Message, MessageStatus, Notice, Thinking
from rdchat.chat.reply_trace import ReplyTrace, decode, encode
from rdchat.chat.store import ConversationStore
from rdchat.errors import RdchatError, StorageError
from rdchat.inference.api import (
    NOTHING_TOLD,
    FinishReason,
    ModelInfo,
    Piece,
    ReplyEnd,
    ReplyPart,
    SamplingParams,
    Thoughts,
    TokenEvent,
    ToolCall,
    grown,
)
from rdchat.log import errors_logged
from rdchat.services.background_work import BackgroundWork
from rdchat.services.chat.chat_prompt import ChatPrompt
from rdchat.services.engine.engine_request import EngineRequest
from rdchat.services.servers.tool_servers import with_refusals
from rdchat.services.storage_watch import StorageWatch
from rdchat.tools.definitions import ToolDefinition

_LOG = logging.getLogger(__name__)
# A crash may lose half a second of text, and a busy machine is late.
_SAVE_AFTER_S = 0.3
_RETRY_INTERVAL_MS = 1000


@dataclass(slots=True, eq=False)
class Reply:
    """A reply that is being written, or that is not completely stored.

    Also a result of a tool, whose end `ToolCalls` sets.

    Attributes:
        message: The message, with all of its text.
        prompt: The prompt for the model.
        conversation: The chat as it was when the reply began; its title may be newer.
        begins_at: Number of characters that the message had before, where the reply continues it; otherwise 0.
        request: The request to the engine; None until there is a model.
        stopping: Whether the reply is being stopped.
        writing: Whether the first token has come.
        saved_text: The text that is stored.
        unsaved_since: When the first text was written that is not stored; None where all is stored.
        thought_until: The last moment when the model was seen to think; None outside of thoughts.
        undecided: Written text that is not in the message yet: it may be a part of a mark such as `</think>`.
        offered: The tools of the request, by their full names.
        passages: See `MadeWith`; set on the engine's thread when the prompt is read.
    """

    message: Message
    prompt: ChatPrompt
    conversation: Conversation
    begins_at: int = 0
    request: EngineRequest | None = None
    stopping: bool = False
    writing: bool = False
    saved_text: str = ""
    unsaved_since: float | None = None
    thought_until: float | None = None
    undecided: str = ""
    offered: Mapping[str, ToolDefinition] = field(default_factory=dict)
    passages: tuple[str, ...] = ()

    @property
    def missing(self) -> int:
        """Number of characters that the store does not have; 0 for a reply that is in no chat.

        If neither text begins with the other, the store counts as having none of it.
        """
        if not self.message.conversation_id:
            return 0
        text = self.message.text
        saved = self.saved_text
        is_saved = text.startswith(saved) or saved.startswith(text)
        return max(0, len(text) - len(saved)) if is_saved else len(text)

    @property
    def ended(self) -> bool:
        return self.message.status is not MessageStatus.STREAMING

    @property
    def in_thought(self) -> bool:
        """Whether the text ends inside a thought."""
        return self.message.parts.open

    def grow(self, pieces: Sequence[Piece], at: float) -> None:
        """Append text that was written from `at` on, and count the time of its thoughts."""
        thinking = self.message.thinking
        text = "".join(piece.text for piece in pieces)
        if self.in_thought and self.thought_until is not None:
            thinking = replace(thinking, ms=thinking.ms + max(0.0, at - self.thought_until) * 1000)
        thinking = replace(thinking, parts=grown(thinking.parts, pieces))
        self.message = replace(self.message, text=self.message.text + text, thinking=thinking)
        self.thought_until = at if self.in_thought else None

    def begin_thought(self) -> None:
        """Record that the chat template began a thought, if there is no text yet."""
        if not self.message.text:
            thinking = Thinking(begun=True, paired=True, parts=(ReplyPart(0, 0, is_thought=True),))
            self.message = replace(self.message, thinking=thinking)

    def set_sampling(self, usual: SamplingParams) -> SamplingParams:
        """Record how the tokens are chosen: by the reply's own options, or else by the given ones."""
        made_with = self.message.made_with or MadeWith()
        sampling = made_with.sampling or usual
        self.message = replace(self.message, made_with=replace(made_with, sampling=sampling))
        return sampling

    def set_passages(self) -> bool:
        """Record the passages in the prompt; return whether there are any."""
        made_with = replace(self.message.made_with or MadeWith(), passages=self.passages)
        self.message = replace(self.message, made_with=made_with)
        return bool(self.passages)

    def end_reply(self, end: ReplyEnd | None, model: ModelInfo | None = None) -> None:
        """End as the engine reports; without `end` it was stopped before the engine had it.

        The engine's final text counts; of a continued reply it knows the last part.
        """
        message = self.message
        begins_at = self.begins_at
        parts = end.told if end else NOTHING_TOLD
        ended = replace(
            message,
            text=message.text[:begins_at] + parts.text,
            thinking=replace(message.thinking, parts=_joined(message, begins_at, parts)),
            status=MessageStatus.COMPLETE,
            finish_reason=end.finish_reason if end else FinishReason.CANCELLED,
        )
        if end is not None:
            own_control = (begins_at + offset for offset in parts.control)
            # Each part of a continued reply has a prefill: the counters would not add up.
            server = model.server if model else ""
            drafting = Drafting(end.mode, end.mode_reason or "", end.drafter or "", begins_at > 0, end.kind, server)
            ended = replace(
                ended,
                control_offsets=(*message.control_offsets, *own_control),
                statistics=end.statistics,
                drafting=drafting,
                model=model.name if model else message.model,
                tool_calls=with_refusals(_with_ids(end.tool_calls, message.id), self.offered),
            )
        self.message = ended

    def break_off(self, status: MessageStatus, error: str = "") -> None:
        """End with the text that there is: the reply failed, or rdchat closes."""
        if self.undecided:
            self.grow([Piece(self.undecided, self.in_thought)], self.thought_until or 0.0)
        self.message = replace(self.message, status=status, error=error)


def _joined(message: Message, begins_at: int, parts: Thoughts) -> tuple[ReplyPart, ...]:
    """Return the parts of a message whose text from `begins_at` on is a reply with these parts.

    Parts of the reply count from its own beginning, so they are moved: an answer of the characters 0 to 5 becomes one
    of 100 to 105 if the message had 100.
    """
    before = [replace(part, end=min(part.end, begins_at)) for part in message.thinking.parts if part.start <= begins_at]
    moved = [replace(part, start=part.start + begins_at, end=part.end + begins_at) for part in parts.parts]
    return (*before, *moved) if begins_at else parts.parts


def _with_ids(calls: Sequence[ToolCall], message_id: int) -> tuple[ToolCall, ...]:
    """Return the calls of a reply, each with an id of its own."""
    given = Counter(call.call_id for call in calls)
    return tuple(
        call if call.call_id and given[call.call_id] == 1 else replace(call, call_id=f"call-{message_id}-{number}")
        for number, call in enumerate(calls)
    )


class ReplyRecorder(QObject):
    """Stores the text of replies within half a second, and tries again if it cannot be stored.

    Args:
        store: The conversations.
        storage: Reports that the text cannot be stored, and when it can be again.

    Attributes:
        clock: Returns seconds, as in `ReplyProgress.written_at`.
        held: The replies that are being written, and those that have ended and are not completely stored, oldest first.
        trouble: Why they cannot be stored; None while they can.
    """

    def __init__(self, store: ConversationStore, storage: StorageWatch) -> None:
        super().__init__(storage)
        self._store = store
        self._storage = storage
        self.clock = time.monotonic
        self.held: list[Reply] = []
        self.trouble: Notice | None = None
        # Runs until text is stored: soon after it was written, or while there is trouble until the next try.
        self._timer = QTimer(self, singleShot=True, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self.save_texts)

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

    def begin_reply(self, message: Message, prompt: ChatPrompt, conversation: Conversation) -> Reply:
        """Return a reply, to be stored from now on, that continues the text that a message has."""
        saved_text = message.text
        # A blank text is not continued: the reply begins anew, and the stored text is replaced.
        if not saved_text.strip():
            message = replace(message, text="", control_offsets=(), thinking=Thinking(paired=True))
        message = replace(message, thinking=replace(message.thinking, parts=message.parts.parts))
        reply = Reply(message, prompt, conversation, len(message.text), saved_text=saved_text)
        self.held.append(reply)
        return reply

    def continue_reply(self, message_id: int, stored: Message, conversation: Conversation) -> None:
        """Go on with a reply that was in no chat, if it is being written, as a message that was stored since."""
        for reply in (each for each in self.held if each.message.id == message_id):
            # The sampling of a reply that is being written is not stored yet.
            reply.message = replace(stored, made_with=reply.message.made_with)
            reply.conversation = conversation
            reply.saved_text = stored.text

    def append_text(self, reply: Reply, tokens: Sequence[TokenEvent], written_at: float) -> None:
        """Append what was written from `written_at` on; it is stored soon.

        The pieces of the tokens are the text whose part (thought or answer) is known. The rest becomes `undecided`.
        """
        reply.writing = True
        pieces = [piece for token in tokens for piece in token.pieces]
        written = reply.undecided + "".join(token.text for token in tokens)
        reply.undecided = written[sum(len(piece.text) for piece in pieces) :]
        if not pieces:
            return
        reply.grow(pieces, written_at)
        if reply.unsaved_since is None:
            reply.unsaved_since = written_at
        left_s = reply.unsaved_since + _SAVE_AFTER_S - self.clock()
        if self.trouble is not None:
            # The timer of `_on_failure` tries again.
            return
        if left_s <= 0:  # A busy event loop may hold the timer up, but not while text comes in.
            self.save_texts()
        elif not self._timer.isActive():
            self._timer.start(math.ceil(left_s * 1000))

    def save_texts(self) -> bool:
        """Bring the store up to date, or try again later; return whether it has all texts."""
        try:
            self.flush()
        except StorageError as error:
            self._on_failure(error)
        return not self.unsaved

    def flush(self) -> None:
        """Bring the store up to date, or raise StorageError; ended replies that are stored are held no longer."""
        for reply in self.held[:]:
            self._save(reply)
            if reply.ended:
                self.held.remove(reply)
        self._timer.stop()
        if self.trouble is not None:
            self.trouble = None
            self._storage.recovered.emit()

    def _save(self, reply: Reply) -> None:
        """Store all of a reply that has ended, or new text of one that is written; nothing of one in no chat."""
        message = reply.message
        if not message.conversation_id:
            pass
        elif reply.ended:
            self._store.finish_message(message)
        elif message.text != reply.saved_text:
            self._store.save_text(message.id, message.text, message.thinking)
        reply.saved_text = message.text
        reply.unsaved_since = None

    def end_replies(self) -> None:
        """End open replies as interrupted and save for the last time."""
        # Silenced, not stopped: a retry may start this timer again, and it must not save into a closed store.
        self._timer.blockSignals(True)
        for reply in self.live:
            reply.break_off(MessageStatus.INTERRUPTED)
        self.save_texts()
        if self.held:
            _LOG.error("%d replies could not be saved", len(self.held))

    def _on_failure(self, error: StorageError) -> None:
        is_new = self.trouble is None
        self.trouble = Notice(error.message, error.hint)
        self._timer.start(_RETRY_INTERVAL_MS)
        if is_new:
            self._storage.failed.emit(self.trouble)


@dataclass(slots=True, eq=False)
class _Unsaved:
    """A trace on its way into the store; `packed` is empty until it is packed."""

    message_id: int
    trace: ReplyTrace
    packed: bytes = b""


class TraceRecorder(QObject):
    """Appends tokens to the traces of replies. A trace that cannot be stored or read counts as not recorded."""

    # The id of the message, and a sequence of `TokenEvent`.
    tokens_added = Signal(int, object)
    trace_ended = Signal(int)

    def __init__(self, store: ConversationStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        # Menus and buttons ask for each reply again and again; `save_traces` forgets the answers.
        self._is_stored = cache(store.has_trace)
        # By the message's id: traces of replies that are being written.
        self._live: dict[int, ReplyTrace] = {}
        # Traces of replies that have ended, in that order.
        self._unsaved: list[_Unsaved] = []
        # Packing the trace of 2,000 tokens takes 50 ms.
        self._packing = BackgroundWork("traces", self)

    def begin_trace(self, message_id: int, begins_at: int) -> None:
        """Begin the trace of a reply that has `begins_at` characters already; 0 replaces an older trace."""
        self._live[message_id] = ReplyTrace(begins_at)

    def append_tokens(self, message_id: int, tokens: Sequence[TokenEvent]) -> None:
        # Text of a remote server has no tokens.
        if tokens and tokens[0].token_id >= 0 and (trace := self._live.get(message_id)) is not None:
            trace.append_tokens(tokens)
            self.tokens_added.emit(message_id, tokens)

    def end_trace(self, message_id: int, count: int | None = None, trailing_text: str = "") -> None:
        """End a trace after its first `count` tokens, all where that is None, and store it soon."""
        if (trace := self._live.pop(message_id, None)) is None:
            return
        trace.cut_tokens(len(trace.tokens) if count is None else count, trailing_text)
        if trace.tokens:
            unsaved = _Unsaved(message_id, trace)
            self._unsaved.append(unsaved)
            self._packing.do(lambda: encode(trace), lambda packed: self._take_packed(unsaved, packed))
        self.trace_ended.emit(message_id)

    def is_live(self, message_id: int) -> bool:
        """Return whether a reply is being written."""
        return message_id in self._live

    def has_trace(self, message_id: int) -> bool:
        """Return whether any token of a reply was recorded."""
        live = self._live.get(message_id)
        if (live and live.tokens) or any(each.message_id == message_id for each in self._unsaved):
            return True
        with suppress(StorageError):
            return self._is_stored(message_id)
        return False

    def trace(self, message_id: int) -> ReplyTrace | None:
        """Return a copy of a reply's trace, stored and unstored parts joined; None where nothing was recorded."""
        parts = [unsaved.trace for unsaved in self._unsaved if unsaved.message_id == message_id]
        if message_id in self._live:
            parts.append(self._live[message_id])
        # A trace that begins later continues the stored one; one from 0 replaces it.
        if not parts or parts[0].begins_at:
            parts[:0] = self._stored(message_id)
        if not parts:
            return None
        joined = ReplyTrace()
        for part in parts:
            joined.join(part)
        return joined

    def save_traces(self) -> None:
        """Store the packed traces, oldest first, up to one that is not packed yet or cannot be stored."""
        self._is_stored.cache_clear()
        try:
            while self._unsaved and (packed := self._unsaved[0].packed):
                unsaved = self._unsaved[0]
                self._store.save_trace(unsaved.message_id, packed, onward=unsaved.trace.begins_at > 0)
                del self._unsaved[0]
        except StorageError as error:
            _LOG.warning("Traces wait to be stored: %s", error)

    def drop_trace(self, message_id: int) -> None:
        """Forget the trace of a reply that is written, and whose chat is gone; that of an ended one finds no reply."""
        self._live.pop(message_id, None)

    def end_traces(self) -> None:
        """Store the remaining traces, and end the thread."""
        self.settle()
        self._packing.finish_work()

    def settle(self) -> None:
        """Store the remaining traces and forget those that fail, before the store is closed or replaced."""
        for message_id in list(self._live):
            self.end_trace(message_id)
        for unsaved in self._unsaved:
            with errors_logged("Packing a trace"):
                unsaved.packed = unsaved.packed or encode(unsaved.trace)
        self._unsaved = [unsaved for unsaved in self._unsaved if unsaved.packed]
        self.save_traces()
        self._unsaved.clear()

    def _stored(self, message_id: int) -> list[ReplyTrace]:
        try:
            packed = self._store.trace(message_id)
        except StorageError as error:
            _LOG.warning("The trace of message %d cannot be read: %s", message_id, error)
            return []
        trace = decode(packed) if packed else None
        return [trace] if trace else []

    def _take_packed(self, unsaved: _Unsaved, packed: bytes | RdchatError) -> None:
        """Store a packed trace; drop one that could not be packed, so that others are stored."""
        if isinstance(packed, bytes):
            unsaved.packed = packed
        elif unsaved in self._unsaved:
            self._unsaved.remove(unsaved)
        self.save_traces()
