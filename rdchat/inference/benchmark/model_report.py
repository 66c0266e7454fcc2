"""Measures one model for `rdchat report`: how it verifies drafts, the costs of its calls, and a benchmark.

It ends after about the given time. The result has no names of models or drafters, no folders and no texts.
"""

from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any

from rdchat import machine
from rdchat.inference.api import (
    EVERYDAY_PROMPTS,
    BenchPlan,
    BenchProgress,
    BenchResult,
    BenchRun,
    DraftKind,
    DraftSettings,
    Mode,
    Sweep,
)
from rdchat.inference.benchmark.result_files import environment
from rdchat.inference.benchmark.runner import InterleavedRunner
from rdchat.inference.loading import load_model
from rdchat.inference.session import ChatSession

_TEMPERATURES = 0.0, 0.7
_MAX_TOKENS = 48
# Share of the time that measuring costs may take.
_COSTS_SHARE = 0.3
# Facts of `environment` that the report leaves out.
_PRIVATE = {"model", "system"}


class ModelReport:
    """Measures a model; iterating yields the name of the measurement under way.

    Args:
        session: Session of the loaded model.
        seconds: The approximate time for all measurements; a part that has begun is finished, at least partly.
        drafters: Folders and hub ids of drafters to measure besides the model's own.

    Attributes:
        facts: The model, how it verifies drafts, the measured costs of its calls, a benchmark, and how
            close the scores were where replies differ. It has no name, folder or text of a model, a drafter or a reply.
        left_out: Parts that were not measured, and why.
    """

    def __init__(
        self,
        session: ChatSession,
        seconds: float,
        drafters: Sequence[str] = (),
    ) -> None:
        self._session = session
        self._drafters = tuple(drafters)
        self._start = monotonic()
        self._seconds = seconds
        self.facts: dict[str, Any] = {}
        self.left_out: list[str] = []

    def __iter__(self) -> Iterator[str]:
        info = self._session.model.info
        capability = self._session.model.capability
        self.facts["model"] = {
            name: getattr(info, name)
            for name in ("architecture", "dtype", "parameters", "weights_bytes", "context_length", "load_ms")
        }
        self.facts["capability"] = {
            "verification": capability.kind.value,
            "inputs": capability.inputs,
            "reason": capability.reason,
            "errors": dict(capability.errors),
        }
        yield from self._costs()
        yield from self._benchmark()

    def _is_late(self, share: float) -> bool:
        """Return whether this share of the time is used up."""
        return monotonic() >= self._start + share * self._seconds

    def _costs(self) -> Iterator[str]:
        """Measure the costs of calls and drafts as the automatic mode does, which keeps them for its own use."""
        auto = self._session.drafters.auto
        more = True
        while more and not self._is_late(_COSTS_SHARE):
            yield "Measuring the costs of calls"
            more = auto.measure()
        if more:
            self._no_time("some costs of calls")
        self.left_out += [f"costs of drafts, if they are new: {reason}" for reason in machine.slowed_by()]
        self.facts["costs_ms"] = {
            part.value: [[*key, ms] for key, ms in sorted(costs.items())] for part, costs in auto.measured_costs.items()
        }

    def _benchmark(self) -> Iterator[str]:
        """Run one benchmark of all modes and drafters; keep its figures without names and texts.

        The facts of each mode are those of `BenchResult.as_json`, except for what may have names or texts.
        """
        modes = [Mode.OFF, *self._modes()]
        fitting = [drafter for drafter in self._drafters if self._fits(drafter)]
        cells = Sweep(tuple(modes), temperatures=_TEMPERATURES).cells()
        if fitting:
            cells += Sweep((Mode.DRAFTER,), drafters=tuple(fitting), temperatures=_TEMPERATURES).cells()
        plan = BenchPlan(cells, EVERYDAY_PROMPTS, max_tokens=_MAX_TOKENS, trials=3, overhead=False)
        runner = InterleavedRunner(plan, lambda _dtype: self._session)
        runs: list[BenchRun] = []
        turns = len(plan.prompts) * plan.trials
        done = 0
        for event in runner:
            if isinstance(event, BenchProgress):
                yield f"Benchmark: {event.done} of {event.total}"
            elif isinstance(event, BenchRun):
                runs.append(event)
                done = len({(run.prompt, run.trial) for run in runs})
                # What is kept outlives this process.
                self._keep(BenchResult(plan, tuple(runs), environment(self._session.model.info), done == turns))
            if self._is_late(1):
                runner.cancel()
        if done < turns:
            self._no_time(f"{turns - done} of {turns} turns of the benchmark")

    def _keep(self, result: BenchResult) -> None:
        """Keep the figures of a benchmark so far."""
        record = result.as_json()
        record["environment"] = {name: fact for name, fact in record["environment"].items() if name not in _PRIVATE}
        for mode in record["modes"]:
            mode.pop("first_difference")  # It contains pieces of replies.
            mode["mode_reason"] = mode["mode_reason"] and "it did not run"  # It may contain names.
            if mode.get("drafter"):
                mode["drafter"] = f"drafter {1 + self._drafters.index(mode['drafter'])}"
        self.facts["bench"] = record
        # `mode` is the index of a run's cell in the benchmark's `modes`.
        self.facts["differences"] = [
            {
                "mode": run.cell - len(result.plan.baselines),
                "gap": run.difference.gap,
                "rounding": run.difference.rounding,
            }
            for run in result.runs
            if run.difference
        ]

    def _fits(self, drafter: str) -> bool:
        """Return whether the model can use a drafter; if not, list it as left out."""
        if not isinstance(self._session.drafters.load_drafters(DraftSettings(Mode.DRAFTER, drafter=drafter)), str):
            return True
        number = 1 + self._drafters.index(drafter)
        self.left_out.append(f"drafter {number}: it cannot be used with this model; rdchat ask --mode drafter says why")
        return False

    def _modes(self) -> Sequence[Mode]:
        """Return the drafting modes that the model can run without further settings."""
        if self._session.model.capability.kind is DraftKind.NONE:
            return ()
        options = self._session.draft_options(DraftSettings()).modes
        return [option.mode for option in options if option.available and option.mode is not Mode.OFF]

    def _no_time(self, part: str) -> None:
        """List a part as left out for lack of time."""
        self.left_out.append(f"{part}: no time left")


def measure_model(
    facts: dict[str, Any], show: Callable[[str], None], model: str | None, seconds: float, drafters: Sequence[str]
) -> None:
    """Load a model and add what `ModelReport` finds; `left_out` are the parts that were not measured.

    Args:
        facts: Get the results, as soon as they are known.
        show: Called with what is done next.
        model: See `load_model`.
        seconds: The approximate time, without that of loading.
        drafters: See `ModelReport`.
    """
    session = ChatSession(load_model(model, on_progress=lambda progress: show(progress.stage)))
    report = ModelReport(session, seconds, drafters)
    report.facts = facts
    facts["left_out"] = report.left_out
    for stage in report:
        show(stage)
