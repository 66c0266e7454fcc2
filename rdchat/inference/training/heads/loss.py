"""The loss of a drafter in training: distillation of the target's top-k tokens; drawn candidates and dropout.

For features f and output rows E the cross entropy with the target's probabilities p is `log Z(f) - sum_i p_i E_i f`.
The softmax denominator Z sums over the whole draft vocabulary. A sampled one sums over the target's top-k tokens,
exactly, and over drawn ones, each weighted with the inverse of its chance to be drawn: an unbiased estimate of Z
(Bengio and Senecal 2008; the `- log chance` is the usual correction of sampled softmax).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt

from rdchat.inference.drafting.heads.recurrent_head import RecurrentHead

# Tokens over which a sampled denominator is summed: (drawn,) indices into the draft vocabulary; (drawn,) the log of
# each one's chance to be drawn, 0 for those that always are; and (vocabulary,) int32: the place of each token of the
# draft vocabulary among the drawn ones, -1 if it was not drawn.
Candidates = tuple[mx.array, mx.array, mx.array]

_ALWAYS_DRAWN = 2 / 3  # share of the candidates that are the most frequent tokens; the others are drawn evenly


@dataclass(frozen=True, slots=True)
class CandidateDraw:
    """Draws the tokens over which a step sums the softmax denominator: the frequent ones, and some of the others."""

    by_frequency: npt.NDArray[np.integer]  # (candidates,) indices into the draft vocabulary, the most frequent first
    wanted: int  # tokens of a step; 0 is all of them
    seed: int  # decides the draw, with the step's number

    def __call__(self, step: int) -> Candidates | None:
        """Return the candidates of a step; None for all tokens."""
        wanted, there = self.wanted, len(self.by_frequency)
        if not 0 < wanted < there:
            return None
        always = int(wanted * _ALWAYS_DRAWN)
        draw = np.random.default_rng([self.seed, step, 1])
        others = draw.choice(there - always, wanted - always, replace=False) + always
        drawn = self.by_frequency[np.concatenate([np.arange(always), others])]
        places = np.full(there, -1, np.int32)
        places[drawn] = np.arange(wanted, dtype=np.int32)
        chances = np.zeros(wanted, np.float32)
        chances[always:] = math.log((wanted - always) / (there - always))
        return mx.array(drawn), mx.array(chances), mx.array(places)


class DroppingLinear(nn.Linear):
    """A linear layer that drops some of its inputs while training; its weights have the same names."""

    dropout = 0.0

    def __call__(self, x: mx.array) -> mx.array:
        if self.training and self.dropout:
            kept = 1 - self.dropout
            x = x * mx.random.bernoulli(kept, x.shape) / kept
        result: mx.array = super().__call__(x)
        return result


def drop_inputs(modules: Iterable[nn.Linear], dropout: float) -> None:
    """Make linear layers drop some of their inputs while training."""
    kind = type("DroppingLinear", (DroppingLinear,), {"dropout": dropout})
    for module in modules:
        module.__class__ = kind


def unroll(head: RecurrentHead, hidden: mx.array, embeddings: mx.array) -> mx.array:
    """Return the head's features along given tokens, instead of along its own draft (teacher forcing).

    Args:
        head: The drafter's.
        hidden: (batch, input_size) float: the target's hidden state that each root was chosen from.
        embeddings: (batch, steps, hidden_size) float: of the root and the tokens after it.

    Returns:
        (batch, steps, width): the features that the token after each is read from.
    """
    context = head.context(hidden)
    state = head.initial_state((hidden.shape[0],), hidden.dtype)
    features = []
    for step in range(embeddings.shape[1]):
        state = head.advance(state, embeddings[:, step])
        features.append(head.features(context, state))
    return mx.stack(features, axis=1)


def distillation(
    features: mx.array, rows: mx.array, columns: mx.array, probs: mx.array, candidates: Candidates | None = None
) -> mx.array:
    """Return the cross entropy of each position, in nats.

    With drawn candidates the denominator is estimated. A top-k token is summed exactly even so, whether it was drawn or
    not: otherwise raising its logit could cost nothing, and the loss would have no lower bound.

    Args:
        features: (..., width).
        rows: (candidates, width) output rows.
        columns: (..., k) int32: the target's top-k tokens, as indices into `rows`.
        probs: (..., k) float32: their probabilities, which sum to 1.
        candidates: Of `CandidateDraw`; None sums over the whole draft vocabulary.

    Returns:
        (...) float32.
    """
    if candidates is None:
        teacher_rows = mx.sum(rows[columns] * probs[..., None], axis=-2)
        return mx.logsumexp(features @ rows.T, axis=-1) - mx.sum(features * teacher_rows, axis=-1)
    drawn_tokens, log_chances, all_places = candidates
    own_logits = (rows[columns] @ features[..., None])[..., 0]
    places = all_places[columns]
    missing = places < 0
    certain = mx.where(missing, 0, log_chances[places])  # makes the weight of a top-k token 1
    drawn = features @ rows[drawn_tokens].T - log_chances
    drawn = drawn + mx.zeros_like(drawn).at[(*_grid(columns), places)].add(certain)
    summed = mx.concatenate([drawn, mx.where(missing, own_logits, -mx.inf)], axis=-1)
    return mx.logsumexp(summed, axis=-1) - mx.sum(own_logits * probs, axis=-1)


def weighted_mean(losses: mx.array, weights: mx.array) -> mx.array:
    """Return () float32: the mean loss in nats weighted with `weights`, of the same shape; 0 where all are 0."""
    return mx.sum(losses * weights) / mx.maximum(mx.sum(weights), 1)


def _grid(columns: mx.array) -> tuple[mx.array, ...]:
    """Return index arrays for all axes but the last, broadcastable to `columns`."""
    axes = columns.shape[:-1]
    return tuple(
        mx.arange(size).reshape(*([1] * axis), size, *([1] * (len(axes) - axis))) for axis, size in enumerate(axes)
    )
