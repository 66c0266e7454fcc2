"""The one rule by which a token is chosen: `argmax(warp(logits) + noise(seed, position, token))`.

`warp` is repetition penalty, temperature and the filters top-k, top-p and min-p. Each filter looks at the distribution
before temperature, as mlx-lm's do, and at the whole of it: what they keep is intersected, so no order matters. Every
filter keeps all tokens at least as likely as some border, so ties are kept together. Adding the same number to all
logits changes nothing, so they need not be normalised.
"""

import math
from functools import partial

import mlx.core as mx

from rdchat.inference.api.requests import SamplingParams
from rdchat.inference.decoding.noise import gumbel_noise

_NUCLEUS_CANDIDATES = 256  # most likely tokens among which the border of top-p and min-p is looked for first
_SPARE = 8  # candidates beyond top-k, so that ties at its border show
_BLOCK = 32  # columns whose maximum stands for all of them while candidates are looked for


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
        """Whether the repetition penalty is on, so that `choose` takes `seen`."""
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
        """Choose one token for each row, by the definition: the whole vocabulary is looked at and sorted.

        Args:
            logits: (n, vocabulary), any floating dtype: what the model returned.
            positions: (n,) integers: absolute positions of the tokens to be chosen.
            seen: (vocabulary,) or (n, vocabulary) bool; wanted where `needs_seen`.

        Returns:
            (n,) uint32.
        """
        return mx.argmax(self.scores(logits, positions, seen), axis=-1)

    def scores(self, logits: mx.array, positions: mx.array, seen: mx.array | None = None) -> mx.array:
        """Return what `choose` compares: (n, vocabulary) float32, minus infinity where a filter drops a token."""
        logits = self._penalized(logits, seen)
        if self._params.greedy:
            return logits
        return warp(logits, self._params) + gumbel_noise(self._seed, positions, self._token_ids)

    def choose_quickly(
        self, logits: mx.array, start: int, depths: mx.array, deepest: int, seen: mx.array | None = None
    ) -> tuple[mx.array, mx.array]:
        """Choose one token for each row of a tree, looking at the most likely candidates only.

        Args:
            logits: (n, vocabulary), any floating dtype: what the model returned.
            start: Absolute position of the token that follows the root.
            depths: (n,) integers, perhaps lazy: the rows' distances from the root.
            deepest: The largest of them.
            seen: (vocabulary,) or (n, vocabulary) bool; wanted where `needs_seen`.

        Returns:
            (n,) uint32 tokens, and (n,) bool: whether each is surely what `choose` gives. Where not, the filters keep
            more tokens than were looked at.
        """
        logits = self._penalized(logits, seen)
        params, sure = self._params, mx.ones(depths.shape, mx.bool_)
        if params.greedy:
            return mx.argmax(logits, axis=-1), sure
        if not has_filter(params):
            noise = gumbel_noise(self._seed, mx.arange(start, start + deepest + 1), self._token_ids)
            return mx.argmax(warp(logits, params) + noise[depths], axis=-1), sure
        count = min(params.top_k + _SPARE if params.top_k else _NUCLEUS_CANDIDATES, logits.shape[-1])
        ids, values = top_k(logits, count)
        border = filter_border(values, softmax_denominator(logits), params)
        kept = mx.where(values >= border, (values - values[:, :1]) / params.temperature, -mx.inf)
        best = mx.argmax(kept + gumbel_noise(self._seed, start + depths, ids), axis=-1, keepdims=True)
        if count < logits.shape[-1]:
            sure = border[:, 0] > values[:, -1]
        return mx.take_along_axis(ids, best, axis=-1)[:, 0], sure

    def _penalized(self, logits: mx.array, seen: mx.array | None) -> mx.array:
        logits = logits.astype(mx.float32)
        return logits if seen is None else penalize(logits, seen, self._params.repetition_penalty)


def has_filter(params: SamplingParams) -> bool:
    """Tell whether top-k, top-p or min-p is on."""
    return params.top_k > 0 or params.top_p < 1 or params.min_p > 0


def warp(logits: mx.array, params: SamplingParams) -> mx.array:
    """Divide by the temperature, and set what a filter drops to minus infinity.

    Args:
        logits: (n, vocabulary) float32.
        params: Sampling parameters with a temperature above 0.

    Returns:
        (n, vocabulary) float32, the most likely token of a row at 0: where a small temperature makes the others large
        and float32 coarse, that one stays exact.
    """
    warped = (logits - mx.max(logits, axis=-1, keepdims=True)) / params.temperature
    if not has_filter(params):
        return warped
    border = filter_border(mx.sort(logits, axis=-1)[:, ::-1], softmax_denominator(logits), params)
    return mx.where(logits >= border, warped, -mx.inf)


