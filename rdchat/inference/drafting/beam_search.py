"""Beam search with a drafter head, as one lazy graph that never waits for the device.

Zhang et al. 2024, arXiv 2403.09919, section 3.2, for any `Head`, in three parts:

    PathScorer   scores the tokens that may come next, by the rule with which the target chooses (docs/adr/0003)
    search       keeps the best nodes of each level of the tree; the best `width` of them are the next live beams
    best_nodes   selects the best nodes of all levels, and a path from prompt lookup, as the tree to verify

A node's score is the sum along its path of `log_softmax(inverse_temperature * log_probs + noise)`: an estimate of how
likely the target is to choose this very path. Each step lowers it, so the best nodes form a subtree, and in ascending
order parents come before their children.

Example: two beams of three tokens below the root `the`, with two nodes a level. The live beams are `the`, then `the
cat` and `the dog`.

    level   node   token   parent   score
      0       0    the       -1      0
      1       1    cat        0     -0.4
      1       2    dog        0     -1.3
      2       3    sat        1     -0.6
      2       4    ran        2     -1.5

The best four nodes are 0, 1, 2 and 3. `PackedTree.from_parents` numbers them depth-first (docs/adr/0031): `the cat sat
dog`, with the parents -1 0 1 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import mlx.core as mx
import numpy as np

from rdchat.inference.api import BeamShape, SamplingParams
from rdchat.inference.decoding.reductions import log_denominator, top_k
from rdchat.inference.decoding.sampling import filter_border, gumbel_of, has_filter, noise_keys
from rdchat.inference.drafting.heads.head import Head, HeadMemory, Root
from rdchat.inference.verification import PackedTree

# Most likely tokens among which a filter's border is searched; where a filter keeps more, the draft lacks the others.
_CANDIDATES = 64
# The scores of tokens that a filter drops are lower by this.
_DROPPED = 1e4

# Bounds of what a step adds to a path's score. It is below 0, or the best nodes are no subtree, yet not so little that
# the sum's rounding loses it.
_SMALLEST_STEP = -1 / 128
_LARGEST_STEP = -200.0
# Ranks of nodes that are selected whatever their score is, which is at most 0.
_ROOT = 2.0
_ALWAYS = 1.0
_NEVER = -mx.inf


class PathScorer:
    """Scores tokens with the warp and noise of the target's choice, applied to a drafter's logits.

    The repetition penalty is left out: it depends on the zero of the logits, and a head's differs from the target's.

    Args:
        sampling: Sampling parameters of the reply.
        seed: 64-bit reply seed.
        vocabulary: (draft_vocabulary_size,) ids of the tokens that can be drafted.
        inverse_temperature: See `Head`.
        candidates: Most likely tokens among which a filter's border is looked for; elsewhere in this module, candidates
            are the columns of the head's logits.
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
        """Return the noise keys, (count, 2), of the positions after a root.

        Where the root's position is lazy, keys are made for all positions that it may have, and picked by `root.later`.
        """
        keys = noise_keys(self._seed, range(root.position + 1, root.position + 1 + root.latest + count))
        return keys if root.later is None else keys[root.later + mx.array(np.arange(count, dtype=np.int32))]

    def scored(self, logits: mx.array, keys: mx.array, ids: mx.array | None = None) -> mx.array:
        """Return the scores by which tokens are chosen, not yet normalised within a beam.

        Args:
            logits: (beams, candidates) float32.
            keys: (1, 2) noise keys of the position that is drafted.
            ids: (candidates,) ids of the columns; None for the vocabulary.

        Returns:
            (beams, candidates) float32. Tokens that a filter drops rank below all that it keeps.
        """
        sampling = self._sampling
        if sampling.greedy:
            return logits
        noise = keys, (self._vocabulary if ids is None else ids)[None]
        if not has_filter(sampling):
            return _noisy(logits, self._factor, *noise)
        _, values = top_k(logits, min(max(sampling.top_k, self._candidates), logits.shape[-1]))
        border = filter_border(values, log_denominator(logits) if sampling.top_p < 1 else None, sampling)
        return _noisy_above(logits, border, self._factor, *noise)


@partial(mx.compile, shapeless=False)
def _noisy(logits: mx.array, factor: mx.array, keys: mx.array, ids: mx.array) -> mx.array:
    """Return (beams, m) logits times a factor, plus the noise of keys, (1, 2), and tokens, (1, m)."""
    return factor * logits + gumbel_of(keys, ids)


