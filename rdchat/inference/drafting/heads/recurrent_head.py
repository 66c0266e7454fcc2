"""The recurrent drafter: a small RNN head over the target's hidden states, alone (training) and bound to a target.

Zhang et al. 2024, "Recurrent Drafter" (arXiv 2403.09919, section 3.1): the state is updated with each drafted token,
`s' = f(U s + W e(token))`, and the next token is read from the target's hidden state h and s together:

    [h, s] -> linear -> SiLU -> residual blocks -> linear -> logits of the draft vocabulary

Apple's head ends in an output matrix of its own, 60 to 94 % of its weights. Ours ends in the target's width and reuses
the target's output rows, for a reduced vocabulary. One class serves both; `HeadConfig` says which.
"""

from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import mlx.core as mx
import mlx.nn as nn

from rdchat.errors import ModelError
from rdchat.inference.drafting.heads.head import Head, HeadKind, HeadMemory, HeadState, Root
from rdchat.inference.models.safetensors_file import MAX_SIZE
from rdchat.inference.verification import HiddenReads, TargetEmbeddings

_MAX_BLOCKS = 1000

_HINT = "Download the drafter again, or train it again."


class Cell(StrEnum):
    """How a token changes the state: `sum` adds its embedding, `rnn` is the paper's."""

    SUM = "sum"
    RNN = "rnn"


class Output(StrEnum):
    """Whose output rows turn features into logits: the target's own (`tied`), or the head's (`own`)."""

    TIED = "tied"
    OWN = "own"


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """The shape of a head.

    Attributes:
        hidden_size: Width of the target's hidden states and of its token embeddings.
        draft_vocabulary_size: Number of tokens that can be drafted.
        exit_size: Width inside the head.
        state_size: Width of the state; `hidden_size` for the `sum` cell.
        cell: How a token changes the state.
        blocks: Number of residual blocks.
        target_layers: Layers of the target, from 0, whose outputs are read after the trunk's.
        project_input: Whether a linear layer maps [h, s] to `exit_size`; else that is their joint width.
        activate_input: Whether SiLU follows that layer.
        output: Whose output rows are used.
        inverse_temperature: Factor on log-probabilities before noise is added.

    Raises:
        ModelError: If these make no head.
    """

    hidden_size: int
    draft_vocabulary_size: int
    exit_size: int
    state_size: int
    cell: Cell = Cell.RNN
    blocks: int = 1
    target_layers: tuple[int, ...] = ()
    project_input: bool = True
    activate_input: bool = True
    output: Output = Output.TIED
    inverse_temperature: float = 1.0

    def __post_init__(self) -> None:
        sizes = (self.hidden_size, self.draft_vocabulary_size, self.exit_size, self.state_size)
        _require(all(size > 0 for size in sizes), "its sizes must be positive")
        _require(self.largest_size <= MAX_SIZE, "a size is too large for MLX")
        _require(self.blocks <= _MAX_BLOCKS, f"it has more than {_MAX_BLOCKS:,} blocks")
        _require(len(self.target_layers) <= _MAX_BLOCKS, f"it reads more than {_MAX_BLOCKS:,} layers")
        _require(self.blocks >= 0, "a number of blocks is negative")
        _require(all(layer >= 0 for layer in self.target_layers), "a target layer is negative")
        _require(
            self.cell is not Cell.SUM or self.state_size == self.hidden_size, "a sum cell is as wide as the target"
        )
        width = self.input_size + self.state_size
        _require(self.project_input or width == self.exit_size, f"without an input layer exit_size must be {width}")
        _require(0 < self.inverse_temperature < 100, "its inverse temperature is out of range")

    @property
    def input_size(self) -> int:
        """Width of the hidden states it reads: the trunk's output and the chosen layers', concatenated."""
        return self.hidden_size * (1 + len(self.target_layers))

    @property
    def largest_size(self) -> int:
        """The largest dimension of the head's tensors and of its list of tokens."""
        return max(self.hidden_size, self.draft_vocabulary_size, self.exit_size, self.state_size)


def _require(holds: bool, reason: str) -> None:
    """Raise ModelError with a reason where a condition does not hold."""
    if not holds:
        raise ModelError(f"The drafter cannot be used: {reason}.", _HINT)


