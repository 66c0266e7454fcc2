"""The result of a benchmark: its runs, and the figures of each setting.

A cell is one setting: a drafting mode with its sizes, a temperature and a precision.
A run is one reply. A ratio compares two runs of the same turn, that is of one prompt and trial. A figure is the median
of such ratios with their quartiles. If plain decoding is among the modes, its ratio compares two of its own runs; its
scatter is the error of all other ratios.
"""

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import Any, NamedTuple

from rdchat.inference.api.bench_plan import MLX_LM, BenchCell, BenchPlan, BenchRun, Difference
from rdchat.inference.api.reply_statistics import Spent, Stage
from rdchat.inference.api.requests import DRAFTERS, Mode, draft_size
from rdchat.wording import counted

# Titles of the stages of seeing images, by their names in the time ledger.
_SEEING = {str(stage): stage.row for stage in Stage if stage.spent is Spent.SEEING}
_ACCEPTANCE = "The share of drafted tokens that were kept, counted along the longest branch of each draft."


@dataclass(frozen=True, slots=True)
class Figure:
    """A median with its quartiles, of `n` values."""

    median: float
    low: float
    high: float
    n: int

    @classmethod
    def from_values(cls, values: Iterable[float | None]) -> "Figure | None":
        """Summarise the known values; None without any. Quartiles are interpolated, with the extremes included."""
        known = [value for value in values if value is not None]
        if len(known) < 2:
            return cls(known[0], known[0], known[0], 1) if known else None
        low, median, high = statistics.quantiles(known, n=4, method="inclusive")
        return cls(median, low, high, len(known))


class FigureKind(NamedTuple):
    """A column of the results.

    Attributes:
        unit: `x` for a ratio of speeds, `%` for a share, `/s` for a rate; empty for a number.
        digits: Decimals in the terminal.
    """

    title: str
    explanation: str
    unit: str
    digits: int


FIGURES = {
    "decode_tps": FigureKind("Tokens/s", "Tokens written per second, after the first one.", "/s", 1),
    "ratio_to_plain": FigureKind("Speed-up", "Speed over plain decoding of the same prompt and trial.", "x", 2),
    "ratio_to_mlx_lm": FigureKind("Against mlx-lm", "Speed over stock mlx-lm on the same prompt and trial.", "x", 2),
    "tokens_per_target_call": FigureKind("Tokens per step", "Tokens written for each step of the model.", "", 2),
    "acceptance_rate": FigureKind("Acceptance", _ACCEPTANCE, "%", 2),
    "nodes_per_target_call": FigureKind(
        "Checked per step", "Tokens checked per step, in all branches of a draft.", "", 1
    ),
    "draft_ms": FigureKind("Draft, ms", "Milliseconds that a draft takes alone.", "", 1),
    "host_syncs_per_round": FigureKind("Waits per step", "How often a step waits for the device.", "", 2),
    "overhead": FigureKind("Overhead", "Time of a step over that of drafting and checking alone.", "x", 2),
}
# A figure for each name of `FIGURES`; None where it has no meaning.
Figures = Mapping[str, Figure | None]


def speed_ratio(run: BenchRun, other: BenchRun | None) -> float | None:
    """Return how many times as fast as `other` a run decoded; None where either did not decode."""
    mine = run.statistics.decode_tps
    theirs = other.statistics.decode_tps if other else None
    return mine / theirs if mine and theirs else None


