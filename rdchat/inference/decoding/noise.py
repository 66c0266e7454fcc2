"""Gumbel noise as a function of reply seed, absolute position and token id alone.

Adding independent Gumbel noise to log-probabilities and taking the argmax samples from their softmax (Gumbel 1954; the
"Gumbel-max trick"). Because the noise here depends on nothing but (seed, position, token), the token at a position is
the same however it was proposed: drafting on or off, one row or many, whole vocabulary or a few candidates.
"""

from collections.abc import Iterable
from functools import partial

import mlx.core as mx
import numpy as np

_LARGEST_BELOW_ONE = 1 - 2**-24
_MASK = 0xFFFFFFFF
_STEP = 0x9E3779B9
_FACTORS = (0x7FEB352D, 0x846CA68B)


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
    low = mx.array(seed & _MASK, dtype=mx.uint32)
    high = mx.array(seed >> 32, dtype=mx.uint32)
    return noise_of(mx.stack(list(_keys(low, high, positions)), axis=-1), token_ids)


def noise_keys(seed: int, positions: Iterable[int]) -> mx.array:
    """Return the part of `gumbel_noise` that depends on seed and positions, (n, 2) uint32; computed on the host."""
    low = seed & _MASK
    high = seed >> 32
    keys = []
    for position in positions:
        first = _mix_int(low ^ _mix_int((position + _STEP) & _MASK))
        keys.append([first, _mix_int(high ^ _mix_int((first + position) & _MASK))])
    return mx.array(np.array([*keys], dtype=np.uint32))


def noise_of(keys: mx.array, token_ids: mx.array) -> mx.array:
    """Return `gumbel_noise` from keys, (n, 2), for tokens (m,) or (n, m)."""
    return _noise(keys, token_ids if token_ids.ndim == 2 else token_ids[None])


def gumbel_of(keys: mx.array, token: mx.array) -> mx.array:
    """Return `noise_of` for keys (n, 2) and tokens (1 or n, m), for use inside compiled functions.

    Tokens and keys are hashed into 32 bits, a bijection over the tokens.
    """
    bits = _mix(_mix(token.astype(mx.uint32) + keys[:, :1]) ^ keys[:, 1:])
    v = (bits.astype(mx.float32) + 0.5) * 2.0**-32
    return -mx.log(-mx.log1p(-mx.minimum(v, _LARGEST_BELOW_ONE)))


_noise = mx.compile(gumbel_of)


@partial(mx.compile, shapeless=False)
def _keys(low: mx.array, high: mx.array, position: mx.array) -> tuple[mx.array, mx.array]:
    position = position.astype(mx.uint32)
    first = _mix(low ^ _mix(position + _STEP))
    return first, _mix(high ^ _mix(first + position))


def _mix(x: mx.array) -> mx.array:
    """Return the "lowbias32" integer hash of x (C. Wellons, Prospecting for Hash Functions, 2018)."""
    x = (x ^ (x >> 16)) * _FACTORS[0]
    x = (x ^ (x >> 15)) * _FACTORS[1]
    return x ^ (x >> 16)


def _mix_int(x: int) -> int:
    """Do `_mix` for one unsigned 32-bit number, on the host."""
    x = ((x ^ (x >> 16)) * _FACTORS[0]) & _MASK
    x = ((x ^ (x >> 15)) * _FACTORS[1]) & _MASK
    return x ^ (x >> 16)
