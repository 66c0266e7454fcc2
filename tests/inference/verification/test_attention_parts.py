"""Verify calls with attention in parts: what they compute, what they leave alone, and the launches of each part."""

from collections import Counter
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import pytest
from mlx_lm.models import base, llama
from mlx_lm.models.cache import QuantizedKVCache, make_prompt_cache

from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.verification import attention_parts, device
from rdchat.inference.verification.hooks import ModelHooks
from rdchat.inference.verification.prefix_tree import PrefixTree
from rdchat.inference.verification.verifier import PackedTree
from tests.grids import grid, share
from tests.inference.attention_shapes import Kernel, Shape
from tests.inference.fakes import ScriptedDrafter, ask, shared_family
from tests.inference.families import CHAINS, HYBRIDS, TREES, network_of
from tests.inference.launches import launches
from tests.inference.plain_replies import drafted, plain
from tests.inference.verification.attention_calls import CHAIN, PROMPT, TREE, heads_of, noted_shapes, verified

# Whose attention is code of their own.
OWN = {"gemma2", "mamba2", "plamo2"}
FAMILIES = {**TREES, **CHAINS, **HYBRIDS}


@pytest.mark.parametrize(("name", "tree"), grid(sorted(FAMILIES), [CHAIN, TREE], one_in=6))
@pytest.mark.across_rows
def test_parts_give_what_the_call_gives(name: str, tree: PackedTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """With sliding windows, sinks, masks that are added, latent attention, and layers that share keys."""
    monkeypatch.setattr(attention_parts, "_rows_of_part", lambda *_: 2)
    network = network_of(*FAMILIES[name])
    hooks = ModelHooks(network)
    tree = CHAIN if name in CHAINS else tree
    expected, undivided = verified(network, hooks, tree, in_parts=False)
    logits, shapes = verified(network, hooks, tree, in_parts=True)
    assert mx.allclose(logits, expected, atol=1e-4)
    parts = -(-len(tree) // 2)
    assert len(shapes) == len(undivided) * (1 if name in OWN else parts)
    assert name in OWN or {shape.rows for shape in shapes} == ({1, 2} if len(tree) % 2 else {2})


@pytest.mark.parametrize("ratio", share([8, 16, 1, 2, 4], 2))
@pytest.mark.across_rows
def test_each_part_takes_the_fused_kernel(ratio: int) -> None:
    network = heads_of(16, 16 // ratio)
    hooks = ModelHooks(network)
    for rows in range(2, 18):
        tree = (
            PackedTree.chain(mx.arange(rows))
            if rows % 2
            else PackedTree.pack(PrefixTree.from_beams([[0, leaf] for leaf in range(1, rows)]))
        )
        expected, undivided = verified(network, hooks, tree, in_parts=False)
        logits, shapes = verified(network, hooks, tree, in_parts=True)
        assert mx.allclose(logits, expected, atol=1e-4)
        assert {shape.kernel for shape in shapes} == {Kernel.VECTOR}
        most = min(8, 32 // ratio)
        assert len(shapes) == len(undivided) * -(-rows // most)
        assert max(shape.rows for shape in shapes) - min(shape.rows for shape in shapes) <= 1


def test_a_part_has_the_rows_that_the_kernel_takes() -> None:
    for query, value in ((64, 64), (80, 80), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256), (512, 512)):
        for ratio in (1, 2, 3, 4, 5, 7, 8, 16, 32, 64):
            arrays = [mx.zeros((1, heads, 1, size)) for heads, size in ((ratio, query), (1, query), (1, value))]
            assert attention_parts._rows_of_part(*arrays) == Shape(1, ratio, 1, query, value).rows_of_part


def test_other_calls_and_other_models_are_computed_whole() -> None:
    """A draft model of the same family computes within the target's round."""
    network, other = heads_of(16, 2), heads_of(16, 2)
    plain_layer, plain_attention = llama.Attention.__call__, base.scaled_dot_product_attention
    hooks = ModelHooks(network)
    ModelHooks(other)
    hooks.attention.chosen = lambda rows, depth: rows == 6 and depth == 12
    with noted_shapes() as shapes:
        network(mx.array([PROMPT[:6]]), cache=make_prompt_cache(network))
        with hooks.attention.call(6, 12):
            other(mx.array([PROMPT[:6]]), cache=make_prompt_cache(other))
        for rows, depth in ((6, 11), (7, 12)):
            with hooks.attention.call(rows, depth):
                network(mx.array([PROMPT[:6]]), cache=make_prompt_cache(network))
        assert {shape.rows for shape in shapes} == {6}
        with hooks.attention.call(6, 12):
            network(mx.array([PROMPT[:6]]), cache=make_prompt_cache(network))
    assert {shape.rows for shape in shapes} == {6, 3}
    assert llama.Attention.__call__ is plain_layer
    assert llama.scaled_dot_product_attention is base.scaled_dot_product_attention is plain_attention


def test_a_quantised_cache_is_not_split() -> None:
    """No fused kernel reads one."""
    network = heads_of(16, 2)
    hooks = ModelHooks(network)

    def logits(in_parts: bool) -> mx.array:
        caches = [QuantizedKVCache(group_size=64, bits=8) for _ in network.layers]
        with hooks.attention.fixed(in_parts), hooks.attention.call(len(PROMPT), 0):
            return network(mx.array([PROMPT]), cache=caches)

    assert (logits(in_parts=True) == logits(in_parts=False)).all()


@pytest.mark.skipif("config.getoption('round_by_rows')", reason="on that device a product is many operations")
def test_launches_of_parts_and_of_what_they_replace() -> None:
    """Where MLX has no fused kernel for a call, a layer takes two products, a softmax, and the scale and the mask."""
    network = heads_of(16, 2)
    hooks = ModelHooks(network)
    unfused, _ = verified(network, hooks, TREE, in_parts=False)

    def fused(queries: mx.array, keys: mx.array, values: mx.array, mask: Any, **_: Any) -> mx.array:
        read = [keys, values, mask] if isinstance(mask, mx.array) else [keys, values]
        return mx.depends([mx.abs(queries)], read)[0]

    with patch.object(mx.fast, "scaled_dot_product_attention", fused):
        undivided, _ = verified(network, hooks, TREE, in_parts=False)
        split, _ = verified(network, hooks, TREE, in_parts=True)
    slow, one, parts = (Counter(launches(logits)) for logits in (unfused, undivided, split))
    layers = len(network.layers)
    assert one["Abs"] == layers
    assert slow - one == Counter(Matmul=2 * layers, Softmax=layers, Multiply=layers, Select=layers)
    assert parts - one == Counter(Abs=2 * layers, Concatenate=layers)
    assert not one - parts


@pytest.mark.parametrize(
    ("name", "temperature"), grid(["llama", "gpt_oss", "gemma3", "qwen3_5", "gpt2"], [0, 0.9], one_in=3)
)
@pytest.mark.across_rows
def test_text_is_that_of_plain_decoding(name: str, temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_parts, "_rows_of_part", lambda *_: 2)
    model = shared_family(name)
    request = ask(seed=5, max_tokens=20, temperature=temperature)
    expected = plain(model, request)
    with model.hooks.attention.fixed(in_parts=True):
        (*_, end), _ = drafted(model, request, ScriptedDrafter(expected.token_ids, 1 if name in CHAINS else 4, 5))
    assert isinstance(end, ReplyEnd)
    assert end.token_ids == expected.token_ids
    assert end.statistics.accepted > 2


def test_parts_are_tried_on_metal_alone_and_only_where_the_kernel_takes_fewer_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = heads_of(16, 2)
    parts = ModelHooks(network).attention
    assert not parts.may_pay(8), "nothing is known before a call"
    network(mx.array([PROMPT]), cache=make_prompt_cache(network))
    assert device.on_gpu() or not parts.may_pay(8)
    monkeypatch.setattr(attention_parts, "on_gpu", lambda: True)
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    assert [rows for rows in range(1, 12) if parts.may_pay(rows)] == list(range(5, 12))
    small = network_of("llama", {})
    unfused = ModelHooks(small).attention
    small(mx.array([PROMPT]))
    assert not unfused.may_pay(9), "MLX has no kernel for heads of 16 numbers"
