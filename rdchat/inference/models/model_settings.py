"""Reads what a model folder's two settings files mean, before and after its network is made.

config.json describes the network (`model_settings`): missing values are filled in from transformers' class of the
configuration, and what mlx-lm's module does not follow becomes a warning. generation_config.json has the sampling that
the model's authors recommend, and what a reply may not contain (`read_generation_settings`).
"""

import inspect
import math
import re
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm import utils as mlx_lm_utils
from mlx_lm.models.cache import make_prompt_cache

from rdchat.errors import ModelError, RdchatError
from rdchat.files import entries_of, read_object
from rdchat.inference.api import SAMPLING_NUMBERS, SamplingDefaults, SamplingParams
from rdchat.inference.mlx_lm_fixes.config_fixes import filled_config
from rdchat.inference.mlx_lm_fixes.network_fixes import follow_ropes, mend_faults
from rdchat.inference.models.model_config import own_config, read_config, text_config
from rdchat.inference.models.safetensors_file import StoredTensor, read_header, weight_files
from rdchat.inference.models.stored_facts import cached_fact
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess

# Names of the number of positions that a layer sees, and beginnings of the layer types that have one.
_WINDOWS = ("sliding_window", "attention_window_size", "attention_chunk_size")
_WINDOW_KINDS = ("sliding", "chunked")
# Settings that count although the module does not name them: they reach the network by way of its rope modules, its
# caches and the rows of its output.
_FOLLOWED = {*_WINDOWS, "use_sliding_window", "max_window_layers", "rope_parameters", "tie_word_embeddings"}
# Settings that a module reads, but computes something else with.
_MISREAD = {
    "glm4_moe_lite": {"rms_norm_eps"},
    "gpt_bigcode": {"multi_query"},
    "llama4": {"rms_norm_eps"},
    "recurrent_gemma": {"rms_norm_eps"},
}
# Models with fewer weights lose the thread at the usual temperature.
_SMALL_PARAMETERS = 500_000_000
_SMALL_TEMPERATURE = 0.2
# Limits of a recommendation; more is a mistake in the file.
_HIGHEST = {"temperature": 2.0, "top_k": 1000}
# The end of a reply is compared with all of them after each token.
_MAX_STOPS = 64
_LONGEST_STOP = 1000
# Settings that choose no token: ids of other uses, limits of length, details of beams, and how transformers computes.
_HARMLESS = {
    "bos_token_id", "cache_config", "cache_implementation", "chat_format", "compile_config",
    "continuous_batching_config", "decoder_start_token_id", "disable_compile", "diversity_penalty", "early_stopping",
    "is_assistant", "length_penalty", "low_memory", "num_beam_groups", "num_return_sequences", "pad_token_id",
    "prefill_chunk_size", "prompt_lookup_num_tokens", "remove_invalid_values", "renormalize_logits",
    "return_dict_in_generate", "speculation_type", "target_lookbehind", "transformers_version", "use_cache", "use_mtp",
    "user_token_id",
}  # fmt: skip
_HARMLESS_PREFIXES = ("_", "assistant_", "max_", "num_assistant_", "output_")
# Values that change nothing, besides those that are false.
_NEUTRAL = {
    "do_sample": True,
    "encoder_repetition_penalty": 1,
    "guidance_scale": 1,
    "num_beams": 1,
    "top_k": -1,
    "typical_p": 1,
}
# Names of the embeddings.
_INPUTS = re.compile(r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|tok_embeddings|embed_in|embeddings?)\.weight$")
# Rows of two tables that are compared first, and then as many at once.
_SAMPLED_ROWS = 64
_ROWS_AT_ONCE = 8192
# Limit of YaRN's factor.
_MAX_STRETCHED = 2**10


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The meaning of a config.json.

    Attributes:
        config: The content as mlx-lm's module reads it.
        values: The settings of the text model by transformers' class, and two that `config_fixes` adds, `reads_window`
            and `reads_share`; where transformers does not know the model, the settings as config.json has them.
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

    def fit_network(self, network: nn.Module) -> None:
        """Give a network of these settings the rotary positions that they mean, and mend the faults of its module."""
        follow_ropes(network, self.values)
        mend_faults(network, str(self.config["model_type"]), self.values)

    def context(self, network: nn.Module, length: int) -> int:
        """Return the context length that the network has.

        YaRN lengthens it: as model cards tell people to add it, `max_position_embeddings` stays. Where the network's
        layers do not have the windows that the settings ask for, the context ends with the smallest window: up to there
        both see the same.

        Args:
            network: A network of these settings.
            length: The context length by config.json.
        """
        length = self._stretched(length)
        window = next((size for key in _WINDOWS if type(size := self.values.get(key)) is int and size > 0), 0)
        # Without `reads_window`, transformers' network has no windows either, or is not known.
        if not window or self.values.get("use_sliding_window") is False or not self.values.get("reads_window"):
            return length
        # The windows that the layers have, 0 for none, are compared with those that they should have.
        caches = make_prompt_cache(network)
        windows = [getattr(cache, "max_size", getattr(cache, "chunk_size", 0)) for cache in caches]
        kinds = self.values.get("layer_types") or ["sliding"] * len(caches)
        expected = [window if str(kind).startswith(_WINDOW_KINDS) else 0 for kind in kinds]
        # Not every layer of a hybrid has a cache, so the lists cannot be compared: one cache with the window is enough.
        is_hybrid = len(windows) != len(expected)
        fits = windows == expected or (is_hybrid and (window in windows or not any(expected)))
        return length if fits else min(length, window, *filter(None, windows))

    def _stretched(self, length: int) -> int:
        """Return a context length after YaRN's stretching, or up to where LongRoPE has its factors for short texts."""
        rope = self.values.get("rope_parameters") or {}
        original = rope.get("original_max_position_embeddings") or length
        match rope.get("rope_type"):
            case "longrope":
                return min(length, original)
            case "yarn":
                return max(length, int(original * min(rope.get("factor") or 1, _MAX_STRETCHED)))
        return length


