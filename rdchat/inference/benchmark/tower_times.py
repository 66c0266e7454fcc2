"""Times an image in each vision tower, with random weights of 16 bits in the widths of published models.

`towers.json` has the shapes; `scripts/tower_shapes.py` writes it.
"""

import json
from collections.abc import Callable
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
    """Add for each tower the milliseconds of an image in some runs.

    The first run includes compiling kernels. On a CPU, where an image takes minutes, nothing is computed.
    """
    if not on_gpu():
        facts["left_out"] = ["there is no GPU"]
        return
    for name, case in json.loads(SHAPES.read_text()).items():
        show(f"Images: {name}")
        weights = {
            tensor.format(number): mx.random.normal(shape, mx.bfloat16, scale=0.02)
            for tensor, (count, *shape) in case["shapes"].items()
            for number in range(count)
        }
        image = mx.random.uniform(shape=case["image"])
        call = TowerCall(TowerWeights(weights), case["settings"], image, tuple(case["grid"]), mx.eval)
        times_ms: list[float] = []
        mx.eval(weights)
        for _ in range(_RUNS):
            began = perf_counter()
            mx.eval(TOWERS[case["tower"]](call).arrays)
            times_ms.append(1000 * (perf_counter() - began))
        facts[name] = times_ms
