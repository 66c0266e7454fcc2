"""Which kind of draft each family of models takes, found by trying and not by name."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models.cache import KVCache as StockKVCache
from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache

from rdchat.inference.target.capability import DraftKind, check_capability
from rdchat.inference.target.hooks import ModelHooks
from tests.inference.families import CHAINS, TREES, VOCABULARY, network_of


@pytest.mark.parametrize(("name", "options"), TREES.values(), ids=TREES.keys())
def test_families_that_take_trees(name: str, options: dict[str, Any]) -> None:
    network = network_of(name, options)
    hooks = ModelHooks(network)
    capability = check_capability(network, hooks, VOCABULARY)
    assert (capability.kind, capability.reason) == (DraftKind.TREE, "")
    if name == "gemma3n":  # its trunk returns logits
        assert hooks.hidden is None
    else:
        assert hooks.hidden is not None
        assert hooks.hidden.shape == (1, 6, 64)  # one for every packed token


@pytest.mark.parametrize(("name", "options"), CHAINS.values(), ids=CHAINS.keys())
def test_families_whose_trees_come_out_wrong_take_chains_and_say_why(name: str, options: dict[str, Any]) -> None:
    network = network_of(name, options)
    capability = check_capability(network, ModelHooks(network), VOCABULARY)
    assert capability.kind is DraftKind.CHAIN
    assert capability.reason


@pytest.mark.parametrize(("name", "options"), [*TREES.values(), *CHAINS.values()], ids=[*TREES.keys(), *CHAINS.keys()])
def test_hooks_change_nothing_outside_a_round(name: str, options: dict[str, Any]) -> None:
    network, tokens = network_of(name, options), mx.array([[1, 2, 3, 4, 5]])
    before = np.array(network(tokens, cache=make_prompt_cache(network)))
    ModelHooks(network)
    assert (np.array(network(tokens, cache=make_prompt_cache(network))) == before).all()


@pytest.mark.parametrize("period", [2**13, 2**14, 2**15])
@pytest.mark.parametrize("name", ["ministral3", "mistral4", "llama4"])
def test_attention_that_is_scaled_far_into_a_text_is_found_out(name: str, period: int) -> None:
    """With the period of a real model the scale is one and the same all over a short prompt."""
    _, options = CHAINS[name]
    if name == "llama4":
        options = {"text_config": {**options["text_config"], "floor_scale": period}}
    else:
        rope = {**options["rope_parameters"], "original_max_position_embeddings": period}
        options = {**options, "rope_parameters": rope}
    network = network_of(name, options)
    capability = check_capability(network, ModelHooks(network), VOCABULARY)
    assert capability.kind is DraftKind.CHAIN
    assert name == "llama4" or capability.reason.startswith("far into a text")


def test_a_text_model_inside_another_gives_its_hidden_states() -> None:
    network = network_of(*CHAINS["llama4"])
    hooks = ModelHooks(network)
    network(mx.array([[1, 2, 3]]))
    assert hooks.hidden is not None
    assert mx.allclose(network.language_model.lm_head(hooks.hidden), network(mx.array([[1, 2, 3]])), atol=1e-5)


def test_a_model_that_ignores_masks_is_found_out() -> None:
    network = network_of("llama", {})
    attention = type(network.model.layers[0].self_attn)

    def without_mask(self: nn.Module, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        return attention.__call__(self, x, "causal" if mask is not None else None, cache)  # type: ignore[no-any-return]

    for layer in network.model.layers:
        layer.self_attn.__class__ = type("Stubborn", (attention,), {"__call__": without_mask})
    assert check_capability(network, ModelHooks(network), VOCABULARY).kind is DraftKind.CHAIN


def test_a_cache_of_unknown_type_means_plain_decoding_with_the_reason() -> None:
    network = network_of("llama", {})
    odd = {"make_cache": lambda self: [RotatingKVCache(8, keep=4), StockKVCache(), StockKVCache()]}
    network.__class__ = type("Odd", (type(network),), odd)
    capability = check_capability(network, ModelHooks(network), VOCABULARY)
    assert capability.kind is DraftKind.NONE
    assert "RotatingKVCache" in capability.reason
