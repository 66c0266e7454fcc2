"""The step from a folder's config.json to mlx-lm's module: what it is told, what is mended, and what is named."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
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
from rdchat.inference.models.module_faults import mend
from rdchat.inference.models.ropes import follow_ropes
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess

_WINDOWS = ("sliding_window", "attention_window_size", "attention_chunk_size")
_WINDOW_KINDS = ("sliding", "chunked")
# They reach the network by way of its rope modules, its caches and the rows of its output.
_FOLLOWED = {*_WINDOWS, "use_sliding_window", "max_window_layers", "rope_parameters", "tie_word_embeddings"}
_FOLLOWED |= {"rope_theta", "rope_scaling", "partial_rotary_factor", "original_max_position_embeddings"}
# How modules of mlx-lm read a setting.
_READ = re.compile(r"(?:args|config|params)\.(\w+)|(?:args|config|params)\w*(?:\.get\(|\[)[\"'](\w+)")
_ARGUMENTS = re.compile(r"^class \w*Args\b.*?(?=^class )", re.MULTILINE | re.DOTALL)
_IMPORTED = re.compile(r"^from \.(\w+) import|^from \. import (\w+)", re.MULTILINE)
_GENERAL = {"base", "cache", "rope_utils", "switch_layers", "activations"}
_INPUTS = re.compile(r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|tok_embeddings|embed_in|embeddings?)\.weight$")
_OUTPUTS = re.compile(r"(?:^|\.)(?:lm_head|embed_out|output|output_layer)\.weight$")
_SAMPLED_ROWS, _ROWS_AT_ONCE = 64, 8192
_NOTHING: dict[str, Any] = {"values": {}, "changed": {}}
# Settings that a module reads, but computes something else with.
_MISREAD = {"gpt_bigcode": {"multi_query"}, "llama4": {"rms_norm_eps"}}
_GRANITE = {"linear_attention": "mamba", "full_attention": "attention"}
# Arguments that only mlx-lm's modules have, with what the classes of transformers always compute.
_ALWAYS: dict[str, dict[str, Any]] = {
    "apertus": {"mlp_bias": False, "post_norm": False, "qk_norm": True},
    "gemma4_unified_text": {"hidden_size_per_layer_input": 0},
    "glm_moe_dsa": {"topk_method": "noaux_tc", "scoring_func": "sigmoid", "moe_layer_freq": 1},
    "mimo_v2_flash": {
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
        "n_shared_experts": None,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
    },
    "minimax_m2": {"shared_intermediate_size": 0},
    "qwen3_vl_moe_text": {"norm_topk_prob": True},
    "solar_open": {"first_k_dense_replace": 0},
}


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What a config.json means.

    Attributes:
        folder: The model's.
        config: The content as mlx-lm's module reads it.
        values: The settings of the text model by transformers' class; empty where it does not know them.
        unread: Settings that change the text, and that mlx-lm's module does not read.
    """

    folder: Path
    config: dict[str, Any]
    values: Mapping[str, Any]
    unread: tuple[str, ...]

    @property
    def warning(self) -> str:
        """A sentence that names the settings that are not read; empty where there are none."""
        named = ", ".join(self.unread)
        return f"mlx-lm does not follow {named} of its config.json: replies can differ." if named else ""

    def fit(self, network: nn.Module) -> None:
        """Give a network of these settings the rotary positions that they mean, and mend the faults of its module."""
        if self.values:
            follow_ropes(network, self.values)
            mend(network, str(self.config["model_type"]), self.values, partial(_tensors, self.folder))

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
    # A text part may be of a type for which there is another network.
    arguments = [_arguments(written[0]), {}]
    names = sorted({name for each in arguments for name in each})
    found = mlx_lm_utils._decode_tagged_floats(process.settings(config, names))
    unread: list[str] = []
    for part, facts, wanted in zip(written, found or [_NOTHING] * 2, arguments, strict=False):
        _fill(part, found[-1]["values"] | facts["values"] if found else {}, wanted)
        if tied is not None:
            part["tie_word_embeddings"] = tied
        part |= _own_words(part)
        model_type = str(written[0]["model_type"])
        read = (_reads(model_type) | _FOLLOWED) - _MISREAD.get(model_type, set())
        unread += [key for key, names in facts["changed"].items() if not read & {key, *names}]
    if len(written) > 1:
        written[0]["text_config"] = written[1]
    return ModelSettings(folder, written[0], found[-1]["values"] if found else {}, tuple(sorted(set(unread))))


