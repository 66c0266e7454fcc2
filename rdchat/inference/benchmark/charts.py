"""The data of a benchmark's plots, from its result. No MLX and no Qt here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rdchat.inference.api.bench_results import MLX_LM
from rdchat.inference.api.requests import Mode
from rdchat.inference.benchmark.result import BenchResult, CellReport, Figure, speed_ratio

Bars = tuple[str, tuple[tuple[str, Figure], ...]]
"""A group of bars: a precision such as `float16`, and the name and speed-up over plain decoding of each bar."""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Speed-up of the drafter head over beam width x beam length, for one precision."""

    dtype: str
    widths: tuple[int, ...]  # beam widths that were measured, ascending
    lengths: tuple[int, ...]  # beam lengths that were measured, ascending
    values: Mapping[tuple[int, int], float]  # median speed-up at (width, length); pairs not measured are missing
    reference: str = "Plain decoding"  # has the speed-up 1

    @property
    def best(self) -> tuple[int, int] | None:
        """The fastest pair, the smallest of equals; None if nothing was measured."""
        return max(sorted(self.values), key=lambda pair: self.values[pair], default=None)


@dataclass(frozen=True, slots=True)
class Charts:
    """The plots of a benchmark.

    For each precision, and for each temperature if there are several: a bar for stock mlx-lm, a bar for the fastest
    shape of each mode, and a map of the drafter head's beams if there are several.
    """

    bars: tuple[Bars, ...]
    maps: tuple[HeatMap, ...] = ()

    @classmethod
    def of(cls, result: BenchResult) -> "Charts":
        """Return the plots of a result."""
        plan, bars, maps = result.plan, [], []
        several = len({cell.temperature for cell in plan.cells}) > 1
        precisions = {run.baseline: run.dtype for run in result.runs if run.dtype}
        for index, baseline in enumerate(plan.baselines):
            name = precisions.get(index, baseline.dtype.value)
            if several:
                name += f", temperature {baseline.temperature:g}" if baseline.temperature else ", greedy"
            reports = [report for report in result.reports if plan.baseline_of(report.cell) == index]
            if group := _mlx_lm_bar(result, index) + _fastest(reports):
                bars.append((name, group))
            if heat_map := _heat_map(name, reports):
                maps.append(heat_map)
        return cls(tuple(bars), tuple(maps))


def _mlx_lm_bar(result: BenchResult, baseline: int) -> tuple[tuple[str, Figure], ...]:
    """Return mlx-lm's speed over our plain decoding of the same turn."""
    runs = [run for run in result.runs if run.baseline == baseline]
    ours = [run for run in runs if run.cell != MLX_LM and result.plan.all_cells[run.cell].plain]
    ours.sort(key=lambda run: run.cell, reverse=True)  # the baseline, which has the first index, wins
    plain = {(run.prompt, run.trial): run for run in ours}
    figure = Figure.of(speed_ratio(run, plain.get((run.prompt, run.trial))) for run in runs if run.cell == MLX_LM)
    return (("mlx-lm", figure),) if figure else ()


def _fastest(reports: Sequence[CellReport]) -> tuple[tuple[str, Figure], ...]:
    """Return the fastest shape of each mode."""
    fastest: dict[Mode, tuple[str, Figure]] = {}
    for report in reports:
        mode, figure = report.cell.draft.mode, report.figures["ratio_to_plain"]
        if figure and (mode not in fastest or figure.median > fastest[mode][1].median):
            fastest[mode] = report.cell.words, figure
    return tuple(fastest.values())


def _heat_map(name: str, reports: Sequence[CellReport]) -> HeatMap | None:
    drafts = ((report.cell.draft, report) for report in reports)
    beams = {(draft.beam_width, draft.beam_length): report for draft, report in drafts if draft.mode is Mode.DRAFTER}
    if len(beams) < 2:
        return None
    widths, lengths = (tuple(sorted({pair[side] for pair in beams})) for side in (0, 1))
    if values := _medians(beams, "ratio_to_plain"):
        return HeatMap(name, widths, lengths, values)
    speeds = _medians(beams, "decode_tps")  # one of Apple's files holds no plain decoding
    if not speeds:
        return None
    smallest = min(speeds)
    values = {pair: speed / speeds[smallest] for pair, speed in speeds.items()}
    return HeatMap(name, widths, lengths, values, f"W {smallest[0]}, L {smallest[1]}")


def _medians(beams: Mapping[tuple[int, int], CellReport], name: str) -> dict[tuple[int, int], float]:
    return {pair: figure.median for pair, report in beams.items() if (figure := report.figures[name])}
