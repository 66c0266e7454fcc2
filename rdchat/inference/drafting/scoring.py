"""Scores the tokens of a draft by the rule by which the target's token will be chosen (docs/adr/0003)."""

from functools import partial

import mlx.core as mx
import numpy as np

from rdchat.inference.api.requests import SamplingParams
from rdchat.inference.decoding.noise import gumbel_of, noise_keys
from rdchat.inference.decoding.reductions import log_denominator, top_k
from rdchat.inference.decoding.sampling import filter_border, has_filter, penalize
from rdchat.inference.drafting.heads.head import Root
from rdchat.inference.drafting.repetition import Repetition

_CANDIDATES = 64  # a filter that keeps more tokens than this drops the others from the draft too
_DROPPED = 1e4  # taken from the scores of what a filter drops


class PathScorer:
    """Scores tokens as the target's token will be chosen: with the same warp and noise, of a drafter's logits.

    Args:
        sampling: How the target's tokens are chosen.
        seed: 64-bit reply seed.
        vocabulary: (draft_vocabulary_size,) ids of the tokens that can be drafted.
        inverse_temperature: The drafter's fitted scalar.
        candidates: Most likely tokens among which a filter's border is looked for.
    """

    def __init__(
        self,
        sampling: SamplingParams,
        seed: int,
        vocabulary: mx.array,
        inverse_temperature: float = 1.0,
        candidates: int = _CANDIDATES,
    ) -> None:
        self._sampling = sampling
        self._seed = seed
        self._vocabulary = vocabulary
        self._candidates = candidates
        self._factor = mx.array(inverse_temperature / (sampling.temperature or 1.0), mx.float32)

    @property
    def penalizes(self) -> bool:
        """Whether tokens that occurred before score less."""
        return self._sampling.repetition_penalty != 1

    def keys(self, root: Root, count: int) -> mx.array:
        """Return the keys of the noise, (count, 2), at the positions that follow a root."""
        keys = noise_keys(self._seed, range(root.position + 1, root.position + 1 + root.latest + count))
        return keys if root.later is None else keys[root.later + mx.array(np.arange(count, dtype=np.int32))]

    def scored(self, logits: mx.array, keys: mx.array, repetition: Repetition | None = None) -> mx.array:
        """Return what tokens are chosen by, before it is normalised beam by beam.

        Args:
            logits: (beams, draft_vocabulary_size) float32.
            keys: (1, 2) of the noise at the position of the tokens that are drafted.
            repetition: Inputs of the penalty; None leaves it out.

        Returns:
            (beams, draft_vocabulary_size) float32. What a filter drops comes after all that it keeps.
        """
        sampling = self._sampling
        if repetition is not None:
            moved = _moved(logits, log_denominator(logits), repetition.log_denominator)
            logits = penalize(moved, repetition.seen, sampling.repetition_penalty)
        if sampling.temperature == 0:
            return logits
        noise = keys, self._vocabulary[None]
        if not has_filter(sampling):
            return _noisy(logits, self._factor, *noise)
        _, values = top_k(logits, min(max(sampling.top_k, self._candidates), logits.shape[-1]))
        border = filter_border(values, log_denominator(logits) if sampling.top_p < 1 else None, sampling)
        return _noisy_above(logits, border, self._factor, *noise)


@partial(mx.compile, shapeless=False)
def _moved(logits: mx.array, log_total: mx.array, wanted: mx.array) -> mx.array:
    """Return logits, (n, m), moved so that the log of their sum of exp, (n, 1), becomes `wanted`, ()."""
    return logits + (wanted - log_total)


@partial(mx.compile, shapeless=False)
def _noisy(logits: mx.array, factor: mx.array, keys: mx.array, ids: mx.array) -> mx.array:
    """Return the logits times a factor, with the noise of its keys, (1, 2), and tokens, (1, m)."""
    return factor * logits + gumbel_of(keys, ids)


@partial(mx.compile, shapeless=False)
def _noisy_above(logits: mx.array, border: mx.array, factor: mx.array, keys: mx.array, ids: mx.array) -> mx.array:
    return mx.where(logits >= border, factor * logits, factor * logits - _DROPPED) + gumbel_of(keys, ids)
