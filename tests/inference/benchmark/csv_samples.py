"""CSV files of benchmarks with known figures: ours, and two as Apple's benchmark writes them."""

from pathlib import Path

from rdchat.inference.api.benchmark import MLX_LM, Difference
from rdchat.inference.benchmark.csv_file import write_csv
from rdchat.inference.benchmark.result import BenchResult
from tests.inference.benchmark.runs import LOOKUP, OFF, beam, plan, run

APPLE_PLAIN = """\
run,dtype,comprehension_mlx,generation_mlx,comprehension_ours,generation_ours
0,mlx.core.float16,100.0,4000.0,110.0,4100.0
1,mlx.core.float16,100.0,4000.0,90.0,3900.0
"""
APPLE_DRAFTED = """\
run,beam_width,beam_length,dtype,nmax_length,greedy,steps,prompt_length,prompt_and_generated_length,comprehension_and_generation_time
0,1,2,mlx.core.float16,200,True,126,66,266,4200.0
0,2,3,mlx.core.float16,200,True,100,66,266,2150.0
1,2,3,mlx.core.float16,200,True,100,66,266,2050.0
0,1,2,mlx.core.float16,200,False,198,66,266,8300.0
0,2,3,mlx.core.float16,200,False,120,66,266,4200.0
"""


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
