"""Gemma 4's assistant as a drafter: a few layers without keys of their own, which attend to the target's.

Each layer reads the rows of the target's last layer of its kind, full or sliding, that keeps keys and values. A step
takes the target's scaled embedding of a token and the hidden state before it: below a root the target's, further down
the assistant's own output, projected to the target's width. All steps of a draft are at the root's position, and none
adds rows, so the beams of a level do not depend on each other. The method is that of transformers 5.23
(`Gemma4AssistantForCausalLM`, `SinglePositionMultiTokenCandidateGenerator`); the layers are mlx-lm's for Gemma 4.

A draft begun in a round also sees the round's own rows, with a mask for those of the accepted path.

A draft reads the buffers of the target's cache in place, and the target's next call, which may be queued before the
draft is computed, writes to them. MLX would copy a whole buffer that is written while a draft still reads it. That does
not happen: MLX queues a limited amount of work, and the layers read here are among the last that the call writes to, so
the draft is done by then.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, override
from weakref import ReferenceType, ref

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.gemma4_text import DecoderLayer, ModelArgs

from rdchat.errors import ModelError
from rdchat.inference.drafting.heads.decoder import RopeConfig
from rdchat.inference.drafting.heads.head import BoundNetwork, HeadKind, HeadMemory, HeadState, Root
from rdchat.inference.verification import (
    HiddenReads,
    KVCache,
    LoadedModel,
    ModelHooks,
    RoundKVCache,
    embedding_scale,
    mirror_of,
)

FULL = "full_attention"
SLIDING = "sliding_attention"
_HINT = "Use the assistant that was published for this model."
# Logit of a token whose cluster was not chosen: so it is never drafted, and its score stays finite.
_NOT_CHOSEN = -1e4


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantConfig:
    """Sizes of an assistant.

    Attributes:
        hidden_size: Width of the assistant.
        target_width: Width of the target's hidden states.
        vocabulary_size: Tokens of the target.
        heads: Query heads of each layer.
        head_sizes: Width of a head, by kind of layer.
        inner_size: Width inside an MLP.
        norm_epsilon: Added to the mean square in each norm.
        kinds: Kind of each layer, `FULL` or `SLIDING`.
        window: Positions that a sliding layer sees, its own included.
        ropes: Rotary positions, by kind of layer.
        clusters: Clusters of the tokens, each of the same size; 0 where all tokens are scored.
        chosen_clusters: Clusters whose tokens are scored.
        target_depth: Layers of the target; unknown.
        target_layers: Layers of the target whose outputs are read: none.
        own_embeddings: Whether it has embeddings: no, the target's are used.
        own_output: Whether it has output rows: yes.
    """

    hidden_size: int
    target_width: int
    vocabulary_size: int
    heads: int
    head_sizes: Mapping[str, int]
    inner_size: int
    norm_epsilon: float
    kinds: tuple[str, ...]
    window: int
    ropes: Mapping[str, RopeConfig]
    clusters: int = 0
    chosen_clusters: int = 0
    target_depth: int | None = None
    target_layers: tuple[int, ...] = ()
    own_embeddings: bool = False
    own_output: bool = True

    @property
    def draft_vocabulary_size(self) -> int:
        """Tokens that can be drafted: all."""
        return self.vocabulary_size


class SeenRows(NamedTuple):
    """The target's rows that a draft attends to.

    Attributes:
        keys: (1, kv_heads, n, head_size).
        values: The same.
        mask: (1, n) bool: whether a draft sees each row; None for all.
    """

    keys: mx.array
    values: mx.array
    mask: mx.array | None


class AssistantNetwork(nn.Module):
    """The assistant's weights and computations.

    Args:
        config: Its sizes.
    """

    def __init__(self, config: AssistantConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        ropes = config.ropes
        args = ModelArgs(
            hidden_size=hidden,
            num_hidden_layers=len(config.kinds),
            num_kv_shared_layers=len(config.kinds),
            intermediate_size=config.inner_size,
            num_attention_heads=config.heads,
            head_dim=config.head_sizes[SLIDING],
            global_head_dim=config.head_sizes[FULL],
            rms_norm_eps=config.norm_epsilon,
            hidden_size_per_layer_input=0,
            rope_parameters={k: {**(rope.scaling or {}), "rope_theta": rope.theta} for k, rope in ropes.items()},
            rope_traditional=ropes[FULL].traditional,
            max_position_embeddings=ropes[FULL].max_positions,
            layer_types=list(config.kinds),
        )
        self.pre_projection = nn.Linear(2 * config.target_width, hidden, bias=False)
        self.post_projection = nn.Linear(hidden, config.target_width, bias=False)
        self.layers = [DecoderLayer(args, number) for number in range(len(config.kinds))]
        self.norm = nn.RMSNorm(hidden, config.norm_epsilon)
        self.lm_head = nn.Embedding(config.vocabulary_size, hidden)
        if config.clusters:
            self.centroids = nn.Linear(hidden, config.clusters, bias=False)
        self._hooks = ModelHooks(self)

    def outputs(self, embeddings: mx.array, hidden: mx.array, rows: Mapping[str, SeenRows], root: Root) -> mx.array:
        """Return the outputs, (n, hidden_size), of one step.

        Args:
            embeddings: (n, target_width) scaled embeddings of the beams' last tokens.
            hidden: (n, target_width) hidden states before them.
            rows: The target's rows, by kind of layer.
            root: Its position is that of all steps.
        """
        x = self.pre_projection(mx.concatenate([embeddings, hidden], axis=-1))[None]
        # Without depths the rows would be at successive positions; all beams are at the root's.
        depths = None
        beams = x.shape[1]
        if root.later is not None or beams > 1:
            depths = mx.zeros((beams,), mx.int32) if root.later is None else mx.repeat(root.later, beams)
        with self._hooks.packed(depths):
            for layer in self.layers:
                keys, values, mask = rows[layer.layer_type]
                x, _, _ = layer(x, mask, shared_kv=(keys, values), offset=root.position)
        output: mx.array = self.norm(x)[0]
        return output


class BoundAssistant(BoundNetwork):
    """An assistant that is bound to its target; see `BoundNetwork`.

    Args:
        config: Its sizes.
        weights: Returns the weights by name; lazy from a file.
        vocabulary: None, as it can draft every token.
        model: The target.
        bits: See `BoundNetwork`.

    Attributes:
        clusters: (clusters, tokens of each) int32: ids of each cluster's tokens; None without clusters.
        cache_numbers: Number of the target's cache that is read, by kind of layer.

    Raises:
        ModelError: If the target lacks the layers, heads or hidden states that are read.
    """

    kind = HeadKind.ASSISTANT
    network_of = AssistantNetwork
    remembers = False
    clusters: mx.array | None = None

    @override
    def _finish(self, model: LoadedModel) -> None:
        self._scale = embedding_scale(model.info.architecture, self.config.target_width)

    @override
    def memory(self) -> HeadMemory:
        return AssistantMemory(self)

    def outputs(self, tokens: mx.array, hidden: mx.array, rows: Mapping[str, SeenRows], root: Root) -> mx.array:
        """Return the outputs, (n, hidden_size), of a step with n tokens; see `AssistantNetwork.outputs`."""
        embeddings = self.embed(tokens) * self._scale
        outputs: mx.array = self.network.outputs(embeddings, hidden.astype(self.dtype), rows, root)
        return outputs

    def candidate_logits(self, output: mx.array) -> mx.array:
        """Return the logits, (n, candidates) float32, of the token after each step, from outputs (n, hidden_size).

        With clusters only the tokens of the best clusters are scored.
        """
        network = self.network
        config = self.config
        if self.clusters is None:
            logits: mx.array = network.lm_head.as_linear(output)
            return logits.astype(mx.float32)
        count = config.chosen_clusters
        best = mx.argpartition(network.centroids(output), -count, axis=-1)[:, -count:]
        ids = self.clusters[best].flatten(1)
        scored = (network.lm_head(ids) @ output[:, :, None])[..., 0].astype(mx.float32)
        return mx.put_along_axis(mx.full((output.shape[0], self.candidates), _NOT_CHOSEN), ids, scored, axis=1)

    @override
    def _check(self, config: Any, model: LoadedModel) -> None:
        info = model.info
        network = model.network
        if mirror_of(network) is not None:
            raise ModelError(
                "Gemma 4's assistant reads keys that are spread over several Macs.", "Choose another mode."
            )
        caches = KVCache(network).layers
        # The last layers of a model may share the keys of others, and have no caches.
        kinds = [getattr(layer, "layer_type", "") for layer in getattr(network, "layers", ())[: len(caches)]]
        self.cache_numbers = {kind: number for number, kind in enumerate(kinds) if kind in config.kinds}
        self.reads = HiddenReads()
        model.hooks.record_states(self.reads)
        network(mx.array([[0]]), cache=caches)
        for kind in dict.fromkeys(config.kinds):
            cache = caches[self.cache_numbers[kind]] if kind in self.cache_numbers else None
            if not isinstance(cache, RoundKVCache):
                raise ModelError(
                    f"The assistant reads the keys of a {kind.replace('_', ' ')} layer as Gemma 4 has it, but "
                    f"{info.name} has no such layer with keys of its own.",
                    _HINT,
                )
            _, kv_heads, _, size = cache.buffer.arrays[0].shape
            needed = config.head_sizes[kind]
            if size != needed or config.heads % kv_heads:
                raise ModelError(
                    f"The assistant reads keys of width {needed} with {config.heads} heads, but in a "
                    f"{kind.replace('_', ' ')} layer {info.name} has {kv_heads} heads of width {size}.",
                    _HINT,
                )
        if model.hooks.hidden is None or model.hooks.hidden.shape != (1, 1, config.target_width):
            raise ModelError(f"The drafter cannot read the hidden states of {info.name}.", _HINT)


class AssistantMemory(HeadMemory):
    """Gives drafts the target's own rows, and has none itself; see `HeadMemory`."""

    def __init__(self, head: BoundAssistant) -> None:
        self._head = head
        self._cache: ReferenceType[KVCache] | None = None

    @override
    def use_cache(self, cache: KVCache) -> None:
        self._cache = ref(cache)

    @override
    def root_state(self, root: Root) -> HeadState:
        """See `HeadMemory`; the state holds views of the cache's buffers, so it must not outlive the draft."""
        head = self._head
        cache = None if self._cache is None else self._cache()
        assert cache is not None
        rows = {kind: self._seen(cache.layers[number], kind, root) for kind, number in head.cache_numbers.items()}
        token = mx.array(root.token, mx.int32).reshape(1)
        return _AssistantState(head, rows, root, head.outputs(token, root.hidden[None], rows, root))

    def _seen(self, layer: RoundKVCache, kind: str, root: Root) -> SeenRows:
        """Return the rows of the tokens before a root, as far as a layer of a kind sees them.

        - Without an open round, these are the committed rows, up to position `root.position` - 1. No mask is needed.
        - In an open round the root comes after the round's accepted path, at `root.position + root.later`. The round's
          own root is at `root.position` - 1. So the committed rows end before that (`base`), and the round's rows
          follow in packed order, perhaps with padding. The mask takes the committed rows that are in the window of the
          root, whose place only the device knows (`later`), the round's rows on the path, and no padding.
        """
        buffer = layer.buffer
        window = self._head.config.window if kind == SLIDING else None
        start = buffer.first if window is None else max(buffer.first, root.position - window + 1)
        base = root.position if root.on_path is None else root.position - 1
        end = base if root.on_path is None else layer.length
        keys, values = (array[..., start - buffer.first : end - buffer.first, :] for array in buffer.arrays)
        if root.on_path is None:
            return SeenRows(keys, values, None)
        assert root.later is not None
        before = mx.ones((base - start,), mx.bool_)
        if window is not None:
            before = mx.arange(start, base) > root.position - window + root.later
        padding = mx.zeros((end - base - root.on_path.shape[0],), mx.bool_)
        return SeenRows(keys, values, mx.concatenate([before, root.on_path, padding])[None])


@dataclass(frozen=True, slots=True)
class _AssistantState(HeadState):
    """The live beams of a draft.

    Attributes:
        head: The assistant.
        rows: The target's rows that all of them see, by kind of layer.
        root: Where the draft began.
        output: (beams, hidden_size) outputs for the beams' last tokens.
    """

    head: BoundAssistant
    rows: Mapping[str, SeenRows]
    root: Root
    output: mx.array

    @override
    def logits(self) -> mx.array:
        return self.head.candidate_logits(self.output)

    @override
    def after(self, beams: mx.array, tokens: mx.array) -> HeadState:
        hidden = self.head.network.post_projection(self.output[beams])
        return replace(self, output=self.head.outputs(tokens, hidden, self.rows, self.root))