@dataclass(frozen=True, slots=True)
class CellReport:
    """The results of one setting.

    Attributes:
        name: Mode and shape, and whatever else distinguishes it from the other settings.
        figures: The figures over all prompts.
        groups: The figures by group of prompts.
        identical_text: Whether all replies equal plain decoding's; None if that is unknown.
        first_difference: First difference of the reply that differs most seriously.
        mode_reason: Why its mode did not run.
        chosen: Automatic mode: how many replies ended with each choice.
        dtype: Precision of the model's weights, also for `auto`; empty if nothing ran.
    """

    cell: BenchCell
    name: str
    figures: Figures
    groups: Mapping[str, Figures] = field(default_factory=dict)
    pooled: Mapping[str, float | None] = field(default_factory=dict)
    """Sum of the decoded tokens over sum of the target calls, by group of prompts; `all` has all prompts."""
    identical_text: bool | None = True
    first_difference: Difference | None = None
    mode_reason: str | None = None
    chosen: Mapping[str, int] = field(default_factory=dict)
    dtype: str = ""

    @property
    def same_text(self) -> str:
        """`Yes`, `No`, `Near-tie` or `Not run`; empty if unknown."""
        if self.mode_reason:
            return "Not run"
        if self.identical_text is None or self.figures["decode_tps"] is None:
            return ""
        if self.first_difference is None:
            return "Yes"
        return "Near-tie" if self.first_difference.near_tie(self.dtype) else "No"

    @property
    def note(self) -> str:
        """A note on the figures, which begins in lower case; often empty."""
        if self.mode_reason:
            return f"not run. {self.mode_reason}"
        if self.first_difference:
            return self.first_difference.describe(self.dtype)
        chosen = "; ".join(f"{_choice_text(choice)}, {counted(count, 'time')}" for choice, count in self.chosen.items())
        return f"ended with {chosen}." if chosen else ""

    def as_json(self, *, drafter: bool) -> dict[str, Any]:
        """Return the setting's part of the JSON object; `drafter` adds the drafter's folder."""
        cell = self.cell
        difference = self.first_difference
        return {
            "mode": cell.draft.mode.value,
            **cell.draft.sizes,
            **({"lookup_branch": cell.draft.lookup_branch} if cell.draft.mode.uses("lookup_branch") else {}),
            **({"drafter": cell.draft.drafter} if drafter and _has_head(cell) else {}),
            "temperature": cell.temperature,
            "dtype": self.dtype or cell.dtype.value,
            "mode_reason": self.mode_reason,
            "identical_text": self.identical_text,
            "first_difference": difference and asdict(difference),
            **({"chosen": dict(self.chosen)} if cell.draft.mode is Mode.AUTO else {}),
            **_figures_json(self.figures),
            "pooled_tokens_per_target_call": dict(self.pooled),
            "groups": {name: _figures_json(figures) for name, figures in self.groups.items()},
        }


