"""The rule that chooses a token: `argmax(warp(logits) + noise(seed, position, token))`.

`warp` is penalties, temperature and the filters top-k, top-p and min-p. As in mlx-lm, each filter looks at the
whole distribution before temperature; a token must pass all filters, so their order does not matter. Each filter keeps
all tokens at least as likely as a border, so ties are kept together. Adding a number to all logits changes nothing, so
they need not be normalised.

The noise is a function of the reply's seed, absolute position and token id alone. Adding independent Gumbel noise to
log-probabilities and taking the argmax samples from their softmax (Gumbel 1954; the "Gumbel-max trick"). Because the
noise here depends on nothing but (seed, position, token), the token at a position is the same however it was proposed:
drafting on or off, one row or many, whole vocabulary or a few candidates.
"""

import math
from collections.abc import Collection, Iterable
from functools import partial

import mlx.core as mx
import numpy as np

from rdchat.inference.api import SamplingParams
from rdchat.inference.decoding.reductions import log_denominator, top_k

# In float32; the logarithm of 1 would be 0, and its noise infinite.
_LARGEST_BELOW_ONE = 1 - 2**-24
_MASK = 0xFFFFFFFF
# 2**32 over the golden ratio: it keeps the hash of position 0 from being 0.
_STEP = 0x9E3779B9
# Of the hash in `_mix`.
_FACTORS = (0x7FEB352D, 0x846CA68B)
# A quick choice looks for the border of top-p and min-p among so many of the most likely tokens.
_NUCLEUS_CANDIDATES = 256
_SURE = mx.array(True)
# Candidates of a quick choice beyond top-k, so that ties at its border are noticed.
_SPARE = 8
# Below any logit, and above minus infinity in any precision: a format may leave no other token.
_SUPPRESSED = -6e4


def gumbel_noise(seed: int, positions: Iterable[int], token_ids: mx.array) -> mx.array:
    """Return standard Gumbel noise for pairs of a position and a token.

    Args:
        seed: 64-bit reply seed.
        positions: n absolute positions in the sequence of the tokens to be chosen.
        token_ids: (m,) integers: full-vocabulary token ids, the same for all positions; or (n, m), each position's own.

    Returns:
        (n, m) float32 from about -2.8 to 22.9. `mx.random.gumbel` would end at 16.6 and tie at the top of large
        vocabularies.
    """
    return _noise(noise_keys(seed, positions), token_ids if token_ids.ndim == 2 else token_ids[None])


def noise_keys(seed: int, positions: Iterable[int]) -> mx.array:
    """Return the part of `gumbel_noise` that depends on seed and positions, (n, 2) uint32; computed on the host."""
    return mx.array(np.array([_keys_of(seed, position) for position in positions], dtype=np.uint32))


def gumbel_of(keys: mx.array, token: mx.array) -> mx.array:
    """Return `gumbel_noise` for keys (n, 2) and tokens (1 or n, m), for use inside compiled functions.

    Tokens and keys are hashed into 32 bits, a bijection over the tokens.
    """
    bits = _mix(_mix(token.astype(mx.uint32) + keys[:, :1]) ^ keys[:, 1:])
    v = (bits.astype(mx.float32) + 0.5) * 2.0**-32
    return -mx.log(-mx.log1p(-mx.minimum(v, _LARGEST_BELOW_ONE)))


_noise = mx.compile(gumbel_of)


def _mix(x: mx.array) -> mx.array:
    """Return the "lowbias32" integer hash of x (C. Wellons, Prospecting for Hash Functions, 2018)."""
    x = (x ^ (x >> 16)) * _FACTORS[0]
    x = (x ^ (x >> 15)) * _FACTORS[1]
    return x ^ (x >> 16)


