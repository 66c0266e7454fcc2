"""Gives the rotary positions of a network the frequencies that its configuration means.

The published numbers are those of transformers' `modeling_rope_utils.py` (5.23). mlx-lm (0.32.2) has most of them in
`models/rope_utils.py`, but many of its modules read only some settings, or none. Where mlx-lm's rope is wrong itself,
`rope_of` writes two of its private numbers:

- `_freqs`, (dims / 2,): positions that a pair of features takes for one radian, 1 / `inv_freq` of transformers.
- `_scale` of LongRoPE and `mscale` of YaRN: what queries and keys are multiplied by, `attention_factor` there.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models.rope_utils import initialize_rope

_LAYER = re.compile(r"(?:^|\.)(\d+)(?=\.|$)")


def follow_ropes(network: nn.Module, values: Mapping[str, Any]) -> None:
    """Give a network the rope modules that its configuration means; mlx-lm's own, where those were right.

    Args:
        network: An mlx-lm model.
        values: The settings by transformers' class; `rope_parameters` may have one entry for each type of layer.

    Raises:
        ValueError: If they are of a kind that nobody knows.
    """
    ropes = values.get("rope_parameters") or {}
    kinds = values.get("layer_types") or []
    nested = any(isinstance(rope, dict) for rope in ropes.values())
    for name, parent in network.named_modules():
        for key, module in list(parent.items()):
            dims = 2 * module._freqs.size if hasattr(module, "_freqs") else getattr(module, "dims", 0)
            layer = int(result[1]) if (result := _LAYER.search(name)) else 0
            rope = ropes.get(kinds[layer] if layer < len(kinds) else "") if nested else ropes
            if "rope" not in key or not dims or not rope or not rope.get("rope_theta"):
                continue
            if values.get("reads_share") and rope.get("rope_type") != "proportional":
                head = values.get("head_dim") or values["hidden_size"] // values["num_attention_heads"]
                dims = int(head * rope.get("partial_rotary_factor", 1.0))
            traditional = getattr(module, "traditional", "deepseek_v2" in type(module).__module__)
            parent[key] = rope_of(rope, dims, traditional, values.get("max_position_embeddings") or 0)


def rope_of(rope: Mapping[str, Any], dims: int, traditional: bool, length: int) -> nn.Module:
    """Return a rope module for settings as in `rope_parameters` of transformers.

    YaRN (arXiv 2309.00071) stretches low frequencies, leaves high ones, and goes from one to the other between two
    borders, which mlx-lm always rounds to whole features. gpt-oss says `truncate: false`: then the frequencies are
    computed here as transformers' `_compute_yarn_parameters` does. An `attention_factor` that is given, or the
    `short_mscale` of Phi-3.5-MoE, replaces the computed one, which mlx-lm always takes.

    LongRoPE has the numbers for texts up to its original length, and dynamic NTK no other numbers up to the model's
    length: the context ends there. mlx-lm's own module for the latter would forbid drafts.

    Args:
        rope: Kind, base and numbers.
        dims: Rotated values of each head.
        traditional: Whether neighbouring values rotate as a pair, instead of values half a head apart.
        length: Positions that the model was made for.
    """
    given = {key: value for key, value in rope.items() if value is not None}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    given["type"] = "default" if kind in {"dynamic", "mrope"} else kind
    theta = float(rope["rope_theta"])
    original = given.get("original_max_position_embeddings") or length
    if kind in {"yarn", "longrope"}:
        given.setdefault("factor", length / original)
    if kind == "dynamic" and "alpha" in given:
        # Hunyuan's has a base that does not change.
        theta *= given["alpha"] ** (dims / (dims - 2))
    if kind == "longrope":
        length = int(original * given["factor"])
        given["long_factor"] = given["short_factor"]
    if not (given.get("mscale") and given.get("mscale_all_dim")):
        given = {key: value for key, value in given.items() if not key.startswith("mscale")}
    made: Any = initialize_rope(dims, theta, traditional, given, length)
    if (factor := given.get("attention_factor", given.get("short_mscale"))) is not None:
        made._scale = factor
        made.mscale = factor
    if kind == "yarn" and given.get("truncate") is False:
        turns = [math.log(original / (2 * math.pi * given.get(*end))) for end in (("beta_fast", 32), ("beta_slow", 1))]
        low, high = (min(max(dims * each / (2 * math.log(theta)), 0), dims - 1) for each in turns)
        plain = theta ** -(np.arange(0, dims, 2) / dims)
        stretched = np.clip((np.arange(dims // 2) - low) / (high - low or 0.001), 0.0, 1.0)
        frequencies = plain * (stretched / given["factor"] + 1 - stretched)
        made._freqs = mx.array((1 / frequencies).astype(np.float32))
    return made
