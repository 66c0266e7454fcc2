"""A request to the engine: its command, where its events go, and how it is cancelled."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rdchat.inference.api.bench_plan import BenchPlan
from rdchat.inference.api.requests import DraftSettings, Dtype, GenerationRequest
from rdchat.services.engine.engine_events import EngineEvent


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
