"""The tokens that a draft model's step offers, and the tree they form: a chain, with runner-ups at some of its steps.

A draft model's step scores every token by the reply's own rule, warp and noise included (docs/adr/0003). The best one
is fed to the next step; the runner-ups cost no further draft call, so they become leaves beside it where verifying a
few more rows is cheap. The tree's shape is known beforehand; only its tokens are lazy.
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from rdchat.inference.api.requests import SamplingParams
from rdchat.inference.decoding.noise import noise_keys
from rdchat.inference.decoding.sampling import penalize
from rdchat.inference.drafting.scoring import PathScorer
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.prefix_tree import PrefixTree

_FILTERED = 256  # most likely tokens among which a filter's border is looked for; a draft need not be exact


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
            (count,) int32, best first; and whether the first one's score is finite, bool.
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
    for _ in range(count - 1):  # a pass each, cheaper than partitioning the vocabulary
        scores = mx.where(mx.arange(scores.shape[0]) == found[-1], -mx.inf, scores)
        found.append(mx.argmax(scores, keepdims=True))
    return mx.concatenate(found)