@partial(mx.compile, shapeless=False)
def _noisy_above(logits: mx.array, border: mx.array, factor: mx.array, keys: mx.array, ids: mx.array) -> mx.array:
    """Do `_noisy`, with logits below the border, (beams, 1), lowered."""
    return mx.where(logits >= border, factor * logits, factor * logits - _DROPPED) + gumbel_of(keys, ids)


@dataclass(frozen=True, slots=True, eq=False)
class NodePool:
    """All nodes that a beam search kept, level by level below the root (node 0); each level best first.

    Attributes:
        tokens: (nodes,) int32: token ids.
        parents: (nodes,) int32: index of each node's parent; -1 for the root.
        scores: (nodes,) float32: score of the path to each node, below its parent's; 0 for the root.
        levels: Number of levels below the root.
        finite: () bool: whether the head's scores are finite; if not, the draft is dropped.
    """

    tokens: mx.array
    parents: mx.array
    scores: mx.array
    levels: int
    finite: mx.array | bool = True

    @property
    def level_size(self) -> int:
        """Nodes of each level but the root's."""
        return (int(self.tokens.shape[0]) - 1) // self.levels

    def cut(self, levels: int) -> "NodePool":
        """Return the first levels: the result of a search of that length."""
        if levels == self.levels:
            return self
        nodes = slice(1 + levels * self.level_size)
        return NodePool(self.tokens[nodes], self.parents[nodes], self.scores[nodes], levels, self.finite)


def search(
    head: Head, memory: HeadMemory, scorer: PathScorer, root: Root, *, shape: BeamShape, level_size: int
) -> NodePool:
    """Search for likely paths below a root.

    Args:
        head: The drafter's network.
        memory: Its memory of the text before the root.
        scorer: Scores the steps.
        root: Where the paths begin.
        shape: Width and length of the beams, the root included.
        level_size: Nodes of each level in the result, at least the width; those beyond the width are leaves.

    Returns:
        A pool of `1 + (length - 1) * level_size` nodes; fewer where a step has fewer candidates than `level_size`.
    """
    levels = shape.length - 1
    level_size = min(level_size, head.candidates)
    width = min(shape.width, level_size)
    state = memory.root_state(replace(root, drafted=levels))
    keys = scorer.keys(root, levels)
    candidates = mx.array(head.candidates, mx.uint32)
    beam_scores = mx.zeros((1,))
    tokens = [mx.array(root.token, mx.int32).reshape(1)]
    parents = [mx.array([-1], mx.int32)]
    scores = [beam_scores]
    # Scores that show whether all is finite.
    checked = [beam_scores]
    for level in range(levels):
        ids = state.ids()
        token_scores = scorer.scored(state.logits(), keys[level : level + 1], ids)
        path_scores = _path_scores(beam_scores, token_scores, log_denominator(token_scores)).reshape(1, -1)
        if level_size == 1:
            # An argmax finds the best token without its path's score, which may never be computed.
            best = mx.argmax(token_scores, axis=-1)
            best_scores = path_scores[0, best]
            checked.append(token_scores[0, best])
        else:
            best, best_scores = (row[0] for row in top_k(path_scores, level_size))
            checked.append(best_scores)
        # At level 0 the only beam is the root, node 0; later the beams are the first nodes of the level before.
        first_beam = mx.array(max(1 + (level - 1) * level_size, 0), mx.uint32)
        beams, columns, nodes = _origins(best, candidates, first_beam)
        tokens.append((head.vocabulary if ids is None else ids)[columns])
        parents.append(nodes)
        scores.append(best_scores)
        if level + 1 < levels:
            beam_scores = best_scores[:width]
            state = state.after(beams[:width], tokens[-1][:width])
    finite = mx.all(mx.isfinite(mx.concatenate(checked)))
    return NodePool(mx.concatenate(tokens), mx.concatenate(parents), mx.concatenate(scores), levels, finite)


@partial(mx.compile, shapeless=False)
def _path_scores(beam_scores: mx.array, token_scores: mx.array, log_total: mx.array) -> mx.array:
    """Return the scores, (beams, candidates), of paths that extend each beam by each token.

    NaN becomes minus infinity, because a sort may put NaN first.

    Args:
        beam_scores: (beams,).
        token_scores: (beams, candidates), not normalised.
        log_total: (beams, 1): logarithm of the sum of their exponentials.
    """
    sums = beam_scores[:, None] + mx.clip(token_scores - log_total, _LARGEST_STEP, _SMALLEST_STEP)
    return mx.where(mx.isnan(sums), -mx.inf, sums)


