"""The step from a folder's config.json to mlx-lm's module: what it is told, what is mended, and what is named."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx
import mlx.nn as nn
from mlx_lm import utils as mlx_lm_utils
from mlx_lm.models.cache import ChunkedKVCache, RotatingKVCache, make_prompt_cache

from rdchat.inference.models.fact_cache import cache_facts, cached_facts, stamp_of
from rdchat.inference.models.model_config import text_config
from rdchat.inference.models.ropes import follow_ropes
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess

_WINDOWS = ("sliding_window", "attention_window_size", "attention_chunk_size")
_WINDOW_KINDS = ("sliding", "chunked")
# They reach the network by way of its rope modules, its caches and the rows of its output.
_FOLLOWED = {*_WINDOWS, "use_sliding_window", "max_window_layers", "rope_parameters", "tie_word_embeddings"}
_FOLLOWED |= {"rope_theta", "rope_scaling", "partial_rotary_factor", "original_max_position_embeddings"}
# How modules of mlx-lm read a setting.
_READ = re.compile(r"(?:args|config|params)\.(\w+)|(?:args|config|params)\w*(?:\.get\(|\[)[\"'](\w+)")
_IMPORTED = re.compile(r"^from \.(\w+) import|^from \. import (\w+)", re.MULTILINE)
_GENERAL = {"base", "cache", "rope_utils", "switch_layers", "activations"}
_INPUTS = re.compile(r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|tok_embeddings|embed_in|embeddings?)\.weight$")
_OUTPUTS = re.compile(r"(?:^|\.)(?:lm_head|embed_out|output|output_layer)\.weight$")
_SAMPLED_ROWS, _ROWS_AT_ONCE = 64, 8192
# Arguments that only mlx-lm's module has, with what the class of transformers always computes.
_WORDS: dict[str, dict[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What a config.json means.

    Attributes:
        config: The content as mlx-lm's module reads it.
        values: The settings of the text model by transformers' class; empty where it does not know them.
        unread: Settings that change the text, and that mlx-lm's module does not read.
    """

    config: dict[str, Any]
    values: Mapping[str, Any]
    unread: tuple[str, ...]

    @property
    def warning(self) -> str:
        """A sentence that names the settings that are not read; empty where there are none."""
        named = ", ".join(self.unread)
        return f"mlx-lm does not follow {named} of its config.json: replies can differ." if named else ""

    def fit(self, network: nn.Module) -> None:
        """Give a network of these settings the rotary positions that they mean."""
        if self.values:
            follow_ropes(network, self.values)

    def context(self, network: nn.Module, length: int) -> int:
        """Return the context length: where layers do not have the window that they should, no longer than it."""
        rope = self.values.get("rope_parameters") or {}
        if rope.get("rope_type") == "longrope":
            length = min(length, rope["original_max_position_embeddings"])
        window = next((size for key in _WINDOWS if type(size := self.values.get(key)) is int and size > 0), 0)
        if not window or self.values.get("use_sliding_window") is False or not self.values.get("reads_window"):
            return length
        kinds = self.values.get("layer_types")
        caches = make_prompt_cache(network)
        wanted = [str(kind).startswith(_WINDOW_KINDS) for kind in kinds or ["sliding"] * len(caches)]
        windows = [_window_of(cache) for cache in caches]
        if len(windows) != len(wanted):
            fits = window in windows or not any(wanted)
        else:
            fits = all(size == (window if each else 0) for size, each in zip(windows, wanted, strict=True))
        return length if fits else min(length, window, *filter(None, windows))


def _window_of(cache: Any) -> int:
    if isinstance(cache, RotatingKVCache):
        return int(cache.max_size)
    return int(cache.chunk_size) if isinstance(cache, ChunkedKVCache) else 0


def model_settings(folder: Path, process: TokenizerProcess) -> ModelSettings:
    """Return what the config.json of a folder means to mlx-lm's module.

    Absent settings get the values of transformers' class, and rotary positions the names from before `rope_parameters`.

    Args:
        folder: Already checked by `check_model_folder`.
        process: Reads config.json by the class.
    """
    config = mlx_lm_utils.load_config(folder)
    tied = _tied_rows(folder, config)
    written = [dict(config)]
    if isinstance(config.get("text_config"), dict):
        written.append(dict(config["text_config"]))
    arguments = [_arguments(part) for part in written]
    found = process.settings(config, sorted({name for each in arguments for name in each}))
    unread: list[str] = []
    for number, part in enumerate(written):
        facts = found[number] if number < len(found) else {"values": {}, "changed": {}}
        wanted = arguments[number] or dict.fromkeys(facts["values"])
        _fill(part, facts["values"], wanted)
        if tied is not None:
            part["tie_word_embeddings"] = tied
        read = _reads(str(written[0]["model_type"])) | _FOLLOWED
        unread += [key for key, names in facts["changed"].items() if not read & {key, *names}]
    if len(written) > 1:
        written[0]["text_config"] = written[1]
    return ModelSettings(written[0], found[-1]["values"] if found else {}, tuple(sorted(set(unread))))


