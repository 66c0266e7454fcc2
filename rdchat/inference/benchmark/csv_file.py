"""Writes and reads benchmarks as CSV: a row for each run, with the columns of Apple's two scripts and our own.

Apple's columns have the same meaning as in Apple's files, in milliseconds, so that Apple's analysis works on our files.
Apple's own files are not read. Every row also has the times of mlx-lm and of rdchat's plain decoding from its own turn.
Plain decoding counts as a beam of width 1 and length 1, a chain of K draft tokens as one of width 1 and length K + 1;
`mode` distinguishes them. A cell whose mode did not run has a row with the reason and no figures. Tokens are stored,
texts are not. No MLX and no Qt here.

Source: apple/ml-recurrent-drafter, recurrent_drafting/mlx/experiments: benchmark_autoregression.py and
benchmark_recurrent_drafting.py write Apple's files, analyze_perf_data.py compares them.
"""

import csv
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.files.foreign_files import read_text
from rdchat.files.plain_data import from_plain
from rdchat.inference.api.benchmark import MLX_LM, BenchCell, BenchPlan, BenchRun, Difference
from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import DraftSettings, Dtype, Mode
from rdchat.inference.benchmark.result import BenchResult

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RECURRENT_COLUMNS = (
    "run", "beam_width", "beam_length", "dtype", "nmax_length", "greedy", "steps", "prompt_length",
    "prompt_and_generated_length", "comprehension_and_generation_time",
)  # fmt: skip
PLAIN_COLUMNS = ("run", "dtype", "comprehension_mlx", "generation_mlx", "comprehension_ours", "generation_ours")
_ENVIRONMENT = ("rdchat", "mlx", "mlx_lm", "device", "model", "cores", "system")

_DRAFT_FIELDS = ("mode", "draft_tokens", "lookup_branch", "draft_model", "drafter")
_BEAM_FIELDS = ("beam_width", "beam_length")
_COUNT_FIELDS = (
    "prefill_ms", "ttft_ms", "decode_ms", "rounds", "drafted", "accepted", "verified_nodes", "host_syncs",
    "peak_memory_bytes",
)  # fmt: skip
_RUN_FIELDS = ("prompt", "group", "overhead", "mode_reason", "chosen", "draft_ms")
_DIFFERENCE_FIELDS = ("index", "plain", "other", "gap", "rounding")
COLUMNS = (
    *dict.fromkeys(RECURRENT_COLUMNS + PLAIN_COLUMNS), "part", "cell", *_DRAFT_FIELDS, "temperature", "asked_dtype",
    "seed", "prompt", "group", *_COUNT_FIELDS, "overhead", "mode_reason", "chosen", "difference_index",
    "difference_plain", "difference_other", "difference_gap", "token_ids", "times_ms", *_ENVIRONMENT,
    "difference_rounding", "draft_ms",
)  # fmt: skip
_TEXTS = {
    "mode", "draft_model", "drafter", "asked_dtype", "group", "mode_reason", "chosen", "difference_plain",
    "difference_other",
}  # fmt: skip
_LISTS = {"token_ids", "times_ms"}
_MAY_BE_EMPTY = {*_TEXTS, *_LISTS, "draft_ms", "overhead", "difference_gap", "difference_rounding"} - {
    "mode",
    "asked_dtype",
}

# The values of the column `part`.
_BASELINE, _CELL, _MLX_LM = "baseline", "cell", "mlx_lm"
_DTYPE_PREFIX = "mlx.core."
_FLOATS = {Dtype.FLOAT16.value, Dtype.BFLOAT16.value, Dtype.FLOAT32.value}
_GUARD = "'"
_GUARDED = ("=", "+", "-", "@", "\t", "\r", _GUARD)
# The times of 13,000 tokens reach Python's default limit of 2**17.
_MAX_CELL_CHARACTERS = 2**30
_MAX_BYTES = 2**31
# Length of a cell that an error quotes.
_MAX_QUOTED_CHARACTERS = 40


def write_csv(file: TextIO, result: BenchResult) -> None:
    """Write a benchmark to a file opened as text with `newline=""`."""
    writer = csv.DictWriter(file, COLUMNS, restval="")
    writer.writeheader()
    environment = {name: result.environment.get(name, "") for name in _ENVIRONMENT}
    for run in result.runs:
        row = _settings(result.plan, run) | environment
        if not run.mode_reason:
            row |= _counts(result, run)
        writer.writerow({name: _guarded(cell) if isinstance(cell, str) else cell for name, cell in row.items()})