def model_settings(folder: Path, process: TokenizerProcess) -> ModelSettings:
    """Return what the config.json of a folder means to mlx-lm's module.

    Absent settings get the values of transformers' class, and rotary positions the names from before `rope_parameters`.

    Args:
        folder: Already checked by `check_model_folder`.
        process: Reads config.json by the class.
    """
    config = own_config(read_config(folder))
    tied = _tied_rows(folder, config)
    config |= tied
    nested = config.get("text_config")
    model_class, arguments = model_classes(config)
    # What transformers' class makes of config.json (`class_settings`): of all of it, then of its text part if it has
    # one. Each has `values`, the settings with the class's defaults, and `changed`, the names of those that config.json
    # changes. JSON has no infinity, so transformers writes `{"__float__": "Infinity"}`, which mlx-lm's function reads.
    parts = mlx_lm_utils._decode_tagged_floats(cached_fact("settings", folder, lambda: process.settings(config)))
    values = parts[-1]["values"] or text_config(config)
    defaults = {name: each.default for name, each in inspect.signature(arguments).parameters.items()}
    # `values` are those of the text part. The top level gets the values of the whole, and those of the text part only
    # where the whole has no such setting. Without a text part both are the same.
    settings = filled_config(config, {**values, **parts[0]["values"]}, defaults)
    if isinstance(nested, dict) or len(parts) > 1:
        # The module chooses the class for the arguments of its text part by itself, so that their defaults are not
        # known here. Without defaults `filled_config` fills everything in.
        settings["text_config"] = filled_config((nested or {}) | tied, values, {})
    read = (_reads(model_class.__module__) | _FOLLOWED) - _MISREAD.get(str(config["model_type"]), set())
    unread = set[str]()
    for part in parts:
        for name, names in part["changed"].items():
            # mlx-lm's module may read any of its names. A setting that the text model does not have is for images.
            if name in values and read.isdisjoint(names):
                unread.add(name)
    if values.get("use_bidirectional_attention") == "vision":
        # This value is for images too: `Family.blocks_of` reads it.
        unread.discard("use_bidirectional_attention")
    if config["model_type"] == "gpt_bigcode" and values.get("activation_function") != "gelu":
        # Its module has the exact form of GELU, nearly the usual one.
        unread.add("activation_function")
    # What `settings` has from config.json itself may have infinities too.
    return ModelSettings(mlx_lm_utils._decode_tagged_floats(settings), values, tuple(sorted(unread)))


