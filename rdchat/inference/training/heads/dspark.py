"""DSpark in training (deepseek-ai/DeepSpec): blocks of a root and masks, drawn from the answers of a conversation.

All blocks of a conversation go through the network at once. A row of a block sees the context before its root and all
rows of its own block. The Markov head reads the true token before each place (teacher forcing).

There is no confidence head: nothing here would read it (see `heads.block_network`).
"""

from typing import Any

import mlx.core as mx
import numpy as np

from rdchat.inference.drafting.heads.block_network import BlockConfig, BlockNetwork, Markov
from rdchat.inference.drafting.heads.decoder import RopeConfig, Rows
from rdchat.inference.target.embeddings import embedding_scale
from rdchat.inference.target.fetch import fetch
from rdchat.inference.training.heads.loss import drop_inputs
from rdchat.inference.training.heads.samples import Ints
from rdchat.inference.training.heads.sequence_objective import (
    EPSILON,
    POSITIONS,
    THETA,
    Sample,
    SequenceObjective,
    attention_heads,
)

_LAYERS, _MARKOV_RANK = 1, 32
# Factor on the last layer's fresh outputs: a root's own embedding is part of the features, and with tied rows it would
# draft itself.
_FIRST_OUTPUT = 4.0
_COMMON = 2.0  # size of the common part of all queries and keys; fresh weights have a variance of a third
_SHARPNESS = 1.5  # of fresh attention


