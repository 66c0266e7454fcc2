"""Reads a model's config.json, whose keys differ between families, and checks it before mlx-lm reads it.

Three sections: what the configuration means (architecture, quantisation, context, size of the KV cache); whether its
sizes agree with the weight files; and which families' layers for multi-token prediction (MTP) can be used. All of it is
read without importing mlx-lm, which would take seconds.
"""

import ast
import importlib.util
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rdchat.errors import ModelError
from rdchat.files import REFETCH_HINT, read_json
from rdchat.hub import PACKED_HINT, unpackable
from rdchat.inference.models.safetensors_file import MAX_SIZE, StoredTensor

_CONTEXT_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
    "n_ctx",
    "model_max_length",
)
_LONGEST_CONTEXT = 2**31 - 1
# For models whose files do not give a length, such as some recurrent ones.
_UNKNOWN_CONTEXT = 4096
# Names of one setting in different families; the first that has a number counts.
LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")
HEAD_KEYS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEAD_KEYS = ("num_key_value_heads", "n_kv_heads", "num_kv_heads")
WIDTH_KEYS = ("hidden_size", "n_embd", "d_model", "model_dim")
# Beginnings of the layer types whose cache does not grow with the context.
_STATELESS_LAYERS = ("linear_attention", "mamba", "conv", "recurrent")
# Families with multi-head latent attention whose modules cache the full keys and values all the same.
_FULL_KEYS = {"deepseek_v2", "minicpm3", "youtu_llm"}
# Models that see, by model type, and the type under which mlx-lm has their text model.
_TEXT_MODELS = {"idefics3": "llama", "smolvlm": "llama", "lfm2_vl": "lfm2"}
# End of the model type of a text part.
_TEXT_PART = "_text"
# Tuples, because a foreign value may not be hashable.
QUANTIZED_BITS = (2, 3, 4, 5, 6, 8)
QUANTIZED_GROUPS = (16, 32, 64, 128)
_MODES = ("affine", "mxfp4", "mxfp8", "nvfp4")
# Usual bits of other tools' methods; the others have 4.
_FOREIGN_BITS = {"bitnet": 2, "fp8": 8, "mxfp8": 8}
_MAX_FOREIGN_GROUP = 4096


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json.

    Raises:
        ModelError: If it cannot be read, or is not a model's configuration.
    """
    path = folder / "config.json"
    config = read_json(path)
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ModelError(f"{path} has no model type, so it does not belong to a language model.", REFETCH_HINT)
    return config


def check_architecture(config: Mapping[str, Any]) -> str:
    """Return the model type if the installed mlx-lm can run it; does not import mlx-lm.

    Raises:
        ModelError: If it cannot, or the model has its own code.
    """
    model_type = str(config["model_type"])
    if config.get("model_file"):
        raise ModelError(
            f"The model needs its own code ({str(config['model_file'])[:100]}), which rdchat does not run.",
            "Choose a model with an architecture that mlx-lm supports.",
        )
    module = _module_of(model_type)
    known = re.fullmatch(r"[\w-]+", module.stem) and module.is_file()
    # Some of mlx-lm's modules are parts of others, and have no `Model`.
    if not known or not re.search(
        r"^(class|from \.\w+ import) Model\b", module.read_text(encoding="utf-8"), re.MULTILINE
    ):
        raise ModelError(
            f"The installed mlx-lm does not support the architecture '{model_type[:100]}'.",
            "Choose another model, or update mlx-lm if a newer version supports it.",
        )
    return model_type


def takes_image_rows(model_type: str) -> bool:
    """Return whether mlx-lm's module of an architecture that it supports takes rows in place of embeddings."""
    return "input_embeddings" in _module_of(model_type).read_text(encoding="utf-8")


