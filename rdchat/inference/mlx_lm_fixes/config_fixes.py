"""Fills in the settings that a config.json leaves out, as transformers' own configuration class has them.

mlx-lm's modules have other values for some of them, no value for others, and their own names or forms for a few. The
class needs no torch; it runs in a child process (`class_settings`). The other functions are pure.
"""

import inspect
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

# Settings that do not change what a network computes for a text.
_QUIET = re.compile(
    r"^_|dropout|pdrop|initializer|init_|jitter|loss|cache|^output_|pretraining|dtype|version|return_|^problem|summary|"
    r"architectures|label|_token_id$|attn_implementation|chunk_size_feed|max_position|time_step_(min|max|floor)$|"
    r"rescale_prenorm|is_decoder|cross_attention|_config$|image_|video_|vision_|audio_|"
    # Sizes must be those of the weights.
    r"_size$|heads$|head_dim$|_rank$|layers$|^n_(embd|layer|head|inner)$"
)
# Wrong values that are left out of a configuration, before its class counts as refusing it.
_MAX_WRONG = 20
# What `class_settings` returns where transformers does not know the model.
NOTHING: list[dict[str, Any]] = [{"values": {}, "changed": {}}]
# Fixed in transformers' networks, but an argument without a default of mlx-lm's class, for which a value is needed.
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
# The same for a text part, whose class of arguments is not known (`filled_config`): mlx-lm's for Gemma 4 would have 256
# where Gemma 4 Unified has no such inputs, and Llama 4's has no default for the other.
_FIXED_TEXT_VALUES = {"hidden_size_per_layer_input": 0, "rope_scaling": None}
# The default of an argument that has none.
_REQUIRED = inspect.Parameter.empty


def class_settings(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what the class makes of a configuration: for all of it, then for its text part if it has one.

    Args:
        config: The content of config.json.

    Returns:
        For each part two objects, for `model_settings`. Both are empty where transformers does not know the model type,
        or its class refuses the configuration.
        - `values`: all settings by name, defaults of the class included. They fill in what config.json leaves out.
        - `changed`: settings that the class's network reads, and that config.json gives another value than the class
          has without it; each with all its names, such as `{"num_local_experts": ["num_experts",
          "num_local_experts"]}`. Those that mlx-lm's module does not read become a warning.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: PLC0415  imported by now

    kind = config.get("model_type")
    made = _made(CONFIG_MAPPING[kind], config) if kind in CONFIG_MAPPING else None
    if made is None:
        return NOTHING
    parts = [(made, config)]
    if hasattr(text := getattr(made, "text_config", None), "to_dict"):
        parts.append((text, config.get("text_config") or {}))
    return [{"values": _values(part), "changed": _changed(part, given)} for part, given in parts]


def _made(kind: Any, config: Mapping[str, Any]) -> Any:
    """Return an object of a configuration class; values of a wrong type are left out."""
    given = dict(config)
    for _ in range(_MAX_WRONG):
        try:
            return kind.from_dict(json.loads(json.dumps(given)))
        except Exception as error:
            wrong = re.match(r"Validation error for field '(\w+)'", str(error))
            if wrong is None or wrong[1] not in given:
                return None
            del given[wrong[1]]
    return None


def _plain(made: Any) -> dict[str, Any]:
    """Return all settings of a configuration object, defaults included, as plain JSON values."""
    return dict(json.loads(made.to_json_string(use_diff=False)))


def _values(made: Any) -> dict[str, Any]:
    """Return the `values` of `class_settings`; two more say whether the network reads its window and rotated share."""
    values = _plain(made)
    read = _reads(made.__class__)
    values |= {other: values[own] for other, own in made.attribute_map.items() if own in values}
    return values | {"reads_window": "sliding_window" in read, "reads_share": "partial_rotary_factor" in read}


def _changed(made: Any, config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the `changed` of `class_settings`: for each setting, compare with the class's value if it is left out."""
    values = _plain(made)
    read = _reads(made.__class__)
    changed = {}
    for key in sorted(values.keys() & read):
        names = {key, *(other for other, own in made.attribute_map.items() if own == key)}
        if _QUIET.search(key) or not names & config.keys():
            continue
        without = _made(type(made), {name: value for name, value in config.items() if name not in names})
        if without is not None and _plain(without).get(key, values[key]) != values[key]:
            changed[key] = sorted(names)
    return changed


@cache
def _reads(kind: Any) -> frozenset[str]:
    """Return the names that the source of a configuration's network reads from it; without a source it is Llama's."""
    path = Path(inspect.getfile(kind))
    own = path.with_name(path.name.replace("configuration_", "modeling_"))
    source = own if own.is_file() else path.parents[1] / "llama" / "modeling_llama.py"
    text = source.read_text(encoding="utf-8")
    return frozenset(re.findall(r"config\.(\w+)", text) + re.findall(r"""["'](partial_rotary_factor)""", text))


def filled_config(part: Mapping[str, Any], values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with the settings that it leaves out, and in the form that mlx-lm's module reads.

    There are three cases:
    - transformers knows the type, and the arguments of mlx-lm's class are known: those arguments are filled in that are
      missing or null, from `values`; else those without a default from `_FIXED_VALUES`.
    - It knows the type, but not the arguments, as in a text part: all `values` are filled in, and `_FIXED_TEXT_VALUES`.
    - It does not know the type: only rotary positions get their older names.

    Args:
        part: Of config.json.
        values: The settings by transformers' class; from config.json itself where transformers does not know it.
        defaults: Of the arguments of mlx-lm's class; empty if its class is unknown.
    """
    # Only `_values` sets it: without it, transformers does not know the type.
    known = "reads_share" in values
    filling = _older_rope_settings(values)
    if known:
        derived = _derived_settings(values)
        # The last one with a name counts. But what the class leaves None does not replace a derived value.
        given = {name: each for name, each in values.items() if each is not None or name not in derived}
        filling = derived | given | filling
    fixed = (_FIXED_VALUES if defaults else _FIXED_TEXT_VALUES) if known else {}
    # `filling` also replaces null. `fixed` does not, and is for arguments without a default: without `defaults`, all.
    settings = dict(part)
    for name in defaults or fixed | filling:
        if settings.get(name) is None and name in filling:
            settings[name] = filling[name]
        elif name in fixed and name not in settings and defaults.get(name, _REQUIRED) is _REQUIRED:
            settings[name] = fixed[name]
    return settings | _module_forms(filling | settings)


def _derived_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that a class computes, or has under another name, by the names of mlx-lm's modules.

    What cannot be computed is 0, None or empty at first, and is left out.
    """
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
