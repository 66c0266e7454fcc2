"""A benchmark with known figures, and its CSV file."""

from pathlib import Path

from rdchat.inference.api.benchmark import MLX_LM, Difference
from rdchat.inference.benchmark.csv_file import write_csv
from rdchat.inference.benchmark.result import BenchResult
from tests.inference.benchmark.runs import LOOKUP, OFF, beam, plan, run


def result() -> BenchResult:
    """Return a benchmark of each mode, mlx-lm and a mode that could not run: two prompts, two trials."""
    asked = plan(OFF, beam(2, 3), LOOKUP, groups=("qa", "rag"), trials=2)
    runs = []
    for prompt in (0, 1):
        for trial in (0, 1):
            where = {"prompt": prompt, "trial": trial, "dtype": "float32"}
            runs += [
                run(asked, 0, 10 + trial, **where),
                run(asked, 1, 11, **where),
                run(asked, 2, 20, overhead=1.1, difference=Difference(prompt, 1, "a", '"b,\n', 0.5), **where),
                run(asked, 3, 8, mode_reason="No, it cannot.", **where),
                run(asked, MLX_LM, 9, **where),
            ]
    environment = {"rdchat": "1", "mlx": "2", "mlx_lm": "3", "device": "CPU", "model": "m", "cores": 2, "system": "x"}
    return BenchResult(asked, tuple(runs), environment | {"dtype": "float32"})


def written(path: Path, of: BenchResult) -> Path:
    """Write a record as our CSV; return the path."""
    with path.open("w", newline="") as file:
        write_csv(file, of)
    return path
