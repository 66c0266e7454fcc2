"""Benchmarks as CSV: a row for each run, with the columns of Apple's two scripts and our own beyond them.

So that Apple's analysis can be done again on the file as it stands, its columns mean what theirs do (`apple_csv`), in
milliseconds. Every row carries the plain decoding of mlx-lm and of rdchat from its own turn; plain decoding is a beam
of width 1 and length 1, and a chain of K draft tokens one of width 1 and length K + 1. `mode` tells them apart.
A cell whose mode did not run has a row with the reason and no figures: zeros would be some. Texts are not
stored, tokens are. No MLX and no Qt here.
"""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, TextIO

from rdchat.errors import RdchatError
from rdchat.inference.api.bench_plan import BenchCell, BenchPlan
from rdchat.inference.api.bench_results import MLX_LM, BenchRecord, BenchRun, Difference
from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import DraftSettings, Dtype, Mode
from rdchat.inference.benchmark.apple_csv import (
    DTYPE_PREFIX,
    PLAIN_COLUMNS,
    PLAIN_FILE,
    RECURRENT_COLUMNS,
    apple_record,
)
from rdchat.inference.benchmark.csv_table import Row, Table, guarded, read_table
from rdchat.inference.benchmark.report import baseline_runs

_APPLE_COLUMNS = tuple(dict.fromkeys(RECURRENT_COLUMNS + PLAIN_COLUMNS))
_CELL_COLUMNS = (
    "part", "cell", "mode", "draft_tokens", "lookup_branch", "draft_model", "drafter", "temperature", "asked_dtype",
    "seed", "prompt", "group",
)  # fmt: skip
_COUNTERS = ("rounds", "drafted", "accepted", "verified_nodes", "host_syncs", "peak_memory_bytes")
_TIMES = ("prefill_ms", "ttft_ms", "decode_ms")
_MEASURED = (
    "steps", "prompt_length", "prompt_and_generated_length", "comprehension_and_generation_time", *_TIMES, *_COUNTERS,
)  # fmt: skip
_FOUND_COLUMNS = (
    *_TIMES, *_COUNTERS, "overhead", "mode_reason", "chosen",
    "difference_index", "difference_plain", "difference_other", "difference_gap", "token_ids", "times_ms",
)  # fmt: skip
_ENVIRONMENT = ("rdchat", "mlx", "mlx_lm", "device", "model", "cores", "system")
_LATER_COLUMNS = ("difference_rounding", "draft_ms")  # which files of earlier versions lack
COLUMNS = _APPLE_COLUMNS + _CELL_COLUMNS + _FOUND_COLUMNS + _ENVIRONMENT + _LATER_COLUMNS

_BASELINE, _CELL, _MLX_LM = "baseline", "cell", "mlx_lm"  # what a row is part of
_FLOATS = {Dtype.FLOAT16.value, Dtype.BFLOAT16.value, Dtype.FLOAT32.value}


def write_csv(file: TextIO, record: BenchRecord) -> None:
    """Write a benchmark. The file is open as text, with `newline=""`."""
    writer = csv.DictWriter(file, COLUMNS, restval="")
    writer.writeheader()
    plain, outside = baseline_runs(record.runs)
    for run in record.runs:
        place = run.baseline, run.prompt, run.trial
        times = _plain_times("mlx", outside.get(place)) | _plain_times("ours", plain.get(place))
        environment = {name: record.environment.get(name, "") for name in _ENVIRONMENT}
        row = _cell_cells(record.plan, run) | times | _found_cells(run) | environment
        if run.mode_reason:
            row |= dict.fromkeys(_MEASURED, "")
        writer.writerow({name: guarded(cell) if isinstance(cell, str) else cell for name, cell in row.items()})


def read_csv(paths: Sequence[Path]) -> BenchRecord:
    """Read a benchmark: one file of ours, or one or both of Apple's.

    Where only Apple's file of recurrent drafting is named, the plain one beside it is read too, if there is one.

    Raises:
        RdchatError: If a file cannot be read or is another one; the message says which line, and what is wrong.
    """
    tables = [read_table(path) for path in paths]
    ours = [table for table in tables if {"part", "mode"} <= table.columns]
    if ours:
        if len(tables) > 1:
            raise RdchatError("Only one benchmark of rdchat's can be read at a time.", "Name one file.")
        return _our_record(ours[0])
    drafted = [row for table in tables if _is_drafted(table) for row in table.rows()]
    plain = [row for table in tables if not _is_drafted(table) for row in _plain_rows(table)]
    if not plain and (beside_it := paths[0].with_name(PLAIN_FILE)).exists():
        plain = [*_plain_rows(read_table(beside_it))]
    return apple_record(drafted, plain)