def _tied_rows(folder: Path, config: Mapping[str, Any]) -> dict[str, bool]:
    """Return `tie_word_embeddings` as it should be: whether the output rows are the input rows.

    As in transformers, output rows of their own in the files are used, even if the configuration says true:
    1. If the configuration says false, in itself or its text part, and true in neither, it is false. The files are not
       looked at.
    2. If the names of the input rows are unknown, nothing is returned, and the configuration stays as it is.
    3. If the files have no output rows, it is true.
    4. Otherwise it is true if both tables have the same numbers. They are compared once, and the outcome is kept.
    """
    key = "tie_word_embeddings"
    stated = [part.get(key) for part in (config, text_config(config))]
    if False in stated and not any(stated):
        return {key: False}
    files = weight_files(folder, entries_of(folder))
    tensors = {name: (path, each) for path in files for name, each in read_header(path).items() if each.elements}
    inputs = next((name for name in tensors if _INPUTS.search(name)), "")
    if not inputs:
        return {}
    # Output rows are outside of the numbered layers, and as many as the input rows.
    height = tensors[inputs][1].shape[:-1]
    outputs = [
        name
        for name, (_, tensor) in tensors.items()
        if name.endswith(".weight")
        and not re.search(r"\.\d+\.|embed_tokens", name)
        and name != inputs
        and tensor.shape[:-1] == height
    ]
    if not outputs:
        return {key: True}
    modules = inputs.removesuffix("weight"), outputs[0].removesuffix("weight")
    pairs = ([tensors.get(name + part) for name in modules] for part in ("weight", "scales", "biases"))
    return {key: bool(cached_fact("tied rows", folder, lambda: all(_are_equal(*pair) for pair in pairs)))}


