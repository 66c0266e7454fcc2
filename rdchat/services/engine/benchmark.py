"""Runs benchmarks and races on the engine thread.

A race is a benchmark of one prompt with two cells: plain decoding and a drafting mode, one reply each. The engine has
one thread, and two replies at once would take each other's time. So each is written alone, and its text is shown as it
comes. Then a replay shows both side by side, from the recorded moments of their tokens. Which reply is first changes
from race to race.

Before the first reply, a warm-up loads the model and writes a few tokens with each cell, which are not measured. A mode
that cannot run is found then: the warm-up reports a run without tokens, whose `mode_reason` says why.
"""

import time
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, count
from types import MappingProxyType
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot

from rdchat import host
from rdchat.inference.api import (
    BenchCell,
    BenchPiece,
    BenchPlan,
    BenchProgress,
    BenchRun,
    Difference,
    DraftSettings,
    Dtype,
    Prompt,
)
from rdchat.inference.benchmark.result import BenchResult, speed_ratio
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_request import BenchEnd, EngineEvent, EngineRequest, Failure

# The cells of a race by their index in `BenchPlan.all_cells`, which has the baseline first.
_PLAIN_CELL = 0
_DRAFTED_CELL = 1


class Benchmark(QObject):
    """Runs one plan at a time and keeps its results until the next one begins.

    Signals: after `started` come `progressed`, `runs_made` and, where the plan streams, `piece_written`; then `failed`,
    or `ended` with whether the plan was stopped.

    Attributes:
        plan: The last plan that was started.
        runs: The runs of the plan so far.
        progress: None before the engine has begun.
    """

    started = Signal()
    progressed = Signal()
    runs_made = Signal()
    piece_written = Signal(BenchPiece)
    ended = Signal(bool)
    failed = Signal(Failure)

    def __init__(self, engine: EngineClient, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        # The request that carries out the plan; None when it has ended. Events of earlier requests are ignored.
        self._request: EngineRequest | None = None
        self._environment: Mapping[str, Any] = {}
        self._complete = False
        self.plan: BenchPlan | None = None
        self.runs: list[BenchRun] = []
        self.progress: BenchProgress | None = None

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

    def run_plan(self, plan: BenchPlan, environment: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Run a plan; one that still runs is stopped first, and its results are dropped.

        Args:
            plan: The settings and prompts.
            environment: Of the result; see `benchmark.result.environment`.
        """
        if self._request is not None:
            self._request.cancel()
        self.plan = plan
        self.runs = []
        self.progress = None
        self._environment = environment
        self._complete = False
        request = self._engine.submit(plan, lambda event: self._on_event(request, event))
        self._request = request
        self.started.emit()

    def end_runs(self) -> None:
        """Stop the plan within a token; `ended` follows, and the runs are kept. One that has not begun ends at once."""
        if self._request is None:
            return
        self._request.cancel()
        if self.progress is None:
            self._request = None
            self.ended.emit(True)

    def _on_event(self, request: EngineRequest, event: EngineEvent) -> None:
        if request is not self._request:
            return  # Its plan was stopped.
        match event:
            case BenchRun():
                self.runs.append(event)
                self.runs_made.emit()
            case BenchPiece():
                self.piece_written.emit(event)
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


@dataclass(frozen=True, slots=True)
class ReplayState:
    """The state of a replay at a moment.

    Attributes:
        characters: Number of characters written so far.
        tokens: Number of tokens written so far.
        elapsed_ms: The reply's own time; it stops with the last token.
        tokens_per_s: Decoding speed so far; None before there are two tokens.
        ended: Whether the reply is complete.
    """

    characters: int
    tokens: int
    elapsed_ms: float
    tokens_per_s: float | None
    ended: bool


class Replay:
    """A recorded reply that can be shown as it was at any moment."""

    def __init__(self, run: BenchRun) -> None:
        self.run = run
        self.text = "".join(run.pieces)
        self._times = run.times_ms
        self._ends = (0, *accumulate(len(piece) for piece in run.pieces))

    @property
    def duration_ms(self) -> float:
        """From the request to the last token."""
        return self._times[-1] if self._times else 0.0

    def at(self, clock_ms: float) -> ReplayState:
        """Return its state `clock_ms` after the request."""
        tokens = bisect_right(self._times, clock_ms)
        elapsed = min(clock_ms, self.duration_ms)
        decoding = elapsed - self._times[0] if tokens > 1 else 0.0
        speed = (tokens - 1) / decoding * 1000 if decoding > 0 else None
        ended = tokens == len(self._times)
        # At the end: the speed from the reply's counters, of which the ratio of a race is made.
        speed = self.run.statistics.decode_tps if ended else speed
        return ReplayState(self._ends[tokens], tokens, elapsed, speed, ended)


@dataclass(frozen=True, slots=True)
class RaceResult:
    """Two replies to one prompt.

    Attributes:
        name: Name of the drafted setting, such as `Drafter head, 4 beams of 5 tokens`.
        ratio: Speed of the drafted reply over that of the plain one; None where one has fewer than two tokens.
        difference: Where the texts differ; None where they are the same.
    """

    plain: Replay
    drafted: Replay
    name: str
    ratio: float | None
    difference: Difference | None

    @property
    def duration_ms(self) -> float:
        """How long the slower reply took."""
        return max(self.plain.duration_ms, self.drafted.duration_ms)

    @property
    def speed_text(self) -> str:
        """The ratio in words, as near as one reply each can tell; empty where there is none."""
        if not self.ratio:
            return ""
        if any(each.run.statistics.was_hindered for each in (self.plain, self.drafted)):
            return f"{self.name}: no verdict. The computer was busy with other work."
        times = f"{self.ratio:.{1 if self.ratio >= 0.1 else 2}f}"
        if times == "1.0":
            return f"{self.name}: about as fast at writing."
        return f"{self.name}: {'slower, ' if self.ratio < 1 else ''}about {times} times as fast at writing."

    @property
    def parted_by_rounding(self) -> bool:
        """Whether the texts differ by rounding alone."""
        return self.difference is not None and self.difference.near_tie(self.drafted.run.dtype)

    @property
    def verdict(self) -> str:
        """Whether the texts are the same, and if not, where they differ and by how little."""
        if self.difference is None:
            return "Same text, token for token."
        return _difference_text(self.difference, self.drafted.run.dtype)


class Race(Benchmark):
    """A benchmark of one prompt; runs one race at a time. `finished`, `stopped` or `failed` follows `begin_race`."""

    finished = Signal(RaceResult)
    stopped = Signal()

    def __init__(self, engine: EngineClient, parent: QObject | None = None) -> None:
        super().__init__(engine, parent)
        # Number of each race, from 0: it decides which reply comes first.
        self._turns = count()
        # When the race began, in seconds of the monotonic clock.
        self._began = 0.0
        self.runs_made.connect(self._on_runs_made)
        self.ended.connect(self._on_ended)

    @property
    def step_text(self) -> str:
        """The step under way; empty before the first one.

        In order: `Preparing for 12 s…` during the warm-up, `Off (1 of 2)…`, `Comparing the replies…`.
        """
        progress = self.progress
        if progress is None:
            return ""
        if progress.label:
            return f"{progress.label} ({progress.done + 1} of {progress.total})…"
        return f"{progress.text}…" if progress.done else f"Preparing for {time.monotonic() - self._began:.0f} s…"

    def begin_race(self, prompt: str, draft: DraftSettings, temperature: float, seed: int, max_tokens: int) -> None:
        """Have a prompt answered plainly and drafted.

        Raises:
            InvalidSettingError: If a value is out of range.
        """
        self._began = time.monotonic()
        plan = BenchPlan(
            (BenchCell(draft, temperature),),
            (Prompt(prompt),),
            max_tokens,
            1,
            seed,
            mlx_lm=False,
            overhead=False,
            turn=next(self._turns),
            streams=True,
        )
        self.run_plan(plan)

    @Slot()
    def _on_runs_made(self) -> None:
        """End where the warm-up shows that the mode cannot run: a plain reply alone is no race."""
        if any(run.mode_reason for run in self.runs):
            self.end_runs()

    @Slot(bool)
    def _on_ended(self, stopped: bool) -> None:
        plan = self.plan
        runs = {run.cell: run for run in self.runs}
        assert plan is not None, "a race ends after it was started"
        plain = runs.get(_PLAIN_CELL)
        drafted = runs.get(_DRAFTED_CELL)
        if drafted is not None and drafted.mode_reason:
            self.failed.emit(Failure(drafted.mode_reason, "Choose another drafting mode."))
        elif stopped or plain is None or drafted is None:
            self.stopped.emit()
        else:
            name = plan.all_cells[_DRAFTED_CELL].label
            ratio = speed_ratio(drafted, plain)
            self.finished.emit(RaceResult(Replay(plain), Replay(drafted), name, ratio, drafted.difference))


def _difference_text(difference: Difference, dtype: str) -> str:
    where = f"The texts differ from token {difference.index + 1} on: plain decoding {_token_text(difference.plain)}, "
    parted = f"{where}drafting {_token_text(difference.other)}."
    if difference.gap is None:
        return parted
    if difference.near_tie(dtype):
        return f"{parted} The two scored almost the same ({difference.gap:.2g} apart), so rounding in {dtype} decided."
    return f"{parted} Their scores are {difference.gap:.2g} apart, {_blame(dtype)}"


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
    return f"wrote “{token}”" if token else "had ended"