def noise_of_one(seed: int, position: int, token: int) -> float:
    """Return `gumbel_noise` of one position and token, on the host, to the precision of its 24 leading bits."""
    first, second = _keys_of(seed, position)
    bits = _mix_int(_mix_int((token + first) & _MASK) ^ second)
    return -math.log(-math.log1p(-min((bits + 0.5) * 2.0**-32, _LARGEST_BELOW_ONE)))


def _keys_of(seed: int, position: int) -> tuple[int, int]:
    first = _mix_int((seed & _MASK) ^ _mix_int((position + _STEP) & _MASK))
    return first, _mix_int((seed >> 32) ^ _mix_int((first + position) & _MASK))


def _mix_int(x: int) -> int:
    """Do `_mix` for one unsigned 32-bit number, on the host."""
    x = ((x ^ (x >> 16)) * _FACTORS[0]) & _MASK
    x = ((x ^ (x >> 15)) * _FACTORS[1]) & _MASK
    return x ^ (x >> 16)


class TokenChooser:
    """Chooses tokens for one reply.

    Args:
        params: Sampling parameters.
        seed: 64-bit reply seed.
        vocabulary_size: Columns of the logits.
        masked: Whether some logits may be minus infinity.
        suppressed: Tokens that are chosen only where a mask leaves no other; ids beyond the vocabulary do nothing.
    """

    def __init__(
        self,
        params: SamplingParams,
        seed: int,
        vocabulary_size: int,
        *,
        masked: bool = False,
        suppressed: Collection[int] = (),
    ) -> None:
        self._params = params
        self._masked = masked
        # (vocabulary,) the largest logit that each token may have; None without suppressed tokens.
        self._ceiling: mx.array | None = None
        if ids := [token for token in suppressed if 0 <= token < vocabulary_size]:
            self._ceiling = mx.full((vocabulary_size,), mx.inf)
            self._ceiling[mx.array(ids)] = _SUPPRESSED
        self._seed = seed
        self._token_ids = mx.arange(vocabulary_size, dtype=mx.uint32)
        self._temperature = mx.array(params.temperature, mx.float32)

    @property
    def always_sure(self) -> bool:
        """Whether a quick choice always equals `choose`: no filter can keep more tokens than it looks at."""
        return self._params.greedy or not has_filter(self._params)

    def seen(self, prompt: list[int], end_tokens: Collection[int] = ()) -> mx.array | None:
        """Return what the penalties look at before a reply: `seen`, (vocabulary,) int32; None without a penalty.

        It is twice the number of times that a token occurs in the reply so far, and one more if the prompt has it.

        Args:
            prompt: The prompt's tokens; those of images and beyond the vocabulary are left out.
            end_tokens: Tokens that end a reply. They end the earlier replies in the prompt too, and a penalty for that
                would keep this reply from ending.
        """
        if _penalties(self._params) == (1, 0, 0):
            return None
        seen = mx.zeros(self._token_ids.shape, dtype=mx.int32)
        size = self._token_ids.size
        if penalized := [token for token in prompt if 0 <= token < size and token not in end_tokens]:
            seen[mx.array(penalized)] = 1
        return seen

    def with_tokens(self, seen: mx.array, tokens: mx.array) -> mx.array:
        """Return `seen` with more tokens of the reply, (n,) integers that may be lazy, or beyond the vocabulary."""
        return seen + 2 * mx.sum(self._token_ids == tokens[:, None], axis=0)

    def choose(self, logits: mx.array, positions: Iterable[int], seen: mx.array | None = None) -> mx.array:
        """Choose one token for each row from the whole vocabulary, sorted.

        Args:
            logits: (n, vocabulary), any floating dtype: what the model returned.
            positions: n absolute positions of the tokens to be chosen.
            seen: (vocabulary,) or (n, vocabulary) int32; required with a penalty.

        Returns:
            (n,) uint32.
        """
        return mx.argmax(self.scores(logits, positions, seen), axis=-1)

    def scores(self, logits: mx.array, positions: Iterable[int], seen: mx.array | None = None) -> mx.array:
        """Return the scores that `choose` compares, (n, vocabulary) float32; filtered tokens have minus infinity."""
        logits = self._penalized(self._below_ceiling(logits), seen)
        if self._params.greedy:
            return logits
        noise = gumbel_noise(self._seed, positions, self._token_ids)
        if has_filter(self._params):
            return warp(logits, self._params) + noise
        return _noisy(logits, mx.max(logits, axis=-1, keepdims=True), self._temperature, noise)

    def choose_quickly(
        self, logits: mx.array, start: int, depths: mx.array, deepest: int, seen: mx.array | None = None
    ) -> tuple[mx.array, mx.array]:
        """Choose one token for each row of a tree among the most likely candidates.

        Args:
            logits: (n, vocabulary), any floating dtype: what the model returned.
            start: Absolute position of the token that follows the root.
            depths: (n,) integers, perhaps lazy: the rows' distances from the root.
            deepest: The largest of the depths.
            seen: (vocabulary,) or (n, vocabulary) int32; required with a penalty.

        Returns:
            (n,) uint32 tokens, and (n,) bool: whether each surely equals the choice of `choose`. It is not sure where
            the filters keep more tokens than were compared.
        """
        params = self._params
        sure = mx.broadcast_to(_SURE, depths.shape)
        logits = self._below_ceiling(logits)
        # The largest logit is the same in any precision.
        if params.greedy:
            return mx.argmax(logits if seen is None else self._penalized(logits, seen), axis=-1), sure
        logits = self._penalized(logits, seen)
        keys = noise_keys(self._seed, range(start, start + deepest + 1))
        if not has_filter(params):
            largest = mx.max(logits, axis=-1, keepdims=True)
            noise = _noise(keys, self._token_ids[None])
            noise = noise[depths] if deepest else noise
            return mx.argmax(_noisy(logits, largest, self._temperature, noise), axis=-1), sure
        count = min(params.top_k + _SPARE if params.top_k else _NUCLEUS_CANDIDATES, logits.shape[-1])
        ids, values = top_k(logits, count)
        border = filter_border(values, log_denominator(logits) if params.top_p < 1 else None, params)
        scores = _filtered_scores(values, border, self._temperature, keys[depths] if deepest else keys, ids)
        best = mx.argmax(scores, axis=-1, keepdims=True)
        if count < logits.shape[-1]:
            # Above the last candidate the border leaves no token beyond the candidates.
            sure = border[:, 0] > values[:, -1]
            if self._masked:
                # A mask may leave fewer tokens than candidates; then no others are left.
                sure |= values[:, -1] == -mx.inf
        return mx.take_along_axis(ids, best, axis=-1)[:, 0], sure

    def _below_ceiling(self, logits: mx.array) -> mx.array:
        """Return logits, (n, vocabulary), with those of suppressed tokens far below all others."""
        return logits if self._ceiling is None else mx.minimum(logits, self._ceiling.astype(logits.dtype))

    def _penalized(self, logits: mx.array, seen: mx.array | None) -> mx.array:
        """Return the logits in float32, penalized with the reply's parameters where `seen` is given."""
        logits = logits.astype(mx.float32)
        return logits if seen is None else penalize(logits, seen, self._params)


