"""Training a head: AdamW on distillation along teacher-forced drafts, resumable to the step."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

from rdchat.inference.drafting.heads.recurrent_head import HeadConfig, RecurrentHead
from rdchat.inference.training.head.loss import Candidates, distillation, sampled_distillation, unroll, weighted_mean
from rdchat.inference.training.head.preparation import Prepared
from rdchat.inference.training.head.samples import Batch
from rdchat.inference.training.optimization import (
    CandidateDraw,
    drop_inputs,
    learning_rate,
    restore_checkpoint,
    save_checkpoint,
)
from rdchat.inference.training.training_progress import StepReport

_FIRST_OUTPUT = 0.1  # a fresh output layer is made this small: logits near 0 to begin with


@dataclass(frozen=True, slots=True)
class Recipe:
    """Hyperparameters of a training.

    Attributes:
        epochs: Passes over the data.
        batch: Samples of a step.
        learning_rate: The highest; it rises linearly over `warm_up` steps and falls to 0 as a cosine.
        warm_up: Steps.
        weight_decay: Of AdamW, for matrices alone.
        clip: Largest norm of a gradient.
        dropout: Share of each layer's inputs that is dropped.
        steps: Tokens drafted behind the root.
        step_decay: Factor on the loss of each further token, since fewer drafts get there.
        candidates: Tokens over which the softmax denominator is summed; 0 is all of them.
        seed: Of everything drawn.
    """

    epochs: int = 2
    batch: int = 128
    learning_rate: float = 3.5e-4
    warm_up: int = 100
    weight_decay: float = 0.05
    clip: float = 1.0
    dropout: float = 0.2
    steps: int = 4
    step_decay: float = 0.8
    candidates: int = 2400
    seed: int = 0


def with_dropout(head: RecurrentHead, dropout: float) -> RecurrentHead:
    """Let the layers of a head that read drop some of their inputs, but the recurrence, whose errors would add up."""
    drop_inputs((head.from_token, head.from_hidden, head.from_state, *head.blocks, head.output), dropout)
    return head


def fresh_head(config: HeadConfig) -> RecurrentHead:
    """Return a head that has learnt nothing, its logits near 0."""
    head = RecurrentHead(config)
    head.output.weight = head.output.weight * _FIRST_OUTPUT
    return head


class Trainer:
    """Trains one head.

    Args:
        head: With an input layer and tied output; on whitened inputs.
        recipe: How.
        prepared: The data; an epoch takes its windows one after another, in an order of its own.

    Attributes:
        head: The head, which is trained on whitened inputs.
        step: Steps done.
        total: Steps there will be.
    """

    def __init__(self, head: RecurrentHead, recipe: Recipe, prepared: Prepared) -> None:
        self.head = with_dropout(head, recipe.dropout)
        self._recipe = recipe
        self._reader, self._windows, self._whitening = prepared.reader, prepared.windows, prepared.whitening
        self._candidates = CandidateDraw(prepared.counts, recipe.candidates, recipe.seed)
        windows = self._windows
        self._roots = [self._reader.roots(*windows.span(window), held_out=False) for window in range(len(windows))]
        self.step, self.total = 0, recipe.epochs * sum(self._steps_in(window) for window in range(len(windows)))
        rate = partial(learning_rate, schedule=recipe, total=self.total)
        self._optimizer = optim.AdamW(rate, weight_decay=recipe.weight_decay, bias_correction=True)
        self._optimizer.init(head.trainable_parameters())
        self._compile()

    def run(self, every: int = 20) -> Iterator[StepReport]:
        """Train to the end from where it stands; report after every `every` steps and at the end."""
        losses: list[float] = []
        for step, batch in self._batches():
            mx.random.seed((self._recipe.seed << 32) + step)
            loss = self._update(astuple(batch), self._draw(step))
            mx.eval(self._state, loss)
            losses.append(float(loss))
            self.step = step + 1
            if self.step % every == 0 or self.step == self.total:
                yield StepReport(self.step, self.total, sum(losses) / len(losses))
                losses = []

    def save(self, path: Path) -> None:
        """Write weights, optimiser state and step, all or nothing; see `atomic_file`."""
        save_checkpoint(path, self.head, self._optimizer, self.step)

    def restore(self, path: Path) -> None:
        """Continue from what `save` wrote."""
        self.step = restore_checkpoint(path, self.head, self._optimizer)
        self._compile()

    def _steps_in(self, window: int) -> int:
        there = len(self._roots[window])
        return max(there // self._recipe.batch, min(there, 1))  # what does not fill a batch is left for another epoch

    def _batches(self) -> Iterator[tuple[int, Batch]]:
        """Yield the steps that are left, with their samples."""
        step, size = 0, self._recipe.batch
        for epoch in range(self._recipe.epochs):
            draw = np.random.default_rng([self._recipe.seed, epoch])
            for window in draw.permutation(len(self._windows)).tolist():
                order = draw.permutation(self._roots[window])
                steps = self._steps_in(window)
                if step + steps > self.step:
                    first, states = self._windows.span(window)[0], self._windows.load(window)
                    for place in range(max(self.step - step, 0), steps):
                        roots = order[place * size : (place + 1) * size]
                        yield step + place, self._reader.batch(roots, states[roots - first])
                step += steps

    def _compile(self) -> None:
        self._state = [self.head.state, self._optimizer.state, mx.random.state]
        self._update = partial(mx.compile, inputs=self._state, outputs=self._state)(self._plain_update)

    def _draw(self, step: int) -> Candidates | None:
        """Draw the candidates of a step."""
        drawn = self._candidates(step)
        return None if drawn is None else (self._whitening.rows[drawn[0]], *drawn[1:])

    def _plain_update(self, batch: tuple[mx.array, ...], candidates: Candidates | None) -> mx.array:
        loss: mx.array
        loss, gradients = nn.value_and_grad(self.head, self._loss)(self.head, Batch(*batch), candidates)
        gradients, _ = optim.clip_grad_norm(gradients, self._recipe.clip)
        self._optimizer.update(self.head, gradients)
        return loss

    def _loss(self, head: RecurrentHead, batch: Batch, candidates: Candidates | None) -> mx.array:
        rows = self._whitening.rows
        features = unroll(head, self._whitening.hidden(batch.hidden), self._whitening.embed(batch.path))
        if candidates is None:
            losses = distillation(features, rows, batch.columns, batch.probs)
        else:
            losses = sampled_distillation(features, rows, batch.columns, batch.probs, candidates)
        decay = mx.array([self._recipe.step_decay**step for step in range(self._recipe.steps)])
        return weighted_mean(losses, batch.weights * decay)
