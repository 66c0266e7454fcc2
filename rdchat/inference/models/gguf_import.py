"""Turns a GGUF file into an MLX model folder, keeping its quantised weights as they are.

GGUF's Q4_0, Q4_1 and Q8_0 are affine quantisation in groups of 32, which is what MLX computes with: only the bytes
are packed in another order. NumPy repacks them here rather than `mx.load`, because that one misreads Q4_K silently
and crashes on a version-1 file, and because the same bytes come out on every machine.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as GgmlType

from rdchat.errors import ModelError
from rdchat.inference.api.events import LoadProgress
from rdchat.inference.models.gguf_header import check_gguf
from rdchat.inference.models.safetensors_file import PlannedTensor, write_tensors
from rdchat.inference.models.tokenizer_import import end_token_ids, write_json, write_tokenizer

CONVERTER_REVISION = 1  # raise it when the folder made from the same file changes: folders are then made anew

_GROUP = 32
_MOST_SIZE = 2**31 - 1
QUANTISED_BITS = {GgmlType.Q4_0: 4, GgmlType.Q4_1: 4, GgmlType.Q8_0: 8}
FLOATS = {GgmlType.F32, GgmlType.F16, GgmlType.Q6_K}  # Q6_K has no MLX counterpart and becomes float16
_TYPES_HINT = "Convert the original model with `mlx_lm.convert`, or use a Q4_0, Q4_1, Q8_0 or F16 file of it."
_CONVERT_HINT = "Use the model's safetensors version, converted with `mlx_lm.convert`."
_TOP_MODULES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER_MODULES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

_Array = npt.NDArray[Any]


def convert_gguf(source: Path, folder: Path, on_progress: Callable[[LoadProgress], None]) -> None:
    """Write the MLX model folder of a GGUF file of the llama architecture.

    Args:
        source: The GGUF file, version 2 or 3.
        folder: An existing, empty folder.
        on_progress: Called as the weights are written.

    Raises:
        ModelError: If the file is damaged, or holds something that would not come out exactly right. The message
            names it.
        OSError: If `folder` cannot be written.
    """
    stage = "Converting the model"
    on_progress(LoadProgress(stage, 0.0))
    reader = _open(source)
    try:
        metadata = {key: field.contents() for key, field in reader.fields.items()}
        _refuse_unknown_kinds(metadata)
        tensors = {tensor.name: tensor for tensor in reader.tensors}
        _refuse_unknown_types(tensors)
        config = _config(metadata, tensors)
        planned = [part for tensor in reader.tensors for part in _planned(tensor, config)]
        write_tokenizer(metadata, config["max_position_embeddings"], folder)
        write_json(folder / "config.json", config)
        write_json(folder / "generation_config.json", {"eos_token_id": end_token_ids(metadata)})
        write_tensors(folder / "model.safetensors", planned, lambda part: on_progress(LoadProgress(stage, part)))
    except ModelError as error:
        raise ModelError(f"{source} cannot be imported. {error.message}", error.hint) from error
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError) as error:
        raise ModelError(f"{source} cannot be imported: its metadata is damaged ({error}).", _CONVERT_HINT) from error


def _open(source: Path) -> gguf.GGUFReader:
    """Map the file once its header is looked through."""
    check_gguf(source)
    try:
        return gguf.GGUFReader(source)
    except OSError as error:
        raise ModelError(f"{source} cannot be read: {error.strerror}.", "Check its name and permissions.") from error
    except (ValueError, LookupError, ArithmeticError, TypeError) as error:
        raise ModelError(f"{source} is damaged or cut short.", "Download it again.") from error


def _size(metadata: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """Return a size in the metadata.

    Raises:
        ModelError: If it is missing, or no whole number that a size can be.
    """
    value = metadata.get(key, default)
    if type(value) is not int or not 1 <= value <= _MOST_SIZE:
        shown = "missing" if value is None else str(value)[:40]
        raise ModelError(f"Its metadata is damaged: '{key}' is {shown}.", _CONVERT_HINT)
    return value


def _number(metadata: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """Return a finite, positive number in the metadata."""
    value = metadata.get(key, default)
    if not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ModelError(f"Its metadata is damaged: '{key}' is {str(value)[:40]}.", _CONVERT_HINT)
    return value


def _refuse_unknown_kinds(metadata: Mapping[str, Any]) -> None:
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        raise ModelError(f"Its architecture is '{architecture}'; only 'llama' can be imported.", _CONVERT_HINT)
    scaling = metadata.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise ModelError(f"It scales positions by '{scaling}', which cannot be imported.", _CONVERT_HINT)
    head_dim = _head_dim(metadata)
    for key in ("llama.rope.dimension_count", "llama.attention.value_length"):
        if metadata.get(key, head_dim) != head_dim:
            raise ModelError(f"Its '{key}' is not the size of a head, {head_dim}.", _CONVERT_HINT)


def _head_dim(metadata: Mapping[str, Any]) -> int:
    width, heads = _size(metadata, "llama.embedding_length"), _size(metadata, "llama.attention.head_count")
    head_dim = _size(metadata, "llama.attention.key_length", width // heads)
    if head_dim % 2:
        raise ModelError(f"Its heads have the odd size {head_dim}.", _CONVERT_HINT)
    return head_dim


def _refuse_unknown_types(tensors: Mapping[str, gguf.ReaderTensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.tensor_type not in QUANTISED_BITS and tensor.tensor_type not in FLOATS:
            raise ModelError(f"Its tensor '{name}' is of the type {tensor.tensor_type.name}.", _TYPES_HINT)
        _mlx_name(name)


def _mlx_name(name: str) -> str:
    """Return mlx-lm's name of a GGUF tensor without its last part: `blk.3.attn_q.weight` is layer 3's `q_proj`."""
    match name.split("."):
        case [top, "weight"] if top in _TOP_MODULES:
            return _TOP_MODULES[top]
        case ["blk", layer, module, "weight"] if layer.isdecimal() and module in _LAYER_MODULES:
            return f"model.layers.{layer}.{_LAYER_MODULES[module]}"
    raise ModelError(f"Its tensor '{name}' has no place in a llama model.", _CONVERT_HINT)


def _config(metadata: Mapping[str, Any], tensors: Mapping[str, gguf.ReaderTensor]) -> dict[str, Any]:
    """Return config.json; keys that belong to no GGUF field have the llama family's fixed values."""
    heads = _size(metadata, "llama.attention.head_count")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": _size(metadata, "llama.embedding_length"),
        "intermediate_size": _size(metadata, "llama.feed_forward_length"),
        "num_hidden_layers": _block_count(metadata, tensors),
        "num_attention_heads": heads,
        "num_key_value_heads": _size(metadata, "llama.attention.head_count_kv", heads),
        "head_dim": _head_dim(metadata),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": _shortest(_number(metadata, "llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": _shortest(_number(metadata, "llama.rope.freq_base", 10000.0)),
        "rope_scaling": None,
        "rope_traditional": False,
        "max_position_embeddings": _size(metadata, "llama.context_length"),
        "vocab_size": _rows(tensors, "token_embd.weight"),
        "tie_word_embeddings": "output.weight" not in tensors,
        "torch_dtype": _float_dtype(tensors).name,
    }
    for kind in ("bos", "eos", "pad"):
        token_id = metadata.get(f"tokenizer.ggml.{'padding' if kind == 'pad' else kind}_token_id")
        if token_id is not None:
            config[f"{kind}_token_id"] = token_id
    return config | _quantization(tensors)


