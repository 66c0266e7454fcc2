"""Writes benchmarks as CSV: a row for each run, with the columns of Apple's two scripts and our own.

Apple's columns have the same meaning as in Apple's files, in milliseconds, so that Apple's analysis works on our files.
Every row also has the times of mlx-lm and of rdchat's plain decoding from its own turn. Plain decoding counts as a beam
of width 1 and length 1, a chain of K draft tokens as one of width 1 and length K + 1; `mode` distinguishes them. A cell
whose mode did not run has a row with the reason and no figures. Tokens are written, texts are not. No MLX and no Qt
here.

Source: apple/ml-recurrent-drafter, recurrent_drafting/mlx/experiments: benchmark_autoregression.py and
benchmark_recurrent_drafting.py write Apple's files, analyze_perf_data.py compares them.
"""

import csv
from dataclasses import asdict
from typing import Any, TextIO

from rdchat.inference.api import MLX_LM, BenchPlan, BenchRun, Dtype
from rdchat.inference.benchmark.result import BenchResult

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
