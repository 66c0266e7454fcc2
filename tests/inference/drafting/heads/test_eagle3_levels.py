"""A level of an EAGLE-3 tree: each node sees its own path, within the windows, and nothing waits for the device."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from rdchat.errors import ModelError
from rdchat.inference.drafting.heads.head import Root
from tests.grids import share
from tests.inference.drafting.heads.eagle3_heads import KINDS, bound, features_of_a_text
from tests.inference.fakes import shared_family, shared_llama


@pytest.mark.parametrize("kind", share(KINDS, 3))
@pytest.mark.across_rows
def test_a_level_has_the_logits_of_each_of_its_paths_alone(kind: str) -> None:
    """Fed as committed rows a path gives other rows, so the paths are fed as chains below the same root."""
    head = bound(shared_llama(), **KINDS[kind])
    text, features = features_of_a_text()
    memory = head.memory()
    memory.begin_reply(text[:-1])
    memory.take_committed(text[:-1], features, 0)
    root = Root(text[-1], 12, features[-1])
    levels = [([0, 0, 0], [3, 8, 9]), ([0, 2, 0, 1], [4, 4, 7, 3]), ([3, 1], [5, 6]), ([1, 0], [2, 2])]
    state = memory.root_state(root)
    paths = [[]]
    for beams, tokens in levels:
        state = state.after(mx.array(beams), mx.array(tokens))
        paths = [[*paths[beam], token] for beam, token in zip(beams, tokens, strict=True)]
        for row, path in zip(state.logits(), paths, strict=True):
            alone = memory.root_state(root)
            for token in path:
                alone = alone.after(mx.array([0]), mx.array([token]))
            np.testing.assert_allclose(np.array(row), np.array(alone.logits()[0]), atol=1e-5)


def test_rows_out_of_a_window_change_nothing_and_those_within_do() -> None:
    head = bound(shared_llama(), windows=(4,))
    text, features = features_of_a_text()
    logits = []
    for changed in (None, 5, 10):
        own = features if changed is None else mx.where(mx.arange(12)[:, None] == changed, 9.0, features)
        memory = head.memory()
        memory.begin_reply(text[:-1])
        memory.take_committed(text[:-1], own, 0)
        state = memory.root_state(Root(text[-1], 12, own[-1]))
        below = state.after(mx.array([0, 0]), mx.array([3, 4]))
        logits.append((np.array(state.logits()), np.array(below.logits())))
    (plainly, far, near) = logits
    for mine, same, other in zip(plainly, far, near, strict=True):
        np.testing.assert_allclose(mine, same, atol=1e-6)
        assert np.abs(mine - other).max() > 1e-3


@pytest.mark.parametrize("kind", ["plain", "two layers", "sliding", "the target's output rows"])
def test_nothing_waits_for_the_device_inside_a_draft(kind: str) -> None:
    """MLX raises where a function that it traces asks for a value."""
    head = bound(shared_llama(), **KINDS[kind])
    text, features = features_of_a_text()

    def draft(features: mx.array, beams: mx.array, tokens: mx.array) -> mx.array:
        memory = head.memory()
        memory.begin_reply(text[:-1])
        memory.take_committed(text[:-1], features, 0)
        state = memory.root_state(Root(text[-1], 12, features[-1]))
        for _ in range(3):
            state = state.after(beams, tokens + mx.argmax(state.logits()[0]))
        return state.logits()

    assert mx.compile(draft)(features, mx.array([0, 0, 0]), mx.array([1, 2, 3])).shape == (3, head.candidates)


@pytest.mark.parametrize(
    "tables", [{}, {"own_embeddings": True, "own_output": False, "tied_output": True, "draft_vocabulary_size": 31}]
)
@pytest.mark.parametrize("bits", [4, 8])
def test_a_quantised_copy_is_near_the_floats(bits: int, tables: dict[str, Any]) -> None:
    model = shared_family("llama")
    text, _ = features_of_a_text()
    features = mx.random.normal((12, 128), key=mx.random.key(2))
    logits = []
    for each in (0, bits):
        head = bound(model, each, inner_size=128, heads=8, head_size=16, **tables)
        memory = head.memory()
        memory.take_committed(text[:-1], features, 0)
        logits.append(np.array(memory.root_state(Root(text[-1], 12, features[-1])).logits()))
        packed = head.network.layers[0].mlp.down_proj.weight.dtype == mx.uint32
        assert packed == bool(each)
    error = np.abs(logits[0] - logits[1]).max() / np.abs(logits[0]).max()
    assert 0 < error < {4: 0.25, 8: 0.02}[bits]


def test_a_drafter_of_another_width_is_refused() -> None:
    with pytest.raises(ModelError, match="cannot read the hidden states"):
        bound(shared_llama(), target_width=16)
