"""Trains a drafter head on an objective, step by step; a training that was interrupted goes on at the same step.

A root is a token of an answer after which the head drafts: with `The cat sat down` and the root `cat`, it learns to
draft `sat down`. One step learns from a batch of roots. The hidden states of all answers do not fit into memory, so the
answers are divided into windows, and a batch has the roots of one window.

All random choices depend on the recipe's seed and the number of the step or epoch alone. So the state on disk is the
weights, the optimiser's state and the number of steps done.
"""

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten

from rdchat.files.atomic_file import atomic_file
from rdchat.inference.training.heads.objective import Objective


class Trainer:
    """Trains one head. An epoch takes the windows in random order, and the roots of each in random order.

    Args:
        objective: The objective; its data was read.

    Attributes:
        step: Number of steps done.
        total: Number of steps of the whole training.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self._recipe = objective.recipe
        # Steps of an epoch in each window. Roots that do not fill a batch are left out; each epoch leaves out others.
        self._window_steps = [max(len(each) // self._recipe.batch, min(len(each), 1)) for each in objective.roots]
        self.step = 0
        self.total = self._recipe.epochs * sum(self._window_steps)
        self._optimizer = optim.AdamW(self._learning_rate, weight_decay=self._recipe.weight_decay, bias_correction=True)
        self._optimizer.init(objective.network.trainable_parameters())
        self._compile()

    def train(self) -> Iterator[float | None]:
        """Train from the current step to the end.

        Yields:
            The loss of each step, in nats; None after each conversation that is read into a window, so that the caller
            can stop there.
        """
        for step, window, roots in self._batches():
            for _ in self.objective.windows.loading(window):
                yield None
            mx.random.seed((self._recipe.seed << 32) + step)
            loss = self._update(*self.objective.batch(window, roots))
            mx.eval(self._state, loss)
            self.step = step + 1
            yield float(loss)

    def save_state(self, path: Path) -> None:
        """Write weights, optimiser state and step; see `atomic_file`."""
        parameters = self.objective.network.parameters()
        tensors = dict(tree_flatten({"head": parameters, "optimizer": self._optimizer.state}))
        with atomic_file(path) as temporary:
            mx.save_safetensors(str(temporary), tensors, {"step": str(self.step)})

    def restore_state(self, path: Path) -> None:
        """Continue from a file written by `save_state`."""
        loaded: Any = mx.load(str(path), return_metadata=True)
        tensors, facts = loaded
        state: Any = tree_unflatten(list(tensors.items()))
        self.objective.network.update(state["head"])
        self._optimizer.state = state["optimizer"]
        self.step = int(facts["step"])
        self._compile()

    def _learning_rate(self, step: mx.array) -> mx.array:
        """Return the rate: it rises linearly over the warm-up, then falls to 0 as a cosine."""
        rise = mx.minimum((step + 1) / self._recipe.warm_up, 1)
        fall = 0.5 * (1 + mx.cos(math.pi * mx.minimum(step / self.total, 1)))
        return self._recipe.learning_rate * rise * fall

    def _batches(self) -> Iterator[tuple[int, int, Any]]:
        """Yield the number, the window and the roots of each remaining step.

        Earlier steps are drawn too, and not yielded, so that the random draws are those of an uninterrupted training.
        """
        step = 0
        size = self._recipe.batch
        for epoch in range(self._recipe.epochs):
            draw = np.random.default_rng([self._recipe.seed, epoch])
            for window in draw.permutation(len(self._window_steps)).tolist():
                order = draw.permutation(self.objective.roots[window])
                for start in range(0, self._window_steps[window] * size, size):
                    if step >= self.step:
                        yield step, window, order[start : start + size]
                    step += 1

    def _compile(self) -> None:
        """Compile the step for the present arrays; needed again after `restore_state` has replaced them."""
        self._state = [self.objective.network.state, self._optimizer.state, mx.random.state]
        self._update = partial(mx.compile, inputs=self._state, outputs=self._state)(self._apply)

    def _apply(self, *batch: Any) -> mx.array:
        """Take one optimiser step; return the loss."""
        objective = self.objective
        loss: mx.array
        loss, gradients = nn.value_and_grad(objective.network, objective.loss)(*batch)
        clipped, _ = optim.clip_grad_norm(gradients, self._recipe.clip)
        self._optimizer.update(objective.network, clipped)
        return loss
