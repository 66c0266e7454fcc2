"""A benchmark with known figures, and its file of runs."""

from contextlib import closing
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from rdchat.inference.api import (
    MLX_LM,
    BenchCell,
    BenchPlan,
    BenchResult,
    BenchRun,
    Difference,
    DraftSettings,
    Dtype,
    Mode,
    ModelInfo,
    Prompt,
    Statistics,
)
from rdchat.inference.benchmark.result_files import RunsFile

INFO = ModelInfo("m", Path("m"), "llama", "float32", "CPU", 512, 30, 0, 0, 0.0)


def result() -> BenchResult:
    """Return a benchmark of each mode, mlx-lm and a mode that could not run: two prompts, two trials."""
    asked = plan(OFF, beam(2, 3), LOOKUP, groups=("qa", "rag"), trials=2)
    runs = []
    for prompt in (0, 1):
        for trial in (0, 1):
            where = {"prompt": prompt, "trial": trial, "dtype": "float32"}
            difference = Difference(prompt, 1, "a", '"b,\n', 0.5)
            runs += [
                run(asked, 0, 10 + trial, **where),
                run(asked, 1, 11, **where),
                replace(run(asked, 2, 20, overhead=1.1, difference=difference, **where), times_ms=(1.0, 2.5)),
                run(asked, 3, 8, mode_reason="No, it cannot.", **where),
                run(asked, MLX_LM, 9, **where),
            ]
    facts = {"rdchat": "1", "mlx": "2", "mlx_lm": "3", "device": "CPU", "model": "m", "cores": 2, "system": "x"}
    return BenchResult(asked, tuple(runs), facts | {"dtype": "float32"})


def stored(path: Path, of: BenchResult) -> Path:
    """Store the runs of a result, a turn a line, as `rdchat bench --results` does; return the path."""
    with closing(RunsFile(path, of.plan, INFO)) as file:
        for _turn, runs in groupby(of.runs, key=lambda run: run.turn):
            for one in runs:
                file.add_run(one)
            file.end_turn()
    return path


OFF = BenchCell()
LOOKUP = BenchCell(DraftSettings(Mode.LOOKUP, draft_tokens=3))


def beam(width: int, length: int, dtype: Dtype = Dtype.AUTO, temperature: float = 0.0) -> BenchCell:
    return BenchCell(DraftSettings(Mode.DRAFTER, beam_width=width, beam_length=length), temperature, dtype)


def plan(*cells: BenchCell, groups: tuple[str, ...] = ("",), trials: int = 1) -> BenchPlan:
    return BenchPlan(cells, tuple(Prompt(f"prompt {n}", group) for n, group in enumerate(groups)), trials=trials)


def run(
    of: BenchPlan, cell: int, tps: float, *, prompt: int = 0, trial: int = 0, baseline: int = 0, **more: object
) -> BenchRun:
    """Return a run of 101 tokens at so many a second; a drafted one has 50 target calls of which 40 drafted tokens."""
    plain = cell == MLX_LM or of.all_cells[cell].plain
    statistics = Statistics(
        prompt_tokens=7,
        generated_tokens=101,
        prefill_ms=20.0,
        ttft_ms=21.0,
        decode_ms=100_000 / tps,
        rounds=0 if plain else 50,
        drafted=0 if plain else 80,
        accepted=0 if plain else 50,
        target_calls=100 if plain else 50,
        verified_nodes=0 if plain else 200,
        host_syncs=100 if plain else 75,
    )
    return BenchRun(
        cell, prompt, of.prompts[prompt].group, trial, (1, 2), (), (), statistics, baseline=baseline, **more
    )  # type: ignore[arg-type]
