"""EAGLE-3 and DSpark as a training sees them; see `HeadTraining`."""

from collections.abc import Generator
from pathlib import Path

import mlx.core as mx

from rdchat.inference.api.trained_kind import TrainedKind
from rdchat.inference.drafting.checkpoints.drafter_files import PublishedDrafter
from rdchat.inference.models.fingerprint import TargetBinding
from rdchat.inference.target.embeddings import TargetEmbeddings, embedding_scale
from rdchat.inference.target.hooks import HiddenReads
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.hidden_states import conversation_states
from rdchat.inference.training.head.logit_curve import LogitCurve
from rdchat.inference.training.head_training import HeadTraining, Learner, Shards
from rdchat.inference.training.sequence_heads.dspark_training import DSparkTraining
from rdchat.inference.training.sequence_heads.eagle3_training import Eagle3Training
from rdchat.inference.training.sequence_heads.head_shapes import dspark_config, eagle3_config
from rdchat.inference.training.sequence_heads.preparation import (
    ConversationStore,
    Halves,
    PreparedSequences,
    prepare,
)
from rdchat.inference.training.sequence_heads.recipe import SequenceRecipe
from rdchat.inference.training.sequence_heads.sequence_head import SequenceHead
from rdchat.inference.training.sequence_heads.shared_tables import SharedTables
from rdchat.inference.training.sequence_heads.trainer import SequenceTrainer
from rdchat.inference.training.training_progress import TrainingProgress


class SequenceTraining(HeadTraining):
    """One of both kinds.

    Args:
        kind: Which.
        model: The target.
        reads: What is read of it: the trunk's output, then what the head reads.
        recipe: How it is trained.
        binding: The target's.
        candidates: Tokens that can be drafted, at most.
        window_tokens: Tokens whose hidden states are in memory together.
    """

    licence = "Its output rows are computed from the target's; nothing else of the target is in it."

    def __init__(
        self,
        kind: TrainedKind,
        model: LoadedModel,
        reads: HiddenReads,
        recipe: SequenceRecipe,
        binding: TargetBinding,
        *,
        candidates: int,
        window_tokens: int,
    ) -> None:
        self.read_once = float(window_tokens)
        self._kind, self._model, self._reads, self._recipe, self._binding = kind, model, reads, recipe, binding
        self._candidates, self._window_tokens = candidates, window_tokens

    def prepare(self, shards: Shards, kept: Path | None = None) -> Generator[TrainingProgress, None, Learner]:
        """See `HeadTraining`."""
        model, recipe, size = self._model, self._recipe, self._model.info.vocabulary_size

        def read(number: int) -> Halves:
            return conversation_states(model, shards[number], self._reads)

        embeddings = TargetEmbeddings(model.network, size)
        model.hooks.read(self._reads)
        prepared = yield from prepare(
            embeddings,
            LogitCurve.of(model, embeddings),
            size,
            ConversationStore(shards, read, self._window_tokens, embeddings.width),
            candidates=self._candidates,
            question_tokens=recipe.question_tokens,
            kept=kept,
        )
        mx.random.seed(recipe.seed)
        return _SequenceLearner(self._fresh(embeddings, prepared), recipe, prepared, self._binding)

    def _fresh(self, embeddings: TargetEmbeddings, prepared: PreparedSequences) -> SequenceHead:
        recipe, reads = self._recipe, self._reads
        if self._kind is TrainedKind.EAGLE3:
            tables = SharedTables.of(embeddings, prepared, whiten=recipe.whiten)
            config = eagle3_config(self._model, embeddings.width, reads.layers)
            return Eagle3Training(config, tables, recipe.steps, recipe.dropout)
        scale = embedding_scale(self._model.info.architecture, embeddings.width)
        tables = SharedTables.of(embeddings, prepared, scale=scale, whiten=recipe.whiten)
        block = dspark_config(self._model, tables, prepared.counts, reads.layers, recipe.steps)
        examples = mx.concatenate([mx.array(sample.features) for sample in prepared.examples()])
        return DSparkTraining(block, tables, examples, recipe.roots, recipe.dropout)


class _SequenceLearner(SequenceTrainer):
    """A trainer that knows its target; see `Learner`."""

    def __init__(
        self, head: SequenceHead, recipe: SequenceRecipe, prepared: PreparedSequences, binding: TargetBinding
    ) -> None:
        super().__init__(head, recipe, prepared)
        self._binding = binding

    def finished(self) -> PublishedDrafter:
        """See `Learner`."""
        return self.head.published().in_half_precision().bound_to(self._binding)
