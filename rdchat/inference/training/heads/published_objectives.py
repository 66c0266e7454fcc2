"""Training of heads whose files other programs can read: EAGLE-3 and DSpark.

EAGLE-3 (Li et al. 2025, arXiv 2503.01840) is trained by the training-time test. Below every root at once the head takes
the same steps as in a draft: the first one on the target's features, the others on its own outputs. A row sees the true
rows up to its root's and the earlier rows of its own draft. The layer is called as in drafting, with all these rows and
one mask. The paper's code computes the products within a draft separately, with the same result.

DSpark (deepseek-ai/DeepSpec) is trained on blocks of a root and masks, drawn from a conversation's answers. All blocks
of a conversation go through the network at once. A block's rows see the context before its root and all rows of their
own block. The Markov head reads the true previous token (teacher forcing). No confidence head is trained, because
nothing here would use it (see `heads.block_network`).
"""

from typing import Any

import mlx.core as mx
import numpy as np

from rdchat.inference.drafting.checkpoints.drafter_files import PublishedDrafter
from rdchat.inference.drafting.heads.block_network import BlockConfig, BlockNetwork, Markov
from rdchat.inference.drafting.heads.decoder import Rows
from rdchat.inference.drafting.heads.eagle3_head import Eagle3Config, Eagle3Network
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.target import embedding_scale
from rdchat.inference.training.heads.samples import Ints
from rdchat.inference.training.heads.sequence_objective import EPSILON, Sample, SequenceObjective
from rdchat.inference.training.heads.trainer import drop_inputs

_OWN_SCORE = 8.0  # score of a row with itself in initial attention: a few hundred other rows together weigh less
_LAYERS, _MARKOV_RANK = 1, 32
# Factor on the last layer's initial outputs: a root's own embedding is part of the features, and with tied rows it
# would otherwise draft itself.
_FIRST_OUTPUT = 4.0
_COMMON = 2.0  # size of the component that all initial queries and keys share; fresh weights have a variance of a third
_SHARPNESS = 1.5  # of initial attention


class Eagle3Objective(SequenceObjective):
    """Training of an EAGLE-3 head with one layer and without embeddings; see `SequenceObjective`.

    Its output rows are stored with it, so its MLP is smaller than usual.
    """

    network: Eagle3Network

    def make_network(self) -> Eagle3Network:
        """See `SequenceObjective`."""
        size = self.target.vocabulary_size
        config = Eagle3Config(**self.sizes(), draft_vocabulary_size=size, windows=(None,), takes_embedding=(True,))
        network = Eagle3Network(config)
        layer = network.layers[0]
        layer.input_layernorm.weight = self.embedding_weights
        _attend_to_itself(config, layer.self_attn)
        drop_inputs((network.fc, layer.mlp.gate_proj, layer.mlp.up_proj), self.recipe.dropout)
        return network

    def features(self, sample: Sample, roots: Ints) -> mx.array:
        """See `SequenceObjective`; the roots are neighbours."""
        network, layer = self.network, self.network.layers[0]
        tokens = mx.array(sample.tokens)
        count, first = len(roots), int(roots[0])
        hidden = network.fuse(self.scaled(sample)[:-1])
        taken, residual = layer.inputs(self.embed(tokens[1:]), hidden)
        rows = layer.self_attn.rows(taken, range(sample.position, sample.position + len(sample.tokens) - 1))
        before = slice(first - 1, first - 1 + count)  # the row before a root contains the root
        taken, residual = taken[before], residual[before]
        mask = mx.arange(len(sample.tokens) - 1) < mx.array(roots)[:, None]
        outputs: list[mx.array] = []
        for step in range(self.recipe.steps):
            start = sample.position + first - 1 + step
            positions = range(start, start + count)
            if step:
                ahead = np.minimum(roots + step, len(sample.tokens) - 1)
                taken, residual = layer.inputs(self.embed(tokens[mx.array(ahead)]), network.carried(outputs[-1]))
                own = layer.self_attn.rows(taken, positions)
                rows = [mx.concatenate(list(pair), axis=2) for pair in zip(rows, own, strict=True)]
                mask = mx.concatenate([mask, mx.eye(count, dtype=mx.bool_)], axis=1)
            outputs.append(layer.outputs(residual, layer.self_attn(taken, positions, rows, mask)))
        features: mx.array = network.norm(mx.stack(outputs, axis=1))
        return features

    def published(self) -> PublishedDrafter:
        """See `SequenceObjective`: SafeAILab's layout."""
        plain = super().published()
        tensors = {name.replace("layers.0.", "midlayer."): array for name, array in plain.tensors.items()}
        return PublishedDrafter(plain.config, tensors)

    def settings(self) -> dict[str, Any]:
        """See `SequenceObjective`."""
        config = self.network.config
        layers = {"eagle_aux_hidden_state_layer_ids": list(config.target_layers), "use_aux_hidden_state": True}
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "num_hidden_layers": 1,
            **self.shared_settings(),
            "eagle_config": layers,
        }