def _arguments(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of mlx-lm's class for a configuration, with their defaults; empty where it has none."""
    try:
        _, arguments = mlx_lm_utils._get_classes(dict(part))
    except Exception:  # a text part may be of a type that only its network knows
        return {}
    return {name: each.default for name, each in inspect.signature(arguments).parameters.items()}


def _fill(part: dict[str, Any], values: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Write out the values of a class that a configuration does not have, where mlx-lm's class asks for them."""
    words = values | _rope_words(values) | _WORDS.get(str(part.get("model_type")), {})
    for name, default in wanted.items():
        if part.get(name) is None and name in words and (words[name] is not None or default is not None):
            part[name] = words[name]


def _rope_words(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rotary positions under the names from before `rope_parameters`."""
    ropes = values.get("rope_parameters")
    if not isinstance(ropes, dict) or not ropes:
        return {}
    nested = [rope for rope in ropes.values() if isinstance(rope, dict)]
    whole = ropes.get("full_attention") or (nested or [ropes])[0]
    theta, local = whole.get("rope_theta"), (ropes.get("sliding_attention") or whole).get("rope_theta")
    words = dict.fromkeys(("rope_theta", "rotary_emb_base"), theta)
    words |= dict.fromkeys(("rope_local_base_freq", "local_rope_theta", "swa_rope_theta"), local)
    words |= dict.fromkeys(("partial_rotary_factor", "rotary_pct"), whole.get("partial_rotary_factor", 1.0))
    # Other kinds are put into the rope modules; this one also changes the scale of attention.
    yarn = whole.get("rope_type") == "yarn"
    return words | {"rope_scaling": {**whole, "type": "yarn"} if yarn else None}


def _tied_rows(folder: Path, config: Mapping[str, Any]) -> bool | None:
    """Return whether the output rows are the input rows: some are compared first, and the outcome is kept.

    As in transformers, rows in the files count, whatever the configuration says. None leaves it to the configuration.
    """
    said = {part.get("tie_word_embeddings") for part in (config, text_config(config))} - {None}
    tensors: dict[str, mx.array] = {}
    for path in sorted(folder.glob("model*.safetensors")):
        tensors |= mx.load(str(path))  # type: ignore[arg-type]
    inputs, outputs = (next((name for name in tensors if rows.search(name)), None) for rows in (_INPUTS, _OUTPUTS))
    if inputs is None or said == {False}:
        return None
    if outputs is None:
        return None if said else True
    if (known := cached_facts("tied rows", folder, stamp := stamp_of(folder))) is not None:
        return bool(known)
    names = [(inputs, outputs), *((inputs[:-6] + part, outputs[:-6] + part) for part in ("scales", "biases"))]
    pairs = [(tensors.get(one), tensors.get(other)) for one, other in names]
    tied = all(_are_equal(one, other) for one, other in pairs)
    cache_facts("tied rows", folder, stamp, tied)
    return tied


def _are_equal(one: mx.array | None, other: mx.array | None) -> bool:
    if one is None or other is None:
        return one is other
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    step = max(len(one) // _SAMPLED_ROWS, 1)
    parts = [slice(None, None, step), *(slice(at, at + _ROWS_AT_ONCE) for at in range(0, len(one), _ROWS_AT_ONCE))]
    return all(mx.array_equal(one[part], other[part]).item() for part in parts)


@cache
def _reads(model_type: str) -> frozenset[str]:
    """Return the names that mlx-lm's module for a model type reads from its arguments, and those that it imports."""
    folder = Path(mlx_lm_utils.__file__).parent / "models"
    waiting, names, seen = [mlx_lm_utils.MODEL_REMAPPING.get(model_type, model_type)], set[str](), set(_GENERAL)
    while waiting:
        path = folder / f"{(module := waiting.pop())}.py"
        if module in seen or not path.is_file():
            continue
        seen.add(module)
        source = path.read_text(encoding="utf-8")
        names |= {name for found in _READ.findall(source) for name in found}
        waiting += [name for found in _IMPORTED.findall(source) for name in found if name]
    return frozenset(names)
