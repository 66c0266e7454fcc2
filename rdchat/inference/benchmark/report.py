"""What a benchmark's runs come to: figures for each cell, as data and as JSON. No MLX and no Qt here.

Ratios are taken within a turn, between runs of the same prompt and trial, and summarised as the median of those ratios
with their quartiles. Where plain decoding is listed among the modes, its ratio compares one run of it with another run
of it beside it: what that scatters by is the error bar of all the others.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from rdchat.inference.api.bench_plan import BenchCell, BenchPlan
from rdchat.inference.api.bench_results import FIGURES, MLX_LM, BenchRecord, BenchRun, CellReport, Difference, Figure
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import Mode

_HEAD_MODES = {Mode.DRAFTER, Mode.AUTO}
_Runs = Mapping[tuple[int, int, int], BenchRun]  # (baseline, prompt, trial) -> run


def summarise(plan: BenchPlan, runs: Sequence[BenchRun]) -> tuple[CellReport, ...]:
    """Return what was found out about each listed cell, in the order they are listed."""
    plain, outside = baseline_runs(runs)
    first = len(plan.baselines)
    return tuple(
        _cell_report(cell, [run for run in runs if run.cell == first + place], plain, outside)
        for place, cell in enumerate(plan.cells)
    )


def as_json(record: BenchRecord) -> dict[str, Any]:
    """Return the one object that `rdchat bench --json` prints and the window exports."""
    plan = record.plan
    several = len({cell.draft.drafter for cell in plan.cells if _has_head(cell)}) > 1
    return {
        "environment": dict(record.environment),
        "settings": {
            "prompts": len(plan.prompts),
            "max_tokens": plan.max_tokens,
            "trials": plan.trials,
            "seed": plan.seed,
        },
        "modes": [_report_json(report, drafter=several) for report in summarise(plan, record.runs)],
        "complete": record.complete,
    }


def cell_names(reports: Sequence[CellReport]) -> list[str]:
    """Return what tells the cells apart: mode and shape, and what there are several of beside them."""
    drafters = _names_apart({report.cell.draft.drafter for report in reports if _has_head(report.cell)})
    several_dtypes = len({report.cell.dtype for report in reports}) > 1
    several_temperatures = len({report.cell.temperature for report in reports}) > 1
    return [
        report.cell.words
        + (f", {drafters[report.cell.draft.drafter]}" if len(drafters) > 1 and _has_head(report.cell) else "")
        + (f", {report.dtype or report.cell.dtype.value}" if several_dtypes else "")
        + (f", T {report.cell.temperature:g}" if several_temperatures else "")
        for report in reports
    ]


def _has_head(cell: BenchCell) -> bool:
    return cell.draft.mode in _HEAD_MODES


def _names_apart(drafters: Iterable[str | None]) -> dict[str | None, str]:
    """Return a short name for each drafter: its folder's, or with those around it where that is no name of its own."""
    names: dict[str | None, str] = {}
    parts = {drafter: PurePath(drafter).parts if drafter else ("its own",) for drafter in drafters}
    for drafter, own in parts.items():
        count = 1
        while count < len(own) and sum(other[-count:] == own[-count:] for other in parts.values()) > 1:
            count += 1
        names[drafter] = "/".join(own[-count:])
    return names


def baseline_runs(runs: Iterable[BenchRun]) -> tuple[_Runs, _Runs]:
    """Return the runs of plain decoding and those of mlx-lm, by (baseline, prompt, trial)."""
    plain, outside = {}, {}
    for run in runs:
        place = run.baseline, run.prompt, run.trial
        if run.cell == MLX_LM:
            outside[place] = run
        elif run.cell == run.baseline:
            plain[place] = run
    return plain, outside


def _cell_report(cell: BenchCell, runs: Sequence[BenchRun], plain: _Runs, outside: _Runs) -> CellReport:
    reason = next((run.mode_reason for run in runs if run.mode_reason), None)
    runs = [run for run in runs if not run.mode_reason]
    values = [(run.group, _values(run, plain, outside)) for run in runs]
    groups = [name for name in dict.fromkeys(group for group, _ in values) if name]
    return CellReport(
        cell,
        _figures([found for _, found in values]),
        {name: _figures([found for group, found in values if group == name]) for name in groups},
        all(run.difference is None for run in runs) if runs and all(run.token_ids for run in runs) else None,
        _worst_difference(runs),
        reason,
        Counter(run.chosen for run in runs if run.chosen),
        next((run.dtype for run in runs), ""),
    )


def _worst_difference(runs: Iterable[BenchRun]) -> Difference | None:
    """Return the most serious difference, of equals the first: a near-tie before it must not hide it."""
    found = [(run.difference, run.dtype) for run in runs if run.difference]
    return max(found, key=lambda one: one[0].seriousness(one[1]), default=(None, ""))[0]


def _values(run: BenchRun, plain: _Runs, outside: _Runs) -> dict[str, float | None]:
    """Return one run's value for each name of `FIGURES`."""
    statistics, place = run.statistics, (run.baseline, run.prompt, run.trial)
    return {
        "decode_tps": statistics.decode_tps,
        "ratio_to_plain": speed_ratio(run, plain.get(place)),
        "ratio_to_mlx_lm": speed_ratio(run, outside.get(place)),
        "tokens_per_target_call": statistics.tokens_per_target_call,
        "acceptance_rate": statistics.acceptance_rate,
        "nodes_per_target_call": _nodes_per_call(statistics),
        "draft_ms": run.draft_ms,
        "host_syncs_per_round": _syncs_per_round(statistics),
        "overhead": run.overhead,
    }


def _syncs_per_round(statistics: Statistics) -> float | None:
    """Return synchronisations a target call, the automatic mode's plain ones included; None where none are known."""
    counted = statistics.rounds and statistics.host_syncs
    return statistics.host_syncs / statistics.target_calls if counted else None


def _nodes_per_call(statistics: Statistics) -> float | None:
    """Return the packed rows of a target call, its root included; None in plain decoding."""
    return statistics.verified_nodes / statistics.rounds if statistics.rounds else None


def speed_ratio(run: BenchRun, other: BenchRun | None) -> float | None:
    """Return how many times as fast one run decoded as another; None where either did not decode."""
    mine = run.statistics.decode_tps
    theirs = other.statistics.decode_tps if other else None
    return mine / theirs if mine and theirs else None


def _figures(values: Sequence[Mapping[str, float | None]]) -> dict[str, Figure | None]:
    return {name: Figure.of([value for found in values if (value := found[name]) is not None]) for name in FIGURES}


def _report_json(report: CellReport, *, drafter: bool) -> dict[str, Any]:
    """Return a cell's part; it names the drafter, by its folder, only where there are several."""
    cell, difference = report.cell, report.first_difference
    return {
        "mode": cell.draft.mode.value,
        **cell.shape,
        **({"drafter": cell.draft.drafter} if drafter and _has_head(cell) else {}),
        "temperature": cell.temperature,
        "dtype": report.dtype or cell.dtype.value,
        "mode_reason": report.mode_reason,
        "identical_text": report.identical_text,
        "first_difference": difference and asdict(difference),
        **({"chosen": dict(report.chosen)} if cell.draft.mode is Mode.AUTO else {}),
        **_figures_json(report.figures),
        "groups": {name: _figures_json(figures) for name, figures in report.groups.items()},
    }


def _figures_json(figures: Mapping[str, Figure | None]) -> dict[str, Any]:
    return {name: figure and asdict(figure) for name, figure in figures.items()}