def _is_drafted(table: Table) -> bool:
    return table.columns >= set(RECURRENT_COLUMNS)


def _plain_rows(table: Table) -> Sequence[Row]:
    if not table.columns >= set(PLAIN_COLUMNS):
        raise RdchatError(
            f"{table.path} is no benchmark: line 1 names other columns.",
            "Take a CSV file of `rdchat bench`, or those of Apple's scripts: autoregression.csv and "
            "recurrent_drafting.csv.",
        )
    return table.rows()


def _cell_cells(plan: BenchPlan, run: BenchRun) -> dict[str, Any]:
    outside = run.cell == MLX_LM
    cell = plan.all_cells[run.baseline if outside else run.cell]
    draft, statistics, listed = cell.draft, run.statistics, run.cell >= len(plan.baselines)
    width, length = (
        cell.shape.get("beam_width", 1),
        cell.shape.get("beam_length", 1 + cell.shape.get("draft_tokens", 0)),
    )
    return {
        "run": run.trial,
        "beam_width": width,
        "beam_length": length,
        "dtype": f"{DTYPE_PREFIX if run.dtype in _FLOATS else ''}{run.dtype}",
        "nmax_length": plan.max_tokens,
        "greedy": plan.sampling(cell).greedy,
        "steps": statistics.target_calls,
        "prompt_length": statistics.prompt_tokens,
        "prompt_and_generated_length": statistics.prompt_tokens + statistics.generated_tokens,
        "comprehension_and_generation_time": statistics.prefill_ms + statistics.decode_ms,
        "part": _MLX_LM if outside else _CELL if listed else _BASELINE,
        "cell": run.cell - len(plan.baselines) if listed else run.baseline,
        "mode": draft.mode.value,
        "draft_tokens": draft.draft_tokens,
        "lookup_branch": draft.lookup_branch,
        "draft_model": draft.draft_model or "",
        "drafter": draft.drafter or "",
        "temperature": cell.temperature,
        "asked_dtype": cell.dtype.value,
        "seed": plan.seed,
        "prompt": run.prompt,
        "group": run.group,
    }


def _plain_times(whose: str, run: BenchRun | None) -> dict[str, float]:
    if run is None:
        return {}
    times = run.statistics
    return {f"comprehension_{whose}": times.prefill_ms, f"generation_{whose}": times.decode_ms}


def _found_cells(run: BenchRun) -> dict[str, Any]:
    difference = run.difference
    return {
        **{name: getattr(run.statistics, name) for name in (*_TIMES, *_COUNTERS)},
        "overhead": run.overhead,
        "draft_ms": run.draft_ms,
        "mode_reason": run.mode_reason,
        "chosen": run.chosen,
        **(
            {
                "difference_index": difference.index,
                "difference_plain": difference.plain,
                "difference_other": difference.other,
                "difference_gap": difference.gap,
                "difference_rounding": difference.rounding,
            }
            if difference
            else {}
        ),
        "token_ids": " ".join(map(str, run.token_ids)),
        "times_ms": " ".join(f"{time:.3f}" for time in run.times_ms),
    }


