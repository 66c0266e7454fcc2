"""Training of heads that read whole conversations: EAGLE-3 and DSpark.

Each input dimension is divided by its root mean square, and output rows are scaled to a unit second moment. Otherwise a
few dimensions that are far larger than the rest would dominate (see `whitening`). Neither needs a bias, which published
layouts do not have: a remaining mean is a constant input.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt
from mlx.utils import tree_flatten

from rdchat.inference.drafting.checkpoints.drafter_files import PublishedDrafter
from rdchat.inference.drafting.heads.decoder import RopeConfig
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.heads.recipes import SequenceRecipe
from rdchat.inference.training.heads.recurrent_objective import output_preconditioner
from rdchat.inference.training.heads.samples import Halves, Ints
from rdchat.inference.training.heads.trainer import Goals, Objective, Target, TrainingData

_THETA, _POSITIONS = 10_000.0, 8192
EPSILON = 1e-6
_HEAD_WIDTH = 64
_HELD_OUT = 12  # conversations drafted along while training


@dataclass(frozen=True, slots=True)
class Sample:
    """One conversation of n tokens, perhaps without the beginning of its question."""

    tokens: Ints  # (n,) ids
    features: Halves  # (n, width): the target's hidden states at these tokens, as the head reads them
    position: int  # absolute position of the first token
    answer: int  # index of the answer's first token in `tokens`
    start: int  # index of the answer's first token among all answer tokens

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


class SequenceObjective(Objective):
    """Data, loss and head of a training on whole conversations; see `Objective` for the other arguments.

    Args:
        model: The target.
        layers: Layers of the target that the head reads; `read_states` returns them after the trunk's output.

    Attributes:
        held_out: Samples of answers at temperature 0 that are not trained on.
        whitened: (candidates, width) float32: output rows of the draft vocabulary with a second moment of 1.
        input_scales: (features,) float32: divisors of the head's inputs.
        embedding_weights: (width,) float32: weights of a norm that bring all dimensions of normalised embeddings to the
            same size.
    """

    licence = "Its output rows are computed from the target's; nothing else of the target is in it."
    draws_roots: ClassVar[bool] = False  # whether a step uses only some roots of its conversation

    def __init__(
        self,
        target: Target,
        data: TrainingData,
        recipe: SequenceRecipe,
        *,
        model: LoadedModel,
        layers: tuple[int, ...],
    ) -> None:
        super().__init__(target, data, recipe)
        self.model, self.layers, self.recipe = model, layers, recipe
        self._starts = [0, *accumulate(map(self.state_tokens, self.conversations))]
        self._squares, self._tokens = np.zeros(0), 0
        self.held_out: list[Sample] = []

    @staticmethod
    def state_tokens(item: TrainingConversation) -> int:
        """See `Objective`: all tokens are read."""
        return len(item.tokens)

    def _states(self, window: int, number: int) -> Halves:
        """Return (tokens, width): the hidden states of a conversation in a window."""
        first = self.windows.span(window)[0]
        return self.windows.load(window)[self._starts[number] - first : self._starts[number + 1] - first]

    def trunk_states(self, window: int) -> Halves:
        """See `Objective`."""
        width, items = self.rows.shape[1], self.conversations
        parts = [self._states(window, number)[items[number].answer_start - 1 : -1] for number in self.inside(window)]
        return np.concatenate([part[:, :width] for part in parts])

    def measure(self, window: int) -> Ints:
        """See `Objective`; samples are conversations."""
        learnt = []
        for number in self.inside(window):
            item, place = self.conversations[number], self.answer_starts[number]
            here = self._states(window, number)[item.answer_start :, self.rows.shape[1] :].astype(np.float64)
            self._squares = (here**2).sum(axis=0) + (self._squares if self._squares.size else 0)
            self._tokens += len(here)
            if not self.answers.held_out[place]:
                learnt += [number] if len(item.answer) > 1 else []
            elif self.answers.greedy[place] and len(self.held_out) < _HELD_OUT:
                self.held_out.append(self.sample(window, number))
        return np.array([*learnt], np.int32)

    def sample(self, window: int, number: int) -> Sample:
        """Return a conversation as a sample."""
        features = self._states(window, number)[:, self.rows.shape[1] :]
        start, length = self.answer_starts[number], self.recipe.question_tokens
        return Sample.of(self.conversations[number], features, start, length)

    def make_head(self) -> None:
        """See `Objective`."""
        self.input_scales = mx.array(_floored(np.sqrt(self._squares / max(self._tokens, 1))).astype(np.float32))
        seen = np.flatnonzero(self.counts)
        normal = fetch(mx.fast.rms_norm(self.embed(mx.array(seen)), None, EPSILON))
        sizes = np.sqrt(np.average(normal**2, axis=0, weights=self.counts[seen]))
        self.embedding_weights = mx.array((1 / _floored(sizes)).astype(np.float32))
        self.whitened = self.rows @ output_preconditioner(fetch(self.rows))
        mx.eval(self.whitened)
        mx.random.seed(self._seed)
        self.network = self.make_network()
        norm = self.network.norm  # logits begin with a standard deviation of 1
        norm.weight = norm.weight * (1 / float(mx.mean(mx.linalg.norm(self.whitened, axis=-1))))
        mx.eval(self.network.parameters())
        lengths = [len(self.conversations[number].answer) for number in np.concatenate(self.samples).tolist()]
        self.tokens_per_step = sum(lengths) / max(len(lengths), 1)

    @abstractmethod
    def make_network(self) -> nn.Module:
        """Return a fresh network."""

    def sizes(self) -> dict[str, Any]:
        """Return the fields of `DecoderConfig` that all networks share."""
        width = self.target.embeddings.width
        heads, kv_heads = _attention_heads(width)
        return {
            "hidden_size": width,
            "vocabulary_size": self.target.vocabulary_size,
            "heads": heads,
            "kv_heads": kv_heads,
            "head_size": width // heads,
            "inner_size": 4 * width // 3,
            "norm_epsilon": EPSILON,
            "rope": RopeConfig(_THETA, max_positions=_POSITIONS),
            "target_layers": self.layers,
            "target_width": width,
        }

    def embed(self, tokens: mx.array) -> mx.array:
        """Return the embeddings of token ids, (...) -> (..., width) float32, as the head's input."""
        return self.target.embeddings.embed(tokens).astype(mx.float32)

    def scaled(self, sample: Sample) -> mx.array:
        """Return a sample's features as the network's input, (n, features) float32."""
        return mx.array(sample.features).astype(mx.float32) / self.input_scales

    def steps_in(self, window: int) -> int:
        """See `Objective`."""
        return len(self.samples[window])

    def batch(self, window: int, numbers: Ints, step: int) -> tuple[tuple[Sample, Ints], Goals]:
        """See `Objective`."""
        sample = self.sample(window, int(numbers[0]))
        roots, most = sample.roots(), self.recipe.roots
        if self.draws_roots and len(roots) > most:
            roots = np.sort(np.random.default_rng([self._seed, step, 2]).permutation(roots)[:most])
        return (sample, roots), self.goals(sample.among_answers(roots))

    @abstractmethod
    def features(self, sample: Sample, roots: Ints) -> mx.array:
        """See `Objective`.

        Args:
            sample: The conversation.
            roots: Some of `Sample.roots`, ascending.
        """

    def output_rows(self) -> mx.array:
        """See `Objective`."""
        return self.whitened

    def held_out_inputs(self) -> Iterator[tuple[Ints, tuple[Sample, Ints]]]:
        """See `Objective`."""
        for sample in self.held_out:
            if len(roots := sample.roots()):
                yield sample.among_answers(roots), (sample, roots)

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the published configuration."""

    def shared_settings(self) -> dict[str, Any]:
        """Return the settings that both layouts have."""
        config = self.network.config
        return {
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
        }

    def published(self) -> PublishedDrafter:
        """Return the head in its published layout, in float32, with the scaling folded into its weights."""
        weights = dict(tree_flatten(self.network.parameters()))
        weights["fc.weight"] = weights["fc.weight"] / self.input_scales
        weights["lm_head.weight"] = self.whitened
        ids = self.vocabulary.astype(np.int64)
        weights["d2t"] = mx.array(ids - np.arange(len(ids)))
        weights["t2d"] = mx.array(np.isin(np.arange(self.target.vocabulary_size), ids))
        return PublishedDrafter(self.settings(), weights)

    def drafter(self, binding: TargetBinding) -> PublishedDrafter:
        """See `Objective`."""
        return self.published().in_half_precision().bound_to(binding)


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
