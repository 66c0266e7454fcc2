"""Training a sequence head: AdamW on distillation below the roots of whole conversations, resumable to the step."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_map

from rdchat.inference.target.fetch import fetch
from rdchat.inference.training.head.loss import Candidates, distillation, sampled_distillation
from rdchat.inference.training.head.samples import Ints
from rdchat.inference.training.optimization import CandidateDraw, learning_rate, restore_checkpoint, save_checkpoint
from rdchat.inference.training.sequence_heads.preparation import PreparedSequences
from rdchat.inference.training.sequence_heads.recipe import SequenceRecipe
from rdchat.inference.training.sequence_heads.samples import Goals, Sample
from rdchat.inference.training.sequence_heads.sequence_head import SequenceHead, chosen_roots
from rdchat.inference.training.training_progress import StepReport

_GUESSED = 512  # places that are predicted at a time


class SequenceTrainer:
    """Trains one head.

    Args:
        head: Fresh.
        recipe: How.
        prepared: The data; an epoch takes its windows one after another, in an order of its own.

    Attributes:
        head: See there.
        step: Steps done.
        total: Steps there will be.
        samples: Answer tokens of a step, on average.
    """

    def __init__(self, head: SequenceHead, recipe: SequenceRecipe, prepared: PreparedSequences) -> None:
        self.head = head
        self._recipe = recipe
        self._prepared = prepared
        self._candidates = CandidateDraw(prepared.counts[prepared.vocabulary], recipe.candidates, recipe.seed)
        store = prepared.store
        lengths = [len(item.answer) for item in store.conversations]
        learnt = [
            length > 1 and not store.answers.held_out[store.answer_span(number).start]
            for number, length in enumerate(lengths)
        ]
        self._inside = [[n for n in store.inside(window) if learnt[n]] for window in range(len(store))]
        steps = sum(self._steps_in(window) for window in range(len(store)))
        self.step, self.total = 0, recipe.epochs * steps
        tokens = sum(length for length, is_in in zip(lengths, learnt, strict=True) if is_in)
        self.samples = tokens / max(steps, 1)
        rate = partial(learning_rate, schedule=recipe, total=self.total)
        self._optimizer = optim.AdamW(rate, weight_decay=recipe.weight_decay, bias_correction=True)
        self._optimizer.init(head.network.trainable_parameters())

    @property
    def network(self) -> nn.Module:
        """What is trained."""
        return self.head.network

    def run(self, every: int = 20) -> Iterator[StepReport]:
        """Train to the end from where it stands; report after every `every` steps and at the end."""
        losses: list[float] = []
        for step, samples in self._batches():
            mx.random.seed((self._recipe.seed << 32) + step)
            losses.append(self._update(step, samples))
            self.step = step + 1
            if self.step % every == 0 or self.step == self.total:
                yield StepReport(self.step, self.total, sum(losses) / len(losses))
                losses = []

    def save(self, path: Path) -> None:
        """Write weights, optimiser state and step, all or nothing; see `atomic_file`."""
        save_checkpoint(path, self.network, self._optimizer, self.step)

    def restore(self, path: Path) -> None:
        """Continue from what `save` wrote."""
        self.step = restore_checkpoint(path, self.network, self._optimizer)

    def accuracy(self) -> tuple[float, ...]:
        """Return the share of right tokens at each place of drafts in held-out answers, given that all before were."""
        self.network.eval()
        right, reached = np.zeros(self.head.steps), np.zeros(self.head.steps)
        for sample in self._prepared.held_out:
            if len(roots := np.array([*sample.roots()], np.int32)):
                goals = Goals.of(sample, roots, self.head.steps).tokens
                hits = np.logical_and.accumulate(self._guesses(sample, roots) == goals, axis=1)
                right += hits.sum(axis=0)
                reached[0] += len(roots)
                reached[1:] += (hits[:, :-1] & (goals[:, 1:] >= 0)).sum(axis=0)
        self.network.train()
        return tuple((right / np.maximum(reached, 1)).tolist())

    def _guesses(self, sample: Sample, roots: Ints) -> Ints:
        """Return (roots, steps) the tokens that are drafted along the sample's own."""
        rows, found = self.head.rows(), []
        features = self.head.features(sample, roots).reshape(-1, rows.shape[1])
        for start in range(0, features.shape[0], _GUESSED):
            found.append(mx.argmax(features[start : start + _GUESSED] @ rows.T, axis=-1))
            mx.eval(found)
        guesses: Ints = self._prepared.vocabulary[fetch(mx.concatenate(found))].reshape(len(roots), -1)
        return guesses

    def _steps_in(self, window: int) -> int:
        return -(-len(self._inside[window]) // self._recipe.conversations)

    def _batches(self) -> Iterator[tuple[int, list[Sample]]]:
        """Yield the steps that are left, with their samples."""
        step, size, prepared = 0, self._recipe.conversations, self._prepared
        for epoch in range(self._recipe.epochs):
            draw = np.random.default_rng([self._recipe.seed, epoch])
            for window in draw.permutation(len(self._inside)).tolist():
                order = draw.permutation(self._inside[window]).tolist()
                for start in range(0, len(order), size):
                    if step >= self.step:
                        yield step, [prepared.sample(window, number) for number in order[start : start + size]]
                    step += 1

    def _update(self, step: int, samples: list[Sample]) -> float:
        """Take one step; the gradients are summed sample by sample, so that memory is that of one."""
        draw = np.random.default_rng([self._recipe.seed, step, 2])
        drawn = self._candidates(step)
        decay = self._recipe.step_decay ** np.arange(self.head.steps)
        chosen = [chosen_roots(sample, self.head.roots_per_sample, draw) for sample in samples]
        goals = [Goals.of(sample, roots, self.head.steps) for sample, roots in zip(samples, chosen, strict=True)]
        whole = max(sum(float((goal.weights * decay).sum()) for goal in goals), 1.0)
        total, summed = 0.0, None
        for sample, roots, goal in zip(samples, chosen, goals, strict=True):
            weights = mx.array((goal.weights * decay / whole).astype(np.float32))
            loss, gradients = nn.value_and_grad(self.network, self._loss)(sample, roots, goal, weights, drawn)
            summed = gradients if summed is None else tree_map(mx.add, summed, gradients)
            mx.eval(loss, summed)
            total += float(loss)
        clipped, _ = optim.clip_grad_norm(summed, self._recipe.clip)
        self._optimizer.update(self.network, clipped)
        mx.eval(self.network.state, self._optimizer.state)
        return total

    def _loss(
        self,
        sample: Sample,
        roots: Ints,
        goals: Goals,
        weights: mx.array,
        drawn: tuple[mx.array, mx.array, mx.array] | None,
    ) -> mx.array:
        features, rows = self.head.features(sample, roots), self.head.rows()
        if drawn is None:
            losses = distillation(features, rows, goals.columns, goals.probs)
        else:
            candidates: Candidates = (rows[drawn[0]], *drawn[1:])
            losses = sampled_distillation(features, rows, goals.columns, goals.probs, candidates)
        return mx.sum(losses * weights)