def _module_of(model_type: str) -> Path:
    """Return the path of mlx-lm's module for a model type, whether or not it exists.

    A text part whose type has none, such as `qwen3_5_text`, runs in that of the whole model.
    """
    package = _mlx_lm_folder()
    names = _TEXT_MODELS | _model_remapping(package)
    own = package / "models" / f"{names.get(model_type, model_type)}.py"
    whole = model_type.removesuffix(_TEXT_PART)
    return own if whole == model_type or own.is_file() else _module_of(whole)


def _mlx_lm_folder() -> Path:
    spec = importlib.util.find_spec("mlx_lm")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@cache
def _model_remapping(package: Path) -> dict[str, str]:
    """Read mlx-lm's table of model types that share a module; importing it would take seconds and load MLX.

    Only the table is parsed: parsing the whole module would hold Python's lock, and block the window, for 0.3 s.
    """
    source = (package / "utils.py").read_text(encoding="utf-8")
    table = re.search(r"^MODEL_REMAPPING = (\{.*?^\})", source, re.MULTILINE | re.DOTALL)
    return ast.literal_eval(table[1]) if table else {}


def check_quantization(config: Mapping[str, Any]) -> tuple[int | None, int]:
    """Return bits and group size of the weights; None and 1 where they are floats, or mlx-lm makes them floats.

    MLX's own `quantization` counts before another tool's `quantization_config`.

    Raises:
        ModelError: If mlx-lm does not support the kind of quantisation.
    """
    if (own := config.get("quantization")) is not None:
        return _own_quantization(own)
    foreign = config.get("quantization_config") or text_config(config).get("quantization_config")
    if not foreign:
        return None, 1
    if not isinstance(foreign, dict):
        raise ModelError(f"The model's quantisation is unknown: {str(foreign)[:100]}.", PACKED_HINT)
    if reason := unpackable(str(config["model_type"]), foreign):
        raise ModelError(reason, PACKED_HINT)
    method = foreign["quant_method"]
    if method == "fp8" and foreign.get("scale_fmt") != "ue8m0":
        # mlx-lm unpacks it into 16-bit floats.
        return None, 1
    bits = first_int(foreign, "bits") or _FOREIGN_BITS.get(method, 4)
    group = first_int(foreign, "group_size") or 32
    # Larger numbers are mistakes in the file.
    return min(bits, 32), min(group, _MAX_FOREIGN_GROUP)


def _own_quantization(settings: object) -> tuple[int, int]:
    """Return bits and group size of MLX's own quantisation."""
    if isinstance(settings, dict):
        bits = first_int(settings, "bits")
        group = first_int(settings, "group_size")
        if bits in QUANTIZED_BITS and group in QUANTIZED_GROUPS and settings.get("mode", "affine") in _MODES:
            return bits, group
    raise ModelError(f"The model's quantisation is unknown: {str(settings)[:100]}.", REFETCH_HINT)


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part that describes the language model; models that also see or hear nest it."""
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def own_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as mlx-lm reads it.

    Of the models in `_TEXT_MODELS` that is the configuration of the text model, with the settings around it that count.
    A text part that runs in the module of the whole model is that model's `text_config`.
    """
    model_type = str(config["model_type"])
    outer = {key: config[key] for key in ("quantization", "tie_word_embeddings") if key in config}
    if model_type.endswith(_TEXT_PART) and _module_of(model_type).stem != model_type:
        return {**outer, "model_type": model_type.removesuffix(_TEXT_PART), "text_config": dict(config)}
    if model_type == "pixtral":
        # mlx-vlm's name of the model with its tower; transformers' class of this name is of the tower alone.
        return {**config, "model_type": "llava"}
    text_model = _TEXT_MODELS.get(model_type)
    if text_model is None:
        return dict(config)
    return {**text_config(config), **outer, "model_type": text_model}