def _attend_to_itself(config: Eagle3Config, attention: Any) -> None:
    """Initialise queries along a row's own key, so that each row attends to itself first.

    The token before the drafted one is seen through attention alone. If all rows look alike, it is one of hundreds, and
    for a long time the head learns only word frequencies.
    """
    keys = attention.k_proj.weight.reshape(config.kv_heads, config.head_size, -1)
    shared = mx.repeat(keys, config.heads // config.kv_heads, axis=0)
    # inputs have a mean square of 1, fresh weights a variance of a third of 1 / their number
    gain = _OWN_SCORE * 3 / config.head_size**0.5
    attention.q_proj.weight = gain * shared.reshape(attention.q_proj.weight.shape)


class DSparkObjective(SequenceObjective):
    """Training of a DSpark head with one layer and a vanilla Markov head; see `SequenceObjective`.

    It drafts from the root's place. Its output rows are the target's, whitened and stored with it, so its MLP is as
    small as EAGLE-3's. Whitening cannot be folded into the last layer: a norm follows, whose size would then depend on
    the directions that matter least.
    """

    network: BlockNetwork
    draws_roots = True

    def make_network(self) -> BlockNetwork:
        """See `SequenceObjective`."""
        config = BlockConfig(
            **self.sizes(),
            draft_vocabulary_size=len(self.vocabulary),
            windows=(None,) * _LAYERS,
            causal=(False,) * _LAYERS,
            target_depth=len(self.model.network.layers),
            block_size=self.recipe.steps,
            mask_token=self._mask_token(),
            from_anchor=True,
            markov=Markov.VANILLA,
            markov_rank=min(_MARKOV_RANK, self.target.embeddings.width),
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
        """See `SequenceObjective`; scaled as in the target's family."""
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
        """See `Objective`; followed by the Markov head's rows."""
        return mx.concatenate([self.whitened, self.network.markov_head.markov_w2.weight], axis=-1)

    def settings(self) -> dict[str, Any]:
        """See `SequenceObjective`: DeepSpec's layout, for part of the tokens, with the target's embeddings."""
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
            **self.shared_settings(),
        }

    def _mask_token(self) -> int:
        """Return the mask token: one that never occurs and whose embedding is not 0."""
        rarest = np.flatnonzero(self.counts == self.counts.min())
        sizes = mx.linalg.norm(self.embed(mx.array(rarest)), axis=-1)
        return int(rarest[int(mx.argmax(sizes))])

    def _attend_to_neighbours(self, network: BlockNetwork) -> None:
        """Initialise queries and keys to be nearly equal everywhere; once rotated, they agree most with near positions.

        The last hidden state before a block matters most, and only positions can tell which one it is.
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

        Tokens that never occur in training are then close to tokens of similar meaning.
        """
        table = fetch(mx.fast.rms_norm(self.embed(mx.arange(self.target.vocabulary_size)), None, EPSILON))
        table = (table - table.mean(axis=0)) * fetch(self.embedding_weights)
        _, vectors = np.linalg.eigh(table.T @ table)
        found = table @ vectors[:, ::-1][:, :rank]
        return mx.array(found / np.maximum(np.sqrt((found**2).mean(axis=0)), 1e-6))


def block_mask(roots: Ints, size: int, context: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which rows each row of the blocks sees: the context before its root, and its own block.

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
    """Return the shortest vector, (width,), whose product with each of two vectors is 1."""
    own = first / mx.sum(first**2)
    other = second - mx.sum(second * own) * first
    return own + (1 - mx.sum(second * own)) * other / mx.maximum(mx.sum(other**2), 1e-6)
