"""The recurrent head as a training sees it; see `HeadTraining`."""

import math
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt
from mlx.utils import tree_map

from rdchat.inference.drafting.checkpoints.drafter_files import PublishedDrafter
from rdchat.inference.drafting.checkpoints.recurrent_layout import StoredDrafter
from rdchat.inference.drafting.heads.recurrent_head import HeadConfig, RecurrentHead
from rdchat.inference.models.fingerprint import TargetBinding
from rdchat.inference.target.embeddings import TargetEmbeddings
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.hooks import HiddenReads
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.hidden_states import answer_states
from rdchat.inference.training.data.shards import ShardFolder
from rdchat.inference.training.head.inverse_temperature import fit_inverse_temperature
from rdchat.inference.training.head.logit_curve import LogitCurve
from rdchat.inference.training.head.preparation import Prepared, prepare
from rdchat.inference.training.head.simulate import simulate
from rdchat.inference.training.head.trainer import Recipe, Trainer, fresh_head
from rdchat.inference.training.head.whitening import fold_weights, unfold_weights
from rdchat.inference.training.head_training import HeadTraining, Learner, Shards
from rdchat.inference.training.training_progress import TrainingProgress


class RecurrentTraining(HeadTraining):
    """Training of a recurrent head.

    Args:
        model: The target.
        shape: Of the head; the draft vocabulary's size is that of the data.
        recipe: How it is trained.
        binding: The target's.
        states: The shards, which may keep their hidden states.
        candidates: Tokens that can be drafted, at most.
        window_tokens: Answer tokens whose hidden states are in memory together.
        keep_states: Whether the data's hidden states are kept.
        start: A drafter of that shape whose head is trained further; None for a fresh one.
    """

    licence = "The head holds no weights of the target."

    def __init__(
        self,
        model: LoadedModel,
        shape: HeadConfig,
        recipe: Recipe,
        binding: TargetBinding,
        states: ShardFolder,
        *,
        candidates: int,
        window_tokens: int,
        keep_states: bool,
        start: StoredDrafter | None = None,
    ) -> None:
        self.read_once = math.inf if keep_states else 0.0
        self._keep_states = keep_states
        self._model, self._shape, self._recipe, self._binding, self._states = model, shape, recipe, binding, states
        self._candidates, self._window_tokens, self._start = candidates, window_tokens, start

    def prepare(self, shards: Shards, kept: Path | None = None) -> Generator[TrainingProgress, None, Learner]:
        """See `HeadTraining`."""
        model, recipe, size, start = self._model, self._recipe, self._model.info.vocabulary_size, self._start
        reads = HiddenReads(self._shape.target_layers)

        def read_states(number: int) -> npt.NDArray[np.float16]:
            kept = self._states.states(number)
            if kept is not None:
                return kept
            model.hooks.read(reads)
            states = answer_states(model, shards[number])
            if self._keep_states:  # of answers that shipped: they are read in every epoch
                self._states.keep_states(number, states)
            return states

        model.hooks.read(reads)
        embeddings = TargetEmbeddings(model.network, size)
        prepared = yield from prepare(
            embeddings,
            LogitCurve.of(model, embeddings),
            size,
            shards,
            read_states,
            candidates=self._candidates if start is None else start.head.config.draft_vocabulary_size,
            steps=recipe.steps,
            window_tokens=self._window_tokens,
            kept=kept,
            known=None if start is None else fetch(start.vocabulary),
        )
        mx.random.seed(recipe.seed)
        if start is None:
            head = fresh_head(replace(self._shape, draft_vocabulary_size=len(prepared.vocabulary)))
        else:
            head = unfold_weights(start.head, prepared.whitening)
        return _RecurrentLearner(head, recipe, prepared, self._binding)


class _RecurrentLearner(Trainer):
    """A trainer that knows its data and its target; see `Learner`."""

    def __init__(self, head: RecurrentHead, recipe: Recipe, prepared: Prepared, binding: TargetBinding) -> None:
        super().__init__(head, recipe, prepared)
        self.samples: float = recipe.batch
        self._prepared = prepared
        self._binding = binding

    @property
    def network(self) -> nn.Module:
        """See `Learner`."""
        return self.head

    def accuracy(self) -> tuple[float, ...]:
        """See `Learner`."""
        return simulate(self.head, self._prepared).accuracy

    def finished(self) -> PublishedDrafter:
        """See `Learner`; no loss of acceptance by float16 was measured."""
        prepared = self._prepared
        head = fold_weights(self.head, prepared.whitening)
        head.update(tree_map(lambda array: array.astype(mx.float16), head.parameters()))
        mx.eval(head.parameters())
        head.config = replace(head.config, inverse_temperature=fit_inverse_temperature(self.head, prepared))
        return StoredDrafter(head, prepared.vocabulary, self._binding).written()
