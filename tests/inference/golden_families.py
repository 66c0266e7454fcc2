"""Tiny models of several families, with the logits that transformers computes for them."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models.cache import make_prompt_cache

from scripts.families.drawn_weights import drawn
from tests.inference.model_folders import folder_of

GOLDEN: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "golden/families.json").read_text())
IDS = np.arange(24)[None] * 37 % 89 + 20
# A part of the span of the logits, as in docs/families.md.
EQUAL = 1e-4


def logits(network: nn.Module, ids: np.ndarray = IDS) -> np.ndarray:
    return np.array(network(mx.array(ids), cache=make_prompt_cache(network))[0].astype(mx.float32))


def difference(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).max() / (other.max() - other.min()))


def golden_folder(place: Path, name: str, **changes: Any) -> Path:
    """Write the folder of a golden case, with other settings; `...` leaves one out."""
    case = GOLDEN[name]
    config = {key: value for key, value in (case["config"] | changes).items() if value is not ...}
    return folder_of(place, config, {key: drawn(key, shape) for key, shape in case["shapes"].items()})
