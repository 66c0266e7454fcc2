"""A recurrent head bound to its target's embeddings: token ids in, logits of the draft vocabulary out."""

from copy import deepcopy

import mlx.core as mx
import mlx.nn as nn

from rdchat.errors import ModelError
from rdchat.inference.drafting.heads.recurrent_head import Output, RecurrentHead
from rdchat.inference.target.embeddings import TargetEmbeddings


class BoundRecurrentHead:
    """A head in the target's precision, with the target's embeddings and output rows.

    Args:
        head: The network; used in the precision of the target's embeddings, and left as it is.
        vocabulary: (candidates,) int32 ids of the tokens it drafts.
        embeddings: The target's.

    Raises:
        ModelError: If the head is for embeddings of another width.
    """

    def __init__(self, head: RecurrentHead, vocabulary: mx.array, embeddings: TargetEmbeddings) -> None:
        if head.config.hidden_size != embeddings.width:
            raise ModelError(
                f"The drafter reads hidden states of width {head.config.hidden_size:,}, the model's have "
                f"{embeddings.width:,}.",
                "Use a drafter that was trained for this model.",
            )
        self._dtype = embeddings.dtype
        self._head = deepcopy(head)
        self._head.set_dtype(self._dtype)
        self._embeddings = embeddings
        self._output = embeddings.output_for(vocabulary) if head.config.output is Output.TIED else nn.Identity()
        self.vocabulary = vocabulary
        self.candidates = int(vocabulary.shape[0])

    def context(self, hidden: mx.array) -> mx.array:
        """Return `RecurrentHead.context` of the target's hidden states, (..., input_size)."""
        return self._head.context(hidden.astype(self._dtype))

    def advance(self, state: mx.array | None, tokens: mx.array) -> mx.array:
        """Return the states, (beams, state_size), after one more token of each beam.

        Args:
            state: (beams, state_size); None before the root.
            tokens: (beams,) ids of the whole vocabulary.
        """
        if state is None:
            state = self._head.initial_state(tokens.shape, self._dtype)
        return self._head.advance(state, self._embeddings.embed(tokens))

    def logits(self, context: mx.array, state: mx.array) -> mx.array:
        """Return (beams, candidates) float32: of the token that follows each beam."""
        logits: mx.array = self._output(self._head.features(context, state))
        return logits.astype(mx.float32)
