"""A benchmark with known figures, and its file of runs."""

from contextlib import closing
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from rdchat.inference.api import MLX_LM, Difference, ModelInfo
from rdchat.inference.benchmark.result import BenchResult
from rdchat.inference.benchmark.runs_file import RunsFile
from tests.inference.benchmark.runs import LOOKUP, OFF, beam, plan, run

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
