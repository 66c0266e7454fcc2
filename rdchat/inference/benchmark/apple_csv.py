"""The files that Apple's two benchmark scripts write, turned into rows of our own format. No MLX and no Qt here.

Source: apple/ml-recurrent-drafter, recurrent_drafting/mlx/experiments: benchmark_autoregression.py and
benchmark_recurrent_drafting.py write them, analyze_perf_data.py compares them. Times are milliseconds; "comprehension"
is prefill, up to the first token. The speed-up is plain generation's time over what remains of a drafted reply's after
the mean time of comprehension. Apple takes both from float16; here each precision is compared with itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean

from rdchat.inference.api.requests import Dtype, Mode
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
_SAMPLED = "1.0"  # their temperature where it is not greedy


_PLAIN = {
    "mode": Mode.OFF.value,
    "nmax_length": str(_PLAIN_TOKENS),
    "steps": str(_PLAIN_TOKENS - 1),
    "prompt_length": "0",
    "prompt_and_generated_length": str(_PLAIN_TOKENS),
}


def rows_of_apple(drafted: Sequence[Row], plain: Sequence[Row]) -> Iterator[Row]:
    """Yield a row of our format for each reply that Apple's rows tell of; either kind may be missing.

    Plain rows are greedy; sampled replies are compared with them too, as Apple does. Without drafted rows, Apple's own
    plain decoding is the setting that is measured.

    Raises:
        RdchatError: If a line holds what it cannot; the message says which.
    """
    prefill: dict[str, list[float]] = {}
    for row in plain:
        prefill.setdefault(_dtype(row), []).append(row.number("comprehension_ours"))
    cells: dict[tuple[str, str, str, str], str] = {}  # numbered in order of appearance
    for row in drafted:
        kind = _dtype(row), "0" if row.truth("greedy") else _SAMPLED
        cell = cells.setdefault((*kind, row.cells["beam_width"], row.cells["beam_length"]), str(len(cells)))
        prefill_ms = mean(prefill.get(kind[0], [0.0]))
        times = prefill_ms, row.number("comprehension_and_generation_time") - prefill_ms
        told = {"part": "cell", "cell": cell, "mode": Mode.DRAFTER.value, "rounds": row.cells["steps"]}
        yield _our_row(row, kind, times, told)
    kinds = dict.fromkeys(key[:2] for key in cells) or dict.fromkeys((dtype, "0") for dtype in prefill)
    for number, kind in enumerate(kinds):
        for row in [row for row in plain if _dtype(row) == kind[0]]:
            for part, whose in (("baseline" if drafted else "cell", "ours"), ("mlx_lm", "mlx")):
                times = row.number(f"comprehension_{whose}"), row.number(f"generation_{whose}")
                yield _our_row(row, kind, times, _PLAIN | {"part": part, "cell": str(number)})


def _dtype(row: Row) -> str:
    return row.member("dtype", Dtype, DTYPE_PREFIX).value


def _our_row(row: Row, kind: tuple[str, str], times: tuple[float, float], told: Mapping[str, str]) -> Row:
    """Return a row of our format, without the columns of which Apple tells nothing.

    Args:
        row: Apple's.
        kind: Precision and temperature.
        times: Milliseconds of prefill and of decoding.
        told: Other cells.
    """
    settings = {"asked_dtype": kind[0], "temperature": kind[1], "lookup_branch": "False", "draft_tokens": "1"}
    measured = {"prefill_ms": repr(times[0]), "decode_ms": repr(times[1])}
    return Row(row.path, row.line, {**row.cells, **settings, **measured, **told})
