"""Stores the traces of replies: their tokens, with the drafts behind each."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

from rdchat.chat.reply_trace import ReplyTrace, decode, encode
from rdchat.chat.store import ConversationStore
from rdchat.errors import RdchatError, StorageError
from rdchat.inference.api.events import TokenEvent
from rdchat.log import errors_logged
from rdchat.services.background.background_work import BackgroundWork

_LOG = logging.getLogger(__name__)


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
        self._live: dict[int, ReplyTrace] = {}
        self._unsaved: list[_Unsaved] = []
        # Packing the trace of 2,000 tokens takes 50 ms.
        self._packing = BackgroundWork("traces", self)

    def begin(self, message_id: int, begins_at: int) -> None:
        """Begin the trace of a reply that has `begins_at` characters already; 0 replaces an older trace."""
        self._live[message_id] = ReplyTrace(begins_at)

    def add(self, message_id: int, tokens: Sequence[TokenEvent]) -> None:
        # Text of a remote server has no tokens.
        if tokens and tokens[0].token_id >= 0 and (trace := self._live.get(message_id)) is not None:
            trace.add(tokens)
            self.tokens_added.emit(message_id, tokens)

    def end(self, message_id: int, count: int | None = None, trailing_text: str = "") -> None:
        """End a trace after its first `count` tokens, all where that is None, and store it soon."""
        if (trace := self._live.pop(message_id, None)) is None:
            return
        trace.end(len(trace.tokens) if count is None else count, trailing_text)
        if trace.tokens:
            unsaved = _Unsaved(message_id, trace)
            self._unsaved.append(unsaved)
            self._packing.do(lambda: encode(trace), lambda packed: self._take_packed(unsaved, packed))
        self.trace_ended.emit(message_id)

    def is_live(self, message_id: int) -> bool:
        """Return whether a reply is being written."""
        return message_id in self._live

    def trace(self, message_id: int) -> ReplyTrace | None:
        """Return a copy of a reply's trace, stored and unstored parts joined; None where nothing was recorded."""
        parts = [unsaved.trace for unsaved in self._unsaved if unsaved.message_id == message_id]
        if message_id in self._live:
            parts.append(self._live[message_id])
        if not parts or parts[0].begins_at:
            parts[:0] = self._stored(message_id)
        if not parts:
            return None
        joined = ReplyTrace()
        for part in parts:
            joined.join(part)
        return joined

    def save(self) -> None:
        """Store the packed traces, oldest first, until one fails."""
        try:
            while self._unsaved and (packed := self._unsaved[0].packed):
                unsaved = self._unsaved[0]
                self._store.save_trace(unsaved.message_id, packed, onward=unsaved.trace.begins_at > 0)
                del self._unsaved[0]
        except StorageError as error:
            _LOG.warning("Traces wait to be stored: %s", error)

    def close(self) -> None:
        """Store the remaining traces, and end the thread."""
        self.settle()
        self._packing.close()

    def settle(self) -> None:
        """Store the remaining traces and forget those that fail, before the store is closed or replaced."""
        for message_id in list(self._live):
            self.end(message_id)
        for unsaved in self._unsaved:
            with errors_logged("Packing a trace"):
                unsaved.packed = unsaved.packed or encode(unsaved.trace)
        self._unsaved = [unsaved for unsaved in self._unsaved if unsaved.packed]
        self.save()
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
        self.save()