def _are_equal(one: tuple[Path, StoredTensor] | None, other: tuple[Path, StoredTensor] | None) -> bool:
    """Return whether two stored tensors, each with its file, have the same numbers; also if both are missing."""
    if one is None or other is None:
        return one is None and other is None
    if (one[1].dtype, one[1].shape) != (other[1].dtype, other[1].shape):
        return False
    first = _mapped_rows(*one)
    second = _mapped_rows(*other)
    # Tables that differ do so in most rows, so a few are enough to see it.
    some = slice(None, None, max(len(first) // _SAMPLED_ROWS, 1))
    slices = [some, *(slice(at, at + _ROWS_AT_ONCE) for at in range(0, len(first), _ROWS_AT_ONCE))]
    return all(np.array_equal(first[rows], second[rows]) for rows in slices)


def _mapped_rows(path: Path, tensor: StoredTensor) -> np.ndarray:
    """Return the bytes of a stored tensor, (rows, bytes of a row) uint8, mapped from its file."""
    shape = (tensor.shape[0], tensor.stored_bytes // tensor.shape[0])
    return np.memmap(path, np.uint8, "r", tensor.offset, shape)


def _reads(module: str) -> set[str]:
    """Return all words that stand behind a dot or a quotation mark in the source of a network's module.

    The settings that the module reads are among them. Modules of mlx-lm that it imports are searched too.
    """
    waiting = [module]
    sources = dict[str, str]()
    while waiting:
        name = waiting.pop()
        if name not in sources and name.startswith("mlx_lm.models."):
            sources[name] = inspect.getsource(sys.modules[name])
            parts = vars(sys.modules[name]).values()
            waiting += [
                each.__name__ if inspect.ismodule(each) else str(getattr(each, "__module__", "")) for each in parts
            ]
    return {name for source in sources.values() for name in re.findall(r"[.\"'](\w+)", source)}


def new_network(make: Callable[..., nn.Module], config: Any) -> Any:
    """Return a network for its weights to be loaded into.

    Its random weights are never computed. The seed is set anew, since otherwise MLX would keep how each random key was
    made for as long as the process runs.
    """
    network = make(config)
    mx.random.seed(0)
    return network


def model_classes(config: Mapping[str, Any]) -> tuple[Callable[..., nn.Module], Any]:
    """Return mlx-lm's classes of a network and its arguments.

    Raises:
        ModelError: If their module ends the program when it is imported.
    """
    try:
        classes: tuple[Callable[..., nn.Module], Any] = mlx_lm_utils._get_classes(config)
    except SystemExit as error:
        raise ModelError(
            f"mlx-lm's module for the architecture '{config['model_type']}' needs a package that is not here.",
            "Choose another model.",
        ) from error
    return classes


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """The meaning of a generation_config.json.

    Attributes:
        sampling: The sampling where the person chose none.
        suppressed: Tokens that a reply never has.
        stop: Strings that end a reply, as an end token does.
        unread: Settings that change which tokens are written, and that are not followed, or not in full.
    """

    sampling: SamplingDefaults
    suppressed: frozenset[int]
    stop: tuple[str, ...]
    unread: tuple[str, ...]

    @property
    def warning(self) -> str:
        """A sentence that names the settings that are not followed; empty where there are none."""
        named = ", ".join(name[:60] for name in self.unread)
        return f"rdchat does not follow {named} of its generation_config.json: replies can differ." if named else ""


def read_generation_settings(folder: Path, parameters: int, end_tokens: Collection[int] = ()) -> GenerationSettings:
    """Return what the generation_config.json of a folder means. What is wrong in it is not followed.

    Args:
        folder: The model's.
        parameters: Number of weights.
        end_tokens: Tokens that end a reply. As bad words they are allowed, as in transformers.
    """
    path = folder / "generation_config.json"
    written: dict[str, Any] = {}
    with suppress(RdchatError, OSError):
        if path.exists():
            written = read_object(path)
    sampling = _sampling(written, parameters)
    entries = {name: _listed(written.get(name)) for name in _ENTRY_RULES}
    used = {name: list(filter(fits, entries[name])) for name, fits in _ENTRY_RULES.items()}
    used["stop_strings"] = used["stop_strings"][:_MAX_STOPS]
    # Of a list, every entry must be followed. `entries` are those in the file, `used` those that fit.
    followed = sampling.from_model.union(name for name in used if used[name] == entries[name])
    unread = [name for name, value in written.items() if name not in followed and _changes_text(name, value)]
    bad = {word[0] for word in used["bad_words_ids"]}.difference(end_tokens)
    suppressed = bad.union(used["suppress_tokens"])
    return GenerationSettings(sampling, frozenset(suppressed), tuple(used["stop_strings"]), tuple(sorted(unread)))


def _is_token(part: object) -> bool:
    return type(part) is int


_ENTRY_RULES: dict[str, Callable[[Any], bool]] = {
    "suppress_tokens": _is_token,
    "eos_token_id": _is_token,
    "bad_words_ids": lambda word: isinstance(word, list) and len(word) == 1 and _is_token(word[0]),
    "stop_strings": lambda part: isinstance(part, str) and 0 < len(part) <= _LONGEST_STOP,
}
"""Settings that are lists, and whether an entry can be followed.

`eos_token_id` is only checked here: `read_tokenizer` reads it.
"""


def _listed(value: object) -> list[Any]:
    """Return the entries of a setting that is a list, or one entry alone; none where it is absent or empty."""
    if isinstance(value, list):
        return value
    return [value] if value or type(value) is int else []


def _changes_text(name: str, value: object) -> bool:
    """Return whether a setting that is not followed may change a reply: any that is not known to be harmless."""
    known = name in _HARMLESS or name.startswith(_HARMLESS_PREFIXES)
    return bool(value) and not known and value != _NEUTRAL.get(name)


def _sampling(written: Mapping[str, Any], parameters: int) -> SamplingDefaults:
    """Return the sampling that the authors recommend, with rdchat's own values for the rest.

    With `do_sample` false a model chooses the likeliest token, whatever temperature stands beside it. A number out of
    range is left out, and is then not among those of the model.
    """
    small = parameters < _SMALL_PARAMETERS
    params = SamplingParams(temperature=_SMALL_TEMPERATURE) if small else SamplingParams()
    if written.get("do_sample") is False:
        written = {**written, "temperature": 0.0}
    from_model = set[str]()
    for name in SAMPLING_NUMBERS:
        value: Any = written.get(name)
        is_number = type(value) is int or (type(value) is float and name != "top_k")
        if is_number and value <= _HIGHEST.get(name, math.inf):
            with suppress(RdchatError, OverflowError):
                params = replace(params, **{name: value if name == "top_k" else float(value)})  # type: ignore[arg-type]
                from_model.add(name)
    return SamplingDefaults(params, frozenset(from_model), small)
