"""The protocol of drafter heads: small networks that draft from the target's hidden states.

This is all that beam search (`drafting.beam_search`) knows of a head. A `Head` is one network, bound to one target. A
`HeadMemory` is what it keeps of one conversation, such as a KV cache. A `HeadState` is the live beams of one draft.
`BoundNetwork` is what the heads of published drafters share.

A draft may begin while a round is still verified, below the token at which the round will end. Then the host does not
know the root's token and position yet: they are lazy, and `Root` says where the position must lie.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from rdchat.errors import ModelError
from rdchat.inference.api import MAX_BEAM_ROWS, HeadKind as HeadKind  # noqa: PLC0414  part of the protocol
from rdchat.inference.device import on_gpu
from rdchat.inference.drafting.heads.decoder import DecoderConfig
from rdchat.inference.models.model_settings import new_network
from rdchat.inference.verification import HiddenReads, KVCache, LoadedModel, TargetEmbeddings

# Number of weights that share a scale, where a drafter is quantised.
_GROUP = 64
_BITS_ON_GPU = 4
_HINT = "Use a drafter that was made for this model."
Weights = Callable[[], Mapping[str, mx.array]]


@dataclass(frozen=True, slots=True)
class Root:
    """Where a draft begins.

    Attributes:
        token: Token that the target chose last, perhaps lazy, ().
        position: Its absolute position.
        hidden: (width,): the target's hidden states at the token before, from which it was chosen.
        later: () int32, lazy: is added to `position`, where a round decides it; None for 0.
        latest: Upper bound of `later`.
        on_path: (nodes,) bool, lazy: nodes of the open round that come before it; None where no round is open.
        drafted: Most tokens that are drafted below it; None for as many as the head can.
    """

    token: int | mx.array
    position: int
    hidden: mx.array
    later: mx.array | None = None
    latest: int = 0
    on_path: mx.array | None = None
    drafted: int | None = None


class HeadState(Protocol):
    """The live beams of a draft, all of one length; lazy."""

    def logits(self) -> mx.array:
        """Return the logits, (beams, candidates) float32, of the token after each beam."""

    def ids(self) -> mx.array | None:
        """Return the ids of the columns of `logits`, (candidates,) int32; None for the head's vocabulary."""
        return None

    def after(self, beams: mx.array, tokens: mx.array) -> "HeadState":
        """Return the state after one more token.

        Args:
            beams: (n,) the beam that each new one extends; several may extend the same.
            tokens: (n,) the token appended to each, an id of the whole vocabulary.
        """


class HeadMemory:
    """A head's state for one conversation. It has rows of committed tokens only, so nothing is ever rolled back."""

    def begin_reply(self, prompt: Sequence[int]) -> None:
        """Start a reply to a prompt, (n,) token ids: keep what the last prompt shares with it, and forget the rest."""

    def use_cache(self, cache: KVCache) -> None:
        """Take the target's cache of the reply, of which a head may read rows; it is not kept beyond the reply."""

    def reset(self) -> None:
        """Forget everything, including arrays that were not computed."""

    def take_committed(self, tokens: Sequence[int], hidden: mx.array, start: int) -> None:
        """Take committed tokens; they replace everything from the first one's position on.

        Positions may be left out: the target's own cache can hold tokens whose hidden states were never read.

        Args:
            tokens: (n,) ids.
            hidden: (n, width) the target's hidden states at these tokens.
            start: Absolute position of the first.
        """

    def take_ahead(self, tokens: mx.array, hidden: mx.array, before: Root, root: Root) -> None:
        """Take a round's tokens before the host knows which are committed; `take_committed` or `keep` follows.

        Args:
            tokens: (root.latest + 1,) int32, lazy: the accepted path, its first token included. Those behind index
                `root.later` are not committed.
            hidden: (root.latest + 1, width) the target's hidden states at these tokens.
            before: The round's own root, the first of the tokens.
            root: Where the next draft begins; its position is lazy.
        """

    def keep(self, tokens: Sequence[int], hidden: mx.array) -> None:
        """Keep the rows of the committed tokens, of all that `take_ahead` took.

        Args:
            tokens: (n,) ids.
            hidden: (1, width) the target's hidden state at the last of them.
        """

    def take_waits(self) -> int:
        """Return how often it waited for the device since the last call."""
        return 0

    def root_state(self, root: Root) -> HeadState:
        """Return the state of a single beam with only the root; `take_committed` must have had all tokens before it.

        If the root's position is lazy, `take_ahead` must have had it.
        """
        raise NotImplementedError


