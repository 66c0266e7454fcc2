"""Which of MLX's attention kernels published models get on Metal, by the rows of a call.

    python -m tests.inference.attention_shapes

prints the table of docs/metal-attention.md. Each family's network is built in a published model's sizes and called with
drafts; nothing is computed, so no weights are needed.
"""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, NamedTuple
from unittest.mock import patch

import mlx.core as mx

from rdchat.inference.verification.hooks import ModelHooks
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.verifier import PackedTree
from tests.inference.fakes import tree_of_beams
from tests.inference.families import CHAINS, COMMON, TREES

MAX_VECTOR_ROWS = 8
ROWS = range(1, MAX_VECTOR_ROWS + 2)
_VECTOR_SIZES = {64, 96, 128, 256}  # of heads, of both queries and values
_TILED_SIZES = {64, 72, 80, 96, 128}  # 192 and 256 have a kernel that MLX takes for prompts only


class Kernel(StrEnum):
    """How attention is computed: in one launch, in one that each head does alone, or in several launches."""

    VECTOR = "vector"
    TILED = "tiled"
    UNFUSED = "unfused"


class Shape(NamedTuple):
    """The shape of one layer's attention in a call."""

    rows: int
    heads: int
    kv_heads: int
    query_size: int  # of a head
    value_size: int

    @property
    def kernel(self) -> Kernel:
        """What MLX 0.32.2 to 0.32.4 takes on Metal: `ScaledDotProductAttention::use_fallback`."""
        same = self.query_size == self.value_size
        if self.rows > MAX_VECTOR_ROWS:
            return Kernel.TILED if same and self.query_size in _TILED_SIZES else Kernel.UNFUSED
        known = (same and self.query_size in _VECTOR_SIZES) or (self.query_size, self.value_size) == (192, 128)
        fits = self.rows * (self.heads // self.kv_heads) <= 32
        return Kernel.VECTOR if known and fits else Kernel.UNFUSED


def _heads(heads: int, kv_heads: int, size: int) -> dict[str, Any]:
    sizes = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": size}
    return sizes | {"hidden_size": heads * size}  # some families derive a head's size from it


# By family: models and their published sizes, entered by hand.
MODELS: dict[str, dict[str, dict[str, Any]]] = {
    "llama": {
        "Llama 3.1 8B": _heads(32, 8, 128),
        "Llama 3.2 1B": _heads(32, 8, 64),
        "Llama 3.2 3B": _heads(24, 8, 128),
        "Llama 3.3 70B": _heads(64, 8, 128),
        "SmolLM2 135M": _heads(9, 3, 64),
        "Mistral Small 24B": _heads(32, 8, 128),
    },
    "gemma3n": {"Gemma 3n E4B": _heads(8, 2, 256)},
    "afm7": {"Apple's on-device 3B": {"hidden_dim": 2048, "num_heads": 16, "num_kv_heads": 2}},
    "llama4_text": {"Llama 4 Scout": _heads(40, 8, 128)},
    "qwen2": {
        "Qwen2.5 0.5B": _heads(14, 2, 64),
        "Qwen2.5 7B": _heads(28, 4, 128),
        "Qwen2.5 32B": _heads(40, 8, 128),
    },
    "qwen3": {"Qwen3 0.6B": _heads(16, 8, 128), "Qwen3 8B": _heads(32, 8, 128), "Qwen3 32B": _heads(64, 8, 128)},
    "gemma2": {"Gemma 2 9B": _heads(16, 8, 256)},
    "gemma3": {
        "Gemma 3 1B": _heads(4, 1, 256), "Gemma 3 12B": _heads(16, 8, 256), "Gemma 3 27B": _heads(32, 16, 128),
    },
    "phi3": {"Phi-3 mini": _heads(32, 32, 96), "Phi-4 14B": _heads(40, 10, 128)},
    "gpt_oss": {"gpt-oss 20B": _heads(64, 8, 64)},
    "deepseek_v3": {
        "DeepSeek V3": {
            "num_attention_heads": 128, "num_key_value_heads": 128, "hidden_size": 1024, "kv_lora_rank": 512,
            "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128,
        }
    },
    "qwen3_moe": {"Qwen3 30B-A3B": _heads(32, 4, 128), "Qwen3 235B-A22B": _heads(64, 4, 128)},
    "smollm3": {"SmolLM3 3B": _heads(16, 4, 128)},
    "cohere2": {"Command R7B": _heads(32, 8, 128)},
    "llama4": {"Llama 4 Scout, with pictures": _heads(40, 8, 128)},
    "lfm2": {"LFM2 1.2B": {**_heads(32, 8, 64), "block_dim": 2048}},
    "mamba2": {"Mamba 2": {}},
    "qwen3_next": {"Qwen3-Next 80B-A3B": _heads(16, 2, 256)},
    "gpt2": {"GPT-2": {"n_head": 12, "n_embd": 768}},
    "ministral3": {"Ministral 3 8B": _heads(32, 8, 128)},
    "nanochat": {"nanochat d20": _heads(10, 10, 128)},
}  # fmt: skip
NOT_LISTED = {"mistral4", "deepseek_v32"}  # the former in sizes that we do not know, the latter as V3 plus an index


def shapes_of(family: str, sizes: dict[str, Any]) -> dict[int, set[Shape]]:
    """Return the shapes of attention by rows of a call: of a tree where the family takes trees, else of a chain."""
    module, options = (TREES | CHAINS)[family]
    config = {**COMMON, "model_type": module, **options}
    inner = {"text_config": {**config["text_config"], **sizes}} if "text_config" in config else sizes
    network_module = importlib.import_module(f"mlx_lm.models.{module}")
    network = network_module.Model(network_module.ModelArgs.from_dict(config | inner))
    hooks = ModelHooks(network)
    return {rows: _in_a_call(network, hooks, rows, family in TREES) for rows in ROWS}


def _in_a_call(network: Any, hooks: ModelHooks, rows: int, trees: bool) -> set[Shape]:
    cache = KVCache(network)
    tree = _tree(rows) if trees else PackedTree.chain(mx.zeros(rows, mx.int32))
    cache.open_round(tree.depths, tree.ancestors, tree.deepest, tree.leaves)
    with _noted() as found, hooks.packed(None if tree.ancestors is None else tree.depths):
        network(tree.tokens[None], cache=cache.layers)
    return found


def _tree(rows: int) -> PackedTree:
    """Return a root with as many leaves."""
    if rows < 3:
        return PackedTree.chain(mx.zeros(rows, mx.int32))
    return PackedTree.pack(tree_of_beams([[0, leaf] for leaf in range(1, rows)]))


@contextmanager
def _noted() -> Iterator[set[Shape]]:
    found: set[Shape] = set()
    plain = mx.fast.scaled_dot_product_attention

    def noted(queries: mx.array, keys: mx.array, values: mx.array, **options: Any) -> mx.array:
        _, heads, rows, size = queries.shape
        found.add(Shape(rows, heads, keys.shape[1], size, values.shape[-1]))
        return plain(queries, keys, values, **options)

    with patch.object(mx.fast, "scaled_dot_product_attention", noted):
        yield found


def table() -> str:
    """Return the table, as Markdown."""
    lines = [
        "| family | model | query/KV heads | head size | unfused rows of 1 to 8 | above 8 rows |",
        "|---|---|---|---|---|---|",
    ]
    for family, models in MODELS.items():
        for model, sizes in models.items():
            lines.append(f"| {family} | {model} | {' | '.join(_cells(family, sizes))} |")
    return "\n".join(lines)


def _cells(family: str, sizes: dict[str, Any]) -> list[str]:
    by_rows = shapes_of(family, sizes)
    if not any(by_rows.values()):
        return ["", "", "its own operations", "its own operations"]
    slow = [rows for rows, shapes in by_rows.items() if Kernel.UNFUSED in {shape.kernel for shape in shapes}]
    shapes = {shape for found in by_rows.values() for shape in found}
    heads = sorted({f"{shape.heads}/{shape.kv_heads}" for shape in shapes})
    size = sorted({_size(shape) for shape in shapes})
    few = [rows for rows in slow if rows <= MAX_VECTOR_ROWS]
    words = "none" if not few else f"{few[0]}" if len(few) == 1 else f"{few[0]} to {few[-1]}"
    return [", ".join(heads), ", ".join(size), words, "unfused" if ROWS[-1] in slow else "tiled"]


def _size(shape: Shape) -> str:
    same = shape.query_size == shape.value_size
    return str(shape.query_size) if same else f"{shape.query_size} and {shape.value_size}"


if __name__ == "__main__":
    sys.stdout.write(f"{table()}\n")