@partial(mx.compile, shapeless=False)
def _origins(indices: mx.array, candidates: mx.array, first_beam: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    """Return beam, column and parent node, (n,) each, of indices into a flattened table, (beams, candidates).

    `first_beam` is the node of beam 0.
    """
    beams = indices // candidates
    return beams, indices - beams * candidates, (beams + first_beam).astype(mx.int32)


def best_nodes(pool: NodePool, count: int, branch: Sequence[int] = ()) -> tuple[PackedTree, mx.array]:
    """Select nodes of a pool.

    Args:
        pool: The nodes of a beam search.
        count: Nodes to select, the root and the branch among them.
        branch: Tokens of a path below the root to include in any case; it may be longer than the beams.

    Returns:
        The tree of `min(count, nodes)` nodes, depth-first by the likeliest child, the branch's nodes before others; and
        (nodes,) bool: which of them only the branch offers.

    Example: three nodes of two levels of two, with the best path root, a, c.

        tokens  root a b c d      scores 0 -0.1 -2 -0.3 -1.5      parents -1 0 0 1 1
        without a branch          root a c        parents -1 0 1
        five, with branch [b, e]  root b e a c    parents -1 0 1 0 3, and only the branch offers e
    """
    drafted = pool.tokens.shape[0]
    tokens, parents, scores = _with_branch(pool, branch) if branch else (pool.tokens, pool.parents, pool.scores)
    count = min(max(count, 1 + len(branch)), tokens.shape[0])
    ranks = _ranks(scores, mx.array(np.arange(scores.shape[0])))
    selected = mx.sort(mx.argpartition(ranks, -count)[-count:]).astype(mx.int32)
    # Indices among the selected nodes; the root's is -1.
    parents = mx.sum(selected <= parents[selected][:, None], axis=1) - 1
    deepest = min(max(pool.levels, len(branch)), count - 1)
    # It is packed with the pool's node numbers in place of tokens, which the last line looks up.
    tree = PackedTree.from_parents(selected, parents, ranks[selected], deepest)
    return replace(tree, tokens=tokens[tree.tokens]), tree.tokens >= drafted


def _with_branch(pool: NodePool, branch: Sequence[int]) -> tuple[mx.array, mx.array, mx.array]:
    """Return tokens, parents and scores, (nodes + branch,) each, with a node for each token of the branch appended.

    Where the pool already has a node of the branch, that one is selected instead of the appended one.
    """
    scores = pool.scores
    node = mx.array(0, mx.int32)
    parents = []
    appended_scores = []
    for level, token in enumerate(branch):
        appended = mx.array(pool.tokens.shape[0] + level, mx.int32)
        parents.append(node)
        if level < pool.levels:
            same, scores = _children(pool.parents, pool.tokens, scores, node, mx.array(token, mx.int32))
            score, node = _followed(mx.any(same), mx.argmax(same), appended)
        else:
            score = mx.array(_ALWAYS)
            node = appended
        appended_scores.append(score)
    return (
        mx.concatenate([pool.tokens, mx.array(list(branch), mx.int32)]),
        mx.concatenate([pool.parents, mx.stack(parents)]),
        mx.concatenate([scores, mx.stack(appended_scores)]),
    )


@partial(mx.compile, shapeless=False)
def _children(
    parents: mx.array, tokens: mx.array, scores: mx.array, node: mx.array, token: mx.array
) -> tuple[mx.array, mx.array]:
    """Return which nodes, (nodes,) bool, hold `token` below `node`, and the scores, with those always selected."""
    same = (parents == node) & (tokens == token)
    return same, mx.where(same, _ALWAYS, scores)


@partial(mx.compile, shapeless=False)
def _followed(is_drafted: mx.array, drafted: mx.array, appended: mx.array) -> tuple[mx.array, mx.array]:
    """Return the score of a branch's appended node, and where the branch goes on: at a drafted node if it can."""
    return mx.where(is_drafted, _NEVER, _ALWAYS), mx.where(is_drafted, drafted.astype(mx.int32), appended)


@partial(mx.compile, shapeless=False)
def _ranks(scores: mx.array, nodes: mx.array) -> mx.array:
    """Return (nodes,) scores in which the root, node 0, ranks above all others, and NaN below all others."""
    below = mx.minimum(mx.where(mx.isnan(scores), _NEVER, scores), _ALWAYS)
    return mx.where(nodes == 0, _ROOT, below)
