"""Writes and reads benchmarks as CSV: a row for each run, with the columns of Apple's two scripts and our own.

Apple's columns have the same meaning as in Apple's files (`csv_table`), in milliseconds, so that Apple's analysis works
on our files. Every row also has the times of mlx-lm and of rdchat's plain decoding from its own turn. Plain decoding
counts as a beam of width 1 and length 1, a chain of K draft tokens as one of width 1 and length K + 1; `mode`
distinguishes them. A cell whose mode did not run has a row with the reason and no figures. Tokens are stored, texts are
not. No MLX and no Qt here.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from rdchat.errors import RdchatError
from rdchat.inference.api.benchmark import MLX_LM, BenchCell, BenchPlan, BenchRun, Difference
from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import DraftSettings, Dtype, Mode
from rdchat.inference.benchmark.csv_table import (
    DTYPE_PREFIX,
    PLAIN_COLUMNS,
    PLAIN_FILE,
    RECURRENT_COLUMNS,
    Row,
    check_widths,
    guarded,
    read_rows,
    rows_of_apple,
)
from rdchat.inference.benchmark.result import BenchResult

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
_LATER_COLUMNS = ("difference_rounding", "draft_ms")  # missing in files of earlier versions
COLUMNS = _APPLE_COLUMNS + _CELL_COLUMNS + _FOUND_COLUMNS + _ENVIRONMENT + _LATER_COLUMNS

_BASELINE, _CELL, _MLX_LM = "baseline", "cell", "mlx_lm"  # values of `part`
_FLOATS = {Dtype.FLOAT16.value, Dtype.BFLOAT16.value, Dtype.FLOAT32.value}
# columns that Apple's files do not have
_BLANK = dict.fromkeys(COLUMNS, "") | dict.fromkeys(("ttft_ms", *_COUNTERS, "prompt", "seed"), "0")
_OTHER_HINT = (
    "Use a CSV file of `rdchat bench`, or those of Apple's scripts: autoregression.csv and recurrent_drafting.csv."
)


def write_csv(file: TextIO, result: BenchResult) -> None:
    """Write a benchmark to a file opened as text with `newline=""`."""
    writer = csv.DictWriter(file, COLUMNS, restval="")
    writer.writeheader()
    environment = {name: result.environment.get(name, "") for name in _ENVIRONMENT}
    for run in result.runs:
        row = _cell_columns(result.plan, run) | _measured_columns(result, run) | environment
        if run.mode_reason:
            row |= dict.fromkeys(_MEASURED, "")
        writer.writerow({name: guarded(cell) if isinstance(cell, str) else cell for name, cell in row.items()})


def read_csv(paths: Sequence[Path]) -> BenchResult:
    """Read a benchmark: one file of ours, or one or both of Apple's.

    If only Apple's file of recurrent drafting is given, the plain one beside it is read too.

    Raises:
        RdchatError: If a file cannot be read or is invalid; the message says which line, and what is wrong.
    """
    tables = [read_rows(path) for path in paths]
    if any({"part", "mode"} <= table[0].cells.keys() for table in tables):
        if len(tables) > 1:
            raise RdchatError("Only one rdchat benchmark can be read at a time.", "Give one file.")
        return _read_ours(tables[0])
    drafted = [row for table in tables for row in table if row.cells.keys() >= set(RECURRENT_COLUMNS)]
    plain = [row for table in tables for row in table if not row.cells.keys() >= set(RECURRENT_COLUMNS)]
    if not plain and (beside_it := paths[0].with_name(PLAIN_FILE)).exists():
        plain = [*read_rows(beside_it)]
    for row in plain:
        if not row.cells.keys() >= set(PLAIN_COLUMNS):
            raise RdchatError(f"{row.path} is not a benchmark: line 1 has other columns.", _OTHER_HINT)
    check_widths([*drafted, *plain])
    rows = [Row(row.path, row.line, {**_BLANK, **row.cells}) for row in rows_of_apple(drafted, plain)]
    files = dict.fromkeys(row.path.name for row in (*drafted, *plain))
    return _result(rows, {"source": "Apple's benchmark", "files": list(files)})


def _cell_columns(plan: BenchPlan, run: BenchRun) -> dict[str, Any]:
    """Return the columns of a run's setting."""
    outside, listed = run.cell == MLX_LM, run.cell >= len(plan.baselines)
    cell = plan.all_cells[run.baseline if outside else run.cell]
    names = ("draft_tokens", "lookup_branch", "draft_model", "drafter")
    return {
        "run": run.trial,
        "beam_width": cell.shape.get("beam_width", 1),
        "beam_length": cell.shape.get("beam_length", 1 + cell.shape.get("draft_tokens", 0)),
        "dtype": f"{DTYPE_PREFIX if run.dtype in _FLOATS else ''}{run.dtype}",
        "nmax_length": plan.max_tokens,
        "greedy": plan.sampling(cell).greedy,
        "part": _MLX_LM if outside else _CELL if listed else _BASELINE,
        "cell": run.cell - len(plan.baselines) if listed else run.baseline,
        "mode": cell.draft.mode.value,
        **{name: getattr(cell.draft, name) for name in names},
        "temperature": cell.temperature,
        "asked_dtype": cell.dtype.value,
        "seed": plan.seed,
        "prompt": run.prompt,
        "group": run.group,
    }


