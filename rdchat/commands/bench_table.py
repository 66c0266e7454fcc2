"""A benchmark as tables for the terminal."""

from collections.abc import Sequence

from rdchat.inference.benchmark.result import FIGURES, BenchResult, CellReport, Figure

_NONE = "-"


def bench_table(result: BenchResult) -> str:
    """Return the tables of a benchmark."""
    environment, reports = result.environment, result.reports
    facts = [str(environment[name]) for name in ("model", "dtype", "device", "source") if environment.get(name)]
    versions = [
        f"{name.replace('_', '-')} {environment[name]}" for name in ("rdchat", "mlx", "mlx_lm") if name in environment
    ]
    header = ["", *(kind.title.lower() for kind in FIGURES.values()), "same text"]
    lines = [", ".join([*facts, *versions]), "", *_aligned([header, *(_row(report) for report in reports)])]
    if groups := list(dict.fromkeys(group for report in reports for group in report.groups)):
        rows = [[report.name, *(_group_words(report, group) for group in groups)] for report in reports]
        lines += ["", "Of plain decoding, by group of prompts:", "", *_aligned([["", *groups], *rows])]
    notes = [f"{report.name}: {report.note}" for report in reports if report.note]
    lines += ["", "Medians, with quartiles in brackets. Ratios compare neighbouring runs of one prompt.", *notes]
    return "\n".join(lines)


def _row(report: CellReport) -> list[str]:
    figures = (_words(report.figures[name], kind.digits) for name, kind in FIGURES.items())
    return [report.name, *figures, report.same_text.lower() or _NONE]


def _group_words(report: CellReport, group: str) -> str:
    return _words(report.groups.get(group, {}).get("ratio_to_plain"), 2)


def _words(figure: Figure | None, digits: int) -> str:
    if figure is None:
        return _NONE
    if figure.low == figure.high:
        return f"{figure.median:.{digits}f}"
    return f"{figure.median:.{digits}f} ({figure.low:.{digits}f}-{figure.high:.{digits}f})"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
