"""Training of an EAGLE-3 head (Li et al. 2025, arXiv 2503.01840) by the training-time test, on complete conversations.

Below every root at once the head takes the same steps as in a draft: the first one on the target's features, the others
on its own outputs. A row sees the true rows up to its root's and the earlier rows of its own draft. The layer is called
as in drafting, with all these rows and one mask. The paper's code computes the products within a draft separately, with
the same result.

Each input dimension is divided by its root mean square, and output rows are scaled to a unit second moment. Otherwise a
few dimensions that are far larger than the rest would dominate (see `Whitening`). A bias, which the published layout
does not have, is not needed: a remaining mean is a constant input.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx.utils import tree_flatten

from rdchat.inference.drafting.checkpoints.checkpoint import PublishedDrafter
from rdchat.inference.drafting.heads.decoder import RopeConfig
from rdchat.inference.drafting.heads.eagle3_head import Eagle3Config, Eagle3Network
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.heads.recipes import Recipe
from rdchat.inference.training.heads.recurrent_objective import output_preconditioner
from rdchat.inference.training.heads.samples import Halves, Ints
from rdchat.inference.training.heads.trainer import Goals, Objective, Target, TrainingData, drop_inputs
from rdchat.inference.verification.fetch import fetch

_EPSILON = 1e-6
_HEAD_WIDTH = 64
# Conversations drafted along while training.
_HELD_OUT = 12
# Score of a row with itself in initial attention: a few hundred other rows together weigh less.
_OWN_SCORE = 8.0
_ROPE = RopeConfig(10_000.0, max_positions=8192)


@dataclass(frozen=True, slots=True)
class Sample:
    """One conversation of n tokens, perhaps without the beginning of its question.

    Attributes:
        tokens: (n,) ids.
        features: (n, width): the target's hidden states at these tokens, as the head reads them.
        position: Absolute position of the first token.
        answer: Index of the answer's first token in `tokens`.
        start: Index of the answer's first token among all answer tokens.
    """

    tokens: Ints
    features: Halves
    position: int
    answer: int
    start: int

    @classmethod
    def of(cls, item: TrainingConversation, features: Halves, start: int, question_tokens: int) -> "Sample":
        """Return a conversation with at most `question_tokens` tokens before its answer."""
        first = max(item.answer_start - question_tokens, 0)
        tokens = np.array([*item.tokens[first:]], np.int32)
        return cls(tokens, features[first:].copy(), first, item.answer_start - first, start)

    def roots(self) -> Ints:
        """Return the indices in `tokens` that can be roots: the answer's, except the last."""
        return np.arange(self.answer, len(self.tokens) - 1, dtype=np.int32)

    def among_answers(self, roots: Ints) -> Ints:
        """Return roots of this sample as indices among all answer tokens."""
        return roots - self.answer + self.start


