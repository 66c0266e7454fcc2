"""Training of an MTP layer, as models are published with: a decoder layer of the target's class.

It is trained as EAGLE-3 is: below every root at once the layer takes the same steps as in a draft, the first on the
target's hidden states, the others on its own outputs. The hidden states are those before the target's final norm; its
own outputs take their place after its norm.
"""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from rdchat.inference.drafting.checkpoints.drafter_files import PublishedDrafter
from rdchat.inference.drafting.checkpoints.mtp_layout import READING, attention_layer, fresh_layer, published_names
from rdchat.inference.drafting.heads.mtp_head import READINGS, LayerCache, MtpConfig, MtpNetwork, Reading
from rdchat.inference.models.model_config import read_config
from rdchat.inference.training.heads.samples import Ints
from rdchat.inference.training.heads.sequence_objective import EPSILON, Sample, SequenceObjective
from rdchat.inference.training.heads.trainer import drop_inputs

TRAINED = Reading(before_norm=True)
_Pairs = list[list[mx.array]]  # keys and values, for each of the layer's caches


class MtpObjective(SequenceObjective):
    """Training of an MTP layer; see `SequenceObjective`.

    It has the target's output rows, so they are not whitened.
    """

    licence = "It has no weights of the target; its sizes are the target's."
    network: MtpNetwork

    def make_network(self) -> MtpNetwork:
        """See `SequenceObjective`."""
        number, caches = attention_layer(self.model)
        config = MtpConfig(
            target_width=self.target.embeddings.width,
            target_depth=len(self.model.network.layers),
            vocabulary_size=self.target.vocabulary_size,
            norm_epsilon=EPSILON,
            hidden_first=False,
            readings=READINGS,
        )
        network = MtpNetwork(config, fresh_layer(self.model.network, number), caches)
        network.enorm.weight = self.embedding_weights
        network.hnorm.weight = mx.sqrt(mx.mean(self.input_scales**2)) / self.input_scales
        drop_inputs((network.eh_proj,), self.recipe.dropout)
        return network

    def make_head(self) -> None:
        """See `SequenceObjective`; logits begin with a standard deviation of 1."""
        super().make_head()
        size = mx.mean(mx.linalg.norm(self.rows, axis=-1))
        self.network.norm.weight = mx.ones((self.rows.shape[1],)) / size

    def features(self, sample: Sample, roots: Ints) -> mx.array:
        """See `SequenceObjective`; the roots are neighbours."""
        network, tokens, count, first = self.network, mx.array(sample.tokens), len(roots), int(roots[0])
        rows = len(sample.tokens) - 1
        hidden = mx.array(sample.features).astype(mx.float32)[:-1]
        held: _Pairs = [[] for _ in range(network.caches)]
        positions = range(sample.position, sample.position + rows)
        causal = mx.tril(mx.ones((rows, rows), mx.bool_))
        outputs = network.rows(self.embed(tokens[1:]), hidden, positions, _caches(held), causal)
        steps = [network.norm(outputs[first - 1 : first - 1 + count])]  # the row before a root contains the root
        mask = mx.arange(rows) < mx.array(roots)[:, None]
        for step in range(1, self.recipe.steps):
            start = sample.position + first - 1 + step
            ahead = mx.minimum(mx.array(roots) + step, rows)
            mask = mx.concatenate([mask, mx.eye(count, dtype=mx.bool_)], axis=1)
            positions = range(start, start + count)
            outputs = network.rows(self.embed(tokens[ahead]), steps[-1], positions, _caches(held), mask)
            steps.append(network.norm(outputs))
        return mx.stack(steps, axis=1)

    def output_rows(self) -> mx.array:
        """See `Objective`."""
        return self.rows

    def settings(self) -> dict[str, Any]:
        """See `SequenceObjective`: the target's configuration, which says that it has such a layer."""
        config = read_config(self.model.info.path)
        return {**config, "rms_norm_eps": EPSILON, "num_nextn_predict_layers": 1, READING: list(TRAINED)}

    def published(self) -> PublishedDrafter:
        """See `SequenceObjective`: DeepSeek's names."""
        weights = dict(tree_flatten(self.network.parameters()))
        return PublishedDrafter(self.settings(), published_names(weights, len(self.model.network.layers)))


def _caches(held: _Pairs) -> list[LayerCache]:
    """Return caches that append to the rows held."""
    return [LayerCache(_appending(pair)) for pair in held]


def _appending(pair: list[mx.array]) -> Callable[[list[mx.array]], list[mx.array]]:
    def extend(new: list[mx.array]) -> list[mx.array]:
        pair[:] = [mx.concatenate(list(both), axis=2) for both in zip(pair, new, strict=True)] if pair else new
        return list(pair)

    return extend
