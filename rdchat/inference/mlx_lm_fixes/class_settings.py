"""Reads a config.json by transformers' own configuration class, which needs no torch; runs in a child process.

mlx-lm's classes of arguments have other defaults than transformers', or none.
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
_MAX_WRONG = 20
NOTHING: list[dict[str, Any]] = [{"values": {}, "changed": {}}]


def class_settings(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what the class makes of a configuration: for all of it, then for its text part if it has one.

    Args:
        config: The content of config.json.

    Returns:
        For each part `values`, by name, and `changed`: the settings that the class's network reads, and that have
        another value than if config.json did not say it, each with its other names. Both are empty where transformers
        does not know the model type, or its class refuses the configuration.
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
    return dict(json.loads(made.to_json_string(use_diff=False)))


def _values(made: Any) -> dict[str, Any]:
    values = _plain(made)
    read = _reads(made.__class__)
    values |= {other: values[own] for other, own in made.attribute_map.items() if own in values}
    return values | {"reads_window": "sliding_window" in read, "reads_share": "partial_rotary_factor" in read}


def _changed(made: Any, config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the settings that the network reads, and whose value config.json alone explains."""
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
