"""Fitting a drafter's `sharpen`, the scalar on its log-probabilities before the noise is added (docs/adr/0003).

Target and drafter add the same Gumbel noise, so the chance that they choose the same token has a closed form: it is a
race of exponential times, and both choose x with the chance `1 / sum_y max(p_y / p_x, q_y / q_x)` (Daliri, Musco and
Suresh 2024, arXiv 2408.07978). No noise has to be drawn.
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from rdchat.inference.drafting.recurrent_head import RecurrentHead
from rdchat.inference.training.head.loss import unroll
from rdchat.inference.training.head.preparation import Prepared

_CHOICES = tuple(round(0.8 + 0.05 * step, 2) for step in range(15))  # up to 1.5
_TEMPERATURES = (0.7, 1.0)  # what people sample at; greedy drafts do not depend on it
_ROOTS, _ROWS = 2048, 256  # drafts that are looked at, and how many of them at a time


def fit_sharpen(head: RecurrentHead, prepared: Prepared) -> float:
    """Return the scalar with which the drafter agrees most often with the target on held-out answers.

    Args:
        head: In training coordinates.
        prepared: What it was trained on.
    """
    head.eval()
    reader, coordinates, held_out = prepared.reader, prepared.coordinates, prepared.held_out
    chosen = np.linspace(0, len(held_out.roots) - 1, min(_ROOTS, len(held_out.roots))).astype(np.int64)
    agreed = mx.zeros(len(_CHOICES))
    for start in range(0, len(chosen), _ROWS):
        some = chosen[start : start + _ROWS]
        batch = reader.batch(held_out.roots[some], held_out.states[some])
        logits = unroll(head, coordinates.hidden(batch.hidden), coordinates.embed(batch.path)) @ coordinates.rows.T
        agreed += mx.stack([_agreed(logits, batch.columns, batch.probs, batch.weights, s) for s in _CHOICES])
        mx.eval(agreed)
    head.train()
    return best_of(_CHOICES, [float(sum_of_chances) for sum_of_chances in np.array(agreed)])


def best_of(choices: Sequence[float], agreed: Sequence[float]) -> float:
    """Return the choice that agreed most, of equals the one nearest to 1."""
    return max(zip(choices, agreed, strict=True), key=lambda pair: (pair[1], -abs(pair[0] - 1)))[0]


def agreement(logits: mx.array, columns: mx.array, probs: mx.array, temperature: float, sharpen: float) -> mx.array:
    """Return the chance that target and drafter choose the same token with the same noise.

    Args:
        logits: (..., candidates) float32: the drafter's, before temperature and `sharpen`.
        columns: (..., k) integers: the tokens that the target may choose, among the candidates.
        probs: (..., k) float32: how likely they are at temperature 1.
        temperature: Above 0.
        sharpen: Multiplies the drafter's log-probabilities.

    Returns:
        (...) float32.
    """
    target = mx.softmax(mx.log(mx.maximum(probs, 1e-30)) / temperature, axis=-1)
    warped = logits * (sharpen / temperature)
    drafted = mx.exp(mx.take_along_axis(warped, columns, axis=-1) - mx.logsumexp(warped, axis=-1, keepdims=True))
    drafted = mx.maximum(drafted, 1e-30)
    others = mx.maximum(1 - mx.sum(drafted, axis=-1, keepdims=True), 0)  # the drafter's alone
    ratios = mx.maximum(
        target[..., None, :] / mx.maximum(target, 1e-30)[..., None], drafted[..., None, :] / drafted[..., None]
    )
    return mx.sum(1 / (mx.sum(ratios, axis=-1) + others / drafted), axis=-1)


def _agreed(logits: mx.array, columns: mx.array, probs: mx.array, weights: mx.array, sharpen: float) -> mx.array:
    chances = [agreement(logits, columns, probs, temperature, sharpen) for temperature in _TEMPERATURES]
    return mx.sum(weights * sum(chances, start=mx.zeros(weights.shape)))
