"""The files of a benchmark: its runs as JSON lines, from which it resumes or is shown again, and a table as CSV.

The table has a row for each run, with the columns of Apple's two scripts and our own. Apple's columns have the same
meaning as in Apple's files, in milliseconds, so that Apple's analysis works on our files. Every row also has the times
of mlx-lm and of rdchat's plain decoding from its own turn. Plain decoding counts as a beam of width 1 and length 1, a
chain of K draft tokens as one of width 1 and length K + 1; `mode` distinguishes them. A cell whose mode did not run has
a row with the reason and no figures. Tokens are written, texts are not. Only measuring imports MLX.

Source: apple/ml-recurrent-drafter, recurrent_drafting/mlx/experiments: benchmark_autoregression.py and
benchmark_recurrent_drafting.py write Apple's files, analyze_perf_data.py compares them.
"""

import csv
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

from rdchat import __version__, host
from rdchat.errors import RdchatError
from rdchat.files import JsonLines, json_or_none, opened, plain, read_bytes
from rdchat.inference.api import MLX_LM, BenchPlan, BenchResult, BenchRun, Dtype, ModelInfo, Prompt

_MAX_BYTES = 2**31
_HINT = "Choose a file that `rdchat bench --results` has written."
RECURRENT_COLUMNS = (
    "run", "beam_width", "beam_length", "dtype", "nmax_length", "greedy", "steps", "prompt_length",
    "prompt_and_generated_length", "comprehension_and_generation_time",
)  # fmt: skip
PLAIN_COLUMNS = ("run", "dtype", "comprehension_mlx", "generation_mlx", "comprehension_ours", "generation_ours")
COLUMNS = (
    *dict.fromkeys(RECURRENT_COLUMNS + PLAIN_COLUMNS), "part", "cell", "mode", "draft_tokens", "lookup_branch",
    "draft_model", "drafter", "temperature", "asked_dtype", "seed", "prompt", "group", "prefill_ms", "ttft_ms",
    "decode_ms", "rounds", "drafted", "accepted", "verified_nodes", "host_syncs", "peak_memory_bytes", "overhead",
    "mode_reason", "chosen", "difference_index", "difference_plain", "difference_other", "difference_gap", "token_ids",
    "times_ms", "rdchat", "mlx", "mlx_lm", "device", "model", "cores", "system", "difference_rounding", "draft_ms",
    "cpu_kernels",
)  # fmt: skip
_DTYPE_PREFIX = "mlx.core."
_FLOATS = {Dtype.FLOAT16.value, Dtype.BFLOAT16.value, Dtype.FLOAT32.value}
# What spreadsheets read as the beginning of a formula, and the character that is put before it.
_GUARD = "'"
_GUARDED = ("=", "+", "-", "@", "\t", "\r", _GUARD)


def environment(info: ModelInfo | None) -> dict[str, str | int | None]:
    """Return versions and facts about this machine and the loaded model, as stored in JSON and CSV files."""
    return {
        "rdchat": __version__,
        "mlx": version("mlx"),
        "mlx_lm": version("mlx-lm"),
        "device": info.device if info else None,
        "cpu_kernels": info.cpu_kernels if info else None,
        "model": info.name if info else None,
        "dtype": info.dtype if info else None,
        "cores": os.cpu_count(),
        "system": host.system_name(),
    }


class RunsFile:
    """The finished turns of a benchmark, one a line, without texts of prompts and replies. Must be closed.

    Args:
        path: Created if missing; its first line is the benchmark's plan and environment.
        plan: The benchmark.
        info: The loaded model.
        drafters: Folders of the drafters of the plan's cells, in their order.

    Attributes:
        runs: The stored runs.

    Raises:
        RdchatError: If the file is something else, or has runs of another benchmark.
        StorageFullError: If the disk is full.
        StorageError: If the file cannot be read or written.
    """

    def __init__(self, path: Path, plan: BenchPlan, info: ModelInfo, drafters: Iterable[Path] = ()) -> None:
        header = _header(plan, info, drafters)
        is_new = not path.exists() or not path.stat().st_size
        # `JsonLines` refuses what is no file.
        if not is_new and path.is_file() and not _begins_with(path, header):
            raise _other_content(path)  # Before `JsonLines` drops an incomplete last line.
        self._lines = JsonLines(path)
        self._turn: list[BenchRun] = []
        if is_new:
            self._lines.append_line(header)
        try:
            self.runs = _runs(self._lines.read_objects()[1:])
        except (KeyError, TypeError, ValueError) as error:
            self._lines.close()
            raise _other_content(path) from error

    def add_run(self, run: BenchRun) -> None:
        """Add a run to the present turn. A run of a mode that cannot run is left out: each start reports it again."""
        if run.token_ids:
            self._turn.append(run)

    def end_turn(self) -> None:
        """Store the present turn, which is complete."""
        if self._turn:
            self._lines.append_line({"runs": [asdict(replace(run, pieces=())) for run in self._turn]})
            self._turn = []

    def close(self) -> None:
        """Close the file; an incomplete turn is dropped."""
        self._lines.close()


def _other_content(path: Path) -> RdchatError:
    return RdchatError(f"{path} has other content than runs of this benchmark.", "Choose another file.")


def _begins_with(path: Path, header: dict[str, Any]) -> bool:
    line = json.dumps(header).encode() + b"\n"
    with opened(path) as file:
        return file.read(len(line)) == line


def _runs(turns: Iterable[dict[str, Any]]) -> list[BenchRun]:
    return [plain(BenchRun, run) for turn in turns for run in turn["runs"]]