def _block_count(metadata: Mapping[str, Any], tensors: Mapping[str, gguf.ReaderTensor]) -> int:
    count = _size(metadata, "llama.block_count")
    found = len({name.split(".")[1] for name in tensors if name.startswith("blk.")})
    if count != found:
        raise ModelError(f"Its metadata says {count:,} layers, but it has tensors of {found:,}.", _CONVERT_HINT)
    return count


def _rows(tensors: Mapping[str, gguf.ReaderTensor], name: str) -> int:
    if name not in tensors or len(tensors[name].shape) != 2:
        raise ModelError(f"It has no table '{name}'.", _CONVERT_HINT)
    return int(tensors[name].shape[1])


def _shortest(value: float) -> float:
    """Undo the widening of a float32: 9.999999747378752e-06 was 1e-05."""
    return float(str(np.float32(value)))


def _float_dtype(tensors: Mapping[str, gguf.ReaderTensor]) -> np.dtype[Any]:
    """Return float16, which mixes with quantised weights on a GPU, unless the whole file is float32."""
    whole = all(tensor.tensor_type == GgmlType.F32 for tensor in tensors.values())
    return np.dtype("<f4" if whole else "<f2")


def _quantization(tensors: Mapping[str, gguf.ReaderTensor]) -> dict[str, Any]:
    """Return the `quantization` entry: the commonest width, and the modules that have another."""
    bits = {
        _mlx_name(name): QUANTISED_BITS[t.tensor_type] for name, t in tensors.items() if t.tensor_type in QUANTISED_BITS
    }
    if not bits:
        return {}
    widths = list(bits.values())
    common = max(sorted(set(widths)), key=widths.count)
    exceptions = {
        module: {"group_size": _GROUP, "bits": width, "mode": "affine"}
        for module, width in sorted(bits.items())
        if width != common
    }
    return {"quantization": {"group_size": _GROUP, "bits": common, "mode": "affine", **exceptions}}


