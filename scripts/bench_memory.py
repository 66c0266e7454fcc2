"""Measures the peak memory of the KV cache, by its number of tokens, and compares it with mlx-lm's.

The caches of a model of a few layers get the keys and values of a prompt in chunks, then of a reply token by token.
Each call is built for all layers before any of it is computed, as in a real model. Both are compared with the size of
the keys and values.
"""

import argparse
from collections.abc import Callable
from typing import Any

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
import mlx.core as mx
from mlx_lm.models.cache import KVCache

from rdchat.inference.target.round_cache import round_cache

LAYERS, HEADS, WIDTH = 8, 2, 64  # 8 KiB a token in float32
CHUNK, REPLY = 512, 300


def peak_bytes(make: Callable[[], Any], tokens: int) -> int:
    """Return the most memory that the caches of a prompt and a reply took."""
    mx.clear_cache()
    caches = [make() for _ in range(LAYERS)]
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    calls = [min(CHUNK, tokens - start) for start in range(0, tokens, CHUNK)]
    for count in [*calls, *[1] * REPLY]:
        rows = mx.ones((1, HEADS, count, WIDTH))
        seen = [part[..., -1:, :].sum() for cache in caches for part in cache.update_and_fetch(rows + 1, rows + 2)]
        mx.eval(seen)
    return int(mx.get_peak_memory()) - before


def main() -> None:
    """Print a row for each number of tokens."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[8192, 32768])
    args = parser.parse_args()
    print("tokens  keys and values  rdchat  mlx-lm  rdchat / mlx-lm")
    for tokens in args.tokens:
        held = 2 * 4 * LAYERS * HEADS * WIDTH * (tokens + REPLY)
        ours, theirs = peak_bytes(lambda: round_cache(KVCache()), tokens), peak_bytes(KVCache, tokens)
        print(
            f"{tokens:6,}  {held / 1e6:12.0f} MB  {ours / held:6.2f}  {theirs / held:6.2f}  {ours / theirs:15.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