class RecurrentHead(nn.Module):
    """The network. Leading axes, written `...` below, are free: beams while drafting, positions while training.

    A draft computes `context` once, then for each token `state = advance(state, embedding)` and
    `features(context, state)`.

    Args:
        config: Its shape.
    """

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        hidden = config.hidden_size
        state = config.state_size
        inner = config.exit_size
        if config.cell is Cell.RNN:
            self.from_token = nn.Linear(hidden, state)
            self.recurrence = nn.Linear(state, state, bias=False)
        if config.project_input:
            self.from_hidden = nn.Linear(config.input_size, inner)
            self.from_state = nn.Linear(state, inner, bias=False)
        self.blocks = [nn.Linear(inner, inner) for _ in range(config.blocks)]
        tied = config.output is Output.TIED
        self.output = nn.Linear(inner, hidden if tied else config.draft_vocabulary_size, bias=tied)

    def initial_state(self, shape: tuple[int, ...], dtype: mx.Dtype = mx.float32) -> mx.array:
        """Return the state before the root, (*shape, state_size)."""
        return mx.zeros((*shape, self.config.state_size), dtype)

    def context(self, hidden: mx.array) -> mx.array:
        """Return the hidden states' part of the input layer, which is constant within a draft.

        Args:
            hidden: (..., input_size): the target's, of the token before the draft's root.

        Returns:
            (..., exit_size), or without an input layer (..., input_size).
        """
        context: mx.array = self.from_hidden(hidden) if "from_hidden" in self else hidden
        return context

    def advance(self, state: mx.array, embeddings: mx.array) -> mx.array:
        """Return the state after one more token.

        Args:
            state: (..., state_size).
            embeddings: (..., hidden_size): the token's embedding from the target's table.
        """
        if self.config.cell is Cell.SUM:
            return state + embeddings
        return _silu_of_sum(self.from_token(embeddings), self.recurrence(state))

    def features(self, context: mx.array, state: mx.array) -> mx.array:
        """Return the features from which the next token's logits are computed.

        Args:
            context: From `context`; its leading axes must broadcast to the state's.
            state: (..., state_size).

        Returns:
            Tied output: (..., hidden_size), to be multiplied with the target's output rows. Own output: the logits,
            (..., draft_vocabulary_size).
        """
        if "from_state" in self and self.config.activate_input:
            x = _silu_of_sum(context, self.from_state(state))
        elif "from_state" in self:
            x = context + self.from_state(state)
        else:
            x = mx.concatenate([mx.broadcast_to(context, (*state.shape[:-1], context.shape[-1])), state], axis=-1)
            if self.config.activate_input:
                x = nn.silu(x)
        for block in self.blocks:
            x = _plus_silu(x, block(x))
        result: mx.array = self.output(x)
        return result


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
    remembers = False

    def __init__(self, head: RecurrentHead, vocabulary: mx.array, embeddings: TargetEmbeddings) -> None:
        if head.config.hidden_size != embeddings.width:
            raise ModelError(
                f"The drafter reads hidden states of width {head.config.hidden_size:,}, the model's have "
                f"{embeddings.width:,}.",
                "Use a drafter that was trained for this model.",
            )
        self._dtype = embeddings.dtype
        self.network = deepcopy(head)
        self.network.set_dtype(self._dtype)
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
        return self.network.context(hidden.astype(self._dtype))

    def advance(self, state: mx.array | None, tokens: mx.array) -> mx.array:
        """Return the states, (beams, state_size), after one more token of each beam.

        Args:
            state: (beams, state_size); None before the root.
            tokens: (beams,) ids of the whole vocabulary.
        """
        if state is None:
            state = self.network.initial_state(tokens.shape, self._dtype)
        return self.network.advance(state, self._embeddings.embed(tokens))

    def candidate_logits(self, context: mx.array, state: mx.array) -> mx.array:
        """Return the logits, (beams, candidates) float32, of the token after each beam."""
        logits: mx.array = self._output(self.network.features(context, state))
        return logits.astype(mx.float32)


@dataclass(frozen=True, slots=True)
class _NoMemory(HeadMemory):
    """Has nothing to remember: a recurrent head knows a text only by the hidden state behind it."""

    head: BoundRecurrentHead

    def root_state(self, root: Root) -> HeadState:
        first = mx.array(root.token, mx.int32).reshape(1)
        return _RecurrentState(self.head, self.head.context(root.hidden[None]), self.head.advance(None, first))


@dataclass(frozen=True, slots=True)
class _RecurrentState(HeadState):
    """See `HeadState`.

    Attributes:
        head: The drafter.
        context: (1, exit_size) what `RecurrentHead.context` returns, for the whole draft.
        states: (beams, state_size) the beams' states.
    """

    head: BoundRecurrentHead
    context: mx.array
    states: mx.array

    def logits(self) -> mx.array:
        return self.head.candidate_logits(self.context, self.states)

    def after(self, beams: mx.array, tokens: mx.array) -> HeadState:
        return _RecurrentState(self.head, self.context, self.head.advance(self.states[beams], tokens))


@partial(mx.compile, shapeless=True)
def _silu_of_sum(a: mx.array, b: mx.array) -> mx.array:
    x = a + b
    return x * mx.sigmoid(x)


@partial(mx.compile, shapeless=True)
def _plus_silu(a: mx.array, b: mx.array) -> mx.array:
    return a + b * mx.sigmoid(b)