def _our_record(table: Table) -> BenchRecord:
    missing = [name for name in COLUMNS if name not in table.columns and name not in _LATER_COLUMNS]
    if missing:
        raise RdchatError(f"Line 1 of {table.path} does not name the column {missing[0]}.", "Export it again.")
    rows = table.rows()
    listed = {row.whole("cell"): _cell(row) for row in rows if row.cells["part"] == _CELL}
    cells = [listed[place] for place in sorted(listed)] or list(dict.fromkeys(_cell(row) for row in rows))
    groups = {_prompt_of(row, len(rows)): row.text("group") for row in rows}
    with rows[0].settings():
        plan = BenchPlan(
            tuple(cells),
            tuple(Prompt("", groups.get(place, "")) for place in range(max(groups) + 1)),
            max_tokens=rows[0].whole("nmax_length"),
            trials=1 + max(row.whole("run") for row in rows),
            seed=rows[0].whole("seed"),
            mlx_lm=any(row.cells["part"] == _MLX_LM for row in rows),
        )
    places = {place: len(plan.baselines) + index for index, place in enumerate(sorted(listed))}
    environment: dict[str, Any] = {name: rows[0].text(name) for name in _ENVIRONMENT}
    environment |= {"dtype": _precision(rows[0]), "cores": rows[0].whole("cores")}
    return BenchRecord(plan, tuple(_our_run(row, plan, places) for row in rows), environment)


def _prompt_of(row: Row, rows: int) -> int:
    """Return the index of a row's prompt; each prompt before it has a row of its own."""
    prompt = row.whole("prompt")
    if prompt >= rows:
        raise row.error(f"prompt is {prompt}, and the file has {rows} lines")
    return prompt


def _cell(row: Row) -> BenchCell:
    mode, dtype = _member(row, "mode", Mode), _member(row, "asked_dtype", Dtype)
    sizes: dict[str, Any] = {}
    if mode is Mode.DRAFTER:
        sizes = {"beam_width": row.whole("beam_width"), "beam_length": row.whole("beam_length")}
    with row.settings():
        draft = DraftSettings(
            mode,
            draft_model=row.text("draft_model") or None,
            draft_tokens=row.whole("draft_tokens"),
            drafter=row.text("drafter") or None,
            lookup_branch=row.truth("lookup_branch"),
            **sizes,
        )
        return BenchCell(draft, row.number("temperature"), dtype)


def _member[T: StrEnum](row: Row, name: str, kind: type[T]) -> T:
    try:
        return kind(row.cells[name])
    except ValueError as error:
        raise row.error(f"{name} is {row.cells[name]!r}, which is unknown") from error


def _our_run(row: Row, plan: BenchPlan, places: Mapping[int, int]) -> BenchRun:
    part, prompt = row.cells["part"], row.whole("prompt")
    baseline = plan.baseline_of(_cell(row))
    return BenchRun(
        cell={_CELL: places.get(row.whole("cell"), 0), _BASELINE: baseline, _MLX_LM: MLX_LM}[_known_part(row, part)],
        prompt=prompt,
        group=row.text("group"),
        trial=row.whole("run"),
        token_ids=tuple(int(token) for token in _words(row, "token_ids")),
        pieces=(),
        times_ms=tuple(_words(row, "times_ms")),
        statistics=Statistics() if row.cells["mode_reason"] else _statistics(row),
        mode_reason=row.text("mode_reason") or None,
        chosen=row.text("chosen"),
        difference=_difference(row, prompt),
        baseline=baseline,
        dtype=_precision(row),
        overhead=row.number_or_none("overhead"),
        draft_ms=row.number_or_none("draft_ms"),
    )


def _statistics(row: Row) -> Statistics:
    counts: dict[str, Any] = {name: row.number(name) for name in _TIMES}
    counts |= {name: row.whole(name) for name in _COUNTERS}
    return Statistics(
        prompt_tokens=row.whole("prompt_length"),
        generated_tokens=row.whole("prompt_and_generated_length") - row.whole("prompt_length"),
        target_calls=row.whole("steps"),
        **counts,
    )


def _known_part(row: Row, part: str) -> str:
    if part not in {_CELL, _BASELINE, _MLX_LM}:
        raise row.error(f"part is {part!r}, which is unknown")
    return part


def _precision(row: Row) -> str:
    return row.cells["dtype"].removeprefix(DTYPE_PREFIX)


def _words(row: Row, name: str) -> Iterable[float]:
    try:
        numbers = [float(word) for word in row.cells[name].split()]
    except ValueError:
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)):
        raise row.error(f"{name} holds what is no number")
    return numbers


def _difference(row: Row, prompt: int) -> Difference | None:
    if not row.cells["difference_index"]:
        return None
    return Difference(
        prompt,
        row.whole("difference_index"),
        row.text("difference_plain"),
        row.text("difference_other"),
        row.number_or_none("difference_gap"),
        row.number_or_none("difference_rounding"),
    )
