"""Converts a GGUF file into an MLX model folder, keeping its quantised weights as they are.

GGUF's Q4_0, Q4_1 and Q8_0 are affine quantisation in groups of 32, as in MLX; only the order of the bytes differs.
NumPy repacks them here instead of `mx.load`, which misreads Q4_K silently and crashes on a version-1 file, and because
the result is then the same on every machine.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as GgmlType

from rdchat.errors import ModelError
from rdchat.inference.api.events import LoadProgress
from rdchat.inference.models.gguf_header import TYPES_HINT, GgufHeader, GgufTensor, read_gguf_header
from rdchat.inference.models.safetensors_file import MAX_SIZE, PlannedTensor, write_tensors
from rdchat.inference.models.tokenizer_import import CONVERT_HINT, end_token_ids, write_json, write_tokenizer

# Increase it when the folder made from the same file changes, so that folders are converted again.
CONVERTER_REVISION = 1

_GROUP = 32
_QUANTISED_BITS = {GgmlType.Q4_0: 4, GgmlType.Q4_1: 4, GgmlType.Q8_0: 8}
# Q6_K has no MLX counterpart and becomes float16.
_FLOATS = {GgmlType.F32, GgmlType.F16, GgmlType.Q6_K}
_MTP_HINT = "Then get its MTP layers, which draft for it, with `rdchat models mtp`."
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

    Its MTP layers, if it has some, are left out, and stated in config.json.

    Args:
        source: The GGUF file, version 2 or 3.
        folder: An existing, empty folder.
        on_progress: Called while the weights are written.

    Raises:
        ModelError: If the file is damaged, or has something that cannot be converted exactly; the message names it.
        OSError: If `folder` cannot be written.
    """
    stage = "Converting the model"
    on_progress(LoadProgress(stage, 0.0))
    header = read_gguf_header(source)
    config, planned = plan_conversion(source, header)
    with _import_errors(source):
        write_tokenizer(header.metadata, config["max_position_embeddings"], folder)
        write_json(folder / "config.json", config)
        write_json(folder / "generation_config.json", {"eos_token_id": end_token_ids(header.metadata)})
        write_tensors(folder / "model.safetensors", planned, lambda part: on_progress(LoadProgress(stage, part)))


def plan_conversion(source: Path, header: GgufHeader) -> tuple[dict[str, Any], list[PlannedTensor]]:
    """Return config.json and the tensors that a GGUF file would be converted to; writes nothing.

    Raises:
        ModelError: See `convert_gguf`; the tokenizer is not checked.
    """
    with _import_errors(source):
        _refuse_unknown_kinds(header)
        mtp = {_layer(tensor.name) for tensor in header.tensors if ".nextn." in tensor.name}
        tensors = {tensor.name: tensor for tensor in header.tensors if _layer(tensor.name) not in mtp}
        _refuse_unknown_types(tensors)
        config = _config(header.metadata, tensors, len(mtp))
        data = np.memmap(source, mode="r", offset=header.begin)
        return config, [part for tensor in tensors.values() for part in _planned(tensor, data, config)]


@contextmanager
def _import_errors(source: Path) -> Iterator[None]:
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{source} cannot be imported. {error.message}", error.hint) from error
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError) as error:
        raise ModelError(f"{source} cannot be imported: its metadata is damaged ({error}).", CONVERT_HINT) from error


