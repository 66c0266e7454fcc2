"""Fits a drafter's inverse temperature: the factor on its log-probabilities before noise is added (docs/adr/0003).

Target and drafter add the same Gumbel noise, so the chance that they choose the same token has a closed form. As a race
of exponential times, both choose x with the chance `1 / sum_y max(p_y / p_x, q_y / q_x)` (Daliri, Musco and Suresh
2024, arXiv 2408.07978). So no noise has to be drawn.
"""

from collections.abc import Sequence

import mlx.core as mx

CHOICES = tuple(round(0.8 + 0.05 * step, 2) for step in range(15))  # up to 1.5
_TEMPERATURES = (0.7, 1.0)  # common sampling settings; greedy drafts do not depend on it


def agreed(logits: mx.array, columns: mx.array, probs: mx.array, weights: mx.array) -> mx.array:
    """Return (choices,) the chances of agreement with each of `CHOICES`, summed over places and temperatures.

    Args:
        logits: See `agreement`.
        columns: See `agreement`.
        probs: See `agreement`.
        weights: (...) float32: weights of the places.
    """
    found = []
    for scale in CHOICES:
        chances = [agreement(logits, columns, probs, temperature, scale) for temperature in _TEMPERATURES]
        found.append(mx.sum(weights * sum(chances, start=mx.zeros(weights.shape))))
    return mx.stack(found)


def best_of(choices: Sequence[float], agreed: Sequence[float]) -> float:
    """Return the choice with the largest `agreed`; among equals, the one nearest to 1."""
    return max(zip(choices, agreed, strict=True), key=lambda pair: (pair[1], -abs(pair[0] - 1)))[0]


def agreement(logits: mx.array, columns: mx.array, probs: mx.array, temperature: float, scale: float) -> mx.array:
    """Return the chance that target and drafter choose the same token with the same noise.

    Args:
        logits: (..., candidates) float32: the drafter's, at temperature 1.
        columns: (..., k) integers: the target's top-k tokens, as indices among the candidates.
        probs: (..., k) float32: the target's probabilities of them at temperature 1.
        temperature: Of the sampling; above 0.
        scale: The drafter's inverse temperature.

    Returns:
        (...) float32, from 0 to 1.
    """
    target = mx.softmax(mx.log(mx.maximum(probs, 1e-30)) / temperature, axis=-1)
    warped = logits * (scale / temperature)
    drafted = mx.exp(mx.take_along_axis(warped, columns, axis=-1) - mx.logsumexp(warped, axis=-1, keepdims=True))
    drafted = mx.maximum(drafted, 1e-30)
    others = mx.maximum(1 - mx.sum(drafted, axis=-1, keepdims=True), 0)  # tokens that only the drafter has
    ratios = mx.maximum(
        target[..., None, :] / mx.maximum(target, 1e-30)[..., None], drafted[..., None, :] / drafted[..., None]
    )
    return mx.sum(1 / (mx.sum(ratios, axis=-1) + others / drafted), axis=-1)
