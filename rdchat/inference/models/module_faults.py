"""Mends faults of mlx-lm's modules that no setting mends; docs/families.md lists them.

A class here comes before the module's own among the bases of a new class, as in the hooks.
"""

from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx
import mlx.nn as nn

Tensors = Callable[[], Mapping[str, mx.array]]


class _WeighedExperts:
    """Jamba: the shares of the chosen experts are those among all experts; the module makes their sum 1."""

    def __call__(self, x: mx.array) -> mx.array:
        """Return (1, n, width)."""
        shares = mx.softmax(self.router(x), axis=-1, precise=True)  # type: ignore[attr-defined]
        kept = mx.topk(shares, self.num_experts_per_tok, axis=-1)  # type: ignore[attr-defined]
        result: mx.array = super().__call__(x) * kept.sum(axis=-1, keepdims=True)  # type: ignore[misc]
        return result


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

    def __call__(self: Any, x: mx.array, gate: mx.array | None = None) -> mx.array:
        """Return (1, n, width)."""
        gated = x if gate is None else x * nn.silu(gate)
        groups = mx.unflatten(gated, axis=-1, shape=(self.groups, -1))
        result: mx.array = self.weight * mx.fast.rms_norm(groups, None, self.eps).flatten(-2)
        return result


class _TanhGelu:
    """GPT-BigCode: the usual activation is GELU's form with tanh; the module has the exact one."""

    def __call__(self: Any, x: mx.array) -> mx.array:
        """Return (1, n, width)."""
        result: mx.array = self.c_proj(nn.gelu_approx(self.c_fc(x)))
        return result


def mend(network: nn.Module, model_type: str, values: Mapping[str, Any], tensors: Tensors) -> None:
    """Mend the faults of a network.

    Args:
        network: An mlx-lm model with its weights.
        model_type: Of config.json.
        values: The settings by transformers' class.
        tensors: Gives the tensors of the files, lazy, by name.
    """
    match model_type:
        case "jamba":
            _give(network, "JambaSparseMoeBlock", _WeighedExperts)
        case "ernie4_5_moe":
            held = {name: bias for name, bias in tensors().items() if name.endswith("e_score_correction_bias")}
            for name, module in _give(network, "Ernie4_5_MoeMLP", _CorrectedExperts):
                own = (bias for key, bias in held.items() if key.startswith(f"{name}."))
                module._correction = next(own, mx.zeros(1)).reshape(-1).astype(mx.float32)
        case "mamba2":
            for _, norm in _give(network, "MambaRMSNormGated", _NormByGroup):
                norm.groups = values["n_groups"]
            for layer in network.layers:
                layer.norm.eps = values["layer_norm_epsilon"]
        case "falcon_h1":
            # The keys are not multiplied, under whatever name they are stored.
            for layer in network.layers:
                layer.self_attn.scale *= values["key_multiplier"]
        case "gpt_bigcode" if values.get("activation_function") != "gelu":
            _give(network, "MLP", _TanhGelu)
        case "minicpm3" if network.args.tie_word_embeddings:
            # Only its untied path divides the hidden states.
            network.args.tie_word_embeddings = False
            network.lm_head = network.model.embed_tokens.as_linear


def known_names(model_type: str, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Return weights, as transformers 5 saves them, by the names and with the axes that mlx-lm's module knows."""
    if model_type == "gpt2":
        return {name.removeprefix("transformer."): weight for name, weight in weights.items()}
    if model_type == "gpt_oss":
        packed = [name for name in weights if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]
        return weights | {f"{name}.weight": weights.pop(name).swapaxes(-1, -2) for name in packed}
    if model_type == "qwen3_vl_moe":
        for name in [name for name in weights if name.endswith("experts.gate_up_proj")]:
            down, router = name.replace("gate_up_proj", "down_proj"), name.replace("experts.gate_up_proj", "gate.weight")
            # The old form has the width of the layer last.
            if weights[down].shape[-2] == weights[router].shape[-1]:
                weights |= {each: weights[each].swapaxes(-1, -2) for each in (name, down)}
    if model_type == "qwen3_5_moe":
        for name in [name for name in weights if ".mlp.experts.0." in name]:
            before, _, part = name.partition(".experts.0.")
            named = (f"{before}.experts.{number}.{part}" for number in range(len(weights)))
            experts = list(takewhile(lambda each: each is not None, (weights.pop(each, None) for each in named)))
            weights[f"{before}.switch_mlp.{part}"] = mx.stack(experts)
    return weights


def _give(network: nn.Module, name: str, mixin: type) -> list[tuple[str, Any]]:
    """Put a class before the own one of all modules of a class; return them by name."""
    found = [(place, module) for place, module in network.named_modules() if type(module).__name__ == name]
    for _, module in found:
        module.__class__ = type(name, (mixin, type(module)), {})
    return found