def _settings(plan: BenchPlan, run: BenchRun) -> dict[str, Any]:
    """Return the columns of a run's setting, and of what is known without figures."""
    outside, listed = run.cell == MLX_LM, run.cell >= len(plan.baselines)
    cell = plan.all_cells[run.baseline if outside else run.cell]
    difference = asdict(run.difference) if run.difference else {}
    return {
        "run": run.trial,
        "beam_width": cell.draft.sizes.get("beam_width", 1),
        "beam_length": cell.draft.sizes.get("beam_length", 1 + cell.draft.sizes.get("draft_tokens", 0)),
        "dtype": f"{_DTYPE_PREFIX if run.dtype in _FLOATS else ''}{run.dtype}",
        "nmax_length": plan.max_tokens,
        "greedy": plan.sampling(cell).greedy,
        "part": _MLX_LM if outside else _CELL if listed else _BASELINE,
        "cell": run.cell - len(plan.baselines) if listed else run.baseline,
        **{name: getattr(cell.draft, name) for name in _DRAFT_FIELDS},
        "temperature": cell.temperature,
        "asked_dtype": cell.dtype.value,
        "seed": plan.seed,
        **{name: getattr(run, name) for name in _RUN_FIELDS},
        **{f"difference_{name}": difference.get(name, "") for name in _DIFFERENCE_FIELDS},
        "token_ids": " ".join(map(str, run.token_ids)),
        "times_ms": " ".join(f"{time:.3f}" for time in run.times_ms),
    }


def _counts(result: BenchResult, run: BenchRun) -> dict[str, Any]:
    """Return the measured columns of a run, and of plain decoding and mlx-lm in its turn."""
    counts, (plain, mlx_lm) = run.statistics, result.neighbours(run)
    columns = {
        "steps": counts.target_calls,
        "prompt_length": counts.prompt_tokens,
        "prompt_and_generated_length": counts.prompt_tokens + counts.generated_tokens,
        "comprehension_and_generation_time": counts.prefill_ms + counts.decode_ms,
        **{name: getattr(counts, name) for name in _COUNT_FIELDS},
    }
    for whose, other in (("mlx", mlx_lm), ("ours", plain)):
        if other:
            columns |= {f"comprehension_{whose}": other.statistics.prefill_ms}
            columns |= {f"generation_{whose}": other.statistics.decode_ms}
    return columns


def _guarded(text: str) -> str:
    """Return a text that no spreadsheet reads as a formula, with an apostrophe before it if necessary.

    Source: OWASP, "CSV injection". `_Row.value` removes the apostrophe.
    """
    return _GUARD + text if text.startswith(_GUARDED) else text