def _measured_columns(result: BenchResult, run: BenchRun) -> dict[str, Any]:
    """Return the measured columns of a run, and of plain decoding and mlx-lm in its turn."""
    counts, beside = run.statistics, result.beside(run)
    columns = {
        "steps": counts.target_calls,
        "prompt_length": counts.prompt_tokens,
        "prompt_and_generated_length": counts.prompt_tokens + counts.generated_tokens,
        "comprehension_and_generation_time": counts.prefill_ms + counts.decode_ms,
        **{name: getattr(counts, name) for name in (*_TIMES, *_COUNTERS)},
        **{name: getattr(run, name) for name in ("overhead", "draft_ms", "mode_reason", "chosen")},
        "token_ids": " ".join(map(str, run.token_ids)),
        "times_ms": " ".join(f"{time:.3f}" for time in run.times_ms),
    }
    for whose, other in (("mlx", beside.mlx_lm), ("ours", beside.plain)):
        if other:
            columns |= {f"comprehension_{whose}": other.statistics.prefill_ms}
            columns |= {f"generation_{whose}": other.statistics.decode_ms}
    if run.difference:
        columns |= {f"difference_{name}": part for name, part in asdict(run.difference).items() if name != "prompt"}
    return columns


def _read_ours(rows: Sequence[Row]) -> BenchResult:
    missing = [name for name in COLUMNS if name not in rows[0].cells and name not in _LATER_COLUMNS]
    if missing:
        raise RdchatError(f"Line 1 of {rows[0].path} does not have the column {missing[0]}.", "Export it again.")
    check_widths(rows)
    environment: dict[str, Any] = {name: rows[0].text(name) for name in _ENVIRONMENT}
    environment |= {"dtype": _precision(rows[0]), "cores": rows[0].whole("cores")}
    return _result(rows, environment)


def _result(rows: Sequence[Row], environment: Mapping[str, Any]) -> BenchResult:
    """Return the result stored in rows of our format."""
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
    return BenchResult(plan, tuple(_run(row, plan, places) for row in rows), environment)


def _prompt_of(row: Row, rows: int) -> int:
    """Return the index of a row's prompt; it must be less than the number of rows, since every prompt has one."""
    prompt = row.whole("prompt")
    if prompt >= rows:
        raise row.error(f"prompt is {prompt}, and the file has {rows} lines")
    return prompt


def _cell(row: Row) -> BenchCell:
    mode, dtype = row.member("mode", Mode), row.member("asked_dtype", Dtype)
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


def _run(row: Row, plan: BenchPlan, places: Mapping[int, int]) -> BenchRun:
    part, prompt = row.cells["part"], row.whole("prompt")
    baseline = plan.baseline_of(_cell(row))
    cells = {_CELL: places.get(row.whole("cell"), 0), _BASELINE: baseline, _MLX_LM: MLX_LM}
    if part not in cells:
        raise row.error(f"part is {part!r}, which is unknown")
    return BenchRun(
        cell=cells[part],
        prompt=prompt,
        group=row.text("group"),
        trial=row.whole("run"),
        token_ids=tuple(int(token) for token in row.numbers("token_ids")),
        pieces=(),
        times_ms=tuple(row.numbers("times_ms")),
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


def _precision(row: Row) -> str:
    return row.cells["dtype"].removeprefix(DTYPE_PREFIX)


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
