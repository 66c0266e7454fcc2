"""The kind of draft each family of models takes, found by trying, whatever the device's rounding."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, product
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models.cache import KVCache as StockKVCache, RotatingKVCache, make_prompt_cache

from rdchat.inference.api import DraftKind
from rdchat.inference.verification import capability as capability_check, tree_recurrences
from rdchat.inference.verification.capability import check_capability
from rdchat.inference.verification.hooks import HiddenReads, ModelHooks
from rdchat.inference.verification.state_round import TreePaths, _Recursion
from tests.grids import share
from tests.inference.families import CHAINS, HYBRIDS, TREES, VOCABULARY, network_of
from tests.inference.rounding import rounding_by_rows

type Solve = Callable[[list[mx.array], mx.array, list[mx.array]], mx.array]

NARROW = ("float16", "bfloat16", "4bit")
FAINT = ("ministral3", "mistral4")  # what they do wrong with trees is less than rounding in 16 bits


@pytest.fixture
def one_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try one input, for what shows in each."""
    monkeypatch.setattr(capability_check, "_INPUTS", 1)


@pytest.mark.parametrize("harm", ["branch", "commit"])
@pytest.mark.usefixtures("one_input")
@pytest.mark.across_rows
def test_wrong_commits_of_state_are_found_out(harm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of(*HYBRIDS["qwen3_5"])
    if harm == "branch":
        monkeypatch.setattr(TreePaths, "path_of", lambda _paths, _node: 0)
    else:
        after = _Recursion.after_rows
        monkeypatch.setattr(_Recursion, "after_rows", lambda self, cut: after(self, replace(cut, count=cut.count - 1)))
    hooks = ModelHooks(network)
    capability = check_capability(network, hooks, VOCABULARY)
    assert capability.kind is (DraftKind.CHAIN if harm == "branch" else DraftKind.FED_AGAIN)
    assert hooks.states.recorded is (harm == "branch")


@pytest.mark.parametrize(("name", "options"), share([*TREES.values(), *CHAINS.values()], 5), ids=[*TREES, *CHAINS])
def test_hooks_change_nothing_outside_a_round(name: str, options: dict[str, Any]) -> None:
    network = network_of(name, options)
    tokens = mx.array([[1, 2, 3, 4, 5]])
    before = np.array(network(tokens, cache=make_prompt_cache(network)))
    hooks = ModelHooks(network)
    assert (np.array(network(tokens, cache=make_prompt_cache(network))) == before).all()
    assert hooks.hidden.shape == (1, 5, VOCABULARY if name == "gemma3n" else 64)


@pytest.mark.parametrize("reads", [HiddenReads(), HiddenReads((0, 1), trunk=False)], ids=["the trunk", "layers"])
@pytest.mark.usefixtures("one_input")
def test_logits_that_a_trunk_returns_are_no_hidden_states(reads: HiddenReads) -> None:
    """Whatever a head reads that was loaded before."""
    network = network_of(*TREES["gemma3n"])
    hooks = ModelHooks(network)
    hooks.record_states(reads)
    assert check_capability(network, hooks, VOCABULARY).kind is DraftKind.TREE
    assert hooks.hidden is None
    assert not hooks.gives_states


@pytest.mark.parametrize(
    ("name", "period"), share(product(["ministral3", "mistral4", "llama4"], [2**13, 2**14, 2**15]), 5)
)
@pytest.mark.usefixtures("one_input")
@pytest.mark.across_rows
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


def ignore_masks(network: nn.Module, now: Callable[[], bool] = lambda: True) -> None:
    def without_mask(self: nn.Module, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        return attention.__call__(self, x, "causal" if mask is not None and now() else mask, cache)  # type: ignore[no-any-return]

    attention = stubborn([layer.self_attn for layer in network.model.layers], without_mask)


def ignore_positions(network: nn.Module) -> None:
    """Read positions from the cache alone, as gpt2 does."""

    def without_depths(self: nn.Module, x: mx.array, offset: Any = 0) -> mx.array:
        if isinstance(offset, mx.array) and offset.size > 1:
            x = x.transpose(2, 1, 0, 3)
            offset = int(offset[0].item())
            return rope.__call__(self, x, offset=offset).transpose(2, 1, 0, 3)  # type: ignore[no-any-return]
        return rope.__call__(self, x, offset=offset)  # type: ignore[no-any-return]

    rope = stubborn([layer.self_attn.rope for layer in network.model.layers], without_depths)


def forget_a_row(network: nn.Module) -> None:
    """Leave the row before out of what a call of several rows sees: such tokens cannot be fed together."""

    def forgetful(self: nn.Module, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        if x.shape[1] == 8:
            mask = cache.make_mask(8, window_size=None, return_array=True)
            mask = mask & (mx.arange(mask.shape[1])[None] != mx.arange(mask.shape[1] - 8, mask.shape[1])[:, None] - 1)
        return attention.__call__(self, x, mask, cache)  # type: ignore[no-any-return]

    attention = stubborn([layer.self_attn for layer in network.model.layers], forgetful)


def stubborn(modules: list[Any], call: Callable[..., mx.array]) -> Any:
    """Give modules of one class another call; return their class."""
    kind = type(modules[0])
    for module in modules:
        module.__class__ = type("Stubborn", (kind,), {"__call__": call})
    return kind


HARMS: dict[Callable[[nn.Module], None], tuple[DraftKind, str]] = {
    ignore_masks: (DraftKind.CHAIN, "the logits of a packed tree were not those of its branches"),
    ignore_positions: (DraftKind.CHAIN, "the logits of a packed tree were not those of its branches"),
    forget_a_row: (DraftKind.NONE, "tokens fed together gave other logits"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "model"), share(product(HARMS, [("llama", "float32"), ("llama", "bfloat16"), ("qwen3_moe", "4bit")]), 18)
)
def test_a_model_that_cannot_be_fed_so_is_found_out_however_rows_round(
    harm: Callable[[nn.Module], None], model: tuple[str, str]
) -> None:
    (kind, reason), (family, dtype) = HARMS[harm], model
    with rounding_by_rows():
        network = network_of(*TREES[family], dtype)
        harm(network)
        capability = check_capability(network, ModelHooks(network), VOCABULARY)
    assert (capability.kind, capability.reason[: len(reason)]) == (kind, reason)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype"),
    share(zip([n for n in TREES | HYBRIDS | CHAINS if n not in FAINT], cycle(NARROW), strict=False), 13),
)
def test_what_a_family_takes_is_the_same_where_rounding_depends_on_rows(name: str, dtype: str) -> None:
    """Fixed limits refused models whose rows are rounded by other kernels, or whose router picked other experts."""
    with rounding_by_rows():
        network = network_of(*(TREES | HYBRIDS | CHAINS)[name], dtype)
        capability = check_capability(network, ModelHooks(network), VOCABULARY)
    assert capability.kind is (DraftKind.CHAIN if name in CHAINS else DraftKind.TREE), capability.reason


def test_so_it_is_where_only_more_than_twelve_rows_round_otherwise() -> None:
    """A branch that was fed in one call with its prompt differed from the tree, whose prompt had a call of its own."""

    class Rounding(nn.Linear):
        def __call__(self, x: mx.array) -> mx.array:
            y = super().__call__(x)
            return y.astype(mx.float16).astype(mx.float32) if x.shape[1] > 12 else y

    network = network_of("llama", {})
    for _, module in network.named_modules():
        if type(module) is nn.Linear:
            module.__class__ = Rounding
    capability = check_capability(network, ModelHooks(network), VOCABULARY)
    assert (capability.kind, capability.inputs) == (DraftKind.TREE, 3), capability.reason


def test_a_cache_of_unknown_type_means_plain_decoding_with_the_reason() -> None:
    network = network_of("llama", {})
    odd = {"make_cache": lambda self: [RotatingKVCache(8, keep=4), StockKVCache(), StockKVCache()]}
    network.__class__ = type("Odd", (type(network),), odd)
    capability = check_capability(network, ModelHooks(network), VOCABULARY)
    assert capability.kind is DraftKind.NONE
    assert "RotatingKVCache" in capability.reason


def ignore_masks_of(network: nn.Module, inputs: Sequence[bool]) -> None:
    """Ignore masks for some of the inputs, which are told apart by their prompts."""
    prompts: list[list[int]] = []
    wrong = [False]

    def watching(self: nn.Module, tokens: mx.array, *arguments: Any, **options: Any) -> mx.array:
        if tokens.shape[1] == 11:
            prompt = tokens.tolist()
            prompts.extend([] if prompt in prompts else [prompt])
            wrong[0] = inputs[prompts.index(prompt)]
        return plain.__call__(self, tokens, *arguments, **options)  # type: ignore[no-any-return]

    ignore_masks(network, lambda: wrong[0])
    plain = type(network)
    network.__class__ = type("Watching", (plain,), {"__call__": watching})


@pytest.mark.parametrize("wrong", share(((each,) for each in product([False, True], repeat=5)), 9))
@pytest.mark.across_rows
def test_trees_are_taken_only_where_three_inputs_passed(wrong: tuple[bool, ...]) -> None:
    """One that passed ended the check, but a tree may be right for some tokens only."""
    network = network_of(*TREES["llama"])
    ignore_masks_of(network, wrong)
    capability = check_capability(network, ModelHooks(network), VOCABULARY)
    passes = sum(wrong) < 3
    assert capability.kind is (DraftKind.TREE if passes else DraftKind.CHAIN)
    assert (capability.reason == "") is passes
    assert capability.inputs == next(count for count in range(3, 6) if wrong[:count].count(not passes) == 3)


def without_ancestors(solve: Solve, rows: list[mx.array], state: mx.array, tables: list[mx.array]) -> mx.array:
    return solve(rows, state, [tables[0], mx.zeros_like(tables[1])])


def without_state(solve: Solve, rows: list[mx.array], state: mx.array, tables: list[mx.array]) -> mx.array:
    return solve(rows, mx.zeros_like(state), tables)


@pytest.mark.parametrize("harm", [without_ancestors, without_state])
@pytest.mark.across_rows
def test_a_wrong_solve_of_trees_with_many_leaves_is_found_out(
    harm: Callable[..., mx.array], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only trees with four leaves are solved so; those with two go along paths."""
    of_depth = tree_recurrences._of_depth
    monkeypatch.setattr(tree_recurrences, "_of_depth", lambda deepest: partial(harm, of_depth(deepest)))
    network = network_of(*HYBRIDS["qwen3_5"])
    hooks = ModelHooks(network)
    capability = check_capability(network, hooks, VOCABULARY)
    assert capability.kind is DraftKind.CHAIN
    assert capability.reason.startswith("the logits of a packed tree were not those of its branches")
    assert hooks.states.recorded
