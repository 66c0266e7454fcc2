"""EAGLE-3 in training (Li et al. 2025, arXiv 2503.01840): the training-time test.

Below every root at once the head takes the steps that it takes in a draft: the first one on the target's features, the
others on its own outputs. A row sees the true rows up to its root's and the earlier rows of its own draft. The layer is
called as in drafting, with all these rows and one mask; the paper's code adds up the few products of a draft with
itself instead, which is the same.
"""

from typing import Any

import mlx.core as mx
import numpy as np

from rdchat.inference.drafting.checkpoints.drafter_files import PublishedDrafter
from rdchat.inference.drafting.heads.decoder import RopeConfig
from rdchat.inference.drafting.heads.eagle3_network import Eagle3Config, Eagle3Network
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

_OWN_SCORE = 8.0  # of a row with itself in fresh attention: some hundred others together weigh less


class Eagle3Objective(SequenceObjective):
    """Training of an EAGLE-3 head of one layer without tables; see `SequenceObjective`.

    Its output rows are stored, so its MLP is smaller than usual.
    """

    network: Eagle3Network

    def make_network(self) -> Eagle3Network:
        """See `SequenceObjective`."""
        width, vocabulary_size = self.target.embeddings.width, self.target.vocabulary_size
        heads, kv_heads = attention_heads(width)
        config = Eagle3Config(
            hidden_size=width,
            inner_size=4 * width // 3,
            heads=heads,
            kv_heads=kv_heads,
            head_size=width // heads,
            norm_epsilon=EPSILON,
            windows=(None,),
            takes_embedding=(True,),
            target_layers=self.layers,
            target_width=width,
            vocabulary_size=vocabulary_size,
            draft_vocabulary_size=vocabulary_size,
            rope=RopeConfig(THETA, max_positions=POSITIONS),
        )
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
        before = slice(first - 1, first - 1 + count)  # the row before a root holds it
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
            **self.shared_settings(config.head_size, config.inner_size),
            "eagle_config": layers,
        }


def _attend_to_itself(config: Eagle3Config, attention: Any) -> None:
    """Begin with queries along a row's own key, so that each row looks at itself before it looks elsewhere.

    The token before the one that is drafted comes in through attention alone. Where all rows look alike, it is one of
    hundreds, and the head learns for long no more than how frequent words are.
    """
    keys = attention.k_proj.weight.reshape(config.kv_heads, config.head_size, -1)
    shared = mx.repeat(keys, config.heads // config.kv_heads, axis=0)
    # inputs have a mean square of 1 and fresh weights a variance of a third of their number's inverse
    gain = _OWN_SCORE * 3 / config.head_size**0.5
    attention.q_proj.weight = gain * shared.reshape(attention.q_proj.weight.shape)
