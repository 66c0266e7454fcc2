"""Mends faults of mlx-lm's modules (0.32.2) that no setting mends, and names of weights that they do not know.

A class here comes before the module's own among the bases of a new class, as in the hooks.
"""

from collections.abc import Mapping
from typing import Any

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx
import mlx.nn as nn

# The text models of SmolVLM and Idefics3, and of LFM2-VL: in originals, and in mlx-vlm's copies.
_BESIDE_A_TOWER = ("model.text_model.", "model.language_model.", "language_model.model.", "language_model.")


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


def mend(network: Any, model_type: str, values: Mapping[str, Any]) -> None:
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
            ends = [name for name in weights if name.endswith(".moe_statics.e_score_correction_bias")]
            biases = {name.removesuffix(".moe_statics.e_score_correction_bias"): weights[name] for name in ends}
            for name, module in _give(network, "Ernie4_5_MoeMLP", _CorrectedExperts) if biases else []:
                module._correction = biases[name].reshape(-1).astype(mx.float32)
        case "llama" | "lfm2":
            prefix = next((each for each in _BESIDE_A_TOWER if any(name.startswith(each) for name in weights)), None)
            return weights if prefix is None else _text_of(weights, prefix)
        case "gpt_oss":
            experts = [name for name in weights if name.endswith((".gate_up_proj", ".down_proj"))]
            return weights | {f"{name}.weight": weights.pop(name).swapaxes(-1, -2) for name in experts}
        case "qwen3_5_moe":
            for name in [name for name in weights if ".mlp.experts.0." in name]:
                before, _, part = name.partition(".experts.0.")
                experts = [
                    f"{before}.experts.{number}.{part}" for number in range(len(weights[f"{before}.gate.weight"]))
                ]
                weights[f"{before}.switch_mlp.{part}"] = mx.stack([weights.pop(each) for each in experts])
    return weights


def _text_of(weights: dict[str, mx.array], prefix: str) -> dict[str, mx.array]:
    """Return the weights of the text model alone; only the output rows may stand outside of its prefix."""
    own = {name.removeprefix(prefix): each for name, each in weights.items() if name.startswith((prefix, "lm_head."))}
    return {name if name.startswith("lm_head.") else f"model.{name}": each for name, each in own.items()}


def _give(network: nn.Module, name: str, mixin: type) -> list[tuple[str, Any]]:
    """Put a class before the own one of all modules of a class; return them by name."""
    results = [(position, module) for position, module in network.named_modules() if type(module).__name__ == name]
    for _, module in results:
        module.__class__ = type(name, (mixin, type(module)), {})
    return results
