"""Runs benchmarks on the engine thread, of several prompts or of one: a race.

A race is a benchmark of one prompt with two cells: plain decoding and a drafting mode, one reply each. The engine has
one thread, and two replies at once would take each other's time. So each is written alone, and its text is shown as it
comes. Then a replay shows both side by side, from the recorded moments of their tokens.

Before the first reply, a warm-up loads the model and writes a few tokens with each cell, which are not measured. A mode
that cannot run is found then: the warm-up reports a run without tokens, whose `mode_reason` says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from PySide6.QtCore import QObject, Signal

from rdchat import host
from rdchat.inference.api import (
    BenchPiece,
    BenchPlan,
    BenchProgress,
    BenchResult,
    BenchRun,
    Difference,
    Dtype,
    speed_ratio,
)
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_request import BenchEnd, EngineEvent, EngineRequest, Failure


@dataclass(frozen=True, slots=True)
class RaceResult:
    """Two replies to one prompt.

    Attributes:
        name: Name of the drafted setting, such as `Drafter, 4 beams of 5 tokens`.
    """

    plain: BenchRun
    drafted: BenchRun
    name: str

    @property
    def speed_text(self) -> str:
        """The ratio of the speeds in words, as near as one reply each can tell; empty where one did not decode."""
        ratio = speed_ratio(self.drafted, self.plain)
        if not ratio:
            return ""
        if any(run.statistics.was_hindered for run in (self.plain, self.drafted)):
            return f"{self.name}: no verdict. The computer was busy with other work."
        times = f"{ratio:.{1 if ratio >= 0.1 else 2}f}"
        if times == "1.0":
            return f"{self.name}: about as fast at writing."
        return f"{self.name}: {'slower, ' if ratio < 1 else ''}about {times} times as fast at writing."

    @property
    def parted_by_rounding(self) -> bool:
        """Whether the texts differ by rounding alone."""
        return self.drafted.difference is not None and self.drafted.difference.near_tie(self.drafted.dtype)

    @property
    def verdict(self) -> str:
        """Whether the texts are the same, and if not, where they differ and by how little."""
        if self.drafted.difference is None:
            return "Same text, token for token."
        return _difference_text(self.drafted.difference, self.drafted.dtype)


class Benchmark(QObject):
    """Runs one plan at a time and keeps its results until the next one begins.

    Signals: `progressed` says that a plan began or got on, `runs_made` that there are more runs; `ended` is the last.

    Attributes:
        plan: The last plan that was started.
        runs: The runs of the plan so far.
        progress: None before the engine has begun.
        complete: Whether the plan ran to its end.
        failure: Why it failed; None where it did not.
    """

    progressed = Signal()
    runs_made = Signal()
    piece_written = Signal(BenchPiece)
    ended = Signal()

    def __init__(self, engine: EngineClient, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        # The request that carries out the plan; None when it has ended. Events of earlier requests are ignored.
        self._request: EngineRequest | None = None
        self._environment: Mapping[str, Any] = {}
        # Number of each plan, from 0: it decides which reply comes first.
        self._turns = count()
        self.plan: BenchPlan | None = None
        self.runs: list[BenchRun] = []
        self.progress: BenchProgress | None = None
        self.complete = False
        self.failure: Failure | None = None

    @property
    def running(self) -> bool:
        """Whether a plan was started that has not ended; it waits for earlier requests to the engine."""
        return self._request is not None

    @property
    def result(self) -> BenchResult | RaceResult | None:
        """The results: of several prompts those so far, of a race both replies; None before."""
        plan = self.plan
        if plan is None or not self.runs:
            return None
        if not plan.streams:
            return BenchResult(plan, tuple(self.runs), self._environment, self.complete)
        runs = {run.cell: run for run in self.runs}
        return RaceResult(runs[0], runs[1], plan.all_cells[1].label) if self.complete and len(runs) > 1 else None

    def run_plan(self, plan: BenchPlan, environment: Mapping[str, Any]) -> None:
        """Run a plan, when the one before has ended; one that streams is a race.

        Args:
            plan: The settings and prompts.
            environment: Of the result; see `result_files.environment`.
        """
        self.plan = replace(plan, turn=next(self._turns))
        self.runs = []
        self.progress = None
        self.complete = False
        self.failure = None
        self._environment = environment
        request = self._engine.submit(self.plan, lambda event: self._on_event(request, event))
        self._request = request
        self.progressed.emit()

    def end_runs(self) -> None:
        """Stop the plan within a token; `ended` follows, and the runs are kept. One that has not begun ends at once."""
        if self._request is None:
            return
        self._request.cancel()
        if self.progress is None:
            self._end()

    def _on_event(self, request: EngineRequest, event: EngineEvent) -> None:
        if request is not self._request:
            return  # Its plan was stopped.
        match event:
            case BenchRun():
                self.runs.append(event)
                self.runs_made.emit()
                if event.mode_reason and self.plan and self.plan.streams:
                    request.cancel()  # A plain reply alone is no race.
                    self._end(Failure(event.mode_reason, "Choose another drafting mode."))
            case BenchPiece():
                self.piece_written.emit(event)
            case BenchProgress():
                self.progress = event
                self.progressed.emit()
            case BenchEnd(stopped):
                self.complete = not stopped
                self._end()
            case Failure():
                self._end(event)

    def _end(self, failure: Failure | None = None) -> None:
        self._request = None
        self.failure = failure
        self.ended.emit()


def _difference_text(difference: Difference, dtype: str) -> str:
    """Return where two texts differ and by how little, in sentences."""
    where = f"The texts differ from token {difference.index + 1} on: plain decoding {_token_text(difference.plain)}, "
    where += f"drafting {_token_text(difference.other)}."
    if difference.gap is None:
        return where
    if difference.near_tie(dtype):
        return f"{where} The two scored almost the same ({difference.gap:.2g} apart), so rounding in {dtype} decided."
    return f"{where} Their scores are {difference.gap:.2g} apart, {_blame(dtype)}"


def _blame(dtype: str) -> str:
    """Return the likely cause of a difference that is no near-tie: the program, where nothing else can be.

    In 16 bits a router may pick other experts for other rounding, which moves scores far.
    """
    if dtype != Dtype.FLOAT32:
        return f"more than rounding in {dtype} usually explains. If you see this often, please report it."
    if not host.tf32_is_off():
        return "more than rounding in float32 explains. The cause may be TF32; MLX_ENABLE_TF32=0 switches it off."
    return "more than rounding explains. Please report this."


def _token_text(token: str) -> str:
    """Return what a reply did at the difference; it has no token there if it had ended."""
    return f"wrote “{token}”" if token else "had ended"
