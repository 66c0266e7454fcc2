"""Scores a draft's tokens by the rule by which the target's token is chosen (docs/adr/0003).

The repetition penalty is left out: it depends on the zero of the logits, and a head's differs from the target's.

Each step of a draft model scores every token by this rule. The best one is fed to the next step. The runner-ups cost no
draft call, so they become leaves beside it where verifying a few more rows is cheap. The tree's shape is known in
advance; only its tokens are lazy.
"""

from collections.abc import Sequence
from functools import partial

import mlx.core as mx
import numpy as np

from rdchat.inference.api.requests import SamplingParams
from rdchat.inference.decoding.noise import gumbel_of, noise_keys
from rdchat.inference.decoding.reductions import log_denominator, top_k
from rdchat.inference.decoding.sampling import filter_border, has_filter, penalize
from rdchat.inference.drafting.heads.head import Root
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.prefix_tree import PrefixTree

_CANDIDATES = 64  # tokens considered; a filter that keeps more drops the others from the draft
_DROPPED = 1e4  # subtracted from the scores of tokens that a filter drops
_FILTERED = 256  # most likely tokens among which a filter's border is looked for; a draft need not be exact


class PathScorer:
    """Scores tokens with the warp and noise of the target's choice, applied to a drafter's logits.

    Args:
        sampling: Sampling parameters of the reply.
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

    def keys(self, root: Root, count: int) -> mx.array:
        """Return the noise keys, (count, 2), of the positions after a root."""
        keys = noise_keys(self._seed, range(root.position + 1, root.position + 1 + root.latest + count))
        return keys if root.later is None else keys[root.later + mx.array(np.arange(count, dtype=np.int32))]

    def scored(self, logits: mx.array, keys: mx.array) -> mx.array:
        """Return the scores by which tokens are chosen, not yet normalised within a beam.

        Args:
            logits: (beams, draft_vocabulary_size) float32.
            keys: (1, 2) noise keys of the position that is drafted.

        Returns:
            (beams, draft_vocabulary_size) float32. Tokens that a filter drops rank below all that it keeps.
        """
        sampling = self._sampling
        if sampling.temperature == 0:
            return logits
        noise = keys, self._vocabulary[None]
        if not has_filter(sampling):
            return _noisy(logits, self._factor, *noise)
        _, values = top_k(logits, min(max(sampling.top_k, self._candidates), logits.shape[-1]))
        border = filter_border(values, log_denominator(logits) if sampling.top_p < 1 else None, sampling)
        return _noisy_above(logits, border, self._factor, *noise)


@partial(mx.compile, shapeless=False)
def _noisy(logits: mx.array, factor: mx.array, keys: mx.array, ids: mx.array) -> mx.array:
    """Return the logits times a factor, plus the noise of keys, (1, 2), and tokens, (1, m)."""
    return factor * logits + gumbel_of(keys, ids)


@partial(mx.compile, shapeless=False)
def _noisy_above(logits: mx.array, border: mx.array, factor: mx.array, keys: mx.array, ids: mx.array) -> mx.array:
    return mx.where(logits >= border, factor * logits, factor * logits - _DROPPED) + gumbel_of(keys, ids)


def pack(root: int, ranked: Sequence[mx.array]) -> PackedTree:
    """Build the tree of all steps' candidates.

    The chain comes first, so node i of it has depth i, and accepting it leaves the cache's rows in order.

    Args:
        root: The token the target chose last.
        ranked: For each step, its candidates, (candidates,), best first; perhaps lazy.
    """
    depth = len(ranked)
    beside = [step for step, tokens in enumerate(ranked) for _ in range(tokens.shape[0] - 1)]
    tokens = mx.concatenate([mx.array([root]), *(t[:1] for t in ranked), *(t[1:] for t in ranked)])
    if not beside:
        return PackedTree.chain(tokens)
    parents = np.array([*range(-1, depth), *beside], dtype=np.int32)
    depths = np.array([*range(depth + 1), *(step + 1 for step in beside)], dtype=np.int32)
    unknown = np.zeros(len(parents), dtype=np.int32)
    return PackedTree.of(PrefixTree(unknown, parents, depths), tokens)


class CandidateRanker:
    """Ranks tokens by the score of `TokenChooser`, with the draft model's logits instead of the target's.

    Args:
        params: Sampling parameters of the reply.
        seed: 64-bit reply seed.
        vocabulary_size: Tokens that may be offered: those that target and draft model share.
    """

    def __init__(self, params: SamplingParams, seed: int, vocabulary_size: int) -> None:
        self._size, self._seed, self._penalty = vocabulary_size, seed, params.repetition_penalty
        self._scorer = PathScorer(params, seed, mx.arange(vocabulary_size, dtype=mx.uint32), candidates=_FILTERED)

    def rank(
        self, logits: mx.array, position: int, count: int, seen: mx.array | None = None
    ) -> tuple[mx.array, mx.array]:
        """Return the best tokens of one step.

        Args:
            logits: (1, vocabulary), any floating dtype: the draft model's; columns beyond the shared ones are ignored.
            position: Absolute position of the token to be chosen.
            count: Number of tokens to return.
            seen: (vocabulary,) bool: tokens that occurred before; None without a repetition penalty.

        Returns:
            (count,) int32, best first; and () bool: whether the first one's score is finite.
        """
        logits = logits[:, : self._size].astype(mx.float32)
        if seen is not None:
            logits = penalize(logits, seen, self._penalty)
        scores = self._scorer.scored(logits, noise_keys(self._seed, (position,)))[0]
        best = _best(scores, min(count, scores.shape[0]))
        return best.astype(mx.int32), mx.isfinite(scores[best[0]])


def _best(scores: mx.array, count: int) -> mx.array:
    """Return the indices, (count,), of the largest of (m,) scores, best first."""
    found = [mx.argmax(scores, keepdims=True)]
    for _ in range(count - 1):  # one pass per candidate is cheaper than partitioning the vocabulary
        scores = mx.where(mx.arange(scores.shape[0]) == found[-1], -mx.inf, scores)
        found.append(mx.argmax(scores, keepdims=True))
    return mx.concatenate(found)
