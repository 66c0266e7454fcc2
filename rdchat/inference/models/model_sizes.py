"""Checks the sizes in a config.json against the headers of the weight files.

mlx-lm builds a network from the config before it reads the weights: a million layers, or a list of a billion experts,
would be created in memory first. So no count or size may be larger than the weights explain.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rdchat.errors import ModelError
from rdchat.files.foreign_files import REFETCH_HINT
from rdchat.inference.models.model_config import (
    HEAD_KEYS,
    KV_HEAD_KEYS,
    LAYER_KEYS,
    QUANTIZED_BITS,
    QUANTIZED_GROUPS,
    WIDTH_KEYS,
    text_config,
)
from rdchat.inference.models.safetensors_file import MOST_SIZE, StoredTensor

MOST_LAYERS = 1000  # the deepest known models have about 130
_LEAST_LIMIT = 2**20  # limit for any weights: in every config, numbers that are not sizes go up to here
_MOST_MODULES = 250_000  # of one kind in all layers: the most known are 900 experts in 93 layers
_MOST_DEPTH = 50
_VALUES_PER_BYTE = 4  # weights of 2 bits in a byte
_RATIOS = {bits * group for bits in QUANTIZED_BITS for group in QUANTIZED_GROUPS}

_INDEX = re.compile(r"(?:^|\.)(\d{1,9})(?=\.)")
_LAYER_COUNT = re.compile(r"(^|_)(num|n)_(\w+_)?(layers?|loops)$|^loop_num$|_iters$")
_LAYER_LISTS = re.compile(r"layer|block|pattern")
_COUNT = re.compile(r"(^|_)(num|n)_(\w+_)?(experts?|heads?|groups?|inputs|blocks)$")
_NO_SIZE = re.compile(  # positions, token ids, rope's numbers and so on may be as large as they like
    r"position|context|ctx|window|length|seq|theta|base|(^|_)ids?$|token|seed|freq|version|max_|image|video|audio|"
    r"chunk|corpus|train|step|scale|scaling|factor|multiplier"
)
_FRACTION = re.compile(r"partial_rotary_factor$|^rotary_(pct|percent)$")
_NO_SIZES_IN = re.compile(r"^(quantization|id2label|label2id|task_specific|auto_map|generation|training)")
_AT_LEAST_ONE = {*WIDTH_KEYS, *HEAD_KEYS, *KV_HEAD_KEYS, "vocab_size"}


def check_sizes(config: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> None:
    """Check that the weights explain every count and size in a config.

    Args:
        config: The content of config.json.
        tensors: From the headers of all weight files, by name.

    Raises:
        ModelError: If they do not, or quantised weights are not packed as the config says.
    """
    blocks = _blocks(tensors)
    for part in (config, text_config(config)):
        _check_layers(part, blocks)
        for key in sorted(_AT_LEAST_ONE & part.keys()):
            if type(part[key]) is int and part[key] < 1:
                raise _refusal(key, part[key], "it must be at least 1")
    held = _VALUES_PER_BYTE * sum(tensor.stored_bytes for tensor in tensors.values())
    for key, value in _leaves(config):
        _check_size(key, value, held, max(blocks, 1))
    if isinstance(config.get("quantization"), Mapping):
        _check_packing(config["quantization"], tensors)


def _blocks(tensors: Mapping[str, StoredTensor]) -> int:
    """Return the number of blocks in the weights: `model.layers.7.mlp.experts.3.weight` is in `model.layers.7`."""
    found = set()
    for name, tensor in tensors.items():
        if tensor.elements and (index := _INDEX.search(name)):
            found.add((name[: index.start()], int(index[1])))
    return len(found)


def _check_layers(config: Mapping[str, Any], blocks: int) -> None:
    """Check the number of layers; blocks that a searched architecture leaves out have no weights."""
    left_out = sum(map(_is_left_out, made)) if isinstance(made := config.get("block_configs"), list) else 0
    for key in LAYER_KEYS:
        count = config.get(key)
        if type(count) is int and count < 1:
            raise _refusal(key, count, "it must be at least 1")
        if type(count) is int and count > blocks + min(left_out, MOST_LAYERS):
            raise _refusal(key, count, f"the weights have {blocks:,} layers")


def _is_left_out(block: object) -> bool:
    if not isinstance(block, Mapping):
        return False
    parts = (block.get("attention"), block.get("ffn"))
    return all(isinstance(part, Mapping) and bool(part.get("no_op")) for part in parts)


def _leaves(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each number, text and list with its key, or the nearest key around it."""
    waiting: list[tuple[str, Any, int]] = [("", config, 0)]
    while waiting:
        key, value, depth = waiting.pop()
        if depth > _MOST_DEPTH:
            raise ModelError("The model's config.json is damaged: it is nested too deeply.", REFETCH_HINT)
        if isinstance(value, Mapping):
            waiting += [(name, part, depth + 1) for name, part in value.items() if not _NO_SIZES_IN.match(name)]
            continue
        yield key, value
        if isinstance(value, list):
            waiting += [(key, part, depth + 1) for part in value]


