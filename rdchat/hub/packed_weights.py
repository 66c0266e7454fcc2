"""Weights that other tools packed: which families mlx-lm can unpack, as far as config.json tells before a download."""

from collections.abc import Mapping
from typing import Any

_DEEPSEEK = {"deepseek_v3", "joyai_llm_flash", "kimi_k2", "kimi_k25"}
_MISTRAL = {"llava", "mistral3", "mistral4"}
_FP8 = {"deepseek_v32", "deepseek_v41", "deepseek_v41_text", "glm_moe_dsa", "mimo_v2_flash", "minimax", "minimax_m2"}
FAMILIES: Mapping[str, frozenset[str] | None] = {
    # Every real file of GPTQ has group indices, which mlx-lm refuses.
    "gptq": frozenset(),
    "compressed-tensors": frozenset({*_DEEPSEEK, *_MISTRAL, "kimi_k3"}),
    "fp8": frozenset({*_DEEPSEEK, *_MISTRAL, *_FP8, "minimax_m3_vl", "ministral3"}),
    "modelopt": frozenset({"muse_spark"}),
    "mxfp8": frozenset({"minimax_m3_vl"}),
    "awq": None,
    "bitnet": None,
    "mxfp4": None,
}
"""Model types whose modules in mlx-lm unpack a method's weights; None where any does."""
# Key and values of the settings that mlx-lm takes.
_KINDS: Mapping[str, tuple[str, tuple[object, ...]]] = {
    "awq": ("bits", (4,)),
    "compressed-tensors": ("format", ("pack-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized")),
    "modelopt": ("quant_algo", ("NVFP4",)),
}
PACKED_HINT = "Choose an MLX version of it, or convert the original, unquantised model with `mlx_lm.convert`."


def unpackable(family: str, settings: Mapping[str, Any]) -> str:
    """Return a sentence that says why a model's packed weights cannot be read; empty if mlx-lm can unpack them.

    Args:
        family: The model type in config.json.
        settings: Its `quantization_config`.
    """
    if not settings.get("quant_method"):
        return "The model's quantization_config does not say how its weights are packed: it has no quant_method."
    method = str(settings["quant_method"])[:100]
    families = FAMILIES.get(method, frozenset())
    if families is not None and family not in families:
        return f"mlx-lm cannot unpack weights of {method} for the architecture '{family[:60]}'."
    key, known = _KINDS.get(method, ("", ()))
    if (kind := settings.get(key)) is not None and kind not in known:
        return f"mlx-lm cannot unpack weights of {method} with {key} {str(kind)[:60]}."
    return ""
