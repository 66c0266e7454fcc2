"""Weights that are drawn by their names, as in `scripts/families/golden.py`."""

import math
import zlib

import numpy as np


def drawn(name: str, shape: list[int]) -> np.ndarray:
    """Return a float32 tensor of a checkpoint: a matrix, a norm or a decay, or a bias."""
    noise = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape).astype(np.float32)
    if len(shape) > 1 and min(shape[-2:]) > 1:
        return noise * np.float32((4 if "embed" in name else 1) / math.sqrt(shape[-1]))
    about_one = "norm" in name or name.endswith((".D", ".A_log"))
    return np.float32(about_one) + np.float32(0.2) * noise
