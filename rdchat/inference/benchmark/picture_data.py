"""What the pictures of a benchmark show, from its runs. No MLX and no Qt here."""

from collections.abc import Mapping, Sequence

from rdchat.inference.api.bench_plan import BenchPlan
from rdchat.inference.api.bench_results import MLX_LM, BenchRun, CellReport, Figure
from rdchat.inference.api.requests import Mode
from rdchat.inference.benchmark.pictures import HeatMap, Pictures, SpeedBars
from rdchat.inference.benchmark.report import speed_ratio, summarise


def picture_data(plan: BenchPlan, runs: Sequence[BenchRun]) -> Pictures:
    """Return what is drawn.

    For each precision, and each temperature where there are several: a bar for stock mlx-lm and for each mode, its
    fastest shape, and a map of the drafter head's beams where there are several.
    """
    reports = summarise(plan, runs)
    several = len({cell.temperature for cell in plan.cells}) > 1
    precisions = {run.baseline: run.dtype for run in runs if run.dtype}
    bars, maps = [], []
    for index, baseline in enumerate(plan.baselines):
        name = precisions.get(index, baseline.dtype.value)
        name += f", {_temperature_words(baseline.temperature)}" if several else ""
        own = [report for report in reports if plan.baseline_of(report.cell) == index]
        if group := _mlx_lm_bar(plan, [run for run in runs if run.baseline == index]) + _bars(own):
            bars.append((name, group))
        if heat_map := _heat_map(name, own):
            maps.append(heat_map)
    return Pictures(SpeedBars(tuple(bars)), tuple(maps))


def _mlx_lm_bar(plan: BenchPlan, runs: Sequence[BenchRun]) -> tuple[tuple[str, Figure], ...]:
    """Return how fast mlx-lm decodes plainly, by our plain decoding of the same turn."""
    ours = [run for run in runs if run.cell != MLX_LM and plan.all_cells[run.cell].plain]
    ours.sort(key=lambda run: run.cell, reverse=True)  # so that the baseline, which has the first index, stays
    plain = {(run.prompt, run.trial): run for run in ours}
    ratios = [speed_ratio(run, plain.get((run.prompt, run.trial))) for run in runs if run.cell == MLX_LM]
    figure = Figure.of([ratio for ratio in ratios if ratio is not None])
    return (("mlx-lm", figure),) if figure else ()


def _bars(reports: Sequence[CellReport]) -> tuple[tuple[str, Figure], ...]:
    fastest: dict[Mode, tuple[str, Figure]] = {}
    for report in reports:
        mode, figure = report.cell.draft.mode, report.figures["ratio_to_plain"]
        if figure and (mode not in fastest or figure.median > fastest[mode][1].median):
            fastest[mode] = report.cell.words, figure
    return tuple(fastest.values())


def _heat_map(name: str, reports: Sequence[CellReport]) -> HeatMap | None:
    beams = {
        (report.cell.draft.beam_width, report.cell.draft.beam_length): report
        for report in reports
        if report.cell.draft.mode is Mode.DRAFTER
    }
    if len(beams) < 2:
        return None
    widths, lengths = (tuple(sorted({pair[side] for pair in beams})) for side in (0, 1))
    if values := _medians(beams, "ratio_to_plain"):
        return HeatMap(name, widths, lengths, values)
    speeds = _medians(beams, "decode_tps")  # of Apple's files one holds no plain decoding
    if not speeds:
        return None
    smallest = min(speeds)
    values = {pair: speed / speeds[smallest] for pair, speed in speeds.items()}
    return HeatMap(name, widths, lengths, values, f"W {smallest[0]}, L {smallest[1]}")


def _medians(beams: Mapping[tuple[int, int], CellReport], name: str) -> dict[tuple[int, int], float]:
    return {pair: figure.median for pair, report in beams.items() if (figure := report.figures[name])}


def _temperature_words(temperature: float) -> str:
    return f"temperature {temperature:g}" if temperature else "greedy"
