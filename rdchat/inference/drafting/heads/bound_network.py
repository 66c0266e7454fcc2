"""A published drafter's network, bound to a target, perhaps quantised."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from rdchat.errors import ModelError
from rdchat.inference.drafting.heads.decoder import DecoderConfig
from rdchat.inference.drafting.heads.head import Head
from rdchat.inference.verification.device import on_gpu
from rdchat.inference.verification.hooks import HiddenReads
from rdchat.inference.verification.target import LoadedModel, TargetEmbeddings

# Weights that share a scale.
_GROUP = 64
_BITS_ON_GPU = 4
_HINT = "Use a drafter that was made for this model."

Weights = Callable[[], Mapping[str, mx.array]]


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

    remembers = True
    inverse_temperature = 1.0
    network_of: ClassVar[Any]

    def __init__(
        self, config: Any, weights: Weights, vocabulary: mx.array | None, model: LoadedModel, bits: int | None = None
    ) -> None:
        self.config = config
        self.network = network = self.network_of(config)
        mx.random.seed(0)  # as in `loading`
        embeddings = TargetEmbeddings(model.network, model.info.vocabulary_size)
        self._check(config, model)
        self.dtype = embeddings.dtype
        network.load_weights([(name, tensor.astype(self.dtype)) for name, tensor in weights().items()])
        if bits := (_BITS_ON_GPU if on_gpu() else 0) if bits is None else bits:
            # Layers whose width is not a multiple of the group stay floats.
            nn.quantize(network, _GROUP, bits, class_predicate=_can_be_quantized)
        for _, tensor in tree_flatten(network.parameters()):
            # One by one, so that the sources of each are freed at once.
            mx.eval(tensor)
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
        """Prepare what only a subclass needs."""

    def embed(self, tokens: mx.array) -> mx.array:
        """Return the embeddings of tokens, (n,) ids of the whole vocabulary, (n, hidden_size)."""
        return self._table(tokens).astype(self.dtype)

    def _check(self, config: DecoderConfig, model: LoadedModel) -> None:
        """Check the shapes of a target call; nothing is computed."""
        self.reads = HiddenReads(config.target_layers, trunk=False, normalised=False)
        model.hooks.read(self.reads)
        model.network(mx.array([[0]]))
        given = model.hooks.hidden
        if given is None or given.shape != (1, 1, len(config.target_layers) * config.target_width):
            raise ModelError(f"The drafter cannot read the hidden states of {model.info.name}.", _HINT)


def _can_be_quantized(_name: str, module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | nn.Embedding) and module.weight.shape[-1] % _GROUP == 0
