"""Mends faults of mlx-lm's networks (0.32.2) that no setting mends: modules, names of weights, and rotary positions.

Each private class replaces a method of one of mlx-lm's modules: `_give` makes a new class with both as bases, as the
hooks do. The public functions are called while a model is loaded.

The published numbers of rotary positions are those of transformers' `modeling_rope_utils.py` (5.23). mlx-lm has most of
them in `models/rope_utils.py`, but many of its modules read only some settings, or none. Where mlx-lm's rope is wrong
itself, `rope_of` writes two of its private numbers:

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

# The text models of SmolVLM and Idefics3, and of LFM2-VL: in originals, and in mlx-vlm's copies.
_TOWER_NEIGHBOURS = ("model.text_model.", "model.language_model.", "language_model.model.", "language_model.")
_LAYER = re.compile(r"(?:^|\.)(\d+)(?=\.|$)")


class _WeighedExperts:
    """Jamba: the shares of the chosen experts are those among all experts; the module makes their sum 1."""

    def __call__(self: Any, x: mx.array) -> Any:
        """Return (1, n, width)."""
        top = mx.topk(mx.softmax(self.router(x), axis=-1, precise=True), self.num_experts_per_tok, axis=-1)
        return super().__call__(x) * top.sum(axis=-1, keepdims=True)  # type: ignore[misc]


class _CorrectedExperts:
    """ERNIE 4.5: a bias of the router takes part in the choice of experts; the module drops it."""

    def __call__(self: Any, x: mx.array) -> mx.array:
        """Return (1, n, width)."""
        shares = self.gate_act(self.gate(x).astype(mx.float32))
        chosen = mx.argpartition(-(shares + self._correction), kth=self.k - 1, axis=-1)[..., : self.k]
        weights = mx.take_along_axis(shares, chosen, axis=-1)
        weights = weights / mx.maximum(weights.sum(axis=-1, keepdims=True), 1e-12)
        outputs = self.switch_mlp(x, chosen)
        result: mx.array = (outputs * weights[..., None]).sum(axis=-2).astype(outputs.dtype)
        return result if self.shared_experts is None else result + self.shared_experts(x)


class _NormByGroup:
    """Mamba 2: each group is normalised by itself; the module normalises all together."""

    def __call__(self: Any, x: mx.array, gate: mx.array | None = None) -> Any:
        """Return (1, n, width)."""
        gated = x if gate is None else x * nn.silu(gate)
        groups = mx.unflatten(gated, axis=-1, shape=(self.groups, -1))
        return self.weight * mx.fast.rms_norm(groups, None, self.eps).flatten(-2)


class _RootInOwnType:
    """Gemma 3: the root of the width has the type of the embeddings; the module rounds it to bfloat16 in any case."""

    def __call__(self: Any, inputs: mx.array, cache: Any = None, input_embeddings: mx.array | None = None) -> Any:
        """Return (1, n, width)."""
        rows = self.embed_tokens(inputs) if input_embeddings is None else input_embeddings
        if rows.dtype != mx.bfloat16:
            root = self.args.hidden_size**0.5
            rows = rows * (root / mx.array(root, mx.bfloat16).astype(rows.dtype))
        return super().__call__(inputs, cache, rows)  # type: ignore[misc]


def mend_faults(network: Any, model_type: str, values: Mapping[str, Any]) -> None:
    """Mend the faults of a loaded network.

    Args:
        network: An mlx-lm model.
        model_type: Of config.json.
        values: The settings by transformers' class.
    """
    match model_type:
        case "jamba":
            _give(network, "JambaSparseMoeBlock", _WeighedExperts)
        case "mamba2":
            for _, norm in _give(network, "MambaRMSNormGated", _NormByGroup):
                norm.groups = values["n_groups"]
            for layer in network.layers:
                layer.norm.eps = values["layer_norm_epsilon"]
        case "gemma3" | "gemma3_text":
            _give(network, "Gemma3Model", _RootInOwnType)
        case "falcon_h1":
            # The keys are not multiplied, whatever `sanitize` does.
            for layer in network.layers:
                layer.self_attn.scale *= values["key_multiplier"]
        case "minicpm3" if network.args.tie_word_embeddings:
            # Only its untied path divides the hidden states.
            network.args.tie_word_embeddings = False
            network.lm_head = network.model.embed_tokens.as_linear


def with_known_names(network: nn.Module, model_type: str, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Return the weights of a checkpoint, as transformers 5 saves it, with names and axes that `sanitize` knows."""
    match model_type:
        case "ernie4_5_moe":
            # `sanitize` drops them.
            end = ".moe_statics.e_score_correction_bias"
            biases = {name.removesuffix(end): each for name, each in weights.items() if name.endswith(end)}
            for name, module in _give(network, "Ernie4_5_MoeMLP", _CorrectedExperts) if biases else []:
                module._correction = biases[name].reshape(-1).astype(mx.float32)
        case "llama" | "lfm2":
            prefix = next((each for each in _TOWER_NEIGHBOURS if any(name.startswith(each) for name in weights)), None)
            return weights if prefix is None else _text_of(weights, prefix)
        case "gpt_oss":
            experts = [name for name in weights if name.endswith((".gate_up_proj", ".down_proj"))]
            # The old names are gone when both dicts are joined, since each is popped for its new name.
            return weights | {f"{name}.weight": weights.pop(name).swapaxes(-1, -2) for name in experts}
        case "qwen3_5_moe":
            for name in [name for name in weights if ".mlp.experts.0." in name]:
                before, _, part = name.partition(".experts.0.")
                count = len(weights[f"{before}.gate.weight"])
                own = [weights.pop(f"{before}.experts.{number}.{part}") for number in range(count)]
                weights[f"{before}.switch_mlp.{part}"] = mx.stack(own)
    return weights


