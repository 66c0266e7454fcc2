"""Calls are timed with a text as a draft has it, in turns that other programs may disturb."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from rdchat.inference.api import Capability, DraftKind
from rdchat.inference.auto import measuring
from rdchat.inference.auto.cost_model import NEAR
from rdchat.inference.auto.measuring import (
    Measured,
    Measurement,
    measure_beams,
    measure_calls,
    measure_draft_model,
)
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.verification.target import LoadedModel
from rdchat.machine import OtherPrograms
from tests.inference.auto.chips import finished
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
    return [measure_calls(model, depths, (4, 16), OtherPrograms()) for depths in ([NEAR], [256])]


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


def test_a_text_without_tokens_of_the_model_is_measured_too() -> None:
    model = replace(mixture()[0], tokenizer=SpecialTokenizer())
    assert (4, NEAR) in finished(calls(model, DraftKind.TREE)[0]).costs


KEY = (1, 128)


class Others:
    """Stands in for `OtherPrograms`: what it is told each time it is asked, and then the last of that."""

    def __init__(self, *busy: bool) -> None:
        self._busy = list(busy)

    @property
    def are_busy(self) -> bool:
        return self._busy.pop(0) if len(self._busy) > 1 else self._busy[0]


def in_turns(times: list[float], others: Others) -> tuple[Measured, int]:
    """Measure one work that takes these times; return what came, and how many turns there were."""
    left = list(times)
    measured = finished(measuring._in_turns({KEY: lambda: left.pop(0)}, others))  # type: ignore[arg-type]
    return measured, len(times) - len(left)


def test_the_first_turn_does_not_count_and_the_shortest_of_three_does() -> None:
    assert in_turns([1.0, 5.0, 4.0, 6.0, 2.0], Others(False)) == (Measured({KEY: 4.0}, quiet=True), 4)


def test_a_turn_that_others_disturbed_is_done_again_and_its_times_are_dropped() -> None:
    """A time that is too short cannot come of it, but the turn's other calls may have been held up."""
    others = Others(True, False, False, False)  # asked behind each turn but the first
    assert in_turns([1.0, 3.0, 5.0, 6.0, 7.0, 2.0], others) == (Measured({KEY: 5.0}, quiet=True), 5)


def test_a_machine_that_is_never_quiet_is_measured_as_it_is_which_does_not_count_for_good() -> None:
    others = Others(True)
    assert in_turns([1.0, 5.0, 4.0, 6.0, 2.0], others) == (Measured({KEY: 4.0}, quiet=False), 4)


@pytest.mark.parametrize(("seconds", "turns"), [(15.0, 4), (20.0, 3), (30.0, 2), (500.0, 2)])
def test_no_turn_is_begun_that_would_end_beyond_a_minute_but_one_that_counts(seconds: float, turns: int) -> None:
    assert in_turns([seconds * 1000] * 5, Others(False)) == (Measured({KEY: seconds * 1000}, quiet=True), turns)