@partial(mx.compile, shapeless=False)
def _noisy(logits: mx.array, largest: mx.array, temperature: mx.array, noise: mx.array) -> mx.array:
    return (logits - largest) / temperature + noise


@partial(mx.compile, shapeless=False)
def _filtered_scores(
    values: mx.array, border: mx.array, temperature: mx.array, keys: mx.array, ids: mx.array
) -> mx.array:
    """Return noisy scores of values, (n, m) in descending order; minus infinity below the border."""
    warped = mx.where(values >= border, (values - values[:, :1]) / temperature, -mx.inf)
    return warped + gumbel_of(keys, ids)


def masked(logits: mx.array, mask: mx.array | None) -> mx.array:
    """Return logits, (n, vocabulary), with minus infinity where a mask of the same shape forbids a token."""
    return logits if mask is None else mx.where(mask, logits, mx.array(-mx.inf, logits.dtype))


def has_filter(params: SamplingParams) -> bool:
    """Return whether top-k, top-p or min-p is on."""
    return params.top_k > 0 or params.top_p < 1 or params.min_p > 0


def warp(logits: mx.array, params: SamplingParams) -> mx.array:
    """Divide by the temperature, and set tokens that a filter drops to minus infinity.

    Args:
        logits: (n, vocabulary) float32.
        params: Sampling parameters with a temperature above 0.

    Returns:
        (n, vocabulary) float32, shifted so that a row's most likely token has 0. A small temperature makes the other
            values large and float32 coarse; the most likely one stays exact.
    """
    warped = (logits - mx.max(logits, axis=-1, keepdims=True)) / params.temperature
    if not has_filter(params):
        return warped
    border = filter_border(mx.sort(logits, axis=-1)[:, ::-1], log_denominator(logits), params)
    return mx.where(logits >= border, warped, -mx.inf)


