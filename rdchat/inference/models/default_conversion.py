"""Converts the default model's GGUF file into an MLX model folder, keeping its quantised weights as they are.

It reads this one file, whose checksum is known: a llama whose matrices are Q4_1 or Q8_0. Both are affine quantisation
in groups of 32, as in MLX; only the order of the bytes differs. NumPy repacks them instead of MLX, so that the result
is the same on every machine.
"""

import json
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as GgmlType, GGUFReader, ReaderTensor

from rdchat.inference.api import LoadProgress, OnProgress
from rdchat.inference.models.safetensors_file import PlannedTensor, write_tensors

# Weights that share a scale, and bits of a weight by the file's type.
_GROUP = 32
_BITS = {GgmlType.Q4_1: 4, GgmlType.Q8_0: 8}
_HALF = np.dtype("<f2")
_WORD = np.dtype("<u4")
# Names of modules in GGUF and in mlx-lm: outside of the layers, and in each layer.
_TOP_MODULES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
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
# llama.cpp's type of tokens such as `<|im_end|>`.
_CONTROL = 3
# Names of control tokens that end a turn, whatever end token the file names.
_END_NAMES = ("<|im_end|>", "<|endoftext|>")
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
# `smollm` splits off every digit first.
_PRE_TOKENIZER = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL]}
_STAGE = "Converting the model"

_Array = npt.NDArray[Any]


class _Reader(GGUFReader):
    """Reads a little-endian file without a subclass of arrays for each of its 250,000 values, which takes seconds."""

    def _get(self, offset: int, dtype: npt.DTypeLike, count: int = 1, override_order: Any = None) -> _Array:  # noqa: ARG002
        return np.frombuffer(self.data, dtype, int(count), int(offset))


def convert(source: Path, folder: Path, on_progress: OnProgress) -> None:
    """Write the MLX model folder of the default model.

    Args:
        source: Its GGUF file; its checksum was compared.
        folder: An existing, empty folder.
        on_progress: Called while the weights are written.

    Raises:
        OSError: If `folder` cannot be written.
    """
    on_progress(LoadProgress(_STAGE, 0.0))
    reader = _Reader(source)
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    config = _config(metadata, reader.tensors)
    _write_json(folder / "tokenizer.json", _tokenizer(metadata))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(metadata))
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"eos_token_id": _end_token_ids(metadata)})
    planned = [part for tensor in reader.tensors for part in _planned(tensor, config)]
    write_tensors(folder / "model.safetensors", planned, lambda part: on_progress(LoadProgress(_STAGE, part)))


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8", newline="\n")