def _check_size(key: str, value: Any, held: int, blocks: int) -> None:
    if isinstance(value, str | list):
        if len(value) > MOST_LAYERS and _LAYER_LISTS.search(key):
            raise _refusal(key, len(value), f"a model has at most {MOST_LAYERS:,} layers")
    elif _FRACTION.search(key):
        if isinstance(value, int | float) and not 0 <= value <= 1:
            raise _refusal(key, value, "it must be between 0 and 1")
    elif type(value) is int:
        if _LAYER_COUNT.search(key) and value > MOST_LAYERS:
            raise _refusal(key, value, f"a model has at most {MOST_LAYERS:,} layers")
        if _NO_SIZE.search(key):
            return
        if value > min(max(held, _LEAST_LIMIT), MOST_SIZE):
            raise _refusal(key, value, "the weights have fewer values" if value > held else "no model is that large")
        if _COUNT.search(key) and value * blocks > _MOST_MODULES:
            raise _refusal(key, value, "no model has that many")


def _refusal(key: str, value: float, reason: str) -> ModelError:
    shown = f"{value:,}" if abs(value) < 1e20 else "a number of many digits"
    return ModelError(f"The model's config.json says {key[:50]} {shown}: {reason}.", REFETCH_HINT)


def _check_packing(settings: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> None:
    """Check the tensors beside scales: MLX packs quantised weights into 32-bit words, in groups on the last axis."""
    for module, own in settings.items():
        if isinstance(own, Mapping) and not (
            own.get("bits", 4) in QUANTIZED_BITS and own.get("group_size", 64) in QUANTIZED_GROUPS
        ):
            raise ModelError(f"rdchat does not support the model's quantisation of {module[:100]}.", REFETCH_HINT)
    for name, scales in tensors.items():
        module, _, part = name.rpartition(".")
        weight = tensors.get(f"{module}.weight")
        if part != "scales" or weight is None:
            continue
        if weight.dtype != "U32":
            raise ModelError(
                f"The quantised weights of {module[:100]} are stored as {weight.dtype[:20]} instead of U32.",
                REFETCH_HINT,
            )
        rows_fit = weight.shape[:-1] == scales.shape[:-1] and weight.shape and scales.elements
        if not rows_fit or weight.shape[-1] * 32 not in {scales.shape[-1] * ratio for ratio in _RATIOS}:
            raise ModelError(f"The scales of {module[:100]} do not fit its quantised weights.", REFETCH_HINT)
        biases = tensors.get(f"{module}.biases")
        if biases is not None and biases.shape != scales.shape:
            raise ModelError(f"The biases of {module[:100]} do not fit its quantised weights.", REFETCH_HINT)