def penalize(logits: mx.array, seen: mx.array, penalty: float) -> mx.array:
    """Make tokens that occurred before less likely (Keskar et al. 2019, arXiv 1909.05858, section 4.1).

    Args:
        logits: (n, vocabulary) float32.
        seen: (vocabulary,) or (n, vocabulary) bool: tokens of the prompt and the reply so far.
        penalty: Above 1 discourages repetition.
    """
    return mx.where(seen, mx.where(logits > 0, logits / penalty, logits * penalty), logits)


def filter_border(values: mx.array, total: mx.array, params: SamplingParams) -> mx.array:
    """Return the logit, (n, 1), of the least likely token that every filter keeps.

    Args:
        values: (n, m) float32: the m largest logits of each row, in descending order. Where the border lies beyond
            them, the least of them is returned.
        total: (n, 1) float32: `softmax_denominator` of the whole rows.
        params: Sampling parameters with at least one filter.
    """
    border = values[:, -1:]
    if 0 < params.top_k < values.shape[-1]:
        border = mx.maximum(border, values[:, params.top_k - 1 : params.top_k])
    if params.top_p < 1:  # the nucleus: Holtzman et al. 2020, arXiv 1904.09751
        probs = mx.exp(values - values[:, :1]) / total
        before = mx.cumsum(probs, axis=-1) - probs
        border = mx.maximum(border, mx.min(mx.where(before < params.top_p, values, mx.inf), axis=-1, keepdims=True))
    if params.min_p > 0:
        border = mx.maximum(border, values[:, :1] + math.log(params.min_p))
    return border


def softmax_denominator(logits: mx.array) -> mx.array:
    """Return the sum, (n, 1) float32, of exp(logit - largest logit) over each row, to a relative 1e-6."""
    powers = _exp(_in_blocks(logits) - mx.max(logits, axis=-1, keepdims=True)[..., None])
    return mx.sum(mx.sum(powers, axis=-1), axis=-1, keepdims=True)  # in two steps: small terms would drown in one sum


@partial(mx.compile, shapeless=False)
def _exp(x: mx.array) -> mx.array:
    """Return exp(x) for x <= 0: Taylor's sixth order at x / 64, squared six times.

    One fused loop of products, and on a CPU eight times faster than MLX's exp: rows of 49k tokens, 13 of them, 1 ms.
    """
    y = mx.maximum(x, -40.0) / 64
    power = 1 + y * (1 + y * (1 / 2 + y * (1 / 6 + y * (1 / 24 + y * (1 / 120 + y / 720)))))
    for _ in range(6):
        power = power * power
    return power


def top_k(logits: mx.array, count: int) -> tuple[mx.array, mx.array]:
    """Return the `count` largest logits of each row, in descending order, and their tokens.

    The largest `count` lie in the `count` blocks with the largest maxima, and maxima are cheaper than partitions.

    Args:
        logits: (n, vocabulary) float32.
        count: At most vocabulary.

    Returns:
        (n, count) uint32 token ids and (n, count) float32 logits.
    """
    rows, vocabulary = logits.shape
    ids = mx.arange(vocabulary, dtype=mx.uint32)[None]
    if 2 * count * _BLOCK < vocabulary:
        blocks = _in_blocks(logits)
        best = mx.argpartition(-mx.max(blocks, axis=-1), count, axis=-1)[:, :count, None]
        logits = mx.take_along_axis(blocks, best, axis=1).reshape(rows, -1)
        ids = (best * _BLOCK + mx.arange(_BLOCK, dtype=mx.uint32)).reshape(rows, -1)
    order = mx.argpartition(-logits, count - 1, axis=-1)[:, :count]
    values = mx.take_along_axis(logits, order, axis=-1)
    descending = mx.argsort(-values, axis=-1)
    order = mx.take_along_axis(order, descending, axis=-1)
    return mx.take_along_axis(mx.broadcast_to(ids, logits.shape), order, axis=-1), mx.take_along_axis(
        logits, order, axis=-1
    )


def _in_blocks(logits: mx.array) -> mx.array:
    """Return (rows, blocks, `_BLOCK`), filled up with minus infinity."""
    missing = -logits.shape[-1] % _BLOCK
    if missing:
        logits = mx.pad(logits, [(0, 0), (0, missing)], constant_values=-mx.inf)
    return logits.reshape(logits.shape[0], -1, _BLOCK)