def _arguments(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of mlx-lm's class for a configuration, with their defaults."""
    _, arguments = mlx_lm_utils._get_classes(dict(part))
    return {name: each.default for name, each in inspect.signature(arguments).parameters.items()}


def _fill(part: dict[str, Any], values: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Write out what a class has and a configuration does not, where mlx-lm's class asks for it, if it is known."""
    sizes = {name: value for name, value in _size_words(values).items() if value is not None}
    known = {name: value for name, value in values.items() if value is not None or name not in sizes}
    words = {**sizes, **known, **_rope_words(values), **_ALWAYS.get(str(part.get("model_type")), {})}
    for name in arguments or words:
        if part.get(name) is None and name in words and (words[name] is not None or arguments.get(name, "") is not None):
            part[name] = words[name]


def _size_words(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a class has or works out under other names than mlx-lm's modules."""
    width, heads = values.get("hidden_size"), values.get("num_attention_heads")
    head = values.get("head_dim") or (width // heads if width and heads else None)
    rope = values.get("rope_parameters") or {}
    kinds, experts = values.get("layer_types") or [], values.get("mlp_layer_types") or []
    sparse = [kind == "sparse" for kind in experts]
    return {
        "add_swa_attention_sink_bias": True,
        "block_dim": width,
        "head_dim": head,
        "hybrid_layer_pattern": [int(str(kind).startswith(_WINDOW_KINDS)) for kind in kinds],
        "intermediate_size": (width or 0) * values.get("expand", 0) or values.get("moe_intermediate_size"),
        "is_moe_layer": sparse,
        "layernorm_epsilon": values.get("rms_norm_eps"),
        "moe_layer_freq": [int(each) for each in sparse] or 1,
        "n_ctx": values.get("n_positions"),
        "n_inner": 4 * values.get("n_embd", 0),
        "num_experts": values.get("num_local_experts"),
        "rotary_dim": int(head * rope.get("partial_rotary_factor", 1.0)) if head else None,
        "sliding_window_size": values.get("sliding_window"),
        "swa_head_dim": head,
        "swa_num_attention_heads": heads,
        "swa_num_key_value_heads": 2 * values.get("num_key_value_heads", 0),
        "swa_v_head_dim": values.get("v_head_dim"),
    }


def _own_words(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that a module reads in words of its own, under a name that the class has as well."""
    kinds = part.get("layer_types") or []
    match part.get("model_type"):
        case "deepseek_v2" | "minicpm3" if not part.get("rope_scaling"):
            # Their modules always scale; by 1 where nothing else is said.
            scaling = {"type": "yarn", "factor": 1.0, "long_factor": 1.0, "short_factor": 1.0}
            return {"rope_scaling": scaling | {"original_max_position_embeddings": part["max_position_embeddings"]}}
        case "exaone4" if kinds and "sliding_attention" in kinds:
            return {"sliding_window_pattern": "".join("L" if kind == "sliding_attention" else "G" for kind in kinds)}
        case "granitemoehybrid":
            return {"layer_types": [_GRANITE.get(kind, kind) for kind in kinds]}
        case "nemotron_h" if isinstance(limits := part.get("time_step_limit"), list | tuple):
            # Without its kernels for CUDA, transformers clips the steps at the other setting.
            return {"time_step_limit": [max(limits[0], part.get("time_step_min") or 0.0), limits[1]]}
    return {}


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
    if said == {False}:
        return False
    tensors = _tensors(folder)
    inputs, outputs = (next((name for name in tensors if rows.search(name)), None) for rows in (_INPUTS, _OUTPUTS))
    if inputs is None:
        return None
    if outputs is None:
        return True
    if (known := cached_facts("tied rows", folder, stamp := stamp_of(folder))) is not None:
        return bool(known)
    names = [(inputs, outputs), *((inputs[:-6] + part, outputs[:-6] + part) for part in ("scales", "biases"))]
    pairs = [(tensors.get(one), tensors.get(other)) for one, other in names]
    tied = all(_are_equal(one, other) for one, other in pairs)
    cache_facts("tied rows", folder, stamp, tied)
    return tied


def _tensors(folder: Path) -> dict[str, mx.array]:
    tensors: dict[str, mx.array] = {}
    for path in sorted(folder.glob("model*.safetensors")):
        tensors |= mx.load(str(path))  # type: ignore[arg-type]
    return tensors


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
        # A class of arguments may work others out.
        names |= {name for block in _ARGUMENTS.findall(source) for name in re.findall(r"self\.(\w+)", block)}
        waiting += [name for found in _IMPORTED.findall(source) for name in found if name]
    return frozenset(names)
