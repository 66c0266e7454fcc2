"""The files that Apple's two benchmark scripts write, as a plan and its runs. No MLX and no Qt here.

Source: apple/ml-recurrent-drafter, recurrent_drafting/mlx/experiments: benchmark_autoregression.py and
benchmark_recurrent_drafting.py write them, analyze_perf_data.py compares them. Times are milliseconds; "comprehension"
is prefill, up to the first token. The speed-up is plain generation's time over what remains of a drafted reply's after
the mean time of comprehension. Apple takes both from float16; here each precision is compared with itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean

from rdchat.inference.api.bench_plan import BenchCell, BenchPlan
from rdchat.inference.api.bench_results import MLX_LM, BenchRecord, BenchRun
from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import DraftSettings, Dtype, Mode
from rdchat.inference.benchmark.csv_table import Row

RECURRENT_COLUMNS = (
    "run",
    "beam_width",
    "beam_length",
    "dtype",
    "nmax_length",
    "greedy",
    "steps",
    "prompt_length",
    "prompt_and_generated_length",
    "comprehension_and_generation_time",
)
PLAIN_COLUMNS = ("run", "dtype", "comprehension_mlx", "generation_mlx", "comprehension_ours", "generation_ours")
PLAIN_FILE = "autoregression.csv"  # what it is called in Apple's folders, beside the other one
DTYPE_PREFIX = "mlx.core."
_PLAIN_TOKENS = 200  # what their script generates; its file does not say
_SAMPLED = 1.0  # their temperature where it is not greedy


def apple_record(drafted: Sequence[Row], plain: Sequence[Row]) -> BenchRecord:
    """Return what the files hold; either may be missing, but not both.

    Args:
        drafted: Rows with `RECURRENT_COLUMNS`.
        plain: Rows with `PLAIN_COLUMNS`. They are greedy; sampled replies are compared with them too, as Apple does.

    Raises:
        RdchatError: If a line holds what it cannot; the message says which.
    """
    by_row = [_beam_cell(row) for row in drafted] or [_plain_cell(row) for row in plain]
    with (*drafted, *plain)[0].settings():
        plan = BenchPlan(
            tuple(dict.fromkeys(by_row)),
            (Prompt(""),),
            max_tokens=max((row.whole("nmax_length") for row in drafted), default=_PLAIN_TOKENS),
            trials=1 + max(row.whole("run") for row in (*drafted, *plain)),
        )
    index = {cell: len(plan.baselines) + place for place, cell in enumerate(plan.cells)}
    runs: list[BenchRun] = []
    if drafted:
        comprehension = _mean_comprehension(plain)
        for row, cell in zip(drafted, by_row, strict=True):
            prefill_ms = comprehension.get(cell.dtype, 0.0)
            runs.append(_drafted_run(row, index[cell], plan.baseline_of(cell), cell.dtype, prefill_ms))
        for baseline, cell in enumerate(plan.baselines):
            runs += _plain_runs(plain, cell.dtype, baseline, baseline)
    else:
        for cell in plan.cells:
            runs += _plain_runs(plain, cell.dtype, index[cell], plan.baseline_of(cell))
    files = dict.fromkeys(row.path.name for row in (*drafted, *plain))
    return BenchRecord(plan, tuple(runs), {"source": "Apple's benchmark", "files": list(files)})


def _beam_cell(row: Row) -> BenchCell:
    with row.settings():
        draft = DraftSettings(
            Mode.DRAFTER,
            beam_width=row.whole("beam_width"),
            beam_length=row.whole("beam_length"),
            lookup_branch=False,
        )
    return BenchCell(draft, 0.0 if row.truth("greedy") else _SAMPLED, _dtype(row))


def _plain_cell(row: Row) -> BenchCell:
    return BenchCell(DraftSettings(Mode.OFF), dtype=_dtype(row))


def _dtype(row: Row) -> Dtype:
    name = row.cells["dtype"].removeprefix(DTYPE_PREFIX)
    if name not in Dtype:
        raise row.error(f"dtype is {row.cells['dtype']!r}, which is unknown")
    return Dtype(name)


def _mean_comprehension(plain: Iterable[Row]) -> Mapping[Dtype, float]:
    times: dict[Dtype, list[float]] = {}
    for row in plain:
        times.setdefault(_dtype(row), []).append(row.number("comprehension_ours"))
    return {dtype: mean(found) for dtype, found in times.items()}


def _drafted_run(row: Row, cell: int, baseline: int, dtype: Dtype, prefill_ms: float) -> BenchRun:
    prompt, steps = row.whole("prompt_length"), row.whole("steps")
    statistics = Statistics(
        prompt_tokens=prompt,
        generated_tokens=row.whole("prompt_and_generated_length") - prompt,
        prefill_ms=prefill_ms,
        decode_ms=row.number("comprehension_and_generation_time") - prefill_ms,
        rounds=steps,
        target_calls=steps,
    )
    return _run(row, cell, baseline, dtype, statistics)


def _plain_runs(rows: Sequence[Row], dtype: Dtype, cell: int, baseline: int) -> Iterable[BenchRun]:
    """Yield Apple's own plain decoding as the cell, and mlx-lm's beside it."""
    for row in rows:
        if _dtype(row) is dtype:
            yield _run(row, cell, baseline, dtype, _plain_statistics(row, "ours"))
            yield _run(row, MLX_LM, baseline, dtype, _plain_statistics(row, "mlx"))


def _plain_statistics(row: Row, whose: str) -> Statistics:
    return Statistics(
        generated_tokens=_PLAIN_TOKENS,
        prefill_ms=row.number(f"comprehension_{whose}"),
        decode_ms=row.number(f"generation_{whose}"),
        target_calls=_PLAIN_TOKENS - 1,
    )


def _run(row: Row, cell: int, baseline: int, dtype: Dtype, statistics: Statistics) -> BenchRun:
    return BenchRun(cell, 0, "", row.whole("run"), (), (), (), statistics, baseline=baseline, dtype=dtype.value)
