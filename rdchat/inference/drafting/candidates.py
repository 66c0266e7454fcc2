"""The top-k tokens that a draft step offers, and the tree they form: a chain, with runner-ups at some of its steps.

A draft model's step scores every token by the reply's own rule, warp and noise included (docs/adr/0003). The best one
is fed to the next step; the runner-ups cost no further draft call, so they become leaves beside it where verifying a
few more rows is cheap. The tree's shape is known beforehand; only its tokens are lazy.
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from rdchat.inference.api.requests import SamplingParams
from rdchat.inference.decoding.noise import noise_keys, noise_of
from rdchat.inference.decoding.reductions import log_denominator, top_k
from rdchat.inference.decoding.sampling import filter_border, has_filter, penalize
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.prefix_tree import PrefixTree

_FILTERED = 256  # most likely tokens among which a border of top-p or min-p is looked for; a draft need not be exact


def pack(root: int, ranked: Sequence[mx.array]) -> PackedTree:
    """Hang the candidates of every step together.

    The chain comes first, so that node i of it lies i deep, and accepting it leaves the cache's rows in order.

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
    return PackedTree.of(PrefixTree.of_nodes(unknown, parents, depths), tokens)


class CandidateRanker:
    """Ranks tokens by the score by which `TokenChooser` chooses, with the draft model's logits instead of the target's.

    Args:
        params: Sampling parameters of the reply.
        seed: 64-bit reply seed.
        vocabulary_size: Tokens that may be offered: those that target and draft model share.
    """

    def __init__(self, params: SamplingParams, seed: int, vocabulary_size: int) -> None:
        self._params = params
        self._seed = seed
        self._token_ids = mx.arange(vocabulary_size, dtype=mx.uint32)

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
            (count,) int32, best first; and whether the first one's score is finite, bool.
        """
        ids, scores = self._scores(logits, position, seen)
        best = _best(scores, min(count, ids.shape[0]))
        return ids[best].astype(mx.int32), mx.isfinite(scores[best[0]])

    def _scores(self, logits: mx.array, position: int, seen: mx.array | None) -> tuple[mx.array, mx.array]:
        """Return (m,) tokens and their (m,) float32 scores."""
        params = self._params
        logits = logits[:, : self._token_ids.shape[0]].astype(mx.float32)
        if seen is not None:
            logits = penalize(logits, seen, params.repetition_penalty)
        if params.greedy:
            return self._token_ids, logits[0]
        keys = noise_keys(self._seed, (position,))
        if not has_filter(params):
            scores = (logits / params.temperature + noise_of(keys, self._token_ids))[0]
            return self._token_ids, scores
        ids, values = top_k(logits, min(max(params.top_k, _FILTERED), logits.shape[-1]))
        border = filter_border(values, log_denominator(logits), params)
        noisy = values / params.temperature + noise_of(keys, ids)
        # what a filter drops may still be offered beside the first choice, behind all that it keeps
        scores = mx.where(values >= border, noisy, values / params.temperature - 1e4)
        return ids[0], scores[0]


def _best(scores: mx.array, count: int) -> mx.array:
    """Return the indices, (count,), of the largest of (m,) scores, best first."""
    found = [mx.argmax(scores, keepdims=True)]
    for _ in range(count - 1):  # a pass each, cheaper than partitioning the vocabulary
        scores = mx.where(mx.arange(scores.shape[0]) == found[-1], -mx.inf, scores)
        found.append(mx.argmax(scores, keepdims=True))
    return mx.concatenate(found)