def _penalties(params: SamplingParams) -> tuple[float, float, float]:
    return params.repetition_penalty, params.presence_penalty, params.frequency_penalty


def penalize(logits: mx.array, seen: mx.array, params: SamplingParams) -> mx.array:
    """Make tokens that occurred before less likely.

    The repetition penalty is that of Keskar et al. 2019 (arXiv 1909.05858, section 4.1), over prompt and reply; the
    others are OpenAI's, over the reply.

    Args:
        logits: (n, vocabulary) float32.
        seen: (vocabulary,) or (n, vocabulary) int32, see `TokenChooser.seen`.
        params: Sampling parameters of the reply.
    """
    return _penalize_compiled(logits, seen, *(mx.array(each, mx.float32) for each in _penalties(params)))


@partial(mx.compile, shapeless=False)
def _penalize_compiled(
    logits: mx.array, seen: mx.array, repetition: mx.array, presence: mx.array, frequency: mx.array
) -> mx.array:
    """Compute `penalize`, compiled."""
    repeated = mx.where(logits > 0, logits / repetition, logits * repetition)
    times = seen // 2
    return mx.where(seen > 0, repeated, logits) - presence * (times > 0) - frequency * times


def filter_border(values: mx.array, log_total: mx.array | None, params: SamplingParams) -> mx.array:
    """Return the logit, (n, 1), of the least likely token that every filter keeps.

    Args:
        values: (n, m) float32: the m largest logits of each row, in descending order. If the border lies below them,
            the smallest of them is returned.
        log_total: (n, 1) float32: `log_denominator` of the whole rows; required with top-p.
        params: Sampling parameters with at least one filter.
    """
    border = values[:, params.top_k - 1 : params.top_k] if 0 < params.top_k < values.shape[-1] else values[:, -1:]
    # The nucleus: Holtzman et al. 2020, arXiv 1904.09751.
    if params.top_p < 1:
        assert log_total is not None
        before = mx.cumsum(_probs(values, log_total), axis=-1, inclusive=False)
        nucleus = _nucleus(values, before, mx.array(params.top_p, mx.float32))
        # The border is not below the last value.
        lowest = mx.min(nucleus, axis=-1, keepdims=True)
        border = mx.maximum(border, lowest) if params.top_k else lowest
    if params.min_p > 0:
        border = mx.maximum(border, values[:, :1] + math.log(params.min_p))
    return border


@partial(mx.compile, shapeless=False)
def _probs(values: mx.array, log_total: mx.array) -> mx.array:
    return mx.exp(values - log_total)


@partial(mx.compile, shapeless=False)
def _nucleus(values: mx.array, before: mx.array, top_p: mx.array) -> mx.array:
    return mx.where(before < top_p, values, mx.inf)