def _size(metadata: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """Return a size from the metadata.

    Raises:
        ModelError: If it is missing, or not a valid size.
    """
    value = metadata.get(key, default)
    if type(value) is not int or not 1 <= value <= MAX_SIZE:
        raise _damaged(key, value)
    return value


def _number(metadata: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """Return a finite, positive number from the metadata."""
    value = metadata.get(key, default)
    if not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise _damaged(key, value)
    return value


def _damaged(key: str, value: Any) -> ModelError:
    text = "missing" if value is None else str(value)[:40]
    return ModelError(f"Its metadata is damaged: '{key}' is {text}.", CONVERT_HINT)


def _refuse_unknown_kinds(header: GgufHeader) -> None:
    metadata = header.metadata
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        has_mtp = any(".nextn." in tensor.name for tensor in header.tensors)
        hint = f"{CONVERT_HINT} {_MTP_HINT}" if has_mtp else CONVERT_HINT
        raise ModelError(f"Its architecture is '{architecture}'; only 'llama' can be imported.", hint)
    scaling = metadata.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise ModelError(f"It scales positions by '{scaling}', which cannot be imported.", CONVERT_HINT)
    head_dim = _head_dim(metadata)
    for key in ("llama.rope.dimension_count", "llama.attention.value_length"):
        if metadata.get(key, head_dim) != head_dim:
            raise ModelError(f"Its '{key}' is not the size of a head, {head_dim}.", CONVERT_HINT)


def _head_dim(metadata: Mapping[str, Any]) -> int:
    width = _size(metadata, "llama.embedding_length")
    heads = _size(metadata, "llama.attention.head_count")
    head_dim = _size(metadata, "llama.attention.key_length", width // heads)
    if head_dim % 2:
        raise ModelError(f"Its heads have the odd size {head_dim}.", CONVERT_HINT)
    return head_dim


def _refuse_unknown_types(tensors: Mapping[str, GgufTensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.kind not in _QUANTISED_BITS and tensor.kind not in _FLOATS:
            raise ModelError(f"Its tensor '{name}' is of the type {tensor.kind.name}.", TYPES_HINT)
        _mlx_name(name)


def _layer(name: str) -> str:
    """Return the number of a tensor's layer, and for others what is no number: `blk.3.attn_q.weight` is layer 3's."""
    return name.removeprefix("blk.").partition(".")[0]


def _mlx_name(name: str) -> str:
    """Return mlx-lm's name of a GGUF tensor without its last part: `blk.3.attn_q.weight` is layer 3's `q_proj`."""
    match name.split("."):
        case [top, "weight"] if top in _TOP_MODULES:
            return _TOP_MODULES[top]
        case ["blk", layer, module, "weight"] if layer.isdecimal() and module in _LAYER_MODULES:
            return f"model.layers.{layer}.{_LAYER_MODULES[module]}"
    raise ModelError(f"Its tensor '{name}' does not belong to a llama model.", CONVERT_HINT)


def _config(metadata: Mapping[str, Any], tensors: Mapping[str, GgufTensor], mtp_layers: int) -> dict[str, Any]:
    """Return config.json; keys without a GGUF field have the llama family's fixed values."""
    heads = _size(metadata, "llama.attention.head_count")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": _size(metadata, "llama.embedding_length"),
        "intermediate_size": _size(metadata, "llama.feed_forward_length"),
        "num_hidden_layers": _block_count(metadata, tensors, mtp_layers),
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
    if mtp_layers:
        config["num_nextn_predict_layers"] = mtp_layers
    for kind in ("bos", "eos", "pad"):
        token_id = metadata.get(f"tokenizer.ggml.{'padding' if kind == 'pad' else kind}_token_id")
        if token_id is not None:
            config[f"{kind}_token_id"] = token_id
    return config | _quantization(tensors)


def _block_count(metadata: Mapping[str, Any], tensors: Mapping[str, GgufTensor], mtp_layers: int) -> int:
    # llama.cpp counts MTP layers too.
    count = _size(metadata, "llama.block_count") - mtp_layers
    present = len({_layer(name) for name in tensors if name.startswith("blk.")})
    if count != present:
        raise ModelError(f"Its metadata says {count:,} layers, but it has tensors of {present:,}.", CONVERT_HINT)
    return count


def _rows(tensors: Mapping[str, GgufTensor], name: str) -> int:
    if name not in tensors or len(tensors[name].shape) != 2:
        raise ModelError(f"It has no table '{name}'.", CONVERT_HINT)
    return tensors[name].shape[0]


def _shortest(value: float) -> float:
    """Undo the widening of a float32: 9.999999747378752e-06 was 1e-05."""
    return float(str(np.float32(value)))


def _float_dtype(tensors: Mapping[str, GgufTensor]) -> np.dtype[Any]:
    """Return float16, which can be mixed with quantised weights on a GPU, unless the whole file is float32."""
    is_float32 = all(tensor.kind == GgmlType.F32 for tensor in tensors.values())
    return np.dtype("<f4" if is_float32 else "<f2")


def _quantization(tensors: Mapping[str, GgufTensor]) -> dict[str, Any]:
    """Return the `quantization` entry: the most common width, and the modules with another one."""
    bits = {_mlx_name(name): _QUANTISED_BITS[t.kind] for name, t in tensors.items() if t.kind in _QUANTISED_BITS}
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


def _planned(tensor: GgufTensor, data: _Array, config: Mapping[str, Any]) -> list[PlannedTensor]:
    """Return what a GGUF tensor is converted to: a float array, or packed weights with scales and biases.

    Args:
        tensor: The tensor.
        data: (bytes,) uint8: the bytes of all tensors.
        config: The content of config.json.
    """
    module = _mlx_name(tensor.name)
    stored = data[tensor.offset : tensor.offset + tensor.stored_bytes].reshape(*tensor.shape[:-1], -1)
    order = _row_order(module, config, tensor.name, tensor.shape[0])
    if tensor.kind in _FLOATS:
        dtype = np.dtype(config["torch_dtype"]).newbyteorder("<")
        made = partial(_float_rows, tensor, stored, dtype, order)
        return [PlannedTensor(f"{module}.weight", dtype, tensor.shape, made)]
    bits = _QUANTISED_BITS[tensor.kind]
    if len(tensor.shape) != 2:
        raise ModelError(f"Its tensor '{tensor.name}' is not a matrix.", CONVERT_HINT)
    rows, columns = tensor.shape
    half = np.dtype("<f2")
    word = np.dtype("<u4")
    groups = (rows, columns // _GROUP)
    part = partial(_quantized_part, tensor, stored, order)
    return [
        PlannedTensor(f"{module}.weight", word, (rows, columns * bits // 32), partial(part, "weight")),
        PlannedTensor(f"{module}.scales", half, groups, partial(part, "scales")),
        PlannedTensor(f"{module}.biases", half, groups, partial(part, "biases")),
    ]


def _row_order(module: str, config: Mapping[str, Any], name: str, rows: int) -> _Array | slice:
    """Return the rows of a tensor in mlx-lm's order.

    llama.cpp interleaves the two halves of each query and key head for its own rotary embedding. Whole rows are moved,
    so quantised ones can be put back exactly.
    """
    heads = {
        "q_proj": config["num_attention_heads"],
        "k_proj": config["num_key_value_heads"],
    }.get(module.rpartition(".")[2])
    if heads is None:
        return slice(None)
    head_dim = config["head_dim"]
    if heads * head_dim != rows:
        raise ModelError(f"Its tensor '{name}' does not have the number of rows of its heads.", CONVERT_HINT)
    return np.arange(rows).reshape(heads, head_dim // 2, 2).swapaxes(1, 2).reshape(-1)


def _float_rows(tensor: GgufTensor, stored: _Array, dtype: np.dtype[Any], order: _Array | slice) -> _Array:
    with np.errstate(over="ignore"):
        return _finite(tensor, gguf.quants.dequantize(stored, tensor.kind)[order].astype(dtype))


def _finite(tensor: GgufTensor, values: _Array) -> _Array:
    if not np.isfinite(values).all():
        raise ModelError(f"Its tensor '{tensor.name}' has values beyond float16.", CONVERT_HINT)
    return values


def _quantized_part(tensor: GgufTensor, stored: _Array, order: _Array | slice, part: str) -> _Array:
    """Return the packed weights, scales or biases in MLX's form, w = scale * code + bias.

    A GGUF block of 32 weights is its float16 scale, in Q4_1 its float16 minimum, then the codes. In Q8_0 these are
    whole signed bytes. In the 4-bit types the first 16 weights are in the low halves of 16 bytes, the others in the
    high halves. MLX packs codes one after the other, from the low bits up.
    """
    rows, columns = tensor.shape
    blocks = np.ascontiguousarray(stored[order]).reshape(rows, columns // _GROUP, -1)
    scales = blocks[..., :2].view("<f2")[..., 0]
    if part == "scales":
        return scales
    if part == "biases":
        if tensor.kind == GgmlType.Q4_1:
            return blocks[..., 2:4].view("<f2")[..., 0]
        zero = 128 if tensor.kind == GgmlType.Q8_0 else 8
        with np.errstate(over="ignore"):
            return _finite(tensor, scales * np.float16(-zero))
    if tensor.kind == GgmlType.Q8_0:
        # Signed bytes become codes from 0 to 255.
        codes = blocks[..., 2:] ^ 0x80
    else:
        halves = blocks[..., 4 if tensor.kind == GgmlType.Q4_1 else 2 :]
        nibbles = np.concatenate([halves & 0x0F, halves >> 4], axis=-1)
        codes = nibbles[..., 0::2] | nibbles[..., 1::2] << 4
    return np.ascontiguousarray(codes).view("<u4").reshape(rows, -1)
