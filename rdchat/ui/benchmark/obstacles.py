"""Why no race or benchmark can start now, in words."""

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

from rdchat.services.engine.benchmark import Benchmark
from rdchat.services.engine.engine_events import EngineState
from rdchat.services.engine.race import Race


class Obstacles(QObject):
    """What stands in the way of measuring; whoever knows the engine's state emits `changed` where it may be another.

    Args:
        state: Reads what the engine is busy with.
        race: One at a time, and not beside a benchmark.
        benchmark: One at a time, and not beside a race.
        parent: The Qt parent.
    """

    changed = Signal()

    def __init__(
        self, state: Callable[[], EngineState], race: Race, benchmark: Benchmark, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._state, self._race, self._benchmark = state, race, benchmark

    def obstacle(self) -> str:
        """Return why nothing can be measured now; empty where it can."""
        if self._state() is EngineState.NO_MODEL:
            return "No model is loaded. Choose one first."
        if self._state() is EngineState.LOADING:
            return "The model is still loading."
        if self._race.running:
            return "A race is running."
        return "A benchmark is running." if self._benchmark.running else ""

    def waiting_words(self) -> str:
        """Return what a race or a benchmark waits for that has not begun yet."""
        replying = self._state() in (EngineState.PREFILL, EngineState.WRITING)
        return "Waiting for the reply that is being written…" if replying else "Starting…"
