"""Events on their way from the engine thread to the main thread, merged while they wait."""

import threading
from collections import deque

from rdchat.inference.api.events import DraftOptions, LoadProgress, PrefillProgress
from rdchat.services.engine.engine_events import EngineEvent, LoadEvent, ReplyProgress


class Outbox:
    """A queue that cannot run full: what is superseded or continued by the next event is merged into it.

    A main thread that is late therefore finds one event to paint, not a hundred. The order of events is kept.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: deque[EngineEvent] = deque()

    def __len__(self) -> int:
        with self._lock:
            return len(self._events)

    def put(self, event: EngineEvent) -> bool:
        """Add an event; True if the outbox was empty, so that its reader must be woken."""
        with self._lock:
            was_empty = not self._events
            merged = None if was_empty else merge(self._events[-1], event)
            if merged is None:
                self._events.append(event)
            else:
                self._events[-1] = merged
            return was_empty

    def take(self) -> EngineEvent | None:
        """Remove and return the oldest event; None if there is none."""
        with self._lock:
            return self._events.popleft() if self._events else None


def merge(older: EngineEvent, newer: EngineEvent) -> EngineEvent | None:
    """Return one event that tells what both tell, or None where both must be delivered."""
    match older, newer:
        case ReplyProgress(), ReplyProgress() if older.request_id == newer.request_id:
            tokens = older.tokens + newer.tokens
            text = older.text + newer.text
            return ReplyProgress(newer.request_id, text, newer.statistics, tokens, older.written_at)
        case DraftOptions(), DraftOptions():
            return newer
        case PrefillProgress(), PrefillProgress() if older.request_id == newer.request_id:
            return newer
        case LoadEvent(event=LoadProgress()), LoadEvent(event=LoadProgress()) if older.load_id == newer.load_id:
            return newer
    return None
