"""Measures one model for `rdchat report`, part by part, in the given time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from time import monotonic
from typing import Any

from rdchat.inference.api.benchmark import EVERYDAY_PROMPTS, BenchPlan, BenchProgress, BenchRun, Sweep
from rdchat.inference.api.model_facts import DraftKind
from rdchat.inference.api.requests import DraftSettings, Mode
from rdchat.inference.benchmark.result import BenchResult, environment
from rdchat.inference.benchmark.runner import InterleavedRunner
from rdchat.inference.machine_report.measures import (
    DEPTHS,
    compare_plain,
    cost_by_rows,
    count_divergences,
    draft_size,
    graph_sizes,
)
from rdchat.inference.session import ChatSession

_PLAIN_DEPTHS = 128, 2048, 8192
_TEMPERATURES = 0.0, 0.7
_TOKENS = 48  # of a reply
_SHARES = {"rows": 0.3, "plain": 0.2, "divergences": 0.2, "bench": 0.3}  # of the time
_PRIVATE = {"model", "system"}  # of a benchmark's environment: reported elsewhere, or a folder's private name


class ModelReport:
    """Measures a model; iterating yields the measurement under way, in words.

    Args:
        session: Of the loaded model.
        seconds: The approximate time for all measurements; a part that has begun is finished, at least partly.
        cancelled: Called between calls of the model.
        drafters: Folders and hub ids of drafters to measure too.

    Attributes:
        found: Figures measured so far, without a model's or a drafter's name, folder or text.
        left_out: Parts that were not measured, in words, and why.
    """

    def __init__(
        self,
        session: ChatSession,
        seconds: float,
        cancelled: Callable[[], bool] = lambda: False,
        drafters: Sequence[str] = (),
    ) -> None:
        self._session, self._cancelled, self._drafters = session, cancelled, drafters
        self._began, self._seconds = monotonic(), seconds
        self.found: dict[str, Any] = {}
        self.left_out: list[str] = []

    def __iter__(self) -> Iterator[str]:
        info, capability = self._session.model.info, self._session.model.capability
        self.found["model"] = {
            name: getattr(info, name)
            for name in ("architecture", "dtype", "parameters", "weights_bytes", "context_length", "load_ms")
        }
        self.found["capability"] = {
            "verifies": capability.kind.name.lower(),
            "reason": capability.reason,
            "errors": dict(capability.errors),
        }
        yield "Counting what MLX queues"
        self.found["graph"] = graph_sizes(self._session)
        rows = partial(cost_by_rows, self._session.model, out_of_time=self._until("rows"))
        yield from self._at_depths("rows", DEPTHS, "calls of 1 to 32 rows", rows)
        plain = partial(compare_plain, self._session, out_of_time=self._until("rows", "plain"))
        yield from self._at_depths("plain", _PLAIN_DEPTHS, "plain decoding beside mlx-lm", plain)
        yield from self._divergences(self._until("rows", "plain", "divergences"))
        parts = 1 + len(self._drafters)  # parts that share the time for benchmarks
        sweep = Sweep((Mode.OFF, *self._modes()))
        yield from self._benchmark(self.found, sweep, "the benchmark", self._until(*_SHARES, left=1 - 1 / parts))
        for number, drafter in enumerate(self._drafters, 1):
            yield from self._drafter(number, drafter, self._until(*_SHARES, left=1 - (1 + number) / parts))

    def _until(self, *parts: str, left: float = 0.0) -> Callable[[], bool]:
        """Return a function that tells whether the time of these parts is used up, or the report was cancelled.

        Args:
            parts: Names of `_SHARES`.
            left: The portion of the last part's share to keep for others.
        """
        end = self._began + self._seconds * (sum(_SHARES[part] for part in parts) - left * _SHARES[parts[-1]])
        return lambda: self._cancelled() or monotonic() >= end

    def _at_depths(
        self, name: str, depths: Sequence[int], what: str, measure: Callable[[int], dict[str, Any]]
    ) -> Iterator[str]:
        """Measure at several lengths of the context; `measure` returns nothing once its time is up."""
        found = self.found[name] = dict[int, Any]()
        for depth in depths:
            words = f"{what} at {depth:,} tokens"
            if depth + 64 > self._session.model.info.context_length:
                self.left_out.append(f"{words}: beyond the model's context")
                continue
            yield f"Measuring {words}"
            if figures := measure(depth):
                found[depth] = figures
            else:
                self._no_time(words)

    def _divergences(self, out_of_time: Callable[[], bool]) -> Iterator[str]:
        counted: list[dict[str, Any]] = []
        self.found["divergences"] = counted
        mode = next((mode for mode in (Mode.DRAFTER, Mode.LOOKUP) if mode in self._modes()), None)
        if mode is None:
            return
        for temperature in _TEMPERATURES:
            what = f"divergences of {mode.words} at temperature {temperature:g}"
            last = None
            if not out_of_time():
                yield f"Counting {what}"
                for found in count_divergences(self._session, mode, temperature, _TOKENS):
                    last = found
                    if out_of_time():
                        break
            if last is None or not last.tokens:
                self._no_time(what)
            else:
                counted.append(asdict(last) | {"per_thousand": last.per_thousand})

    def _drafter(self, number: int, drafter: str, out_of_time: Callable[[], bool]) -> Iterator[str]:
        """Measure a drafter: the primitives of a draft, and its speed, alone and in the automatic mode."""
        what = f"drafter {number}"
        settings = DraftSettings(Mode.DRAFTER, drafter=drafter)
        yield f"Looking at {what}"
        option = next(one for one in self._session.draft_options(settings).modes if one.mode is Mode.DRAFTER)
        # The reason may contain a path.
        if not option.available or self._session.drafters.try_load(settings) is not None:
            self.left_out.append(f"{what}: it cannot be used with this model; rdchat ask --mode drafter says why")
            return
        found: dict[str, Any] = {"drafter": number, "kind": option.kind, "sure": option.match and option.match.sure}
        self.found.setdefault("drafters", []).append(found)
        found["graph"] = draft_size(self._session, settings)
        sweep = Sweep((Mode.OFF, Mode.DRAFTER, Mode.AUTO), drafters=(drafter,))
        yield from self._benchmark(found, sweep, f"the benchmark of {what}", out_of_time)

    def _benchmark(
        self, found: dict[str, Any], sweep: Sweep, what: str, out_of_time: Callable[[], bool]
    ) -> Iterator[str]:
        """Run a benchmark; add its figures, without names and texts, as `bench`, if there was time for any."""
        plan = BenchPlan(sweep.cells(), EVERYDAY_PROMPTS, max_tokens=_TOKENS, trials=3, overhead=False)
        runner = InterleavedRunner(plan, lambda _dtype: self._session)
        runs: list[BenchRun] = []
        for event in runner:
            if isinstance(event, BenchProgress):
                yield f"{what.removeprefix('the ').capitalize()}: {event.words}"
            elif isinstance(event, BenchRun):
                runs.append(event)
            if out_of_time():
                runner.cancel()
        turns, done = len(plan.prompts) * plan.trials, len({(run.prompt, run.trial) for run in runs})
        if done < turns:
            self._no_time(f"{turns - done} of {turns} turns of {what}")
        if not runs:
            return
        facts = {name: value for name, value in environment(self._session.model.info).items() if name not in _PRIVATE}
        record = BenchResult(plan, tuple(runs), facts, done == turns).as_json()
        for mode in record["modes"]:
            mode.pop("first_difference")  # contains pieces of replies
            mode["mode_reason"] = mode["mode_reason"] and "it did not run"  # may contain names
        found["bench"] = record

    def _modes(self) -> Sequence[Mode]:
        """Return the drafting modes that the model can run without further settings."""
        if self._session.model.capability.kind is DraftKind.NONE:
            return ()
        options = self._session.draft_options(DraftSettings()).modes
        return [option.mode for option in options if option.available and option.mode is not Mode.OFF]

    def _no_time(self, what: str) -> None:
        self.left_out.append(f"{what}: no time left")