class DSparkObjective(SequenceObjective):
    """Training of a DSpark head of one layer with a vanilla Markov head; see `SequenceObjective`.

    It drafts from the root's place. Its output rows are the target's, whitened and stored as its own, so its MLP is as
    small as EAGLE-3's. Folded into the last layer, whitening would stand before a norm, whose size would then be that
    of the directions that matter least.
    """

    network: BlockNetwork
    draws_roots = True

    def make_network(self) -> BlockNetwork:
        """See `SequenceObjective`."""
        width = self.target.embeddings.width
        heads, kv_heads = attention_heads(width)
        config = BlockConfig(
            hidden_size=width,
            vocabulary_size=self.target.vocabulary_size,
            draft_vocabulary_size=len(self.vocabulary),
            heads=heads,
            kv_heads=kv_heads,
            head_size=width // heads,
            inner_size=4 * width // 3,
            norm_epsilon=EPSILON,
            rope=RopeConfig(THETA, max_positions=POSITIONS),
            windows=(None,) * _LAYERS,
            causal=(False,) * _LAYERS,
            target_layers=self.layers,
            target_width=width,
            target_depth=len(self.model.network.layers),
            block_size=self.recipe.steps,
            mask_token=self._mask_token(),
            from_anchor=True,
            markov=Markov.VANILLA,
            markov_rank=min(_MARKOV_RANK, width),
            qk_norm=True,
        )
        network = BlockNetwork(config)
        for layer in network.layers:
            layer.input_layernorm.weight = self.embedding_weights
            drop_inputs((layer.mlp.gate_proj, layer.mlp.up_proj), self.recipe.dropout)
        drop_inputs((network.fc,), self.recipe.dropout)
        self._attend_to_neighbours(network)
        last = network.layers[-1]
        for module in (last.self_attn.o_proj, last.mlp.down_proj):
            module.weight = _FIRST_OUTPUT * module.weight
        markov = network.markov_head
        markov.markov_w1.weight = self._leading_directions(config.markov_rank)
        markov.markov_w2.weight = mx.zeros_like(markov.markov_w2.weight)
        return network

    def embed(self, tokens: mx.array) -> mx.array:
        """See `SequenceObjective`; scaled as the target's family does it."""
        return super().embed(tokens) * embedding_scale(self.model.info.architecture, self.target.embeddings.width)

    def features(self, sample: Sample, roots: Ints) -> mx.array:
        """See `SequenceObjective`."""
        network, size = self.network, self.network.config.block_size
        context = self.scaled(sample)
        held = network.context_rows(context, range(sample.position, sample.position + context.shape[0]))
        places = roots[:, None] + np.arange(size)
        positions = mx.array((places + sample.position).ravel())
        mask = mx.array(block_mask(roots, size, len(sample.tokens)))

        def extend(layer: int, rows: Rows) -> tuple[Rows, mx.array | str | None]:
            return [mx.concatenate(list(pair), axis=2) for pair in zip(held[layer], rows, strict=True)], mask

        block = np.full(places.shape, network.config.mask_token, np.int32)
        block[:, 0] = sample.tokens[roots]
        hidden = network.block(self.embed(mx.array(block.ravel())), positions, extend)
        before = sample.tokens[np.minimum(places, len(sample.tokens) - 1)]
        bias = network.markov_head.markov_w1(mx.array(before))
        return mx.concatenate([hidden.reshape(*places.shape, -1), bias], axis=-1)

    def output_rows(self) -> mx.array:
        """See `Objective`; followed by the Markov head's."""
        return mx.concatenate([self.whitened, self.network.markov_head.markov_w2.weight], axis=-1)

    def settings(self) -> dict[str, Any]:
        """See `SequenceObjective`: DeepSpec's layout, for a part of the tokens, with the target's embeddings."""
        config = self.network.config
        return {
            "architectures": ["Qwen3DSparkModel"],
            "model_type": "qwen3",
            "block_size": config.block_size,
            "mask_token_id": config.mask_token,
            "target_layer_ids": list(config.target_layers),
            "num_target_layers": config.target_depth,
            "markov_rank": config.markov_rank,
            "markov_head_type": config.markov.value,
            "enable_confidence_head": False,
            "num_hidden_layers": config.layers,
            "layer_types": ["full_attention"] * config.layers,
            **self.shared_settings(config.head_size, config.inner_size),
        }

    def _mask_token(self) -> int:
        """Return the token that stands for those to be drafted: one that never occurs, with an embedding beside 0."""
        rarest = np.flatnonzero(self.counts == self.counts.min())
        sizes = mx.linalg.norm(self.embed(mx.array(rarest)), axis=-1)
        return int(rarest[int(mx.argmax(sizes))])

    def _attend_to_neighbours(self, network: BlockNetwork) -> None:
        """Begin with queries and keys that are nearly the same everywhere: rotated, they agree most where near.

        What decides most is the last hidden state before a block, and nothing but positions can say which it is.
        """
        config, samples = network.config, self.held_out or [self.sample(0, 0)]
        examples = mx.concatenate([self.scaled(sample) for sample in samples])
        context = network.hidden_norm(network.fc(examples)).mean(axis=0)
        mask = self.embed(mx.array([config.mask_token]))
        for layer in network.layers:
            attention = layer.self_attn
            common = mx.array([1.0] * (config.head_size // 2) + [0.0] * (config.head_size // 2))
            root = layer.input_layernorm(self.embed(mx.array(self.vocabulary))).mean(axis=0)
            reading = _of_both(layer.input_layernorm(mask)[0], root)
            for projection, heads, direction in (
                (attention.q_proj, config.heads, reading),
                (attention.k_proj, config.kv_heads, context / mx.sum(context**2)),
            ):
                same = _COMMON * mx.tile(common, heads)[:, None] * direction
                projection.weight = projection.weight + same
            attention.q_norm.weight = _SHARPNESS * attention.q_norm.weight

    def _leading_directions(self, rank: int) -> mx.array:
        """Return (vocabulary, rank): the leading principal components of the tokens' embeddings, each of size 1.

        So tokens that were never trained on are near those that mean the same.
        """
        table = fetch(mx.fast.rms_norm(self.embed(mx.arange(self.target.vocabulary_size)), None, EPSILON))
        table = (table - table.mean(axis=0)) * fetch(self.embedding_weights)
        _, vectors = np.linalg.eigh(table.T @ table)
        found = table @ vectors[:, ::-1][:, :rank]
        return mx.array(found / np.maximum(np.sqrt((found**2).mean(axis=0)), 1e-6))


def block_mask(roots: Ints, size: int, context: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which rows each row of some blocks sees: the context before its root, and all of its own block.

    Args:
        roots: (blocks,) indices of the blocks' roots in the context.
        size: Rows of a block.
        context: Rows of the context.

    Returns:
        (blocks * size, context + blocks * size) bool.
    """
    before = np.arange(context) < np.repeat(roots, size)[:, None]
    block = np.repeat(np.arange(len(roots)), size)
    return np.concatenate([before, block[:, None] == block], axis=1)


def _of_both(first: mx.array, second: mx.array) -> mx.array:
    """Return the shortest vector, (width,), whose product with each of two others is 1."""
    own = first / mx.sum(first**2)
    other = second - mx.sum(second * own) * first
    return own + (1 - mx.sum(second * own)) * other / mx.maximum(mx.sum(other**2), 1e-6)
