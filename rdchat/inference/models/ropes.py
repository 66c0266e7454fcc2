"""Gives the rotary positions of a network the frequencies that its configuration means."""

import math
import re
from collections.abc import Mapping
from typing import Any

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx
import mlx.nn as nn
import numpy as np

from rdchat.errors import ModelError

# Largest relative difference of frequencies that are the same numbers in another precision.
_SAME = 1e-5
_LAYER = re.compile(r"(?:^|\.)(\d+)(?=\.|$)")


class FrequencyRope(nn.Module):
    """Rotary positions by given frequencies, called as mlx-lm's own.

    Args:
        waves: (dims / 2,): positions for each radian.
        traditional: Whether neighbouring values rotate as a pair, instead of values half a head apart.
        scale: Factor of the rotated values.
    """

    def __init__(self, waves: np.ndarray, traditional: bool, scale: float) -> None:
        super().__init__()
        self.traditional, self.scale, self.dims = traditional, scale, 2 * len(waves)
        self._freqs = mx.array(waves.astype(np.float32))

    def __call__(self, x: mx.array, offset: int | mx.array = 0) -> mx.array:
        """Rotate x: (batch, heads, n, head size)."""
        if self.scale != 1.0:
            x = x.at[..., : self.dims].multiply(self.scale)
        return mx.fast.rope(
            x, self.dims, traditional=self.traditional, base=None, scale=1.0, offset=offset, freqs=self._freqs
        )


def follow_ropes(network: nn.Module, values: Mapping[str, Any]) -> None:
    """Replace the rope modules of a network that turn by other frequencies than its configuration means.

    Args:
        network: An mlx-lm model.
        values: The settings by transformers' class; `rope_parameters` may have one entry for each type of layer.

    Raises:
        ModelError: If the configuration is of a kind that nobody knows.
    """
    ropes, kinds = values.get("rope_parameters"), values.get("layer_types") or []
    if not isinstance(ropes, dict) or not ropes:
        return
    nested = any(isinstance(rope, dict) for rope in ropes.values())
    for name, parent in network.named_modules():
        for key, module in list(parent.items()):
            if "rope" not in key or not isinstance(module, nn.Module):
                continue
            layer = int(found[1]) if (found := _LAYER.search(name)) else 0
            own = ropes.get(kinds[layer] if layer < len(kinds) else "") if nested else ropes
            if isinstance(own, dict) and own.get("rope_theta"):
                parent[key] = _followed(module, own, values)


def _followed(module: nn.Module, rope: Mapping[str, Any], values: Mapping[str, Any]) -> nn.Module:
    """Return the module if it turns as `rope` says, otherwise one that does."""
    held = getattr(module, "_freqs", None)
    dims = 2 * held.size if held is not None else getattr(module, "dims", 0)
    if not dims:
        return module
    if values.get("reads_share") and rope["rope_type"] != "proportional":
        head = values.get("head_dim") or values["hidden_size"] // values["num_attention_heads"]
        dims = int(head * rope.get("partial_rotary_factor", 1.0))
    waves, scale = frequencies(rope, dims, values)
    if held is not None:
        now, factor = np.array(held.astype(mx.float32)), getattr(module, "_scale", getattr(module, "mscale", 1.0))
    else:
        base = getattr(module, "original_base", getattr(module, "base", 0.0))
        now, factor = base ** (np.arange(0, module.dims, 2) / module.dims) / module.scale, 1.0
    if now.shape == waves.shape and np.allclose(now, waves, rtol=_SAME) and math.isclose(factor, scale, rel_tol=_SAME):
        return module
    traditional = getattr(module, "traditional", "deepseek_v2" in type(module).__module__)
    if rope["rope_type"] == "default":
        return nn.RoPE(dims, traditional=traditional, base=rope["rope_theta"])
    return FrequencyRope(waves, traditional, scale)


def frequencies(rope: Mapping[str, Any], dims: int, values: Mapping[str, Any]) -> tuple[np.ndarray, float]:
    """Return positions for each radian, (dims / 2,), and the factor of the rotated values.

    As `modeling_rope_utils.py` of transformers 5.23. LongRoPE has the numbers for texts up to its original length, and
    dynamic NTK has no other numbers up to the model's length: the context ends there.

    Raises:
        ModelError: If the kind is unknown.
    """
    kind, theta, factor = rope["rope_type"], float(rope["rope_theta"]), rope.get("factor")
    waves = theta ** (np.arange(0, dims, 2) / dims)
    original = rope.get("original_max_position_embeddings") or values.get("max_position_embeddings") or 0
    if factor is None and kind in {"yarn", "longrope"}:
        factor = values["max_position_embeddings"] / original
    given = rope.get("attention_factor")
    if kind in {"default", "dynamic", "mrope"}:
        return waves, 1.0
    if kind == "linear":
        return waves * factor, 1.0
    if kind == "proportional":
        turned = int(rope.get("partial_rotary_factor", 1.0) * dims // 2)
        return np.where(np.arange(dims // 2) < turned, waves * (factor or 1.0), np.inf), 1.0
    if kind == "longrope":
        usual = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
        return waves * np.array(rope["short_factor"], dtype=float), usual if given is None else given
    if kind == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        smooth = np.clip((original / (2 * math.pi * waves) - low) / (high - low), 0.0, 1.0)
        return 1 / ((1 - smooth) / (waves * factor) + smooth / waves), 1.0
    if kind != "yarn":
        raise ModelError(f"The model's rotary positions are of an unknown kind: {str(kind)[:100]}.", "Choose another.")

    def dimension(turns: float) -> float:
        return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    def stretch(weight: float = 1.0) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    low, high = dimension(rope.get("beta_fast") or 32), dimension(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    ramp = np.clip((np.arange(dims // 2) - low) / (high - low or 0.001), 0.0, 1.0)
    weights = rope.get("mscale"), rope.get("mscale_all_dim")
    usual = stretch(weights[0]) / stretch(weights[1]) if all(weights) else stretch()
    return 1 / (ramp / (waves * factor) + (1 - ramp) / waves), usual if given is None else given
