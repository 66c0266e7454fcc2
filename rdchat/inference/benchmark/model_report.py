"""Measures one model for `rdchat report`: how it verifies drafts, the costs of its calls, and a benchmark.

It ends after about the given time. The result has no names of models or drafters, no folders and no texts.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

from rdchat.inference.api import (
    EVERYDAY_PROMPTS,
    BenchPlan,
    BenchProgress,
    BenchRun,
    Capability,
    DraftKind,
    DraftSettings,
    Mode,
    Sweep,
)
from rdchat.inference.benchmark.result import BenchResult, environment
from rdchat.inference.benchmark.runner import InterleavedRunner
from rdchat.inference.session import ChatSession

_TEMPERATURES = 0.0, 0.7
_MAX_TOKENS = 48
# Share of the time that measuring costs may take.
_COSTS_SHARE = 0.3
# Facts of `environment` that the report leaves out.
_PRIVATE = {"model", "system"}


def _capability_text(capability: Capability) -> str:
    """Return what kind of drafts a model verifies, and how that was found."""
    errors = capability.errors
    text = f"drafts that it verifies: {capability.kind.value}; inputs tried: {capability.inputs}"
    if "others" in errors:
        text += f"; rows of a tree's branches are off by {errors['others']:.1g} standard deviations of the logits, and "
        text += f"rounding explains {errors['limit']:.1g}"
    return text


class ModelReport:
    """Measures a model; iterating yields the name of the measurement under way.

    Args:
        session: Session of the loaded model.
        seconds: The approximate time for all measurements; a part that has begun is finished, at least partly.
        cancelled: Called between calls of the model.
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
        cancelled: Callable[[], bool] = lambda: False,
        drafters: Sequence[str] = (),
    ) -> None:
        self._session = session
        self._cancelled = cancelled
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
            "result": _capability_text(capability),
            "reason": capability.reason,
            "errors": dict(capability.errors),
        }
        yield from self._costs()
        yield from self._benchmark()

    def _is_late(self, share: float) -> bool:
        """Return whether this share of the time is used up, or the report was cancelled."""
        return self._cancelled() or monotonic() >= self._start + share * self._seconds

    def _costs(self) -> Iterator[str]:
        """Measure the costs of calls and drafts as the automatic mode does, which keeps them for its own use."""
        yield "Measuring the costs of calls"
        auto = self._session.drafters.auto
        while more := auto.measure():
            if self._is_late(_COSTS_SHARE):
                break
        if more:
            self._no_time("some costs of calls")
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
        for event in runner:
            if isinstance(event, BenchProgress):
                left_s = max(self._start + self._seconds - monotonic(), 0)
                # The rest is left out where the time ends first.
                progress = event if event.left_s is None else replace(event, left_s=min(event.left_s, left_s))
                yield f"Benchmark: {progress.done} of {progress.total}{progress.left_text}"
            elif isinstance(event, BenchRun):
                runs.append(event)
            if self._is_late(1):
                runner.cancel()
        turns = len(plan.prompts) * plan.trials
        done = len({(run.prompt, run.trial) for run in runs})
        if done < turns:
            self._no_time(f"{turns - done} of {turns} turns of the benchmark")
        if not runs:
            return
        all_facts = environment(self._session.model.info)
        facts = {name: value for name, value in all_facts.items() if name not in _PRIVATE}
        record = BenchResult(plan, tuple(runs), facts, done == turns).as_json()
        for mode in record["modes"]:
            mode.pop("first_difference")  # It contains pieces of replies.
            mode["mode_reason"] = mode["mode_reason"] and "it did not run"  # It may contain names.
            if mode.get("drafter"):
                mode["drafter"] = f"drafter {1 + self._drafters.index(mode['drafter'])}"
        self.facts["bench"] = record
        # `mode` is the index of a run's cell in the benchmark's `modes`.
        self.facts["differences"] = [
            {"mode": run.cell - len(plan.baselines), "gap": run.difference.gap, "rounding": run.difference.rounding}
            for run in runs
            if run.difference
        ]

    def _fits(self, drafter: str) -> bool:
        """Return whether the model can use a drafter; if not, list it as left out."""
        if self._session.drafters.try_load(DraftSettings(Mode.DRAFTER, drafter=drafter)) is None:
            return True
        number = 1 + self._drafters.index(drafter)
        self.left_out.append(f"drafter {number}: it cannot be used with this model; rdchat ask --mode drafter says why")
        return False

    def _modes(self) -> Sequence[Mode]:
        """Return the drafting modes that the model can run without further settings."""
        if self._session.model.capability.kind is DraftKind.NONE:
            return ()
        options = self._session.possible_modes(DraftSettings()).modes
        return [option.mode for option in options if option.available and option.mode is not Mode.OFF]

    def _no_time(self, part: str) -> None:
        """List a part as left out for lack of time."""
        self.left_out.append(f"{part}: no time left")