def _header(plan: BenchPlan, info: ModelInfo, drafters: Iterable[Path]) -> dict[str, Any]:
    """Return the first line of a file: what must be equal for runs to belong together.

    Texts and the weights of drafters are in it as a hash.
    """
    from rdchat.inference.models.safetensors_file import target_hash  # noqa: PLC0415  NumPy: only to measure

    target = target_hash(info.path)
    digest = hashlib.sha256(repr(plan).encode("utf-8", "replace"))
    for folder in drafters:
        for path in sorted(folder.glob("*.safetensors")):
            with opened(path) as weights:
                # This adds the file to `digest`.
                hashlib.file_digest(weights, lambda: digest)
    stored = replace(plan, prompts=tuple(Prompt("", prompt.group) for prompt in plan.prompts), earlier_replies=())
    # No turn is finished in a new file, and the empty set of that is no JSON.
    facts = {"target_hash": target, "benchmark": digest.hexdigest(), "plan": asdict(stored) | {"finished": []}}
    return environment(info) | facts


def read_runs(path: Path) -> BenchResult:
    """Read a benchmark from its file, which stays as it is; an incomplete last line does not count.

    Raises:
        RdchatError: If the file cannot be read, or is not such a file, or is one of an rdchat that stored no plan.
    """
    lines, _, _ = read_bytes(path, _HINT, _MAX_BYTES).rpartition(b"\n")
    try:
        # As when a benchmark resumes, damaged lines are left out.
        header, *turns = (item for line in lines.split(b"\n") if isinstance(item := json_or_none(line), dict))
        plan = plain(BenchPlan, header["plan"])
        runs = tuple(_runs(turns))
        # Earlier versions did not store a CPU's kernels.
        known = {"cpu_kernels": None, **header}
        facts = {name: known[name] for name in environment(None)}
    except (KeyError, TypeError, ValueError) as error:
        raise RdchatError(f"{path} is not a benchmark, or an older one without its settings.", _HINT) from error
    complete = len({run.turn for run in runs}) == len(plan.baselines) * len(plan.prompts) * plan.trials
    return BenchResult(plan, runs, facts, complete)


def write_csv(file: TextIO, result: BenchResult) -> None:
    """Write a benchmark to a file opened as text with `newline=""`.

    Rows are made of whole dataclasses; what is not in `COLUMNS` is left out.
    """
    writer = csv.DictWriter(file, COLUMNS, restval="", extrasaction="ignore")
    writer.writeheader()
    for run in result.runs:
        row = {**result.environment, **_settings(result.plan, run)}
        if not run.mode_reason:
            row |= _counts(result, run)
        writer.writerow({name: _guarded(cell) if isinstance(cell, str) else cell for name, cell in row.items()})


def _settings(plan: BenchPlan, run: BenchRun) -> dict[str, Any]:
    """Return the columns of a run's setting, and of what is known without figures.

    A run of mlx-lm has the setting of the baseline beside which it ran. `cell` numbers the baselines and the plan's own
    cells each from 0; `part` says which of them is meant.
    """
    is_mlx_lm = run.cell == MLX_LM
    # The first cells are the baselines; the plan's own cells follow.
    is_own_cell = run.cell >= len(plan.baselines)
    part = "cell" if is_own_cell else "baseline"
    cell = plan.all_cells[run.baseline if is_mlx_lm else run.cell]
    difference = asdict(run.difference) if run.difference else {}
    return {
        **asdict(cell.draft),
        **asdict(run),
        "run": run.trial,
        "beam_width": cell.draft.sizes.get("beam_width", 1),
        "beam_length": cell.draft.sizes.get("beam_length", 1 + cell.draft.sizes.get("draft_tokens", 0)),
        "dtype": f"{_DTYPE_PREFIX if run.dtype in _FLOATS else ''}{run.dtype}",
        "nmax_length": plan.max_tokens,
        "greedy": plan.sampling(cell).greedy,
        "part": "mlx_lm" if is_mlx_lm else part,
        "cell": run.cell - len(plan.baselines) if is_own_cell else run.baseline,
        "temperature": cell.temperature,
        "asked_dtype": cell.dtype.value,
        "seed": plan.seed,
        **{f"difference_{name}": value for name, value in difference.items()},
        "token_ids": " ".join(map(str, run.token_ids)),
        "times_ms": " ".join(f"{time:.3f}" for time in run.times_ms),
    }


def _counts(result: BenchResult, run: BenchRun) -> dict[str, Any]:
    """Return the measured columns of a run, and of plain decoding and mlx-lm in its turn."""
    counts = run.statistics
    plain, mlx_lm = result.runs_of_turn(run)
    columns = {
        **asdict(counts),
        "steps": counts.target_calls,
        "prompt_length": counts.prompt_tokens,
        "prompt_and_generated_length": counts.prompt_tokens + counts.generated_tokens,
        "comprehension_and_generation_time": counts.prefill_ms + counts.decode_ms,
    }
    # The columns of Apple's file on plain decoding.
    for whose, other in (("mlx", mlx_lm), ("ours", plain)):
        if other:
            columns[f"comprehension_{whose}"] = other.statistics.prefill_ms
            columns[f"generation_{whose}"] = other.statistics.decode_ms
    return columns


def _guarded(text: str) -> str:
    """Return a text that no spreadsheet reads as a formula, with an apostrophe before it if necessary.

    Source: OWASP, "CSV injection".
    """
    return _GUARD + text if text.startswith(_GUARDED) else text
