"""Draws the tensors of golden checkpoints by their names, for the scripts that write them and for the tests."""

import math
import zlib

import numpy as np


def drawn(name: str, shape: list[int]) -> np.ndarray:
    """Return a float32 tensor of a checkpoint: a matrix, a norm, scale, bound or decay, or a bias."""
    # A scalar is an array too.
    noise = np.asarray(np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape), np.float32)
    if len(shape) > 1 and min(shape[-2:]) > 1:
        return noise * np.float32((4 if "embed" in name else 1) / math.sqrt(shape[-1]))
    about = 1.0 if "norm" in name or name.endswith((".D", ".A_log", "scale", "_max")) else 0.0
    about = -1.0 if name.endswith("_min") else 0.6 if name.endswith(".layer_scalar") else about
    return np.asarray(about + np.float32(0.2) * noise, np.float32)
