"""Times an image in each vision tower, with random weights of 16 bits in the widths of published models.

`towers.json` has the shapes; `scripts/tower_shapes.py` writes it.
"""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx

from rdchat.inference.device import on_gpu
from rdchat.inference.vision.towers import TOWERS, TowerCall, TowerWeights

SHAPES = Path(__file__).with_name("towers.json")
_RUNS = 3


def time_towers(facts: dict[str, Any], show: Callable[[str], None]) -> None:
    """Add for each tower the milliseconds of the parts of an image, in some runs.

    The first run includes compiling kernels. On a CPU, where an image takes minutes, nothing is computed.
    """
    if not on_gpu():
        facts["left_out"] = ["there is no GPU"]
        return
    for name, case in json.loads(SHAPES.read_text()).items():
        show(f"Images: {name}")
        facts[name] = _time_parts(case)


def _time_parts(case: dict[str, Any]) -> list[list[float]]:
    """Return the milliseconds of each part of an image, by run: of each piece of attention, the rest of each layer,
    and what follows the layers. Their sum is the time of the whole image.
    """
    weights = {
        tensor.format(number): mx.random.normal(shape, mx.bfloat16, scale=0.02)
        for tensor, (count, *shape) in case["shapes"].items()
        for number in range(count)
    }
    image = mx.random.uniform(shape=case["image"])
    mx.eval(weights)
    ends: list[float] = []

    def end_part(array: object) -> None:
        mx.eval(array)
        ends.append(perf_counter())

    call = TowerCall(TowerWeights(weights), case["settings"], image, tuple(case["grid"]), end_part)
    runs = []
    for _ in range(_RUNS):
        ends[:] = [perf_counter()]
        end_part(TOWERS[case["tower"]](call).arrays)
        runs.append([1000 * (end - begin) for begin, end in pairwise(ends)])
    return runs
