"""Gemma 4's assistant against transformers: logits that `scripts/golden_assistant.py` had it compute."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.drafting.heads.assistant_head import BoundAssistant
from rdchat.inference.drafting.heads.head import HeadState, Root
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel
from tests.inference.drafting.heads.assistant_targets import CASES, golden_folder, golden_target, stored

pytestmark = pytest.mark.across_rows


class Golden:
    """One case."""

    def __init__(self, case: str) -> None:
        self.model = golden_target(case)
        self.head = stored(golden_folder(case), self.model)
        self.expected = dict(np.load(golden_folder(case) / "expected.npz"))
        self.text: list[int] = self.expected["text"].tolist()
        self.chain: list[int] = self.expected["chain"].tolist()

    def roots(self) -> Any:
        return zip(
            self.expected["roots"].tolist(), self.expected["target_logits"], self.expected["logits"], strict=True
        )

    def state(self, cache: KVCache, root: int) -> HeadState:
        memory = self.head.memory()
        memory.use_cache(cache)
        assert self.model.hooks.hidden is not None
        return memory.root_state(Root(self.text[root], root, self.model.hooks.hidden[0, -1]))


@pytest.fixture(params=CASES)
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


def read(model: LoadedModel, head: BoundAssistant, cache: KVCache, tokens: list[int]) -> mx.array:
    """Have the target read tokens; return the logits after the last one."""
    model.hooks.record_states(head.reads)
    logits: mx.array = model.network(mx.array([tokens]), cache=cache.layers)[0, -1]
    cache.tokens += tokens
    return logits


def assert_chosen(mine: mx.array, reference: np.ndarray) -> None:
    """Compare logits, (n, vocabulary); the reference gives tokens outside the chosen clusters a low one."""
    scored = reference > reference.min(axis=-1, keepdims=True)
    own = np.array(mine)
    if scored.sum() == reference.size - len(reference):
        scored[:] = True
    np.testing.assert_allclose(own[scored], reference[scored], atol=2e-4)
    assert (own[~scored] < -1000).all()


def test_a_chain_has_the_references_logits(golden: Golden) -> None:
    """With the rows and hidden states of the target's own call, before and after the sliding window is full."""
    for root, target_logits, logits in golden.roots():
        cache = KVCache(golden.model.network)
        np.testing.assert_allclose(
            np.array(read(golden.model, golden.head, cache, golden.text[:root])), target_logits, atol=2e-4
        )
        state = golden.state(cache, root)
        for level, token in enumerate([*golden.chain, 0]):
            assert_chosen(state.logits(), logits[level : level + 1])
            state = state.after(mx.array([0]), mx.array([token]))


def test_rows_that_come_one_by_one_are_those_that_come_at_once(golden: Golden) -> None:
    cache = KVCache(golden.model.network)
    for root, _, logits in golden.roots():
        while len(cache.tokens) < root:
            read(golden.model, golden.head, cache, golden.text[len(cache.tokens) :][:1])
        assert_chosen(golden.state(cache, root).logits(), logits[:1])


def test_a_levels_beams_do_not_depend_on_each_other(golden: Golden) -> None:
    cache = KVCache(golden.model.network)
    root, _, logits = list(golden.roots())[-1]
    read(golden.model, golden.head, cache, golden.text[:root])
    tokens = mx.array([9, golden.chain[0], 5])
    state = golden.state(cache, root).after(mx.array([0, 0, 0]), tokens)
    assert_chosen(state.logits()[1:2], logits[1:2])
    state = state.after(mx.array([2, 1]), mx.array([4, golden.chain[1]]))
    assert_chosen(state.logits()[1:], logits[2:3])