class Head(Protocol):
    """A drafter's network, bound to one target.

    Attributes:
        kind: Kind of the head.
        reads: Hidden states that it reads.
        vocabulary: (n,) int32: ids of the tokens that it can draft, ascending.
        candidates: Columns of a step's logits: n, or fewer where a state names its own `ids`.
        inverse_temperature: Its log-probabilities are multiplied by this before noise is added.
        max_drafted: Maximum number of tokens that it drafts below a root.
        remembers: Whether it has a memory of the text, so that it must read the prompt.
        facts: A sentence on how it is used, for people; empty where there is only one way.
    """

    kind: HeadKind
    reads: HiddenReads
    vocabulary: mx.array
    candidates: int
    inverse_temperature: float = 1.0
    max_drafted: int = MAX_BEAM_ROWS
    remembers: bool = True
    facts: str = ""

    def memory(self) -> HeadMemory:
        """Return the memory of a new conversation."""


class BoundNetwork(Head):
    """A drafter in the target's precision or quantised, with its own tables or the target's; see `Head`.

    Args:
        config: Its sizes.
        weights: Returns the weights by published name; lazy from a file, where floats are read one by one.
        vocabulary: (draft_vocabulary_size,) int32: ids of the tokens that can be drafted, ascending; None for all
            tokens.
        model: The target.
        bits: Bits of a quantised copy's weights, 4 or 8; 0 for floats. None means 4 on a GPU, where a draft's time is
            spent reading weights, and floats on a CPU, where quantised products are slow. Others report that 4 bits
            lose hardly any acceptance (mlx-dspark); it was not measured here, and nothing was measured on a Mac.

    Raises:
        ModelError: If the target's hidden states or tables do not suit it.
    """

    network_of: ClassVar[Any]
    """Class of the network, which each subclass names."""

    def __init__(
        self, config: Any, weights: Weights, vocabulary: mx.array | None, model: LoadedModel, bits: int | None = None
    ) -> None:
        self.config = config
        network = new_network(self.network_of, config)
        self.network = network
        embeddings = TargetEmbeddings(model.network, model.info.vocabulary_size)
        self._check(config, model)
        self.dtype = embeddings.dtype
        network.load_weights([(name, tensor.astype(self.dtype)) for name, tensor in weights().items()])
        if bits is None:
            bits = _BITS_ON_GPU if on_gpu() else 0
        if bits:
            # Layers whose width is not a multiple of the group stay floats.
            nn.quantize(network, _GROUP, bits, class_predicate=_can_be_quantized)
        evaluate_weights(network)
        self.candidates = config.draft_vocabulary_size
        self.vocabulary = mx.arange(self.candidates, dtype=mx.int32) if vocabulary is None else vocabulary
        own = config.own_embeddings
        self._table: Callable[[mx.array], mx.array] = self.network.embed_tokens if own else embeddings.embed
        self._output: Callable[[mx.array], mx.array]
        if config.own_output:
            self._output = self.network.lm_head
        else:
            self._output = embeddings.output_for(self.vocabulary) if config.reduced else embeddings.output()
        self._finish(model)

    def _finish(self, model: LoadedModel) -> None:
        """Prepare what only a subclass needs; the last step of `__init__`."""

    def embed(self, tokens: mx.array) -> mx.array:
        """Return the embeddings of tokens, (n,) ids of the whole vocabulary, (n, hidden_size)."""
        return self._table(tokens).astype(self.dtype)

    def _check(self, config: DecoderConfig, model: LoadedModel) -> None:
        """Set `reads`, and check that the target gives hidden states of that width.

        Its call is never evaluated: MLX knows the shapes without it.
        """
        self.reads = HiddenReads(config.target_layers, trunk=False, normalised=False)
        model.hooks.record_states(self.reads)
        model.network(mx.array([[0]]))
        hidden = model.hooks.hidden
        if hidden is None or hidden.shape != (1, 1, len(config.target_layers) * config.target_width):
            raise ModelError(f"The drafter cannot read the hidden states of {model.info.name}.", _HINT)


def evaluate_weights(network: nn.Module) -> None:
    """Read a network's weights, one by one, so that the sources of each are freed at once."""
    for _, tensor in tree_flatten(network.parameters()):
        mx.eval(tensor)


def _can_be_quantized(_name: str, module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | nn.Embedding) and module.weight.shape[-1] % _GROUP == 0
