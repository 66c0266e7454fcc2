"""What every training of a head does alike: its learning rate, its drawn candidates, its checkpoints."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import numpy.typing as npt
from mlx.utils import tree_flatten, tree_unflatten

from rdchat.files.atomic_file import atomic_file

_ALWAYS_DRAWN = 2 / 3  # share of the candidates that are the most frequent tokens; the others are drawn evenly


class Schedule(Protocol):
    """The hyperparameters of a learning rate."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def warm_up(self) -> int: ...


def learning_rate(step: mx.array, schedule: Schedule, total: int) -> mx.array:
    """Return a rate that rises linearly over the warm-up and falls to 0 as a cosine."""
    rise = mx.minimum((step + 1) / schedule.warm_up, 1)
    fall = 0.5 * (1 + mx.cos(math.pi * mx.minimum(step / total, 1)))
    return schedule.learning_rate * rise * fall


class CandidateDraw:
    """Draws the tokens over which a step sums the softmax denominator: the frequent ones, and some of the others.

    Args:
        counts: (candidates,) how often each token of the draft vocabulary occurs.
        wanted: Tokens of a step; 0 is all of them.
        seed: With the step's number it decides what is drawn.
    """

    def __init__(self, counts: npt.NDArray[np.integer], wanted: int, seed: int) -> None:
        self._by_frequency = np.argsort(-counts, kind="stable").astype(np.int32)
        self._wanted = wanted
        self._seed = seed

    def __call__(self, step: int) -> tuple[mx.array, mx.array, mx.array] | None:
        """Return the drawn tokens, (drawn,), and of `loss.Candidates` the two others; None for all tokens."""
        wanted, there = self._wanted, len(self._by_frequency)
        if not 0 < wanted < there:
            return None
        always = int(wanted * _ALWAYS_DRAWN)
        draw = np.random.default_rng([self._seed, step, 1])
        others = draw.choice(there - always, wanted - always, replace=False) + always
        drawn = self._by_frequency[np.concatenate([np.arange(always), others])]
        places = np.full(there, -1, np.int32)
        places[drawn] = np.arange(wanted, dtype=np.int32)
        chances = np.zeros(wanted, np.float32)
        chances[always:] = math.log((wanted - always) / (there - always))
        return mx.array(drawn), mx.array(chances), mx.array(places)


class DroppingLinear(nn.Linear):
    """A linear layer that drops some of its inputs while training; its weights have the same names."""

    dropout = 0.0

    def __call__(self, x: mx.array) -> mx.array:
        if self.training and self.dropout:
            kept = 1 - self.dropout
            x = x * mx.random.bernoulli(kept, x.shape) / kept
        result: mx.array = super().__call__(x)
        return result


def drop_inputs(modules: Iterable[nn.Linear], dropout: float) -> None:
    """Let linear layers drop some of their inputs while training."""
    kind = type("DroppingLinear", (DroppingLinear,), {"dropout": dropout})
    for module in modules:
        module.__class__ = kind


def save_checkpoint(path: Path, head: nn.Module, optimizer: optim.Optimizer, step: int) -> None:
    """Write weights, optimiser state and step, all or nothing; see `atomic_file`."""
    tensors = dict(tree_flatten({"head": head.parameters(), "optimizer": optimizer.state}))
    with atomic_file(path) as temporary:
        mx.save_safetensors(str(temporary), tensors, {"step": str(step)})


def restore_checkpoint(path: Path, head: nn.Module, optimizer: optim.Optimizer) -> int:
    """Read what `save_checkpoint` wrote; return the step."""
    loaded: Any = mx.load(str(path), return_metadata=True)
    tensors, facts = loaded
    state: Any = tree_unflatten(list(tensors.items()))
    head.update(state["head"])
    optimizer.state = state["optimizer"]
    return int(facts["step"])
