"""Requests to the engine, and the outbox of their events: what both threads touch."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rdchat.inference.api.bench_plan import BenchPlan
from rdchat.inference.api.events import LoadProgress, PrefillProgress
from rdchat.inference.api.requests import DraftSettings, Dtype, GenerationRequest
from rdchat.services.engine.engine_events import EngineEvent, ReplyProgress


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Load a model in place of the present one."""

    model: str | None  # a folder or hub id; None is the default model
    dtype: Dtype
    anyway: bool = False  # also where it seems too large for the memory


@dataclass(frozen=True, slots=True)
class UnloadModel:
    """Free the model."""


@dataclass(frozen=True, slots=True)
class FindDraftOptions:
    """Find out how the loaded model can be drafted, and which of some drafters fit it."""

    settings: DraftSettings
    drafters: tuple[str, ...] = ()


Command = LoadModel | UnloadModel | GenerationRequest | BenchPlan | FindDraftOptions


class Cancellable(Protocol):
    """A reply or a benchmark that runs."""

    def cancel(self) -> None:
        """Ask for an early end, from any thread."""


class EngineRequest:
    """A command that was submitted. Both threads use it; the main thread may cancel it at any point of its life."""

    def __init__(self, command: Command, on_event: Callable[[EngineEvent], object], *, background: bool) -> None:
        self.command = command
        self.on_event = on_event  # called on the main thread
        self.background = background  # nobody waits for it: a reply or a benchmark that is not cancels it
        self._lock = threading.Lock()
        self._cancelled = False
        self._running: Cancellable | None = None
        self._draft: DraftSettings | None = None

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        """End early, within a token. A reply or a benchmark still has its last event; a load has no more events."""
        with self._lock:
            self._cancelled = True
            if self._running is not None:
                self._running.cancel()

    def attach(self, running: Cancellable) -> None:
        """Take note of what carries the command out; it is cancelled where the request was."""
        with self._lock:
            self._running = running
            if self._cancelled:
                running.cancel()

    def update_draft(self, settings: DraftSettings) -> None:
        """Draft a running reply by other settings from its next round on; see `TokenIterator.update`."""
        with self._lock:
            self._draft = settings

    def take_draft(self) -> DraftSettings | None:
        """Return the settings that were given since the last call."""
        with self._lock:
            settings, self._draft = self._draft, None
        return settings


class Outbox:
    """Events on their way to the main thread; progress that is continued or superseded by the next event is merged.

    A main thread that is late therefore finds one event to paint, not a hundred. The order of events is kept.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: deque[tuple[EngineRequest, list[EngineEvent]]] = deque()  # each becomes one event

    def __len__(self) -> int:
        with self._lock:
            return len(self._batches)

    def put(self, request: EngineRequest, event: EngineEvent) -> bool:
        """Add an event; True if the outbox was empty, so that its reader must be woken."""
        with self._lock:
            was_empty = not self._batches
            last, events = (None, []) if was_empty else self._batches[-1]
            if request is not last or type(event) is not type(events[-1]):
                self._batches.append((request, [event]))
            elif isinstance(event, ReplyProgress):
                events.append(event)
            elif isinstance(event, PrefillProgress | LoadProgress):
                events[:] = [event]
            else:
                self._batches.append((request, [event]))
            return was_empty

    def take(self) -> tuple[EngineRequest, EngineEvent] | None:
        """Remove and return the oldest event; None if there is none."""
        with self._lock:
            if not self._batches:
                return None
            request, events = self._batches.popleft()
        return request, _merged(events)


def _merged(events: Sequence[EngineEvent]) -> EngineEvent:
    progress = [each for each in events if isinstance(each, ReplyProgress)]
    if len(progress) < 2:
        return events[-1]
    text = "".join(each.text for each in progress)
    tokens = tuple(token for each in progress for token in each.tokens)
    return ReplyProgress(text, progress[-1].statistics, tokens, progress[0].written_at)
