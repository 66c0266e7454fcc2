"""Verify calls of tiny models, and the shapes of attention in them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import mlx.nn as nn

from rdchat.inference.verification.hooks import ModelHooks
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.prefix_tree import PrefixTree
from rdchat.inference.verification.verifier import PackedTree
from tests.inference.attention_shapes import Shape
from tests.inference.families import network_of

PROMPT = [5, 9, 17, 3, 8, 21, 2, 33, 11, 40, 41, 42]
BEAMS = [[4, 7, 9, 11], [4, 7, 12, 6], [4, 8, 13, 14], [4, 8, 13, 15]]
TREE = PackedTree.pack(PrefixTree.from_beams(BEAMS))
CHAIN = PackedTree.chain(mx.array([4, 7, 9, 11, 12]))


@contextmanager
def noted_shapes() -> Iterator[list[Shape]]:
    shapes: list[Shape] = []
    plain_call = mx.fast.scaled_dot_product_attention

    def noted(queries: mx.array, keys: mx.array, values: mx.array, **options: Any) -> mx.array:
        shapes.append(Shape(queries.shape[2], queries.shape[1], keys.shape[1], keys.shape[3], values.shape[3]))
        return plain_call(queries, keys, values, **options)

    with patch.object(mx.fast, "scaled_dot_product_attention", noted):
        yield shapes


def verified(network: nn.Module, hooks: ModelHooks, tree: PackedTree, in_parts: bool) -> tuple[mx.array, list[Shape]]:
    """Return the logits of a verify call behind the prompt, and the shapes of attention in it."""
    cache = KVCache(network)
    mx.eval(network(mx.array([PROMPT]), cache=cache.layers))
    cache.open_round(tree.depths, tree.ancestors, tree.deepest, tree.leaves)
    call, packed = hooks.attention.call(len(tree), len(PROMPT)), hooks.packed(None if tree is CHAIN else tree.depths)
    with hooks.attention.fixed(in_parts), call, packed, noted_shapes() as shapes:
        return network(tree.tokens[None], cache=cache.layers)[0], shapes


def heads_of(query: int, kv: int, **more: Any) -> nn.Module:
    """Return a llama with heads of 64 numbers."""
    heads = {"num_attention_heads": query, "num_key_value_heads": kv, "head_dim": 64, "num_hidden_layers": 2}
    return network_of("llama", heads | more)
