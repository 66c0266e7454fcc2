"""Made-up runs of a benchmark, for what is shown of them."""

from rdchat.inference.api import (
    BenchCell,
    BenchPlan,
    BenchProgress,
    BenchRun,
    Difference,
    DraftSettings,
    Mode,
    Prompt,
    Statistics,
)

LOOKUP = DraftSettings(Mode.LOOKUP, draft_tokens=3)
PLAN = BenchPlan((BenchCell(LOOKUP),), (Prompt("Say hello", "greetings"),), trials=1, mlx_lm=False)
PIECES = ("Hello", ",", " you", "!")


def bench_run(
    cell: int,
    step_ms: float,
    *,
    pieces: tuple[str, ...] = PIECES,
    difference: Difference | None = None,
    mode_reason: str | None = None,
) -> BenchRun:
    """Return a run whose first token comes after 100 ms and every further one `step_ms` later."""
    times = tuple(100 + step_ms * place for place in range(len(pieces)))
    decode_ms = step_ms * max(len(pieces) - 1, 0)
    statistics = Statistics(
        prompt_tokens=5, generated_tokens=len(pieces), prefill_ms=100, ttft_ms=100, decode_ms=decode_ms, target_calls=2
    )
    ids = tuple(range(len(pieces)))
    return BenchRun(
        cell, 0, "greetings", 0, ids, pieces, times, statistics, mode_reason, difference=difference, dtype="float32"
    )


EVENTS = (BenchProgress(0, 2, "Off, prompt 1 of 1", label="Off"), bench_run(0, 20), bench_run(1, 10))
