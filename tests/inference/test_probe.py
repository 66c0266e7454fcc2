"""Which kind of draft each family of models takes, found by trying and not by name."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models.cache import KVCache as StockKVCache
from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache

from rdchat.inference.probe import DraftKind, probe
from rdchat.inference.seams import Seams
from tests.inference.families import CHAINS, TREES, VOCABULARY, network_of


@pytest.mark.parametrize(("name", "options"), TREES.values(), ids=TREES.keys())
def test_families_that_take_trees(name: str, options: dict[str, Any]) -> None:
    network = network_of(name, options)
    seams = Seams(network)
    capability = probe(network, seams, VOCABULARY)
    assert (capability.kind, capability.reason) == (DraftKind.TREE, "")
    assert seams.hidden is not None
    assert seams.hidden.shape == (1, 6, 64)  # one for every packed token


@pytest.mark.parametrize(("name", "options"), CHAINS.values(), ids=CHAINS.keys())
def test_families_whose_trees_come_out_wrong_take_chains_and_say_why(name: str, options: dict[str, Any]) -> None:
    network = network_of(name, options)
    capability = probe(network, Seams(network), VOCABULARY)
    assert capability.kind is DraftKind.CHAIN
    assert capability.reason


@pytest.mark.parametrize(("name", "options"), [*TREES.values(), *CHAINS.values()], ids=[*TREES.keys(), *CHAINS.keys()])
def test_seams_change_nothing_outside_a_round(name: str, options: dict[str, Any]) -> None:
    network, tokens = network_of(name, options), mx.array([[1, 2, 3, 4, 5]])
    before = np.array(network(tokens, cache=make_prompt_cache(network)))
    Seams(network)
    assert (np.array(network(tokens, cache=make_prompt_cache(network))) == before).all()


def test_a_model_that_ignores_masks_is_found_out() -> None:
    network = network_of("llama", {})
    attention = type(network.model.layers[0].self_attn)

    def without_mask(self: nn.Module, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        return attention.__call__(self, x, "causal" if mask is not None else None, cache)  # type: ignore[no-any-return]

    for layer in network.model.layers:
        layer.self_attn.__class__ = type("Stubborn", (attention,), {"__call__": without_mask})
    assert probe(network, Seams(network), VOCABULARY).kind is DraftKind.CHAIN


def test_a_cache_of_unknown_type_means_plain_decoding_with_the_reason() -> None:
    network = network_of("llama", {})
    odd = {"make_cache": lambda self: [RotatingKVCache(8, keep=4), StockKVCache(), StockKVCache()]}
    network.__class__ = type("Odd", (type(network),), odd)
    capability = probe(network, Seams(network), VOCABULARY)
    assert capability.kind is DraftKind.NONE
    assert "RotatingKVCache" in capability.reason
