"""Runs benchmarks on the engine thread and tells a window of their progress by signals."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.inference.api.bench_plan import BenchPlan
from rdchat.inference.api.bench_results import BenchProgress, BenchRun
from rdchat.inference.benchmark.result import BenchResult
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_events import BenchEnd, BenchUpdate, Failure


class Benchmark(QObject):
    """Runs one plan at a time and keeps what it found out until the next one begins.

    Attributes:
        plan: What was started last; None before.
        runs: Its runs so far.
        progress: Where it stands; None before the engine has got to it.
    """

    started = Signal()
    progressed = Signal()
    runs_made = Signal()
    ended = Signal(bool)  # whether it was stopped
    failed = Signal(Failure)

    def __init__(self, engine: EngineClient, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._request_id: int | None = None
        self._environment: Mapping[str, Any] = {}
        self._complete = False
        self.plan: BenchPlan | None = None
        self.runs: list[BenchRun] = []
        self.progress: BenchProgress | None = None
        engine.bench_progressed.connect(self._on_progressed)
        engine.bench_finished.connect(self._on_finished)
        engine.reply_failed.connect(self._on_failed)

    @property
    def running(self) -> bool:
        """Whether one was started that has not ended; it waits for what was asked of the engine before."""
        return self._request_id is not None

    @property
    def result(self) -> BenchResult | None:
        """What was measured so far; None before the first run."""
        if self.plan is None or not self.runs:
            return None
        return BenchResult(self.plan, tuple(self.runs), self._environment, self._complete)

    def start(self, plan: BenchPlan, environment: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Run a plan; one that still runs is stopped first, and its results are dropped.

        Args:
            plan: What is measured.
            environment: Of the result; see `benchmark.result.environment`.
        """
        if self._request_id is not None:
            self._engine.stop(self._request_id)
        self.plan, self.runs, self.progress = plan, [], None
        self._environment, self._complete = environment, False
        self._request_id = self._engine.new_request_id()
        self._engine.benchmark(self._request_id, plan)
        self.started.emit()

    def stop(self) -> None:
        """End early, within a token; `ended` follows, and what was run is kept. One that still waits ends at once."""
        if self._request_id is None:
            return
        self._engine.stop(self._request_id)
        if self.progress is None:
            self._request_id = None
            self.ended.emit(True)

    @Slot(BenchUpdate)
    def _on_progressed(self, update: BenchUpdate) -> None:
        if update.request_id != self._request_id:
            return
        if isinstance(update.event, BenchRun):
            self.runs.append(update.event)
            self.runs_made.emit()
        else:
            self.progress = update.event
            self.progressed.emit()

    @Slot(BenchEnd)
    def _on_finished(self, end: BenchEnd) -> None:
        if end.request_id == self._request_id:
            self._request_id = None
            self._complete = not end.stopped
            self.ended.emit(end.stopped)

    @Slot(Failure)
    def _on_failed(self, failure: Failure) -> None:
        if self._request_id is not None and failure.request_id == self._request_id:
            self._request_id = None
            self.failed.emit(failure)
