"""The loss of a recurrent drafter: distillation of the target's top-k tokens, along teacher-forced drafts.

For features f and output rows E the cross entropy with the target's probabilities p is `log Z(f) - sum_i p_i E_i f`.
The softmax denominator Z sums over the whole draft vocabulary. A sampled one sums over the target's top-k tokens,
exactly, and over drawn ones, each weighted with the inverse of its chance to be drawn: an unbiased estimate of Z
(Bengio and Senecal 2008; the `- log chance` is the usual correction of sampled softmax).
"""

import mlx.core as mx

from rdchat.inference.drafting.heads.recurrent_head import RecurrentHead

# Tokens over which a sampled denominator is summed: their output rows (drawn, width); the log of each one's chance to
# be drawn, (drawn,), 0 for those that always are; and (vocabulary,) int32: where each token of the draft vocabulary
# stands among the drawn ones, -1 if it does not.
Candidates = tuple[mx.array, mx.array, mx.array]


def unroll(head: RecurrentHead, hidden: mx.array, embeddings: mx.array) -> mx.array:
    """Return the head's features along given tokens, instead of along its own draft (teacher forcing).

    Args:
        head: The drafter's.
        hidden: (batch, input_size) float: the target's hidden state that each root was chosen from.
        embeddings: (batch, steps, hidden_size) float: of the root and the tokens behind it.

    Returns:
        (batch, steps, width): the features that the token behind each is read from.
    """
    context = head.context(hidden)
    state = head.initial_state((hidden.shape[0],), hidden.dtype)
    features = []
    for step in range(embeddings.shape[1]):
        state = head.advance(state, embeddings[:, step])
        features.append(head.features(context, state))
    return mx.stack(features, axis=1)


def distillation(features: mx.array, rows: mx.array, columns: mx.array, probs: mx.array) -> mx.array:
    """Return the cross entropy of each position with the whole draft vocabulary, in nats.

    Args:
        features: (..., width).
        rows: (candidates, width) output rows.
        columns: (..., k) int32: the target's top-k tokens, as indices into `rows`.
        probs: (..., k) float32: their probabilities, which sum to 1.

    Returns:
        (...) float32.
    """
    return mx.logsumexp(features @ rows.T, axis=-1) - mx.sum(features * _teacher_rows(rows, columns, probs), axis=-1)


def sampled_distillation(
    features: mx.array, rows: mx.array, columns: mx.array, probs: mx.array, candidates: Candidates
) -> mx.array:
    """Return what `distillation` returns, with the denominator estimated from drawn candidates.

    A top-k token is summed exactly, whether it was drawn or not: otherwise raising its logit could cost nothing, and
    the loss would have no lower bound.
    """
    drawn_rows, log_chances, all_places = candidates
    own_logits = (rows[columns] @ features[..., None])[..., 0]
    places = all_places[columns]
    missing = places < 0
    certain = mx.where(missing, 0, log_chances[places])  # makes the weight of a top-k token 1
    drawn = features @ drawn_rows.T - log_chances
    drawn = drawn + mx.zeros_like(drawn).at[(*_grid(columns), places)].add(certain)
    summed = mx.concatenate([drawn, mx.where(missing, own_logits, -mx.inf)], axis=-1)
    return mx.logsumexp(summed, axis=-1) - mx.sum(own_logits * probs, axis=-1)


def weighted_mean(losses: mx.array, weights: mx.array) -> mx.array:
    """Return () float32: the mean loss in nats weighted with `weights`, of the same shape; 0 where all are 0."""
    return mx.sum(losses * weights) / mx.maximum(mx.sum(weights), 1)


def _teacher_rows(rows: mx.array, columns: mx.array, probs: mx.array) -> mx.array:
    """Return the target's mean output row, (..., width)."""
    return mx.sum(rows[columns] * probs[..., None], axis=-2)


def _grid(columns: mx.array) -> tuple[mx.array, ...]:
    """Return index arrays for all axes but the last, broadcastable to `columns`."""
    axes = columns.shape[:-1]
    return tuple(
        mx.arange(size).reshape(*([1] * axis), size, *([1] * (len(axes) - axis))) for axis, size in enumerate(axes)
    )