def context_length(config: Mapping[str, Any], folder: Path) -> int:
    """Return how many tokens prompt and reply may have together."""
    for source in (text_config(config), config):
        length = first_int(source, *_CONTEXT_KEYS)
        if length:
            return min(length, _LONGEST_CONTEXT)
    path = folder / "tokenizer_config.json"
    tokenizer = read_json(path) if path.exists() else None
    named = tokenizer.get("model_max_length") if isinstance(tokenizer, dict) else None
    # Tokenizers without a limit have 1e30 here.
    return named if isinstance(named, int) and 0 < named <= _LONGEST_CONTEXT else _UNKNOWN_CONTEXT


def kv_values_per_token(config: Mapping[str, Any]) -> int:
    """Return how many numbers the KV cache holds for each token; with sliding windows, an upper bound."""
    text = text_config(config)
    family = str(config.get("model_type"))
    layers = first_int(text, *LAYER_KEYS)
    kinds = text.get("layer_types")
    if isinstance(kinds, list):
        layers = sum(not str(kind).startswith(_STATELESS_LAYERS) for kind in kinds)
    if family.startswith("longcat_flash"):
        # Each of its layers has two attentions.
        layers *= 2
    heads = first_int(text, *HEAD_KEYS)
    width = first_int(text, *WIDTH_KEYS)
    # Without heads nothing is known, so nothing is counted.
    usual_head_dim = width // heads if heads else 0
    if latent := first_int(text, "kv_lora_rank"):
        rope = first_int(text, "qk_rope_head_dim")
        if family in _FULL_KEYS:
            values = first_int(text, "v_head_dim") or usual_head_dim
            return layers * heads * (first_int(text, "qk_nope_head_dim") + rope + values)
        # Multi-head latent attention keeps one compressed vector and one rotated key; an indexer its keys, twice.
        return layers * (latent + rope + 2 * first_int(text, "index_head_dim"))
    head_dim = first_int(text, "head_dim") or usual_head_dim
    return 2 * layers * (first_int(text, *KV_HEAD_KEYS) or heads) * head_dim


def first_int(source: Mapping[str, Any], *keys: str) -> int:
    """Return the first positive whole number found under one of the keys, else 0."""
    return next((value for key in keys if isinstance(value := source.get(key), int) and value > 0), 0)


# Sizes: mlx-lm builds a network from the config before it reads the weights, so a million layers, or a list of a
# billion experts, would be created in memory first. A count or size that is too large for the weight files is refused.

# The deepest known models have about 130 layers.
MAX_LAYERS = 1000
# Numbers up to here are accepted with any weights: they may not be sizes.
_MIN_LIMIT = 2**20
# Maximum of one kind of module in all layers: the most known are 900 experts in 93 layers.
_MAX_MODULES = 250_000
_MAX_DEPTH = 50
# Weights may have 2 bits.
_VALUES_PER_BYTE = 4
# Possible widths of packed weights, in bits, over the widths of their scales.
_RATIOS = {bits * group for bits in QUANTIZED_BITS for group in QUANTIZED_GROUPS}
# The number of a block in a tensor's name.
_INDEX = re.compile(r"(?:^|\.)(\d{1,9})(?=\.)")
# Names of numbers of layers, and of lists or texts with an entry for each layer.
_LAYER_COUNT = re.compile(r"(^|_)(num|n)_(\w+_)?(layers?|loops)$|^loop_num$|_iters$")
_LAYER_LISTS = re.compile(r"layer|block|pattern")
# Names of numbers of modules in a block.
_COUNT = re.compile(r"(^|_)(num|n)_(\w+_)?(experts?|heads?|groups?|inputs|blocks)$")
# Positions, token ids, rope's numbers and so on may be as large as they like.
_NO_SIZE = re.compile(
    r"position|context|ctx|window|length|seq|theta|base|(^|_)ids?$|token|seed|freq|version|max_|image|video|audio|"
    r"chunk|corpus|train|step|scale|scaling|factor|multiplier"
)
_FRACTION = re.compile(r"partial_rotary_factor$|^rotary_(pct|percent)$")
# Parts of a configuration that hold no sizes of the network.
_NO_SIZES_IN = re.compile(r"^(quantization|id2label|label2id|task_specific|auto_map|generation|training)")
_POSITIVE = {*LAYER_KEYS, *WIDTH_KEYS, *HEAD_KEYS, *KV_HEAD_KEYS, "vocab_size"}


