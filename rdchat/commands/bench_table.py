"""A benchmark as tables for the terminal."""

from collections.abc import Iterable, Mapping, Sequence

from rdchat.inference.api.bench_results import BenchRecord, CellReport, Difference, Figure
from rdchat.inference.benchmark.report import cell_names

_COLUMNS = {
    "decode_tps": ("tokens/s", 1),
    "ratio_to_plain": ("of plain", 2),
    "ratio_to_mlx_lm": ("of mlx-lm", 2),
    "tokens_per_target_call": ("tokens/call", 2),
    "acceptance_rate": ("accepted", 2),
    "nodes_per_target_call": ("nodes/call", 1),
    "draft_ms": ("draft ms", 1),
    "host_syncs_per_round": ("syncs/round", 2),
    "overhead": ("overhead", 2),
}
_NONE = "-"


def bench_table(record: BenchRecord, reports: Sequence[CellReport]) -> str:
    """Return everything a person wants to read of a benchmark."""
    environment = record.environment
    facts = [str(environment[name]) for name in ("model", "dtype", "device", "source") if environment.get(name)]
    versions = [
        f"{name.replace('_', '-')} {environment[name]}" for name in ("rdchat", "mlx", "mlx_lm") if name in environment
    ]
    lines = [", ".join([*facts, *versions]), ""]
    names = cell_names(reports)
    header = ["", *(title for title, _ in _COLUMNS.values()), "same text"]
    lines += _aligned([header, *(_row(name, report) for name, report in zip(names, reports, strict=True))])
    if groups := list(dict.fromkeys(group for report in reports for group in report.groups)):
        lines += ["", "Of plain decoding, by group of prompts:", ""]
        lines += _aligned(
            [["", *groups], *(_group_row(name, report, groups) for name, report in zip(names, reports, strict=True))]
        )
    notes = [f"{name}: {note}" for name, report in zip(names, reports, strict=True) if (note := _note(report))]
    lines += ["", "Medians, with quartiles in brackets. Ratios compare neighbouring runs of one prompt.", *notes]
    return "\n".join(lines)


def _row(name: str, report: CellReport) -> list[str]:
    known = report.figures["decode_tps"] is not None and report.identical_text is not None
    same = _NONE if not known else "yes" if report.identical_text else "no"
    return [name, *(_words(report.figures[key], digits) for key, (_, digits) in _COLUMNS.items()), same]


def _group_row(name: str, report: CellReport, groups: Iterable[str]) -> list[str]:
    empty: Mapping[str, Figure | None] = {}
    return [name, *(_words(report.groups.get(group, empty).get("ratio_to_plain"), 2) for group in groups)]


def _words(figure: Figure | None, digits: int) -> str:
    if figure is None:
        return _NONE
    if figure.low == figure.high:
        return f"{figure.median:.{digits}f}"
    return f"{figure.median:.{digits}f} ({figure.low:.{digits}f}-{figure.high:.{digits}f})"


def _note(report: CellReport) -> str:
    if report.mode_reason:
        return f"not run. {report.mode_reason}"
    if report.first_difference:
        return _difference_words(report.first_difference, report.dtype)
    chosen = ", ".join(f"{words} {count} times" for words, count in report.chosen.items())
    return f"ended with {chosen}." if chosen else ""


def _difference_words(difference: Difference, dtype: str) -> str:
    place = f"differs most in prompt {difference.prompt + 1}, from token {difference.index + 1} on"
    if difference.gap is None:
        return f"{place}, where one reply had ended."
    near = ", a near-tie" if difference.near_tie(dtype) else ""
    return f"{place}: {difference.other!r} for {difference.plain!r}; scores differ by {difference.gap:.2g}{near}."


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