def _planned(tensor: gguf.ReaderTensor, config: Mapping[str, Any]) -> list[PlannedTensor]:
    """Return what a GGUF tensor becomes: a float array, or packed weights with scales and biases."""
    module = _mlx_name(tensor.name)
    shape = tuple(int(size) for size in reversed(tensor.shape))  # GGUF counts from the innermost dimension
    order = _row_order(module, config, tensor.name, shape[0])
    if tensor.tensor_type in FLOATS:
        dtype = np.dtype(config["torch_dtype"]).newbyteorder("<")
        return [PlannedTensor(f"{module}.weight", dtype, shape, partial(_float_rows, tensor, dtype, order))]
    bits = QUANTISED_BITS[tensor.tensor_type]
    if len(shape) != 2:
        raise ModelError(f"Its tensor '{tensor.name}' is no matrix.", _CONVERT_HINT)
    rows, columns = shape
    half, word = np.dtype("<f2"), np.dtype("<u4")
    groups = (rows, columns // _GROUP)
    part = partial(_quantized_part, tensor, order)
    return [
        PlannedTensor(f"{module}.weight", word, (rows, columns * bits // 32), partial(part, "weight")),
        PlannedTensor(f"{module}.scales", half, groups, partial(part, "scales")),
        PlannedTensor(f"{module}.biases", half, groups, partial(part, "biases")),
    ]


def _row_order(module: str, config: Mapping[str, Any], name: str, rows: int) -> _Array | slice:
    """Return the rows of a tensor in mlx-lm's order.

    llama.cpp interleaves the two halves of each query and key head for its own rotary embedding. Whole rows move, so
    quantised ones can be put back exactly.
    """
    heads = {
        "q_proj": config["num_attention_heads"],
        "k_proj": config["num_key_value_heads"],
    }.get(module.rpartition(".")[2])
    if heads is None:
        return slice(None)
    head_dim = config["head_dim"]
    if heads * head_dim != rows:
        raise ModelError(f"Its tensor '{name}' does not have the rows of its heads.", _CONVERT_HINT)
    return np.arange(rows).reshape(heads, head_dim // 2, 2).swapaxes(1, 2).reshape(-1)


def _float_rows(tensor: gguf.ReaderTensor, dtype: np.dtype[Any], order: _Array | slice) -> _Array:
    with np.errstate(over="ignore"):
        return _finite(tensor, gguf.quants.dequantize(tensor.data, tensor.tensor_type)[order].astype(dtype))


def _finite(tensor: gguf.ReaderTensor, values: _Array) -> _Array:
    if not np.isfinite(values).all():
        raise ModelError(f"Its tensor '{tensor.name}' has values beyond float16.", _CONVERT_HINT)
    return values


def _quantized_part(tensor: gguf.ReaderTensor, order: _Array | slice, part: str) -> _Array:
    """Return the packed weights, scales or biases with w = scale * code + bias, as MLX has it.

    A GGUF block of 32 weights is its float16 scale, in Q4_1 its float16 minimum, then the codes: whole signed bytes
    in Q8_0; in the 4-bit types the first 16 weights in the low halves of 16 bytes and the others in the high halves.
    MLX packs codes one after the other, from the low bits up.
    """
    columns, rows = (int(size) for size in tensor.shape)
    blocks = np.ascontiguousarray(tensor.data[order]).reshape(rows, columns // _GROUP, -1)
    scales = blocks[..., :2].view("<f2")[..., 0]
    if part == "scales":
        return scales
    if part == "biases":
        if tensor.tensor_type == GgmlType.Q4_1:
            return blocks[..., 2:4].view("<f2")[..., 0]
        zero = 128 if tensor.tensor_type == GgmlType.Q8_0 else 8
        with np.errstate(over="ignore"):
            return _finite(tensor, scales * np.float16(-zero))
    if tensor.tensor_type == GgmlType.Q8_0:
        codes = blocks[..., 2:] ^ 0x80  # signed bytes become codes from 0 to 255
    else:
        halves = blocks[..., 4 if tensor.tensor_type == GgmlType.Q4_1 else 2 :]
        nibbles = np.concatenate([halves & 0x0F, halves >> 4], axis=-1)
        codes = nibbles[..., 0::2] | nibbles[..., 1::2] << 4
    return np.ascontiguousarray(codes).view("<u4").reshape(rows, -1)