def check_sizes(config: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> None:
    """Check that the weights explain every count and size in a config.

    Args:
        config: The content of config.json.
        tensors: From the headers of all weight files, by name.

    Raises:
        ModelError: If they do not, or quantised weights are not packed as the config says.
    """
    blocks = _count_blocks(tensors)
    for part in (config, text_config(config)):
        _check_layers(part, blocks)
        for key in sorted(_POSITIVE & part.keys()):
            if type(part[key]) is int and part[key] < 1:
                raise _refusal(key, part[key], "it must be at least 1")
    stored_values = _VALUES_PER_BYTE * sum(tensor.stored_bytes for tensor in tensors.values())
    for key, value in _leaves(config):
        _check_size(key, value, stored_values, max(blocks, 1))
    if isinstance(config.get("quantization"), Mapping):
        _check_packing(config["quantization"], tensors)


def _count_blocks(tensors: Mapping[str, StoredTensor]) -> int:
    """Return the number of blocks in the weights: `model.layers.7.mlp.experts.3.weight` is in `model.layers.7`."""
    blocks = set()
    for name, tensor in tensors.items():
        if tensor.elements and (index := _INDEX.search(name)):
            blocks.add((name[: index.start()], int(index[1])))
    return len(blocks)


def _check_layers(config: Mapping[str, Any], blocks: int) -> None:
    """Check that there are no more layers than blocks in the weights.

    Blocks that a searched architecture leaves out have no weights.
    """
    listed = config.get("block_configs")
    left_out = sum(map(_is_left_out, listed)) if isinstance(listed, list) else 0
    for key in LAYER_KEYS:
        count = config.get(key)
        if type(count) is int and count > blocks + min(left_out, MAX_LAYERS):
            raise _refusal(key, count, f"the weights have {blocks:,} layers")


def _is_left_out(block: object) -> bool:
    """Return whether an entry of `block_configs` has neither attention nor MLP."""
    if not isinstance(block, Mapping):
        return False
    parts = (block.get("attention"), block.get("ffn"))
    return all(isinstance(part, Mapping) and bool(part.get("no_op")) for part in parts)


def _leaves(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each number, text and list with its key, or the nearest key around it."""
    waiting: list[tuple[str, Any, int]] = [("", config, 0)]
    while waiting:
        key, value, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            raise ModelError("The model's config.json is damaged: it is nested too deeply.", REFETCH_HINT)
        if isinstance(value, Mapping):
            waiting += [(name, part, depth + 1) for name, part in value.items() if not _NO_SIZES_IN.match(name)]
            continue
        yield key, value
        if isinstance(value, list):
            waiting += [(key, part, depth + 1) for part in value]


def _check_size(key: str, value: Any, stored_values: int, blocks: int) -> None:
    """Check one setting, by its name.

    Texts and lists are checked for their length alone, shares of a head for their range. A whole number is checked in
    this order: as a number of layers; not at all, if its name says that it is no size; against the numbers in the
    weight files; and as a number of modules in each block.

    Args:
        key: Its name, or the nearest name around it.
        value: Its value.
        stored_values: Upper bound of the numbers in the weight files.
        blocks: Number of blocks in the weights.
    """
    if isinstance(value, str | list):
        if len(value) > MAX_LAYERS and _LAYER_LISTS.search(key):
            raise _refusal(key, len(value), f"a model has at most {MAX_LAYERS:,} layers")
    elif _FRACTION.search(key):
        if isinstance(value, int | float) and not 0 <= value <= 1:
            raise _refusal(key, value, "it must be between 0 and 1")
    elif type(value) is int:
        if _LAYER_COUNT.search(key) and value > MAX_LAYERS:
            raise _refusal(key, value, f"a model has at most {MAX_LAYERS:,} layers")
        if _NO_SIZE.search(key):
            return
        if value > min(max(stored_values, _MIN_LIMIT), MAX_SIZE):
            few = value > stored_values
            raise _refusal(key, value, "the weights have fewer values" if few else "no model is that large")
        if _COUNT.search(key) and value * blocks > _MAX_MODULES:
            raise _refusal(key, value, "no model has that many")


def _refusal(key: str, value: float, reason: str) -> ModelError:
    number = f"{value:,}" if abs(value) < 1e20 else "a number of many digits"
    return ModelError(f"The model's config.json says {key[:50]} {number}: {reason}.", REFETCH_HINT)


def _check_packing(settings: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> None:
    """Check the tensors of scales: MLX packs quantised weights into 32-bit words, in groups on the last axis."""
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


# MTP layers: they draft for the model that they were trained with (docs/adr/0025). mlx-lm drops them, and some
# configurations do not name them, so they are found by the names of their tensors.

# Families, by mlx-lm's model type, whose MTP layers can be used.
QWEN = ("qwen3_5", "qwen3_5_moe", "qwen3_next")
# DeepSeek-V3, and families with its names.
DEEPSEEK = ("deepseek_v3", "deepseek_v32", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa")
MIMO = ("mimo",)
# Published without MTP layers; others train such layers for them.
PLAIN = ("llama", "qwen2", "qwen3")
# Why the layers of other families cannot be used.
_REFUSED = {
    "bailing_hybrid": "its layers mix two kinds of attention, and the kind of its MTP layer is not certain",
    "bailing_moe_v3": "its layers mix two kinds of attention, and the kind of its MTP layer is not certain",
    "ernie4_5_moe": "its sources disagree on a norm before the output rows",
    "exaone_moe": "the window of its MTP layer is not certain",
    "longcat_flash": "its MTP layer is not one of the model's own decoder layers",
    "mimo_v2_flash": "its MTP layers have another attention than the model's",
    "nemotron_h": "its MTP part is a list of blocks of several kinds",
    "step3p5": "its MTP layers have output rows and norms of their own kind",
}
# End of the model type of repositories that have nothing but MTP layers.
BARE = "_mtp"
_STATED_COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "mtp_num_layers")
_MTP_PART = re.compile(r"(?<![^.])mtp\w*\.", re.ASCII)
_LAYER = re.compile(r"(?:(?:model|language_model)\.)*layers\.(\d{1,5})\.", re.ASCII)
# Copies of the model's own tables.
_COPIES = re.compile(r"(?:^|\.)(?:embed_tokens|lm_head|shared_head\.head)\.")


def stated_layers(config: Mapping[str, Any]) -> int:
    """Return the number of MTP layers that a model's configuration states."""
    return first_int({**config, **text_config(config)}, *_STATED_COUNTS)


def unreadable(architecture: str) -> str:
    """Return why the MTP layers of a model type cannot be used, a clause; empty where they can."""
    known = {*QWEN, *DEEPSEEK, *MIMO, *PLAIN}
    return "" if architecture in known else _REFUSED.get(architecture, "rdchat does not know their layout")


def is_bare(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration is of a repository that has nothing but MTP layers."""
    return str(config.get("model_type")).endswith(BARE)


def is_mtp(name: str, config: Mapping[str, Any]) -> bool:
    """Return whether a tensor is of an MTP layer: by its name, or by its number where they follow the other layers.

    Copies of the model's token tables are not.
    """
    if _COPIES.search(name):
        return False
    if _MTP_PART.search(name) or is_bare(config):
        return True
    numbered = _LAYER.match(name)
    counts = (text_config(config).get(key) for key in LAYER_KEYS)
    layers = next((count for count in counts if type(count) is int), None)
    return numbered is not None and layers is not None and int(numbered[1]) >= layers
