"""Drafters with damaged scores: heads of every kind, and a draft model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, override

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.drafting.heads.block_network import Markov
from rdchat.inference.drafting.heads.head import Head, HeadMemory, HeadState, Root
from rdchat.inference.verification.target import LoadedModel
from tests.inference.drafting.heads.block_drafters import XPRESS, stored_block
from tests.inference.drafting.heads.eagle3_drafters import bound
from tests.inference.fakes import ALPHABET, random_drafter, shared_llama

Harm = Callable[[np.random.Generator, mx.array], mx.array]
NAN = float("nan")
INF = float("inf")


def _places(rng: np.random.Generator, logits: mx.array, share: float, value: float) -> mx.array:
    return mx.where(mx.array(rng.random(logits.shape) < share), value, logits)


def _anything(rng: np.random.Generator, logits: mx.array) -> mx.array:
    values = rng.choice([NAN, INF, -INF, 3e38, -3e38, 0.0, 1.0], logits.shape).astype(np.float32)
    return mx.array(values)


HARMS: Mapping[str, Harm] = {
    "nan": lambda _rng, logits: mx.full(logits.shape, NAN),
    "nan here and there": lambda rng, logits: _places(rng, logits, 0.2, NAN),
    "nan now and then": lambda rng, logits: mx.full(logits.shape, NAN) if rng.random() < 0.2 else logits,
    "infinite": lambda _rng, logits: mx.full(logits.shape, INF),
    "minus infinite": lambda _rng, logits: mx.full(logits.shape, -INF),
    "infinite here and there": lambda rng, logits: _places(rng, logits, 0.1, INF),
    "minus infinite here and there": lambda rng, logits: _places(rng, logits, 0.5, -INF),
    "random": lambda rng, logits: mx.array(rng.normal(0, 1e4, logits.shape).astype(np.float32)),
    "anything": _anything,
}
NEVER_FINITE = ("nan", "infinite", "minus infinite")
HEADS: Mapping[str, Callable[[LoadedModel], Head]] = {
    "recurrent": lambda model: random_drafter(model).head,
    "dflash": lambda model: stored_block(model).bind(model, 0),
    "dspark": lambda model: stored_block(model, markov=Markov.GATED, reduced=True).bind(model, 0),
    "xpress": lambda model: stored_block(model, **XPRESS).bind(model, 0),
    "eagle3": bound,
}


@dataclass
class HarmedHead:
    """A bound head whose logits are harmed."""

    head: Any
    harm: Callable[[mx.array], mx.array]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.head, name)

    def memory(self) -> "_HarmedMemory":
        return _HarmedMemory(self.head.memory(), self.harm)


@dataclass
class _HarmedMemory:
    memory: HeadMemory
    harm: Callable[[mx.array], mx.array]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.memory, name)

    def root_state(self, root: Root) -> HeadState:
        return _HarmedState(self.memory.root_state(root), self.harm)


@dataclass
class _HarmedState(HeadState):
    state: HeadState
    harm: Callable[[mx.array], mx.array]

    @override
    def logits(self) -> mx.array:
        return self.harm(self.state.logits())

    @override
    def after(self, beams: mx.array, tokens: mx.array) -> HeadState:
        return _HarmedState(self.state.after(beams, tokens), self.harm)


def harmed_head(model: LoadedModel, kind: str, harm: str, seed: int = 0) -> HeadModel:
    """Return a head of random weights, of a kind of `HEADS`, whose logits suffer one of `HARMS`."""
    rng = np.random.default_rng(seed)
    return HeadModel(model, HarmedHead(HEADS[kind](model), lambda logits: HARMS[harm](rng, logits)))


@dataclass(eq=False)
class _HarmedNetwork:
    network: nn.Module
    harm: Harm
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def __call__(self, *arguments: Any, **options: Any) -> mx.array:
        return self.harm(self.rng, self.network(*arguments, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.network, name)


def harmed_draft_model(model: LoadedModel, harm: str) -> DraftModel:
    """Return a draft model of random weights whose logits suffer one of `HARMS`."""
    small = shared_llama(seed=3)
    draft = DraftModel(model, small, len(ALPHABET))
    draft.model = replace(small, network=_HarmedNetwork(small.network, HARMS[harm]))
    return draft
