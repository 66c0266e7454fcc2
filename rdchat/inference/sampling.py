"""The one rule by which a token is chosen: `argmax(warp(log_probs) + noise(seed, position, token))`.

`warp` is repetition penalty, temperature and the filters top-k, top-p and min-p. Each filter looks at the distribution
before temperature, as mlx-lm's do, and at the whole of it: what they keep is intersected, so no order matters.
Every filter keeps all tokens at least as likely as some border, so ties are kept together.
"""

import math

import mlx.core as mx

from rdchat.inference.noise import gumbel_noise
from rdchat.inference.protocol import SamplingParams

# A temperature below this counts as 0: it leaves nothing to chance, and dividing by it leaves the range of float32.
_LEAST_TEMPERATURE = 1e-4


class TokenChooser:
    """Chooses tokens for one reply.

    Args:
        params: Sampling parameters.
        seed: 64-bit reply seed.
        vocabulary_size: Columns of the logits.
    """

    def __init__(self, params: SamplingParams, seed: int, vocabulary_size: int) -> None:
        self._params = params
        self._seed = seed
        self._token_ids = mx.arange(vocabulary_size, dtype=mx.uint32)

    @property
    def needs_seen(self) -> bool:
        """Whether the repetition penalty is on, so that `choose` wants to know which tokens occurred before."""
        return self._params.repetition_penalty != 1

    def seen(self, token_ids: list[int]) -> mx.array:
        """Return (vocabulary,) bool: which tokens occur among `token_ids`."""
        mask = mx.zeros(self._token_ids.shape, dtype=mx.bool_)
        if token_ids:
            mask[mx.array(token_ids)] = True
        return mask

    def with_token(self, seen: mx.array, token: mx.array) -> mx.array:
        """Return `seen`, (vocabulary,) bool, with one more token, a (1,) integer array that may be lazy."""
        return seen | (self._token_ids == token)

    def choose(self, logits: mx.array, positions: mx.array, seen: mx.array | None = None) -> mx.array:
        """Choose one token for each row.

        Args:
            logits: (n, vocabulary), any floating dtype: what the model returned.
            positions: (n,) integers: absolute positions of the tokens to be chosen.
            seen: (vocabulary,) or (n, vocabulary) bool; wanted where `needs_seen`.

        Returns:
            (n,) uint32.
        """
        logits = logits.astype(mx.float32)
        if seen is not None:
            logits = penalize(logits, seen, self._params.repetition_penalty)
        if self._params.temperature < _LEAST_TEMPERATURE:
            return mx.argmax(logits, axis=-1)
        noise = gumbel_noise(self._seed, positions, self._token_ids)
        return mx.argmax(warp(log_softmax(logits), self._params) + noise, axis=-1)


def log_softmax(logits: mx.array) -> mx.array:
    """Return log-probabilities over the last axis, (..., vocabulary) float32."""
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def penalize(logits: mx.array, seen: mx.array, penalty: float) -> mx.array:
    """Make tokens that occurred before less likely (Keskar et al. 2019, arXiv 1909.05858, section 4.1).

    Args:
        logits: (n, vocabulary) float32.
        seen: (vocabulary,) or (n, vocabulary) bool: tokens of the prompt and the reply so far.
        penalty: Above 1 discourages repetition.
    """
    return mx.where(seen, mx.where(logits > 0, logits / penalty, logits * penalty), logits)


def warp(log_probs: mx.array, params: SamplingParams) -> mx.array:
    """Divide by the temperature, and set what a filter drops to minus infinity.

    Args:
        log_probs: (n, vocabulary) float32, normalised.
        params: Sampling parameters with a temperature of at least 0.0001.

    Returns:
        (n, vocabulary) float32, the likeliest token of a row at 0: where a small temperature makes the others large
        and float32 coarse, that one stays exact.
    """
    warped = (log_probs - mx.max(log_probs, axis=-1, keepdims=True)) / params.temperature
    border = filter_border(log_probs, params)
    return warped if border is None else mx.where(log_probs >= border, warped, -mx.inf)


def filter_border(log_probs: mx.array, params: SamplingParams) -> mx.array | None:
    """Return the log-probability, (n, 1), of the least likely token that every filter keeps; None with all filters off.

    Args:
        log_probs: (n, vocabulary) float32, normalised.
        params: Sampling parameters.
    """
    borders = []
    if 0 < params.top_k < log_probs.shape[-1]:
        borders.append(mx.min(mx.topk(log_probs, params.top_k, axis=-1), axis=-1, keepdims=True))
    if params.top_p < 1:
        borders.append(_nucleus_border(log_probs, params.top_p))
    if params.min_p > 0:
        borders.append(mx.max(log_probs, axis=-1, keepdims=True) + math.log(params.min_p))
    if not borders:
        return None
    border = borders[0]
    for other in borders[1:]:
        border = mx.maximum(border, other)
    return border


def _nucleus_border(log_probs: mx.array, top_p: float) -> mx.array:
    """Return the border, (n, 1), of the smallest set of likeliest tokens that holds at least `top_p` of the mass.

    Holtzman et al. 2020, arXiv 1904.09751.
    """
    ascending = mx.sort(log_probs, axis=-1)
    mass_up_to = mx.cumsum(mx.exp(ascending), axis=-1)
    kept = mass_up_to > 1 - top_p  # what lies above this token is less than top_p
    kept[:, -1] = True
    return mx.min(mx.where(kept, ascending, mx.inf), axis=-1, keepdims=True)