def read_csv(path: Path) -> BenchResult:
    """Read a benchmark.

    Raises:
        RdchatError: If the file cannot be read or is invalid; the message names the line and the error.
    """
    rows = _read_rows(path)
    environment = {name: rows[0].cells[name].removeprefix(_GUARD) for name in _ENVIRONMENT}
    return _result(rows, environment | {"dtype": rows[0].precision, "cores": rows[0].count("cores")})


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of a file, by column."""

    path: Path
    line: int
    cells: Mapping[str, str]

    @property
    def precision(self) -> str:
        return self.cells["dtype"].removeprefix(_DTYPE_PREFIX)

    def fill[T: DataclassInstance](self, default: T, fields: Sequence[str], prefix: str = "", **columns: str) -> T:
        """Return a dataclass with the values of columns.

        Args:
            default: The dataclass; it has the values of columns that may be empty and are.
            fields: Names of fields; the columns have the same names, after a prefix.
            prefix: The prefix.
            columns: More columns, by field.
        """
        columns |= {name: prefix + name for name in fields}
        given = {name: each for name, each in columns.items() if self.cells[each] or each not in _MAY_BE_EMPTY}
        data = {name: self.value(each) for name, each in given.items()}
        filled, wrong = from_plain(default, data)
        if wrong:
            raise self.wrong(columns[wrong[0]])
        return filled

    def value(self, column: str) -> Any:
        """Return a cell as a text, a list of numbers, a number or a truth value; see `_number`."""
        cell = self.cells[column]
        if column in _LISTS:
            return [_number(word) for word in cell.split()]
        return cell.removeprefix(_GUARD) if column in _TEXTS else _number(cell)

    def count(self, column: str) -> int:
        """Return a whole number, 0 or more."""
        value = self.value(column)
        if type(value) is not int:
            raise self.wrong(column)
        return value

    def wrong(self, column: str) -> RdchatError:
        """Return the error about a cell."""
        return self.error(f"{column} is {self.cells[column][:_MAX_QUOTED_CHARACTERS]!r}, which is not valid here")

    def error(self, problem: str) -> RdchatError:
        """Return an error that names the line."""
        return RdchatError(f"Line {self.line} of {self.path}: {problem}.", "Export the benchmark again.")


def _number(cell: str) -> Any:
    """Return a whole number from 0 on, another number or a truth value; else the text, which no such field takes."""
    if cell in {"True", "False"}:
        return cell == "True"
    if cell.isdecimal():
        return int(cell) if len(cell) < 20 else cell
    with suppress(ValueError):
        return float(cell) if not cell.removeprefix("-").isdecimal() else cell
    return cell


def _read_rows(path: Path) -> Sequence[_Row]:
    """Return the lines of a file after the first one, which names the columns."""
    csv.field_size_limit(_MAX_CELL_CHARACTERS)
    reader = csv.DictReader(StringIO(read_text(path, "Choose a CSV file.", _MAX_BYTES), newline=""), strict=True)
    try:
        rows = [_Row(path, reader.line_num, cells) for cells in reader]
    except csv.Error as error:
        raise RdchatError(f"The file {path} is not valid CSV: {error}.", "Export the benchmark again.") from error
    if not rows:
        raise RdchatError(f"The file {path} has no runs.", "Choose the CSV file of a benchmark.")
    if not rows[0].cells.keys() >= set(COLUMNS):
        raise RdchatError(
            f"{path} is not a benchmark: line 1 has other columns.", "Use a CSV file that rdchat has written."
        )
    for row in rows:
        if None in row.cells or None in row.cells.values():
            raise row.error("it has more or fewer columns than the first line")
    return rows


def _result(rows: Sequence[_Row], environment: Mapping[str, Any]) -> BenchResult:
    """Return the result in rows that have our columns."""
    listed = {row.count("cell"): _cell(row) for row in rows if row.cells["part"] == _CELL}
    cells = [listed[number] for number in sorted(listed)] or list(dict.fromkeys(map(_cell, rows)))
    # A benchmark that was stopped may hold plain decoding at a precision of which no setting was reached.
    kinds = {(cell.temperature, cell.dtype) for cell in cells}
    compared = [row for row in rows if ((cell := _cell(row)).temperature, cell.dtype) in kinds]
    groups: dict[int, str] = {}
    for row in compared:
        prompt = row.count("prompt")
        if prompt >= len(rows):  # Every prompt has a row.
            raise row.error(f"prompt is {prompt}, and the file has {len(rows)} lines")
        groups[prompt] = row.cells["group"].removeprefix(_GUARD)
    try:
        plan = BenchPlan(
            tuple(cells),
            tuple(Prompt("", groups.get(prompt, "")) for prompt in range(max(groups) + 1)),
            max_tokens=rows[0].count("nmax_length"),
            trials=1 + max(row.count("run") for row in compared),
            seed=rows[0].count("seed"),
            mlx_lm=any(row.cells["part"] == _MLX_LM for row in compared),
        )
    except InvalidSettingError as error:
        raise rows[0].error(error.message.rstrip(".")) from error
    indexes = {number: len(plan.baselines) + index for index, number in enumerate(sorted(listed))}
    return BenchResult(plan, tuple(_run(row, plan, indexes) for row in compared), environment)


def _cell(row: _Row) -> BenchCell:
    draft = row.fill(DraftSettings(), _DRAFT_FIELDS)
    if draft.mode is Mode.DRAFTER:
        draft = row.fill(draft, _BEAM_FIELDS)
    return row.fill(BenchCell(draft), ["temperature"], dtype="asked_dtype")


def _run(row: _Row, plan: BenchPlan, indexes: Mapping[int, int]) -> BenchRun:
    part, baseline, counts = row.cells["part"], plan.baseline_of(_cell(row)), Statistics()
    cells = {_CELL: indexes.get(row.count("cell"), 0), _BASELINE: baseline, _MLX_LM: MLX_LM}
    if part not in cells:
        raise row.wrong("part")
    if not row.cells["mode_reason"]:
        generated = row.count("prompt_and_generated_length") - row.count("prompt_length")
        counts = row.fill(
            Statistics(generated_tokens=generated), _COUNT_FIELDS, target_calls="steps", prompt_tokens="prompt_length"
        )
    difference = Difference(row.count("prompt"), 0, "", "", None)
    run = BenchRun(cells[part], 0, "", 0, (), (), (), counts, baseline=baseline, dtype=row.precision)
    if row.cells["difference_index"]:
        run = replace(run, difference=row.fill(difference, _DIFFERENCE_FIELDS, prefix="difference_"))
    return row.fill(run, (*_RUN_FIELDS, *_LISTS), trial="run")
