"""Calls are timed with a text as a draft has it: of random tokens, they would use nearly all experts of a mixture."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from rdchat.inference.api import Capability, DraftKind
from rdchat.inference.auto.cost_model import MAX_ROWS, NEAR
from rdchat.inference.auto.measuring import (
    NEAR_ROWS,
    Measurement,
    measure_beams,
    measure_calls,
    measure_draft_model,
)
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.verification.target import LoadedModel
from rdchat.machine import OtherPrograms
from tests.inference.auto.measurements import finished
from tests.inference.fakes import CharacterTokenizer, loaded, random_drafter
from tests.inference.families import MOE, network_of

SIZE = 256
FIRST = 96
EXPERTS = 16


class HighTokenizer(CharacterTokenizer):
    """Gives the characters ids from 96 on."""

    def encode(self, text: str, **options: object) -> list[int]:
        return [FIRST + token for token in super().encode(text)]


class SpecialTokenizer(CharacterTokenizer):
    """Begins a text with a special token, for which the model has no row; without it a text has no token at all."""

    def encode(self, text: str, **options: object) -> list[int]:
        return [10**7] if options.get("add_special_tokens", True) else []


def mixture() -> tuple[LoadedModel, list[mx.array]]:
    """Return a mixture of experts whose router, and whose guesses, follow the kind of token, and where it routed rows.

    All characters are of one kind, and so are the tokens that it finds likely after them.
    """
    options: dict[str, Any] = {**MOE, "num_experts": EXPERTS, "num_experts_per_tok": 1, "tie_word_embeddings": True}
    network = network_of("qwen3_moe", {**options, "vocab_size": SIZE})
    routed: list[mx.array] = []
    kinds = np.where((np.arange(SIZE) >= FIRST) & (np.arange(SIZE) < FIRST + 32), 3, np.arange(SIZE) % EXPERTS)
    rng = np.random.default_rng(0)
    codes = np.linalg.qr(rng.normal(size=(64, 64)))[0][:EXPERTS]
    network.model.embed_tokens.weight = mx.array(20 * codes[kinds] + rng.normal(size=(SIZE, 64)), mx.float32)

    class Noted(nn.Linear):
        def __call__(self, x: mx.array) -> mx.array:
            gates = super().__call__(x)
            routed.append(mx.argmax(gates[0], axis=-1))
            return gates

    for layer in network.model.layers:
        layer.mlp.gate.weight = mx.array(codes, mx.float32)
        layer.mlp.gate.__class__ = Noted
    model = loaded(network, context_length=1200)
    info = replace(model.info, vocabulary_size=SIZE)
    tree = Capability(DraftKind.TREE)
    return replace(model, info=info, tokenizer=HighTokenizer(), try_out=lambda: tree), routed


def calls(model: LoadedModel, kind: DraftKind) -> list[Measurement]:
    model = replace(model, try_out=lambda: Capability(kind))
    rows = [count for count in NEAR_ROWS if count % 4 == 0]
    return [measure_calls(model, depths, rows, OtherPrograms()) for depths in ([NEAR], [1024])]


MEASUREMENTS: dict[str, Callable[[LoadedModel], list[Measurement]]] = {
    "trees": lambda model: calls(model, DraftKind.TREE),
    "chains": lambda model: calls(model, DraftKind.CHAIN),
    "draft model": lambda model: [measure_draft_model(DraftModel(model, model, SIZE), OtherPrograms())],
    "head": lambda model: [measure_beams(model, random_drafter(model, SIZE), 4, OtherPrograms())],
}


@pytest.mark.parametrize("name", MEASUREMENTS)
@pytest.mark.across_rows
def test_calls_use_the_experts_of_a_text(name: str) -> None:
    model, routed = mixture()
    for measurement in MEASUREMENTS[name](model):
        finished(measurement)
    experts = [np.unique(np.array(each)).size for each in routed if each.size >= 4]
    assert len(experts) > 5
    assert max(experts) <= 3, f"{max(experts)} of {EXPERTS} experts in one call"


def test_random_tokens_would_use_nearly_all_of_them() -> None:
    model, routed = mixture()
    model.network(mx.array(np.random.default_rng(0).integers(0, SIZE, size=(1, MAX_ROWS))))
    assert np.unique(np.array(routed[0])).size > EXPERTS / 2


def test_a_text_without_tokens_of_the_model_is_measured_too() -> None:
    model = replace(mixture()[0], tokenizer=SpecialTokenizer())
    (measured, _) = map(finished, calls(model, DraftKind.TREE))
    assert (4, NEAR) in measured.costs