def _text_of(weights: dict[str, mx.array], prefix: str) -> dict[str, mx.array]:
    """Return the weights of the text model alone; only the output rows may stand outside of its prefix."""
    own = {name.removeprefix(prefix): each for name, each in weights.items() if name.startswith((prefix, "lm_head."))}
    return {name if name.startswith("lm_head.") else f"model.{name}": each for name, each in own.items()}


def _give(network: nn.Module, name: str, mixin: type) -> list[tuple[str, Any]]:
    """Give all modules of the class called `name` a new class, with `mixin` before their own; return them by name."""
    results = [(position, module) for position, module in network.named_modules() if type(module).__name__ == name]
    for _, module in results:
        module.__class__ = type(name, (mixin, type(module)), {})
    return results


def follow_ropes(network: nn.Module, values: Mapping[str, Any]) -> None:
    """Give a network the rope modules that its configuration means; mlx-lm's own, where those were right.

    A module is replaced if its name has `rope` in it, and the settings for its layer have a base. It rotates as many
    values as before; where transformers' network reads `partial_rotary_factor` (`reads_share`), as many as that says,
    except in proportional ropes.

    Args:
        network: An mlx-lm model.
        values: The settings by transformers' class; `rope_parameters` may have one entry for each type of layer.

    Raises:
        ValueError: If they are of a kind that nobody knows.
    """
    for name, parent in network.named_modules():
        rope = _rope_settings(name, values)
        for key, module in list(parent.items()) if rope.get("rope_theta") else ():
            dims = 2 * module._freqs.size if hasattr(module, "_freqs") else getattr(module, "dims", 0)
            if "rope" not in key or not dims:
                continue
            if values.get("reads_share") and rope.get("rope_type") != "proportional":
                head = values.get("head_dim") or values["hidden_size"] // values["num_attention_heads"]
                dims = int(head * rope.get("partial_rotary_factor", 1.0))
            # DeepSeek-V2's own rope has no such attribute, and rotates neighbours.
            traditional = getattr(module, "traditional", "deepseek_v2" in type(module).__module__)
            parent[key] = rope_of(rope, dims, traditional, values.get("max_position_embeddings") or 0)


def _rope_settings(name: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the `rope_parameters` for a module's layer, which its name has a number of; empty if there are none."""
    ropes: Mapping[str, Any] = values.get("rope_parameters") or {}
    if not any(isinstance(rope, dict) for rope in ropes.values()):
        return ropes
    kinds = values.get("layer_types") or []
    layer = int(result[1]) if (result := _LAYER.search(name)) else 0
    return ropes.get(kinds[layer]) or {} if layer < len(kinds) else {}


def rope_of(rope: Mapping[str, Any], dims: int, traditional: bool, length: int) -> nn.Module:
    """Return a rope module for settings as in `rope_parameters` of transformers.

    YaRN (arXiv 2309.00071) stretches low frequencies, leaves high ones, and goes from one to the other between two
    borders, which mlx-lm always rounds to whole features. gpt-oss says `truncate: false`: then the frequencies are
    computed here as transformers' `_compute_yarn_parameters` does. An `attention_factor` that is given, or the
    `short_mscale` of Phi-3.5-MoE, replaces the computed one, which mlx-lm always takes.

    LongRoPE gets the numbers for short texts, those up to its original length. Dynamic NTK changes nothing up to the
    model's length, so it is a plain rope here: mlx-lm's own module for it would forbid drafts. The context ends at
    these lengths.

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
        # mlx-lm computes the factor again, as length / original.
        length = int(original * given["factor"])
        given["long_factor"] = given["short_factor"]
    # YaRN's scales of attention count only together in transformers, but one by one in mlx-lm.
    if not (given.get("mscale") and given.get("mscale_all_dim")):
        given = {key: value for key, value in given.items() if not key.startswith("mscale")}
    module: Any = initialize_rope(dims, theta, traditional, given, length)
    if (factor := given.get("attention_factor", given.get("short_mscale"))) is not None:
        module._scale = factor
        module.mscale = factor
    if kind == "yarn" and given.get("truncate") is False:
        module._freqs = mx.array((1 / _yarn_frequencies(given, dims, theta, original)).astype(np.float32))
    return module


def _yarn_frequencies(given: Mapping[str, Any], dims: int, theta: float, original: int) -> np.ndarray:
    """Return (dims / 2,): YaRN's radians for each position, between borders that are not rounded to whole features.

    Args:
        given: The rope's settings.
        dims: See `rope_of`.
        theta: The base.
        original: Positions before the stretching.
    """
    # The features whose pairs turn so often within the original length are the two borders.
    turns = [math.log(original / (2 * math.pi * given.get(*end))) for end in (("beta_fast", 32), ("beta_slow", 1))]
    low, high = (min(max(dims * each / (2 * math.log(theta)), 0), dims - 1) for each in turns)
    plain = theta ** -(np.arange(0, dims, 2) / dims)
    stretched = np.clip((np.arange(dims // 2) - low) / (high - low or 0.001), 0.0, 1.0)
    frequencies: np.ndarray = plain * (stretched / given["factor"] + 1 - stretched)
    return frequencies