def _config(metadata: Mapping[str, Any], tensors: list[ReaderTensor]) -> dict[str, Any]:
    """Return config.json; keys without a GGUF field have the llama family's fixed values."""
    bits = {_mlx_name(tensor.name): _BITS[tensor.tensor_type] for tensor in tensors if tensor.tensor_type in _BITS}
    common = Counter(bits.values()).most_common(1)[0][0]
    exceptions = {
        module: {"group_size": _GROUP, "bits": width, "mode": "affine"}
        for module, width in bits.items()
        if width != common
    }
    heads = metadata["llama.attention.head_count"]
    width = metadata["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": metadata["llama.feed_forward_length"],
        "num_hidden_layers": metadata["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "head_dim": width // heads,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": _shortest(metadata["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": _shortest(metadata["llama.rope.freq_base"]),
        "rope_scaling": None,
        "rope_traditional": False,
        "max_position_embeddings": metadata["llama.context_length"],
        "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
        "tie_word_embeddings": True,
        "torch_dtype": _HALF.name,
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
        "quantization": {"group_size": _GROUP, "bits": common, "mode": "affine", **exceptions},
    }


def _shortest(value: float) -> float:
    """Undo the widening of a float32: 9.999999747378752e-06 was 1e-05."""
    return float(str(np.float32(value)))


def _end_token_ids(metadata: Mapping[str, Any]) -> list[int]:
    """Return the ids that end a reply: the file's own first, then control tokens named as an end."""
    own = metadata["tokenizer.ggml.eos_token_id"]
    tokens = metadata["tokenizer.ggml.tokens"]
    return [own, *(tokens.index(name) for name in _END_NAMES if tokens[own] != name)]


def _tokenizer_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    tokens = metadata["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata["llama.context_length"],
        "bos_token": tokens[metadata["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[metadata["tokenizer.ggml.eos_token_id"]],
        "unk_token": tokens[metadata["tokenizer.ggml.unknown_token_id"]],
        "pad_token": tokens[metadata["tokenizer.ggml.padding_token_id"]],
        "chat_template": metadata["tokenizer.chat_template"],
    }


def _tokenizer(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return tokenizer.json of a byte-level BPE."""
    tokens = metadata["tokenizer.ggml.tokens"]
    types = metadata["tokenizer.ggml.token_type"]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": token_id,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token_id, (token, kind) in enumerate(zip(tokens, types, strict=True))
            if kind == _CONTROL
        ],
        "normalizer": None,
        "pre_tokenizer": _PRE_TOKENIZER,
        "post_processor": None,
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            # As in llama.cpp, the few bytes that the vocabulary lacks are dropped.
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: token_id for token_id, token in enumerate(tokens)},
            "merges": [merge.split(" ", 1) for merge in metadata["tokenizer.ggml.merges"]],
        },
    }


def _mlx_name(name: str) -> str:
    """Return mlx-lm's name of a GGUF tensor without its last part: `blk.3.attn_q.weight` is layer 3's `q_proj`."""
    if not name.startswith("blk."):
        return _TOP_MODULES[name.removesuffix(".weight")]
    _, layer, module, _ = name.split(".")
    return f"model.layers.{layer}.{_LAYER_MODULES[module]}"


def _planned(tensor: ReaderTensor, config: Mapping[str, Any]) -> list[PlannedTensor]:
    """Return what a GGUF tensor is converted to: a float array, or packed weights with scales and biases."""
    module = _mlx_name(tensor.name)
    if tensor.tensor_type not in _BITS:
        return [PlannedTensor(f"{module}.weight", _HALF, tensor.data.shape, lambda: tensor.data.astype(_HALF))]
    # The file has the innermost dimension first.
    columns, rows = map(int, tensor.shape)
    bits = _BITS[tensor.tensor_type]
    groups = (rows, columns // _GROUP)
    order = _row_order(module, config, rows)
    return [
        PlannedTensor(f"{module}.weight", _WORD, (rows, columns * bits // 32), partial(_packed, tensor, order)),
        PlannedTensor(f"{module}.scales", _HALF, groups, partial(_scales, tensor, order)),
        PlannedTensor(f"{module}.biases", _HALF, groups, partial(_biases, tensor, order)),
    ]


def _row_order(module: str, config: Mapping[str, Any], rows: int) -> _Array | slice:
    """Return the rows of a tensor in mlx-lm's order.

    llama.cpp interleaves the two halves of each query and key head for its own rotary embedding. Whole rows are moved,
    so quantised ones can be put back exactly.
    """
    if not module.endswith(("q_proj", "k_proj")):
        return slice(None)
    return np.arange(rows).reshape(-1, config["head_dim"] // 2, 2).swapaxes(1, 2).reshape(-1)


def _blocks(tensor: ReaderTensor, order: _Array | slice) -> _Array:
    """Return a tensor's groups, (rows, groups, bytes) uint8: a float16 scale, in Q4_1 a float16 minimum, then codes."""
    columns, rows = map(int, tensor.shape)
    return np.ascontiguousarray(tensor.data[order]).reshape(rows, columns // _GROUP, -1)


def _scales(tensor: ReaderTensor, order: _Array | slice) -> _Array:
    return _blocks(tensor, order)[..., :2].view(_HALF)[..., 0]


def _biases(tensor: ReaderTensor, order: _Array | slice) -> _Array:
    """Return the biases of MLX's form, w = scale * code + bias."""
    if tensor.tensor_type == GgmlType.Q4_1:
        return _blocks(tensor, order)[..., 2:4].view(_HALF)[..., 0]
    return _scales(tensor, order) * np.float16(-128)


def _packed(tensor: ReaderTensor, order: _Array | slice) -> _Array:
    """Return the packed codes. MLX packs them one after the other, from the low bits up.

    In Q8_0 they are whole signed bytes. In Q4_1 the first 16 weights of a block are in the low halves of 16 bytes, the
    others in the high halves.
    """
    blocks = _blocks(tensor, order)
    if tensor.tensor_type == GgmlType.Q8_0:
        # Signed bytes become codes from 0 to 255.
        codes = blocks[..., 2:] ^ 0x80
    else:
        halves = blocks[..., 4:]
        nibbles = np.concatenate([halves & 0x0F, halves >> 4], axis=-1)
        codes = nibbles[..., 0::2] | nibbles[..., 1::2] << 4
    return np.ascontiguousarray(codes).view(_WORD).reshape(blocks.shape[0], -1)