class Eagle3Objective(Objective):
    """Data, loss and head of an EAGLE-3 training.

    The head has one layer and no embeddings. Its output rows are stored with it, so its MLP is smaller than usual.

    Attributes:
        held_out: Samples of answers at temperature 0 that are not trained on.
        input_scales: (features,) float32: divisors of the head's inputs.
        embedding_weights: (width,) float32: weights of a norm that bring all dimensions of normalised embeddings to the
            same size.
    """

    licence = "Its output rows are computed from the target's; nothing else of the target is in it."
    network: Eagle3Network

    def __init__(self, target: Target, data: TrainingData, recipe: Recipe, layers: tuple[int, ...]) -> None:
        super().__init__(target, data, recipe, layers)
        self._squares, self._tokens = np.zeros(0), 0
        self.held_out: list[Sample] = []

    @staticmethod
    def used_tokens(item: TrainingConversation) -> range:
        """See `Objective`: the head reads all tokens."""
        return range(len(item.tokens))

    def _states(self, window: int, number: int) -> Halves:
        """Return (tokens, width): the hidden states of a conversation in a window."""
        first, starts = self.windows.span(window)[0], self.windows.starts
        return self.windows.load(window)[starts[number] - first : starts[number + 1] - first]

    def trunk_states(self, window: int) -> Halves:
        width, numbers = self.rows.shape[1], self.windows.conversations(window)
        answers = [self.conversations[number].answer_start for number in numbers]
        parts = [self._states(window, number)[start - 1 : -1] for number, start in zip(numbers, answers, strict=True)]
        return np.concatenate([part[:, :width] for part in parts])

    def measure(self, window: int) -> Ints:
        """See `Objective`; samples are conversations."""
        learnt = []
        for number in self.windows.conversations(window):
            item, first = self.conversations[number], self.answer_starts[number]
            features = self._states(window, number)[item.answer_start :, self.rows.shape[1] :].astype(np.float64)
            self._squares = (features**2).sum(axis=0) + (self._squares if self._squares.size else 0)
            self._tokens += len(features)
            if not self.answers.held_out[first]:
                learnt += [number] if len(item.answer) > 1 else []
            elif self.answers.greedy[first] and len(self.held_out) < _HELD_OUT:
                self.held_out.append(self.sample(window, number))
        return np.array([*learnt], np.int32)

    def sample(self, window: int, number: int) -> Sample:
        """Return a conversation as a sample."""
        features = self._states(window, number)[:, self.rows.shape[1] :]
        start, length = self.answer_starts[number], self.recipe.question_tokens
        return Sample.of(self.conversations[number], features, start, length)

    def make_head(self) -> None:
        self.input_scales = mx.array(_floored(np.sqrt(self._squares / max(self._tokens, 1))).astype(np.float32))
        seen = np.flatnonzero(self.counts)
        normal = fetch(mx.fast.rms_norm(self.embed(mx.array(seen)), None, _EPSILON))
        sizes = np.sqrt(np.average(normal**2, axis=0, weights=self.counts[seen]))
        self.embedding_weights = mx.array((1 / _floored(sizes)).astype(np.float32))
        self.output_rows = self.rows @ output_preconditioner(fetch(self.rows))
        mx.eval(self.output_rows)
        mx.random.seed(self.recipe.seed)
        self.network = self._fresh_network()
        norm = self.network.norm  # Logits begin with a standard deviation of 1.
        norm.weight = norm.weight * (1 / float(mx.mean(mx.linalg.norm(self.output_rows, axis=-1))))
        mx.eval(self.network.parameters())
        lengths = [len(self.conversations[number].answer) for number in np.concatenate(self.samples).tolist()]
        self.tokens_per_step = sum(lengths) / max(len(lengths), 1)

    def _fresh_network(self) -> Eagle3Network:
        width, size = self.target.embeddings.width, self.target.vocabulary_size
        heads, kv_heads = _attention_heads(width)
        config = Eagle3Config(
            hidden_size=width,
            vocabulary_size=size,
            heads=heads,
            kv_heads=kv_heads,
            head_size=width // heads,
            inner_size=4 * width // 3,
            norm_epsilon=_EPSILON,
            rope=_ROPE,
            target_layers=self.layers,
            target_width=width,
            draft_vocabulary_size=size,
            windows=(None,),
            takes_embedding=(True,),
        )
        network = Eagle3Network(config)
        layer = network.layers[0]
        layer.input_layernorm.weight = self.embedding_weights
        _attend_to_itself(config, layer.self_attn)
        drop_inputs((network.fc, layer.mlp.gate_proj, layer.mlp.up_proj), self.recipe.dropout)
        return network

    def embed(self, tokens: mx.array) -> mx.array:
        """Return the embeddings of token ids, (...) -> (..., width) float32, as the head's input."""
        return self.target.embeddings.embed(tokens).astype(mx.float32)

    def scaled(self, sample: Sample) -> mx.array:
        """Return a sample's features as the network's input, (n, features) float32."""
        return mx.array(sample.features).astype(mx.float32) / self.input_scales

    def batch(self, window: int, numbers: Ints) -> tuple[tuple[Sample, Ints], Goals]:
        sample = self.sample(window, int(numbers[0]))
        roots = sample.roots()
        return (sample, roots), self.goals(sample.among_answers(roots))

    def features(self, sample: Sample, roots: Ints) -> mx.array:
        """See `Objective`.

        Args:
            sample: The conversation.
            roots: Some of `Sample.roots`, ascending and without gaps.
        """
        network, layer = self.network, self.network.layers[0]
        tokens = mx.array(sample.tokens)
        count, first = len(roots), int(roots[0])
        hidden = network.fuse(self.scaled(sample)[:-1])
        inputs, residual = layer.inputs(self.embed(tokens[1:]), hidden)
        rows = layer.self_attn.rows(inputs, range(sample.position, sample.position + len(sample.tokens) - 1))
        before = slice(first - 1, first - 1 + count)  # The row before a root contains the root.
        inputs, residual = inputs[before], residual[before]
        mask = mx.arange(len(sample.tokens) - 1) < mx.array(roots)[:, None]
        outputs: list[mx.array] = []
        for step in range(self.recipe.steps):
            start = sample.position + first - 1 + step
            positions = range(start, start + count)
            if step:
                ahead = np.minimum(roots + step, len(sample.tokens) - 1)
                inputs, residual = layer.inputs(self.embed(tokens[mx.array(ahead)]), network.carried(outputs[-1]))
                own = layer.self_attn.rows(inputs, positions)
                rows = [mx.concatenate(list(pair), axis=2) for pair in zip(rows, own, strict=True)]
                mask = mx.concatenate([mask, mx.eye(count, dtype=mx.bool_)], axis=1)
            outputs.append(layer.outputs(residual, layer.self_attn(inputs, positions, rows, mask)))
        features: mx.array = network.norm(mx.stack(outputs, axis=1))
        return features

    def held_out_inputs(self) -> Iterator[tuple[Ints, tuple[Sample, Ints]]]:
        for sample in self.held_out:
            if len(roots := sample.roots()):
                yield sample.among_answers(roots), (sample, roots)

    def published(self) -> PublishedDrafter:
        """Return the head in SafeAILab's layout, in float32, with the scaling folded into its weights."""
        parameters = dict(tree_flatten(self.network.parameters()))
        weights = {name.replace("layers.0.", "midlayer."): array for name, array in parameters.items()}
        weights["fc.weight"] = weights["fc.weight"] / self.input_scales
        weights["lm_head.weight"] = self.output_rows
        ids = self.vocabulary.astype(np.int64)
        weights["d2t"] = mx.array(ids - np.arange(len(ids)))
        weights["t2d"] = mx.array(np.isin(np.arange(self.target.vocabulary_size), ids))
        return PublishedDrafter(self._settings(), weights)

    def _settings(self) -> dict[str, Any]:
        """Return the published configuration."""
        config = self.network.config
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "num_hidden_layers": 1,
            "hidden_size": config.hidden_size,
            "intermediate_size": config.inner_size,
            "num_attention_heads": config.heads,
            "num_key_value_heads": config.kv_heads,
            "head_dim": config.head_size,
            "hidden_act": "silu",
            "rms_norm_eps": config.norm_epsilon,
            "rope_theta": config.rope.theta,
            "max_position_embeddings": config.rope.max_positions,
            "vocab_size": config.vocabulary_size,
            "draft_vocab_size": len(self.vocabulary),
            "tie_word_embeddings": False,
            "torch_dtype": "float16",
            "eagle_config": {
                "eagle_aux_hidden_state_layer_ids": list(config.target_layers),
                "use_aux_hidden_state": True,
            },
        }

    def drafter(self, binding: TargetBinding) -> PublishedDrafter:
        return self.published().in_half_precision().bound_to(binding)


def _attend_to_itself(config: Eagle3Config, attention: Any) -> None:
    """Initialise queries along a row's own key, so that each row attends to itself first.

    The token before the drafted one is seen through attention alone. If all rows look alike, it is one of hundreds, and
    for a long time the head learns only word frequencies.
    """
    keys = attention.k_proj.weight.reshape(config.kv_heads, config.head_size, -1)
    shared = mx.repeat(keys, config.heads // config.kv_heads, axis=0)
    # Inputs have a mean square of 1, fresh weights a variance of 1/3 divided by their number.
    gain = _OWN_SCORE * 3 / config.head_size**0.5
    attention.q_proj.weight = gain * shared.reshape(attention.q_proj.weight.shape)


def _floored(sizes: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Return sizes, each at least a thousandth of the largest."""
    floored: npt.NDArray[np.floating] = np.maximum(sizes, 1e-3 * sizes.max())
    return floored


def _attention_heads(width: int) -> tuple[int, int]:
    """Return the numbers of query and key heads: heads about 64 wide, with two or three query heads per key head."""
    heads = max(width // _HEAD_WIDTH, 1)
    while width % heads or (width // heads) % 2:
        heads -= 1
    return heads, next(heads // shared for shared in (3, 2, 1) if heads % shared == 0)
