"""Gumbel noise as a function of reply seed, absolute position and token id alone.

Adding independent Gumbel noise to log-probabilities and taking the argmax samples from their softmax (Gumbel 1954; the
"Gumbel-max trick"). Because the noise here depends on nothing but (seed, position, token), the token at a position is
the same however it was proposed: drafting on or off, one row or many, whole vocabulary or a few candidates.
"""

from functools import partial

import mlx.core as mx

_LARGEST_BELOW_ONE = 1 - 2**-24


def gumbel_noise(seed: int, positions: mx.array, token_ids: mx.array) -> mx.array:
    """Return standard Gumbel noise for pairs of a position and a token.

    Args:
        seed: 64-bit reply seed.
        positions: (n,) integers: absolute positions in the sequence of the tokens to be chosen.
        token_ids: (m,) integers: full-vocabulary token ids, the same for all positions; or (n, m), each position's own.

    Returns:
        (n, m) float32 from about -2.8 to 22.9. `mx.random.gumbel` would end at 16.6 and tie at the top of large
        vocabularies.
    """
    low = mx.array(seed & 0xFFFFFFFF, dtype=mx.uint32)
    high = mx.array(seed >> 32, dtype=mx.uint32)
    if token_ids.ndim == 1:
        token_ids = token_ids[None]
    return _noise(low, high, positions.astype(mx.uint32)[:, None], token_ids.astype(mx.uint32))


@partial(mx.compile, shapeless=False)
def _noise(low: mx.array, high: mx.array, position: mx.array, token: mx.array) -> mx.array:
    v = (_hash(low, high, position, token).astype(mx.float32) + 0.5) * 2.0**-32
    return -mx.log(-mx.log1p(-mx.minimum(v, _LARGEST_BELOW_ONE)))


def _hash(low: mx.array, high: mx.array, position: mx.array, token: mx.array) -> mx.array:
    """Mix seed, position and token into 32 bits; for one seed and position it is a bijection over the tokens."""
    first = _mix(low ^ _mix(position + 0x9E3779B9))
    second = _mix(high ^ _mix(first + position))
    return _mix(_mix(token + first) ^ second)


def _mix(x: mx.array) -> mx.array:
    """Return the "lowbias32" integer hash of x (C. Wellons, Prospecting for Hash Functions, 2018)."""
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)
