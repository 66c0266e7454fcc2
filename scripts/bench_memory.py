"""Peak memory of the KV cache against mlx-lm's own, by the tokens it holds.

A llama of a few small layers reads a prompt in short chunks, so that little else takes memory, and writes a few tokens:
once with rdchat's cache and once with mlx-lm's. Both are held against the keys and values themselves.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import llama
from mlx_lm.models.cache import make_prompt_cache

from rdchat.inference.target.kv_cache import KVCache

LAYERS, HEADS, WIDTH, VOCABULARY = 8, 2, 64, 64
CHUNK, REPLY = 64, 32


def small_llama() -> nn.Module:
    """Return a network whose cache takes 8 KiB a token in float32."""
    arguments = llama.ModelArgs(
        model_type="llama",
        hidden_size=HEADS * WIDTH,
        num_hidden_layers=LAYERS,
        intermediate_size=WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        rms_norm_eps=1e-5,
        vocab_size=VOCABULARY,
    )
    network = llama.Model(arguments)
    network.eval()
    mx.eval(network.parameters())
    return network


def peak_bytes(network: nn.Module, caches: Sequence[Any], tokens: int) -> int:
    """Return the most memory that reading a prompt and writing a reply took beside the weights."""
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    for start in range(0, tokens, CHUNK):
        network(mx.zeros((1, min(CHUNK, tokens - start)), mx.int32), cache=caches)
        mx.eval([cache.state for cache in caches])
    for _ in range(REPLY):
        mx.eval(network(mx.zeros((1, 1), mx.int32), cache=caches))
    return int(mx.get_peak_memory()) - before


def main() -> None:
    """Print a row for each number of tokens."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[8192, 32768])
    args = parser.parse_args()
    network = small_llama()
    print("tokens  keys and values  rdchat  mlx-lm  rdchat / mlx-lm")
    for tokens in args.tokens:
        rows = 2 * 4 * LAYERS * HEADS * WIDTH * (tokens + REPLY)
        ours = peak_bytes(network, KVCache(network).layers, tokens)
        theirs = peak_bytes(network, make_prompt_cache(network), tokens)
        print(
            f"{tokens:6,}  {rows / 1e6:12.0f} MB  {ours / rows:6.2f}  {theirs / rows:6.2f}  {ours / theirs:15.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
