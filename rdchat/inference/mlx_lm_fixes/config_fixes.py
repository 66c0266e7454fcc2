"""The settings of a config.json in the form that mlx-lm's module reads; pure functions of the content.

transformers' configuration class knows the value of each setting that a config.json leaves out. mlx-lm's modules have
other values for some, no value for others, and their own names or forms for a few.
"""

import inspect
from collections.abc import Mapping
from typing import Any

# Fixed in transformers' networks, but an argument without a default in mlx-lm's module.
_FIXED_VALUES: dict[str, Any] = {
    "mlp_bias": False,
    "post_norm": False,
    "qk_norm": True,
    "shared_intermediate_size": 0,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "first_k_dense_replace": 0,
    "moe_layer_freq": 1,
}
_FIXED_TEXT_VALUES = {"hidden_size_per_layer_input": 0, "rope_scaling": None}
_REQUIRED = inspect.Parameter.empty


def filled_config(part: Mapping[str, Any], values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with the settings that it leaves out, and in the form that mlx-lm's module reads.

    Args:
        part: Of config.json.
        values: The settings by transformers' class; from config.json itself where transformers does not know it.
        defaults: Of the arguments of mlx-lm's class; empty if its class is unknown: then everything is filled in.
    """
    known = "reads_share" in values
    filling = _older_rope_settings(values)
    if known:
        derived = _derived_settings(values)
        given = {name: each for name, each in values.items() if each is not None or name not in derived}
        filling = derived | given | filling
    fixed = (_FIXED_VALUES if defaults else _FIXED_TEXT_VALUES) if known else {}
    settings = dict(part)
    for name in defaults or fixed | filling:
        if settings.get(name) is None and name in filling:
            settings[name] = filling[name]
        elif name in fixed and name not in settings and defaults.get(name, _REQUIRED) is _REQUIRED:
            settings[name] = fixed[name]
    return settings | _module_forms(settings)


def _derived_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that a class computes, or has under another name, by the names of mlx-lm's modules."""
    width = values.get("hidden_size")
    heads = values.get("num_attention_heads")
    head = values.get("head_dim") or (width // heads if width and heads else 0)
    share = (values.get("rope_parameters") or {}).get("partial_rotary_factor", 1.0)
    derived = {
        "block_dim": width,
        "head_dim": head,
        "rotary_dim": int(head * share),
        "n_inner": 4 * values.get("n_embd", 0),
        "intermediate_size": (width or 0) * values.get("expand", 0) or values.get("moe_intermediate_size"),
        "is_moe_layer": [kind == "sparse" for kind in values.get("mlp_layer_types") or []],
        "num_experts": values.get("num_local_experts"),
    }
    return {name: value for name, value in derived.items() if value}


def _module_forms(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that a module reads in another form than the class, under the same name."""
    kinds = settings.get("layer_types") or []
    match settings.get("model_type"):
        case "deepseek_v2" | "minicpm3" if not settings.get("rope_scaling"):
            # Their modules always scale; by 1 where nothing else is given.
            scaling = {"type": "yarn", "factor": 1.0, "long_factor": 1.0, "short_factor": 1.0}
            return {"rope_scaling": scaling | {"original_max_position_embeddings": settings["max_position_embeddings"]}}
        case "exaone4" if "sliding_attention" in kinds:
            return {"sliding_window_pattern": "".join("L" if kind == "sliding_attention" else "G" for kind in kinds)}
        case "granitemoehybrid":
            return {"layer_types": [{"linear_attention": "mamba"}.get(kind, kind.split("_")[-1]) for kind in kinds]}
        case "nemotron_h" if limits := settings.get("time_step_limit"):
            # Without its kernels for CUDA, transformers clips the steps at the other setting.
            return {"time_step_limit": [max(limits[0], settings.get("time_step_min") or 0.0), limits[1]]}
    return {}


def _older_rope_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rotary positions under the names from before `rope_parameters`, which mlx-lm's modules read."""
    ropes = values.get("rope_parameters")
    if not ropes:
        return {}
    full = ropes.get("full_attention") or next((rope for rope in ropes.values() if isinstance(rope, dict)), ropes)
    theta = full.get("rope_theta")
    local = (ropes.get("sliding_attention") or full).get("rope_theta")
    older = dict.fromkeys(("rope_theta", "rotary_emb_base"), theta)
    older |= dict.fromkeys(("rope_local_base_freq", "local_rope_theta", "swa_rope_theta"), local)
    older |= dict.fromkeys(("partial_rotary_factor", "rotary_pct"), full.get("partial_rotary_factor", 1.0))
    # Other kinds are put into the rope modules; this one also changes the scale of attention.
    yarn = full.get("rope_type") == "yarn"
    return older | {"rope_scaling": {**full, "type": "yarn"} if yarn else None}
