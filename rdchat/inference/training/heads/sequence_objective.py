"""EAGLE-3 and DSpark heads in training: distillation below the roots of whole conversations."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from rdchat.inference.api.trained_kind import TrainedKind
from rdchat.inference.drafting.checkpoints.drafter_files import PublishedDrafter
from rdchat.inference.models.fingerprint import TargetBinding
from rdchat.inference.target.embeddings import embedding_scale
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.heads.dspark import DSparkTraining, dspark_config
from rdchat.inference.training.heads.eagle3 import Eagle3Training, eagle3_config
from rdchat.inference.training.heads.loss import Candidates, losses_of
from rdchat.inference.training.heads.objective import Objective, Target, TrainingData
from rdchat.inference.training.heads.recipes import SequenceRecipe
from rdchat.inference.training.heads.samples import Halves, Ints
from rdchat.inference.training.heads.sequence_head import Goals, Sample, SequenceHead, SharedTables

_HELD_OUT = 12  # conversations that are drafted along while training
_ROWS = 512  # places that are predicted at a time


class SequenceObjective(Objective):
    """Data, loss and head of a training on whole conversations; see `Objective` for the other arguments.

    Args:
        model: The target.
        kind: EAGLE-3 or DSpark.
        layers: Layers of the target that the head reads; `read_states` returns them after the trunk's output.

    Attributes:
        head: Calls the network on a conversation.
        held_out: Samples of answers at temperature 0 that are not trained on.
    """

    licence = "Its output rows are computed from the target's; nothing else of the target is in it."
    batch_size = 1
    head: SequenceHead

    def __init__(
        self,
        target: Target,
        data: TrainingData,
        recipe: SequenceRecipe,
        *,
        model: LoadedModel,
        kind: TrainedKind,
        layers: tuple[int, ...],
    ) -> None:
        super().__init__(target, data, recipe)
        self._model, self._kind, self._layers, self._recipe = model, kind, layers, recipe
        self._starts = [0, *accumulate(map(self.state_tokens, self.conversations))]
        self._squares, self._tokens = np.zeros(0), 0
        self.held_out: list[Sample] = []

    @staticmethod
    def state_tokens(item: TrainingConversation) -> int:
        """See `Objective`: all tokens are read."""
        return len(item.tokens)

    def _states(self, window: int, number: int) -> Halves:
        """Return (tokens, width) the hidden states of a conversation in a window."""
        first = self.windows.span(window)[0]
        return self.windows.load(window)[self._starts[number] - first : self._starts[number + 1] - first]

    def trunk_states(self, window: int) -> Halves:
        """See `Objective`."""
        width, items = self.rows.shape[1], self.conversations
        parts = [self._states(window, number)[items[number].answer_start - 1 : -1] for number in self.inside(window)]
        return np.concatenate([part[:, :width] for part in parts])

    def measure(self, window: int) -> Ints:
        """See `Objective`; samples are conversations."""
        learnt = []
        for number in self.inside(window):
            item, place = self.conversations[number], self.answer_span(range(number, number + 1))[0]
            here = self._states(window, number)[item.answer_start :, self.rows.shape[1] :].astype(np.float64)
            self._squares = (here**2).sum(axis=0) + (self._squares if self._squares.size else 0)
            self._tokens += len(here)
            if not self.answers.held_out[place]:
                learnt += [number] if len(item.answer) > 1 else []
            elif self.answers.greedy[place] and len(self.held_out) < _HELD_OUT:
                self.held_out.append(self.sample(window, number))
        return np.array([*learnt], np.int32)

    def sample(self, window: int, number: int) -> Sample:
        """Return a conversation to be trained on."""
        features = self._states(window, number)[:, self.rows.shape[1] :]
        teacher = self.teacher.part(*self.answer_span(range(number, number + 1)))
        return Sample.of(self.conversations[number], features, teacher, self.vocabulary, self._recipe.question_tokens)

    def make_head(self) -> None:
        """See `Objective`."""
        sizes = np.sqrt(self._squares / max(self._tokens, 1))
        sizes = np.maximum(sizes, 1e-3 * sizes.max()).astype(np.float32)
        embeddings, recipe, is_eagle3 = self.target.embeddings, self._recipe, self._kind is TrainedKind.EAGLE3
        scale = 1.0 if is_eagle3 else embedding_scale(self._model.info.architecture, embeddings.width)
        tables = SharedTables.of(
            embeddings, self.rows, sizes, vocabulary=self.vocabulary, counts=self.counts, scale=scale
        )
        mx.random.seed(self._seed)
        if is_eagle3:
            shape = eagle3_config(embeddings.width, self.target.vocabulary_size, self._layers)
            self.head = Eagle3Training(shape, tables, recipe.steps, recipe.dropout)
        else:
            depth = len(self._model.network.layers)
            block = dspark_config(tables, self._layers, depth, recipe.steps)
            examples = self.held_out or [self.sample(0, 0)]
            features = mx.concatenate([mx.array(sample.features) for sample in examples])
            self.head = DSparkTraining(block, tables, features, recipe.roots, recipe.dropout)
        self.network = self.head.network
        lengths = [len(self.conversations[number].answer) for number in np.concatenate(self.samples).tolist()]
        self.tokens_per_step = sum(lengths) / max(len(lengths), 1)

    def steps_in(self, window: int) -> int:
        """See `Objective`."""
        return len(self.samples[window])

    def batch(self, window: int, numbers: Ints, step: int) -> tuple[Sample, Ints, Goals, mx.array, Candidates | None]:
        """See `Objective`: a conversation, the roots of the step, the goals below them with weights, and candidates."""
        sample = self.sample(window, int(numbers[0]))
        roots = self.head.chosen_roots(sample, np.random.default_rng([self._seed, step, 2]))
        goals = Goals.of(sample, roots, self._steps)
        weights = goals.weights * self._decay
        weights = weights / max(float(weights.sum()), 1.0)
        return sample, roots, goals, mx.array(weights.astype(np.float32)), self._draw(step)

    def gradients(self, *batch: Any) -> tuple[mx.array, Any]:
        """See `Objective`."""
        found: tuple[mx.array, Any] = nn.value_and_grad(self.network, self.loss)(*batch)
        return found

    def loss(self, sample: Sample, roots: Ints, goals: Goals, weights: mx.array, drawn: Candidates | None) -> mx.array:
        """Return () the weighted sum of a conversation's losses."""
        features = self.head.features(sample, roots)
        return mx.sum(losses_of(features, self.head.rows(), goals.columns, goals.probs, drawn) * weights)

    def held_out_drafts(self) -> Iterator[tuple[Ints, Ints]]:
        """See `Objective`."""
        for sample in self.held_out:
            if len(roots := np.array([*sample.roots()], np.int32)):
                yield self._guesses(sample, roots), Goals.of(sample, roots, self._steps).tokens

    def _guesses(self, sample: Sample, roots: Ints) -> Ints:
        """Return (roots, steps) the tokens that are drafted along the sample's own."""
        rows, found = self.head.rows(), []
        features = self.head.features(sample, roots).reshape(-1, rows.shape[1])
        for start in range(0, features.shape[0], _ROWS):
            found.append(mx.argmax(features[start : start + _ROWS] @ rows.T, axis=-1))
            mx.eval(found)
        guesses: Ints = self.vocabulary[fetch(mx.concatenate(found))].reshape(len(roots), -1)
        return guesses

    def drafter(self, binding: TargetBinding) -> PublishedDrafter:
        """See `Objective`."""
        return self.head.published().in_half_precision().bound_to(binding)