@dataclass(frozen=True)
class BenchResult:
    """A benchmark that was run, here or elsewhere.

    Attributes:
        plan: The plan; without texts of prompts, if read from a file.
        runs: The runs so far.
        environment: Versions and facts; see `result_files.environment`.
        complete: Whether it neither stopped nor failed.
    """

    plan: BenchPlan
    runs: tuple[BenchRun, ...]
    environment: Mapping[str, Any]
    complete: bool = True

    @property
    def hindered_runs(self) -> int:
        """Number of runs during which other programs kept the computer busy."""
        return sum(run.statistics.was_hindered for run in self.runs)

    @property
    def load_note(self) -> str:
        """A sentence on these runs; empty without any."""
        hindered = self.hindered_runs
        text = f"The computer was busy with other work in {hindered:,} of {len(self.runs):,} replies."
        return text if hindered else ""

    @property
    def seeing_ms(self) -> Mapping[str, float]:
        """Median milliseconds per reply, by stage of seeing images, and of all stages (`see`); empty without images."""
        ledgers = [run.statistics.ledger for run in self.runs if run.token_ids]
        stages = dict.fromkeys(entry.name for ledger in ledgers for entry in ledger if entry.name in _SEEING)
        medians: dict[str, float] = {}
        for name in stages:
            of_replies = [sum(entry.total_ms for entry in ledger if entry.name == name) for ledger in ledgers]
            medians[name] = statistics.median(of_replies)
        return medians

    @property
    def seeing_note(self) -> str:
        """A sentence on the time for images; empty without any."""
        times = dict(self.seeing_ms)
        if not times:
            return ""
        total = times.pop(Stage.SEE)
        parts = ", ".join(f"{_SEEING[name]} {ms:,.0f} ms" for name, ms in times.items())
        return f"Seeing images took {total:,.0f} ms per reply: {parts}."

    @cached_property
    def reports(self) -> tuple[CellReport, ...]:
        """The results of each listed setting, in their order."""
        return self._reports(len(self.plan.baselines), self.plan.cells)

    @cached_property
    def baseline_reports(self) -> tuple[CellReport, ...]:
        """The plain decoding that speed-ups compare with; nothing where it is among the settings."""
        return () if any(cell.plain for cell in self.plan.cells) else self.plain_reports

    @cached_property
    def plain_reports(self) -> tuple[CellReport, ...]:
        """The plain decoding that speed-ups compare with, at each precision and temperature."""
        return self._reports(0, self.plan.baselines)

    def _reports(self, first: int, cells: Sequence[BenchCell]) -> tuple[CellReport, ...]:
        """Return the results of some cells; `first` is the index of the first in `BenchPlan.all_cells`."""
        by_cell = [[run for run in self.runs if run.cell == first + index] for index in range(len(cells))]
        names = _names(cells, [next((run.dtype for run in runs if not run.mode_reason), "") for runs in by_cell])
        return tuple(self._report(cell, name, runs) for cell, name, runs in zip(cells, names, by_cell, strict=True))

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object that `rdchat bench --json` prints and the window exports."""
        plan = self.plan
        several = len({cell.draft.drafter for cell in plan.cells if _has_head(cell)}) > 1
        return {
            "environment": dict(self.environment),
            "settings": {
                "prompts": len(plan.prompts),
                "max_tokens": plan.max_tokens,
                "trials": plan.trials,
                "seed": plan.seed,
            },
            "modes": [report.as_json(drafter=several) for report in self.reports],
            "complete": self.complete,
            "hindered_runs": self.hindered_runs,
            "seeing_ms": dict(self.seeing_ms),
        }

    def runs_of_turn(self, run: BenchRun) -> tuple[BenchRun | None, BenchRun | None]:
        """Return the runs of plain decoding and of stock mlx-lm in the same turn."""
        return self._by_turn.get((run.baseline, run.turn)), self._by_turn.get((MLX_LM, run.turn))

    @cached_property
    def _by_turn(self) -> Mapping[tuple[int, tuple[int, int, int]], BenchRun]:
        """The runs by cell and turn."""
        return {(run.cell, run.turn): run for run in self.runs}

    def _report(self, cell: BenchCell, name: str, all_runs: Sequence[BenchRun]) -> CellReport:
        """Return the results of one setting from its runs; those that did not run give only the reason."""
        runs = [run for run in all_runs if not run.mode_reason]
        groups = [group for group in dict.fromkeys(run.group for run in runs) if group]
        differences = [(run.difference, run.dtype) for run in runs if run.difference]
        # The first of equals is taken; a near-tie must not hide a serious difference after it.
        worst = max(differences, key=lambda match: match[0].seriousness(match[1]), default=(None, ""))[0]
        return CellReport(
            cell,
            name,
            figures=self._figures(runs),
            groups={group: self._figures([run for run in runs if run.group == group]) for group in groups},
            pooled={group: _pooled(run for run in runs if group in {run.group, "all"}) for group in [*groups, "all"]},
            # Without a reply nothing can be said.
            identical_text=not differences if runs and all(run.token_ids for run in runs) else None,
            first_difference=worst,
            mode_reason=next((run.mode_reason for run in all_runs if run.mode_reason), None),
            chosen=Counter(run.chosen for run in runs if run.chosen),
            dtype=next((run.dtype for run in runs), ""),
        )

    def _figures(self, runs: Sequence[BenchRun]) -> Figures:
        values_by_run = [self._values(run) for run in runs]
        return {name: Figure.from_values(values[name] for values in values_by_run) for name in FIGURES}

    def _values(self, run: BenchRun) -> dict[str, float | None]:
        """Return one run's value for each name of `FIGURES`; None where it has no meaning or is unknown."""
        counts = run.statistics
        plain, mlx_lm = self.runs_of_turn(run)
        # 0 waits in a reply with rounds means that they were not counted.
        syncs_known = counts.rounds and counts.target_calls and counts.host_syncs
        return {
            "decode_tps": counts.decode_tps,
            "ratio_to_plain": speed_ratio(run, plain),
            "ratio_to_mlx_lm": speed_ratio(run, mlx_lm),
            "tokens_per_target_call": counts.tokens_per_target_call,
            "acceptance_rate": counts.acceptance_rate,
            "nodes_per_target_call": counts.checked_per_step,
            "draft_ms": run.draft_ms,
            # The automatic mode's plain calls count too.
            "host_syncs_per_round": counts.host_syncs / counts.target_calls if syncs_known else None,
            "overhead": run.overhead,
        }


