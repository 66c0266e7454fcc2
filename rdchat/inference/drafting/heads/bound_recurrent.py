"""A recurrent head bound to its target's embeddings: token ids in, logits of the draft vocabulary out."""

from copy import deepcopy
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

from rdchat.errors import ModelError
from rdchat.inference.api.requests import MAX_BEAM_ROWS
from rdchat.inference.drafting.heads.head import Head, HeadKind, HeadMemory, HeadState, Root
from rdchat.inference.drafting.heads.recurrent_head import Output, RecurrentHead
from rdchat.inference.verification.hooks import HiddenReads
from rdchat.inference.verification.target import TargetEmbeddings


class BoundRecurrentHead(Head):
    """A recurrent head in the target's precision, with the target's embeddings and output rows; see `Head`.

    Args:
        head: The network; a copy in the precision of the target's embeddings is used.
        vocabulary: (candidates,) int32 ids of the tokens it drafts.
        embeddings: The target's.

    Raises:
        ModelError: If the head needs embeddings of another width.
    """

    kind = HeadKind.RECURRENT
    max_drafted = MAX_BEAM_ROWS
    remembers = False

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
        self.reads = HiddenReads(head.config.target_layers)
        self.inverse_temperature = head.config.inverse_temperature

    def memory(self) -> HeadMemory:
        """See `Head`; it keeps nothing."""
        return _NoMemory(self)

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
        """Return the logits, (beams, candidates) float32, of the token after each beam."""
        logits: mx.array = self._output(self._head.features(context, state))
        return logits.astype(mx.float32)


@dataclass(frozen=True, slots=True)
class _NoMemory(HeadMemory):
    """Keeps nothing: a recurrent head knows a text only through the hidden state from which the root was chosen."""

    head: BoundRecurrentHead

    def state(self, root: Root) -> HeadState:
        first = mx.array(root.token, mx.int32).reshape(1)
        return _RecurrentState(self.head, self.head.context(root.hidden[None]), self.head.advance(None, first))


@dataclass(frozen=True, slots=True)
class _RecurrentState(HeadState):
    """See `HeadState`: one context for the whole draft, and (beams, state_size) states."""

    head: BoundRecurrentHead
    context: mx.array
    states: mx.array

    def logits(self) -> mx.array:
        return self.head.logits(self.context, self.states)

    def after(self, beams: mx.array, tokens: mx.array) -> HeadState:
        return _RecurrentState(self.head, self.context, self.head.advance(self.states[beams], tokens))
