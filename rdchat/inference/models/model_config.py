"""Reads a model's config.json, whose keys differ between families."""

import ast
import importlib.util
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rdchat.errors import ModelError
from rdchat.files.foreign_files import REFETCH_HINT, read_json

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
_UNKNOWN_CONTEXT = 4096  # where no file says, as with some recurrent models
LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")
HEAD_KEYS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEAD_KEYS = ("num_key_value_heads", "n_kv_heads", "num_kv_heads")
WIDTH_KEYS = ("hidden_size", "n_embd", "d_model", "model_dim")
_STATELESS_LAYERS = ("linear_attention", "mamba", "conv", "recurrent")  # their cache does not grow with the context
QUANTIZED_BITS = (2, 3, 4, 5, 6, 8)  # tuples, because a foreign value may not be hashable
QUANTIZED_GROUPS = (16, 32, 64, 128)  # MLX's
_MOST_FOREIGN_GROUP = 4096
_MODES = ("affine", "mxfp4", "mxfp8", "nvfp4")
# Other tools' methods that mlx-lm supports, with their usual bits.
_FOREIGN_BITS = {
    "awq": 4,
    "bitnet": 2,
    "compressed-tensors": 4,
    "fp8": 8,
    "gptq": 4,
    "modelopt": 4,
    "mxfp4": 4,
    "mxfp8": 8,
}


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
    package = _mlx_lm_folder()
    module = package / "models" / f"{_model_remapping(package).get(model_type, model_type)}.py"
    known = re.fullmatch(r"[\w-]+", module.stem) and module.is_file()
    if not known or not re.search(r"^class Model\b", module.read_text(encoding="utf-8"), re.MULTILINE):
        raise ModelError(
            f"The installed mlx-lm does not support the architecture '{model_type[:100]}'.",
            "Choose another model, or update mlx-lm if a newer version supports it.",
        )
    return model_type


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
    """Return bits (None where the weights are floats) and group size.

    Raises:
        ModelError: If mlx-lm does not support the kind of quantisation.
    """
    if (own := config.get("quantization")) is not None:
        return _own_quantization(own)
    foreign = config.get("quantization_config") or text_config(config).get("quantization_config")
    if not foreign:
        return None, 1
    method = str(foreign.get("quant_method") if isinstance(foreign, dict) else foreign)
    if method not in _FOREIGN_BITS or not isinstance(foreign, dict):
        raise ModelError(
            f"mlx-lm does not support the model's quantisation: {method[:100]}.",
            "Convert the original, unquantised model with `mlx_lm.convert`.",
        )
    if method == "fp8" and foreign.get("scale_fmt") != "ue8m0":
        return None, 1  # mlx-lm unpacks it into 16-bit floats
    group = _first_int(foreign, ("group_size",)) or 32
    return min(_first_int(foreign, ("bits",)) or _FOREIGN_BITS[method], 32), min(group, _MOST_FOREIGN_GROUP)


def _own_quantization(settings: object) -> tuple[int, int]:
    """Return bits and group size of MLX's own quantisation."""
    if isinstance(settings, dict):
        bits, group = _first_int(settings, ("bits",)), _first_int(settings, ("group_size",))
        if bits in QUANTIZED_BITS and group in QUANTIZED_GROUPS and settings.get("mode", "affine") in _MODES:
            return bits, group
    raise ModelError(f"The model's quantisation is unknown: {str(settings)[:100]}.", REFETCH_HINT)


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part that describes the language model; models that also see or hear nest it."""
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def context_length(config: Mapping[str, Any], folder: Path) -> int:
    """Return how many tokens prompt and reply may have together."""
    for source in (text_config(config), config):
        found = _first_int(source, _CONTEXT_KEYS)
        if found:
            return min(found, _LONGEST_CONTEXT)
    path = folder / "tokenizer_config.json"
    tokenizer = read_json(path) if path.exists() else None
    named = tokenizer.get("model_max_length") if isinstance(tokenizer, dict) else None
    # Tokenizers without a limit say 1e30.
    return named if isinstance(named, int) and 0 < named <= _LONGEST_CONTEXT else _UNKNOWN_CONTEXT


def kv_values_per_token(config: Mapping[str, Any]) -> int:
    """Return how many numbers the cache keeps for each token; with sliding windows, an upper bound."""
    own = text_config(config)
    layers = _first_int(own, LAYER_KEYS)
    kinds = own.get("layer_types")
    if isinstance(kinds, list):
        layers = sum(not str(kind).startswith(_STATELESS_LAYERS) for kind in kinds)
    heads = _first_int(own, HEAD_KEYS)
    latent = _first_int(own, ("kv_lora_rank",))
    if latent:  # multi-head latent attention keeps one compressed vector and one rotated key
        return layers * (latent + _first_int(own, ("qk_rope_head_dim",)))
    width = _first_int(own, WIDTH_KEYS)
    head_dim = _first_int(own, ("head_dim",)) or (width // heads if heads else 0)
    return 2 * layers * (_first_int(own, KV_HEAD_KEYS) or heads) * head_dim


def _first_int(source: Mapping[str, Any], keys: tuple[str, ...]) -> int:
    """Return the first positive whole number found under one of the keys, else 0."""
    return next((value for key in keys if isinstance(value := source.get(key), int) and value > 0), 0)
