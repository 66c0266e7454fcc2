"""Small GGUF files like the default model's, written with the `gguf` package as llama.cpp's converter writes them."""

from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as GgmlType

HIDDEN = 256
HEADS = 4
KV_HEADS = 2
HEAD_DIM = 64
LAYERS = 2
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "1 2"]
MODULES = {  # GGUF's names, and mlx-lm's
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
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


def byte_characters() -> list[str]:
    """Return GPT-2's printable stand-in for each byte, in the order of the bytes."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) if byte in plain else chr(256 + others.index(byte)) for byte in range(256)]


def tokens() -> list[str]:
    return SPECIAL + byte_characters() + [merge.replace(" ", "") for merge in MERGES]


def permute(weights: np.ndarray, heads: int) -> np.ndarray:
    """Reorder query or key rows as llama.cpp's `convert_hf_to_gguf.py` does."""
    rows, columns = weights.shape
    return weights.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def float_weights() -> dict[str, np.ndarray]:
    """Return the weights by GGUF name, rows in the original order (as mlx-lm has them)."""
    random = np.random.default_rng(7)

    def matrix(rows: int, columns: int = HIDDEN) -> np.ndarray:
        return (random.standard_normal((rows, columns)) * 0.05).astype(np.float32)

    weights = {"token_embd.weight": matrix(len(tokens())), "output_norm.weight": np.ones(HIDDEN, np.float32)}
    for layer in range(LAYERS):
        parts = {
            "attn_norm": np.full(HIDDEN, 1.5, np.float32),
            "attn_q": matrix(HEADS * HEAD_DIM),
            "attn_k": matrix(KV_HEADS * HEAD_DIM),
            "attn_v": matrix(KV_HEADS * HEAD_DIM),
            "attn_output": matrix(HIDDEN, HEADS * HEAD_DIM),
            "ffn_norm": np.full(HIDDEN, 0.5, np.float32),
            "ffn_gate": matrix(512),
            "ffn_up": matrix(512),
            "ffn_down": matrix(HIDDEN, 512),
        }
        weights |= {f"blk.{layer}.{name}.weight": array for name, array in parts.items()}
    return weights


def write_gguf(
    path: Path,
    kind: GgmlType = GgmlType.Q4_1,
    kinds: dict[str, GgmlType] | None = None,
) -> Path:
    """Write a file.

    Args:
        path: Where.
        kind: Type of all matrices.
        kinds: Types of single tensors instead.
    """
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(512)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens())
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens()) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for name, weights in float_weights().items():
        _add(writer, name, weights, (kinds or {}).get(name, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, name: str, weights: np.ndarray, kind: GgmlType) -> None:
    if weights.ndim == 1:
        writer.add_tensor(name, weights)
        return
    heads = HEADS if "attn_q" in name else KV_HEADS if "attn_k" in name else None
    rows = permute(weights, heads) if heads else weights
    writer.add_tensor(name, gguf.quants.quantize(rows, kind), raw_dtype=kind)


def mlx_name(name: str) -> str:
    """Return the name that mlx-lm has for the module of a GGUF tensor, whose part (`.weight`) may be left out."""
    parts = name.split(".")
    return f"model.layers.{parts[1]}.{MODULES[parts[2]]}" if parts[0] == "blk" else MODULES[parts[0]]
