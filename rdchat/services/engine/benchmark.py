"""Runs benchmarks on the engine thread."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from PySide6.QtCore import QObject, Signal

from rdchat.inference.api.bench_plan import BenchPlan
from rdchat.inference.api.bench_results import BenchProgress, BenchRun
from rdchat.inference.benchmark.result import BenchResult
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_events import BenchEnd, EngineEvent, Failure
from rdchat.services.engine.engine_request import EngineRequest


class Benchmark(QObject):
    """Runs one plan at a time and keeps its results until the next one begins."""

    started = Signal()
    progressed = Signal()
    runs_made = Signal()
    ended = Signal(bool)  # whether it was stopped
    failed = Signal(Failure)

    def __init__(self, engine: EngineClient, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._request: EngineRequest | None = None
        self._environment: Mapping[str, Any] = {}
        self._complete = False
        self.plan: BenchPlan | None = None  # the last one that was started
        self.runs: list[BenchRun] = []  # of the plan, so far
        self.progress: BenchProgress | None = None  # None before the engine has begun

    @property
    def running(self) -> bool:
        """Whether a plan was started that has not ended; it waits for earlier requests to the engine."""
        return self._request is not None

    @property
    def result(self) -> BenchResult | None:
        """The results so far; None before the first run."""
        if self.plan is None or not self.runs:
            return None
        return BenchResult(self.plan, tuple(self.runs), self._environment, self._complete)

    def start(self, plan: BenchPlan, environment: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Run a plan; one that still runs is stopped first, and its results are dropped.

        Args:
            plan: What is measured.
            environment: Of the result; see `benchmark.result.environment`.
        """
        if self._request is not None:
            self._request.cancel()
        self.plan, self.runs, self.progress = plan, [], None
        self._environment, self._complete = environment, False
        request = self._engine.submit(plan, lambda event: self._on_event(request, event))
        self._request = request
        self.started.emit()

    def stop(self) -> None:
        """End within a token; `ended` follows, and the runs are kept. A plan that has not begun ends at once."""
        if self._request is None:
            return
        self._request.cancel()
        if self.progress is None:
            self._request = None
            self.ended.emit(True)

    def _on_event(self, request: EngineRequest, event: EngineEvent) -> None:
        if request is not self._request:
            return  # of a plan that was stopped
        match event:
            case BenchRun():
                self.runs.append(event)
                self.runs_made.emit()
            case BenchProgress():
                self.progress = event
                self.progressed.emit()
            case BenchEnd(stopped):
                self._request = None
                self._complete = not stopped
                self.ended.emit(stopped)
            case Failure():
                self._request = None
                self.failed.emit(event)