def _pooled(runs: Iterable[BenchRun]) -> float | None:
    """Return the sum of the runs' decoded tokens over the sum of their target calls; None without calls."""
    counts = [run.statistics for run in runs]
    calls = sum(count.target_calls for count in counts)
    return sum(count.generated_tokens - 1 for count in counts) / calls if calls else None


def _names(cells: Sequence[BenchCell], dtypes: Sequence[str]) -> list[str]:
    """Return a name for each cell: mode and shape, and whatever else differs between cells.

    Args:
        cells: The cells.
        dtypes: For each the precision in which it ran, also where it only says `auto`; empty if nothing ran.
    """
    drafters = _names_apart({cell.draft.drafter for cell in cells if _has_head(cell)})
    several_dtypes = len({cell.dtype for cell in cells}) > 1
    several_temperatures = len({cell.temperature for cell in cells}) > 1
    names = []
    for cell, dtype in zip(cells, dtypes, strict=True):
        name = cell.label
        if len(drafters) > 1 and _has_head(cell):
            name += f", {drafters[cell.draft.drafter]}"
        if several_dtypes:
            name += f", {dtype or cell.dtype.value}"
        if several_temperatures:
            name += f", T {cell.temperature:g}"
        names.append(name)
    return names


def _choice_text(chosen: str) -> str:
    """Return `drafter, 4 beams of 5 tokens` for `drafter W4 L5`; a file may hold anything."""
    match = re.fullmatch(r"(\w+) W(\d{1,6}) L(\d{1,6})", chosen)
    if match is None:
        return chosen
    name, *sizes = match.groups()
    width, length = map(int, sizes)
    # Another version of rdchat may have written the file, with other modes.
    size = DRAFTERS[Mode(name)].draft_size(width, length) if name in DRAFTERS else draft_size(width, length)
    return f"{name}, {size}"


def _has_head(cell: BenchCell) -> bool:
    """Return whether the cell's mode drafts with a drafter head, which its settings name."""
    return cell.draft.mode.uses("drafter")


def _names_apart(drafters: Iterable[str | None]) -> dict[str | None, str]:
    """Return a short name for each drafter: its folder's name, with as many parent folders as make it unique."""
    names: dict[str | None, str] = {}
    parts = {drafter: PurePath(drafter).parts if drafter else ("its own",) for drafter in drafters}
    for drafter, own in parts.items():
        count = 1
        while count < len(own) and sum(other[-count:] == own[-count:] for other in parts.values()) > 1:
            count += 1
        names[drafter] = "/".join(own[-count:])
    return names


def _figures_json(figures: Figures) -> dict[str, Any]:
    return {name: figure and asdict(figure) for name, figure in figures.items()}
