"""Keeps how replies come about: in memory while they are written, in the store when they have ended."""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from rdchat.chat.reply_trace import ReplyTrace, decode, encode
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError
from rdchat.inference.api.events import TokenEvent

_LOG = logging.getLogger(__name__)
_SLICE_S = 0.003  # packing the trace of 2,000 tokens takes 50 ms: it must not be felt


@dataclass(slots=True)
class _Unsaved:
    """A trace on its way into the store; `parts` is what is packed of it."""

    message_id: int
    trace: ReplyTrace
    packing: Iterator[bytes]
    parts: list[bytes] = field(default_factory=list)

    def pack(self, deadline: float) -> bool:
        """Pack on until the deadline; True when all is packed."""
        for part in self.packing:
            self.parts.append(part)
            if time.perf_counter() > deadline:
                return False
        return True


class TraceRecorder(QObject):
    """Appends tokens to the traces of replies. A trace that cannot be stored or read counts as not recorded."""

    tokens_added = Signal(int, object)  # message id, Sequence[TokenEvent]
    trace_ended = Signal(int)  # message id

    def __init__(self, store: ConversationStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._live: dict[int, ReplyTrace] = {}
        self._unsaved: list[_Unsaved] = []
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._pack_some)

    def begin(self, message_id: int, begins_at: int) -> None:
        """Begin the trace of a reply that has `begins_at` characters already; 0 replaces an older trace."""
        self._live[message_id] = ReplyTrace(begins_at)

    def add(self, message_id: int, tokens: Sequence[TokenEvent]) -> None:
        if tokens and (trace := self._live.get(message_id)) is not None:
            trace.add(tokens)
            self.tokens_added.emit(message_id, tokens)

    def end(self, message_id: int, kept: int | None = None, trailing_text: str = "") -> None:
        """End a trace after its first `kept` tokens, all where that is None, and store it soon."""
        if (trace := self._live.pop(message_id, None)) is None:
            return
        trace.end(len(trace.tokens) if kept is None else kept, trailing_text)
        if trace.tokens:
            self._unsaved.append(_Unsaved(message_id, trace, encode(trace)))
            self._timer.start(0)
        self.trace_ended.emit(message_id)

    def is_live(self, message_id: int) -> bool:
        """Tell whether a reply is being written."""
        return message_id in self._live

    def trace(self, message_id: int) -> ReplyTrace | None:
        """Return a copy of what is known of a reply, the store's part included; None where nothing was recorded."""
        parts = [unsaved.trace for unsaved in self._unsaved if unsaved.message_id == message_id]
        if message_id in self._live:
            parts.append(self._live[message_id])
        if not parts or parts[0].begins_at:
            parts[:0] = self._stored(message_id)
        if not parts:
            return None
        whole = ReplyTrace()
        for part in parts:
            whole.join(part)
        return whole

    @Slot()
    def save(self) -> None:
        """Store what could not be stored before."""
        if self._unsaved:
            self._timer.start(0)

    def close(self) -> None:
        """Store what is left."""
        for message_id in list(self._live):
            self.end(message_id)
        self._timer.stop()
        while self._unsaved and self._save_first(deadline=float("inf")):
            pass

    def settle(self) -> None:
        """Store what is left, and forget what cannot be stored: the store is about to be another one."""
        self.close()
        self._unsaved.clear()

    def _stored(self, message_id: int) -> list[ReplyTrace]:
        try:
            packed = self._store.trace(message_id)
        except StorageError as error:
            _LOG.warning("The trace of message %d cannot be read: %s", message_id, error)
            return []
        trace = decode(packed) if packed else None
        return [trace] if trace else []

    @Slot()
    def _pack_some(self) -> None:
        if self._unsaved and self._save_first(time.perf_counter() + _SLICE_S) and self._unsaved:
            self._timer.start(0)

    def _save_first(self, deadline: float) -> bool:
        """Pack and store the oldest trace; False where the disk did not take it, so that it has to wait."""
        first = self._unsaved[0]
        if not first.pack(deadline):
            return True
        try:
            self._store.save_trace(first.message_id, b"".join(first.parts), onward=first.trace.begins_at > 0)
        except StorageError as error:
            _LOG.warning("The trace of message %d is not stored yet: %s", first.message_id, error)
            return False
        del self._unsaved[0]
        return True
