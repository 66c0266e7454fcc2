"""Whether a model of the hub fits this machine: the memory gate's arithmetic, by what a search tells of a model.

The gate (`inference/models/loading.py`) knows the weights' headers and the configuration; a search tells the weights'
bytes alone. So the KV cache for 4,096 tokens, which the gate counts exactly, is an allowance here.
"""

import re
from enum import Enum, auto

from rdchat.inference.api.model_room import ModelRoom

TIGHT_SHARE = 0.9  # of the room: beyond, the gate warns
_CACHE_BYTES = 500_000_000  # 4,096 tokens in 16 bits: 0.47 GB with Llama 3.2 3B, 0.6 with Qwen3 8B ...
_CACHE_SHARE = 0.02  # ... and of the weights: 1.3 GB with Llama 3.3 70B, whose weights are 40 GB in 4 bits
_FLOAT32_BITS = 32
_OVERHEAD_BITS = 0.5  # of a quantised weight: a scale and a bias in 16 bits each, for a group of 64
_BITS = re.compile(r"(\d+)-bit|mxfp(\d)|nvfp(\d)")


class Fit(Enum):
    """How a model's needs stand to what there is."""

    UNKNOWN = auto()
    FITS = auto()
    TIGHT = auto()
    TOO_LARGE = auto()


def needed_bytes(weight_bytes: int, quantization: str, room: ModelRoom) -> int:
    """Return the memory that a model needs here, with a KV cache for 4,096 tokens.

    Args:
        weight_bytes: Of its files.
        quantization: Such as `4-bit`; empty where the weights are floats, which are taken to have 16 bits.
        room: On a CPU weights become float32.
    """
    weights = float(weight_bytes)
    if not room.keeps_quantised:
        found = _BITS.fullmatch(quantization)
        bits = float(next(filter(None, found.groups()))) + _OVERHEAD_BITS if found else 16.0
        weights *= _FLOAT32_BITS / bits
    return int(weights * (1 + _CACHE_SHARE)) + _CACHE_BYTES


def fit_of(weight_bytes: int | None, quantization: str, room: ModelRoom | None, beside_bytes: int = 0) -> Fit:
    """Return whether a model fits, together with so many bytes of a drafter."""
    if weight_bytes is None or room is None:
        return Fit.UNKNOWN
    needed = needed_bytes(weight_bytes, quantization, room) + beside_bytes
    if needed > room.limit_bytes:
        return Fit.TOO_LARGE
    return Fit.TIGHT if needed > TIGHT_SHARE * room.limit_bytes else Fit.FITS
