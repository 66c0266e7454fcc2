"""What a trainer of sequence heads knows of one kind."""

from typing import Protocol

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from rdchat.inference.drafting.checkpoints.drafter_files import PublishedDrafter
from rdchat.inference.training.head.samples import Ints
from rdchat.inference.training.sequence_heads.samples import Sample


class SequenceHead(Protocol):
    """A head in training: it turns a conversation into features, whose products with output rows are logits.

    Attributes:
        network: What is trained.
        steps: Tokens predicted below a root.
        roots_per_sample: Roots of a step in one conversation, at most; 0 is all of them.
    """

    network: nn.Module
    steps: int
    roots_per_sample: int

    def features(self, sample: Sample, roots: Ints) -> mx.array:
        """Return (roots, steps, width) float32, along the sample's own tokens (teacher forcing).

        Args:
            sample: The conversation.
            roots: (roots,) indices of its tokens, ascending, each in `Sample.roots`.
        """

    def rows(self) -> mx.array:
        """Return (candidates, width) float32 output rows."""

    def published(self) -> PublishedDrafter:
        """Return the head as others publish theirs, for plain inputs and output rows, in float32."""


def chosen_roots(sample: Sample, most: int, draw: np.random.Generator) -> Ints:
    """Return roots of a sample, (n,), ascending: all, or as many as are wanted, drawn without regard to order."""
    there = np.array([*sample.roots()], np.int32)
    if not 0 < most < len(there):
        return there
    return np.sort(draw.permutation(there)[:most])
