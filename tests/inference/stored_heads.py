"""Drafters in memory that are not bound to a target yet."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import mlx.core as mx

from rdchat.inference.drafting.checkpoints.checkpoint import PublishedDrafter
from rdchat.inference.drafting.checkpoints.recurrent_layout import BoundRecurrentHead, published
from rdchat.inference.drafting.heads.block_head import BoundBlockHead
from rdchat.inference.drafting.heads.block_network import BlockConfig
from rdchat.inference.drafting.heads.recurrent_head import RecurrentHead
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.verification.target import LoadedModel, TargetEmbeddings


@dataclass(frozen=True)
class StoredDrafter:
    """A recurrent drafter; its target is None where nobody writes it."""

    head: RecurrentHead
    vocabulary: mx.array
    target: TargetBinding | None = None

    def bind(self, model: LoadedModel) -> BoundRecurrentHead:
        embeddings = TargetEmbeddings(model.network, model.info.vocabulary_size)
        return BoundRecurrentHead(self.head, self.vocabulary, embeddings)

    def written(self) -> PublishedDrafter:
        assert self.target is not None
        return published(self.head, self.vocabulary, self.target)


@dataclass(frozen=True)
class StoredBlockHead:
    """A block drafter."""

    config: BlockConfig
    weights: Callable[[], Mapping[str, mx.array]]
    vocabulary: mx.array | None = None

    def bind(self, model: LoadedModel, bits: int | None = None) -> BoundBlockHead:
        return BoundBlockHead(self.config, self.weights, self.vocabulary, model, bits)
