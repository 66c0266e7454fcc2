"""Beam search with a drafter head, as one lazy graph that never waits for the device, and the scores of drafted tokens.

Zhang et al. 2024, arXiv 2403.09919, section 3.2, for any `Head`. Each step keeps the most likely nodes below the live
beams; the first `beam_width` of them are the next live beams. A node's score is the sum along its path of
`log_softmax(inverse_temperature * log_probs + noise)`, with the warp and noise of the target's own choice
(docs/adr/0003). So it estimates how likely the target is to choose this very path. The repetition penalty is left out:
it depends on the zero of the logits, and a head's differs from the target's.

The most probable nodes become a lazy tree, with a branch from prompt lookup. Scores fall along every path, so the best
nodes form a subtree; in ascending order parents come before their children. The root is always selected, so the result
is a tree whatever the scores are. `PackedTree.from_parents` numbers it depth-first (docs/adr/0031).

Each step of a draft model scores every token by the same rule. The best one is fed to the next step. The runner-ups
cost no draft call, so they become leaves beside it where verifying a few more rows is cheap. The tree's shape is known
in advance; only its tokens are lazy.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import mlx.core as mx
import numpy as np

from rdchat.inference.api import BeamShape, SamplingParams
from rdchat.inference.decoding.reductions import log_denominator, top_k
from rdchat.inference.decoding.sampling import filter_border, gumbel_of, has_filter, noise_keys, penalize
from rdchat.inference.drafting.heads.head import Head, HeadMemory, Root
from rdchat.inference.verification.verifier import PackedTree, PrefixTree

# Number of tokens considered; where a filter keeps more, the draft lacks the others.
_CANDIDATES = 64
# The scores of tokens that a filter drops are lower by this.
_DROPPED = 1e4
# A filter's border is searched among this many most likely tokens; a draft need not be exact.
_FILTERED = 256

# A child must score below its parent, or the best nodes are not a subtree. So a step costs at least this much, yet too
# little to be lost in the sum's rounding.
_SMALLEST_STEP = -1 / 128
_LARGEST_STEP = -200.0
# Other scores are below 0.
_ROOT = 2.0
_ALWAYS = 1.0
_NEVER = -mx.inf


class PathScorer:
    """Scores tokens with the warp and noise of the target's choice, applied to a drafter's logits.

    Args:
        sampling: Sampling parameters of the reply.
        seed: 64-bit reply seed.
        vocabulary: (draft_vocabulary_size,) ids of the tokens that can be drafted.
        inverse_temperature: See `Head`.
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
        if sampling.temperature == 0:
            return logits
        noise = keys, (self._vocabulary if ids is None else ids)[None]
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
    runner_ups = [step for step, tokens in enumerate(ranked) for _ in range(tokens.shape[0] - 1)]
    tokens = mx.concatenate([mx.array([root]), *(t[:1] for t in ranked), *(t[1:] for t in ranked)])
    if not runner_ups:
        return PackedTree.chain(tokens)
    parents = np.array([*range(-1, depth), *runner_ups], dtype=np.int32)
    depths = np.array([*range(depth + 1), *(step + 1 for step in runner_ups)], dtype=np.int32)
    unknown = np.zeros(len(parents), dtype=np.int32)
    return PackedTree.pack(PrefixTree(unknown, parents, depths), tokens)


class CandidateRanker:
    """Ranks tokens by the score of `TokenChooser`, with the draft model's logits instead of the target's.

    Args:
        params: Sampling parameters of the reply.
        seed: 64-bit reply seed.
        vocabulary_size: Ids below this one may be offered.
        offered: (n,) uint32: those of them that target and draft model share; None for all.
    """

    def __init__(
        self, params: SamplingParams, seed: int, vocabulary_size: int, offered: mx.array | None = None
    ) -> None:
        self._seed = seed
        self._params = params
        self._offered = offered
        self._columns = slice(vocabulary_size) if offered is None else offered
        ids = mx.arange(vocabulary_size, dtype=mx.uint32) if offered is None else offered
        self._scorer = PathScorer(params, seed, ids, candidates=_FILTERED)

    def rank(
        self, logits: mx.array, position: int, count: int, seen: mx.array | None = None
    ) -> tuple[mx.array, mx.array]:
        """Return the best tokens of one step.

        Args:
            logits: (1, vocabulary), any floating dtype: the draft model's; columns beyond the shared ones are ignored.
            position: Absolute position of the token to be chosen.
            count: Number of tokens to return.
            seen: (vocabulary,) int32, see `TokenChooser.seen`; None without a penalty.

        Returns:
            (count,) int32, best first; and () bool: whether the first one's score is finite.
        """
        logits = logits[:, self._columns].astype(mx.float32)
        if seen is not None:
            logits = penalize(logits, seen[self._columns], self._params)
        scores = self._scorer.scored(logits, noise_keys(self._seed, (position,)))[0]
        best = _best(scores, min(count, scores.shape[0]))
        tokens = best if self._offered is None else self._offered[best]
        return tokens.astype(mx.int32), mx.isfinite(scores[best[0]])


def _best(scores: mx.array, count: int) -> mx.array:
    """Return the indices, (count,), of the largest of (m,) scores, best first."""
    best = [mx.argmax(scores, keepdims=True)]
    # One pass per candidate is cheaper than partitioning the vocabulary.
    for _ in range(count - 1):
        scores = mx.where(mx.arange(scores.shape[0]) == best[-1], -mx.inf, scores)
        best.append(mx.argmax(scores, keepdims=True))
    return mx.concatenate(best)


@dataclass(frozen=True, slots=True, eq=False)
class NodePool:
    """All nodes that a beam search kept, level by level below the root (node 0); each level best first.

    Attributes:
        tokens: (nodes,) int32: token ids.
        parents: (nodes,) int32: index of each node's parent; -1 for the root.
        scores: (nodes,) float32: the sum of renormalised log-scores along the path, below the parent's; 0 for the root.
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

    def level(self, depth: int) -> slice:
        """Return the slice of the nodes at a depth, from 1."""
        return slice(1 + (depth - 1) * self.level_size, 1 + depth * self.level_size)

    def cut(self, levels: int) -> "NodePool":
        """Return the first levels: the result of a search of that length."""
        if levels == self.levels:
            return self
        nodes = slice(1 + levels * self.level_size)
        tokens = self.tokens[nodes]
        parents = self.parents[nodes]
        scores = self.scores[nodes]
        return replace(self, tokens=tokens, parents=parents, scores=scores, levels=levels)


@partial(mx.compile, shapeless=False)
def _totals(above: mx.array, logits: mx.array, log_total: mx.array) -> mx.array:
    """Return the scores, (beams, m), of paths that extend those with the scores `above`, (beams,).

    NaN becomes minus infinity, because a sort may put NaN first.
    """
    totals = above[:, None] + mx.clip(logits - log_total, _LARGEST_STEP, _SMALLEST_STEP)
    return mx.where(mx.isnan(totals), -mx.inf, totals)


@partial(mx.compile, shapeless=False)
def _origins(indices: mx.array, candidates: mx.array, first: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    """Return (n,) beams, columns and parents of flat indices into a table (beams, candidates); `first` is beam 0."""
    beams = indices // candidates
    return beams, indices - beams * candidates, (beams + first).astype(mx.int32)


def search(
    head: Head, memory: HeadMemory, scorer: PathScorer, root: Root, *, shape: BeamShape, level_size: int
) -> NodePool:
    """Search for likely paths below a root.

    Args:
        head: The drafter's network.
        memory: Its memory of the text before the root.
        scorer: Scores the steps.
        root: Where the paths begin.
        shape: Width and length of the beams.
        level_size: Nodes of each level in the result, at least the width; those beyond the width are leaves.

    Returns:
        A pool of `1 + (length - 1) * level_size` nodes; fewer where a step has fewer candidates than `level_size`.
    """
    level_size = min(level_size, head.candidates)
    width = min(shape.width, level_size)
    first = mx.array(root.token, mx.int32).reshape(1)
    state = memory.root_state(replace(root, drafted=shape.length - 1))
    keys = scorer.keys(root, shape.length - 1)
    totals = mx.zeros((1,))
    candidates = mx.array(head.candidates, mx.uint32)
    tokens = [first]
    parents = [mx.array([-1], mx.int32)]
    scores = [totals]
    # Scores of the chosen tokens. With one node a level the path scores may never be computed.
    chosen: list[mx.array] = []
    for depth in range(1, shape.length):
        ids = state.ids()
        scored = scorer.scored(state.logits(), keys[depth - 1 : depth], ids)
        paths = _totals(totals, scored, log_denominator(scored)).reshape(1, -1)
        # An argmax finds the best token without computing its path score.
        if level_size == 1:
            indices = mx.argmax(scored, axis=-1)
            best_scores = paths[0, indices]
            chosen.append(scored[0, indices])
        else:
            indices, best_scores = (row[0] for row in top_k(paths, level_size))
        # This is the first live beam.
        node = mx.array(1 + (depth - 2) * level_size if depth > 1 else 0, mx.uint32)
        beams, columns, nodes = _origins(indices, candidates, node)
        tokens.append((head.vocabulary if ids is None else ids)[columns])
        parents.append(nodes)
        scores.append(best_scores)
        if depth < shape.length - 1:
            totals = best_scores[:width]
            state = state.after(beams[:width], tokens[-1][:width])
    above = mx.concatenate(parents)
    sums = mx.concatenate(scores)
    finite = mx.all(mx.isfinite(mx.concatenate(chosen) if chosen else sums))
    return NodePool(mx.concatenate(tokens), above, sums, shape.length - 1, finite)


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
    tokens, parents, scores = _with_branch(pool, branch)
    count = min(max(count, 1 + len(branch)), tokens.shape[0])
    ranks = _ranks(scores, mx.array(np.arange(scores.shape[0])))
    selected = mx.sort(mx.argpartition(ranks, -count)[-count:]).astype(mx.int32)
    # These are indices among the selected nodes; the root's is -1.
    parents = mx.sum(selected <= parents[selected][:, None], axis=1) - 1
    deepest = min(max(pool.levels, len(branch)), count - 1)
    tree = PackedTree.from_parents(selected, parents, ranks[selected], deepest)
    return replace(tree, tokens=tokens[tree.tokens]), tree.tokens >= drafted


def _with_branch(pool: NodePool, branch: Sequence[int]) -> tuple[mx.array, mx.array, mx.array]:
    """Return tokens, parents and scores with the branch's nodes appended.

    Where the pool already has a node of the branch, that one is used instead.
    """
    if not branch:
        return pool.tokens, pool.parents, pool.scores
    # This is the branch's last node, drafted or appended.
    at = mx.array(0, mx.int32)
    scores = [pool.scores[:1]]
    parents = []
    appended = []
    for depth, token in enumerate(branch, start=1):
        own = mx.array(pool.tokens.shape[0] + depth - 1, mx.int32)
        parents.append(at)
        if depth > pool.levels:
            # The beams end above.
            appended.append(mx.array(_ALWAYS))
            at = own
            continue
        level = pool.level(depth)
        same, level_scores = _same(
            pool.parents[level], pool.tokens[level], pool.scores[level], at, mx.array(token, mx.int32)
        )
        scores.append(level_scores)
        score, at = _taken(mx.any(same), mx.argmax(same), mx.array(level.start, mx.int32), own)
        appended.append(score)
    return (
        mx.concatenate([pool.tokens, mx.array(list(branch), mx.int32)]),
        mx.concatenate([pool.parents, mx.stack(parents).astype(mx.int32)]),
        mx.concatenate([*scores, pool.scores[level.stop :], mx.stack(appended)]),
    )


@partial(mx.compile, shapeless=False)
def _ranks(scores: mx.array, nodes: mx.array) -> mx.array:
    """Return scores in which the root, node 0, ranks above all others, and NaN below all others."""
    below = mx.minimum(mx.where(mx.isnan(scores), _NEVER, scores), _ALWAYS)
    return mx.where(nodes == 0, _ROOT, below)


@partial(mx.compile, shapeless=False)
def _same(
    parents: mx.array, tokens: mx.array, scores: mx.array, at: mx.array, token: mx.array
) -> tuple[mx.array, mx.array]:
    """Return which nodes of a level hold `token` below node `at`, and the level's scores with those always selected."""
    same = (parents == at) & (tokens == token)
    return same, mx.where(same, _ALWAYS, scores)


@partial(mx.compile, shapeless=False)
def _taken(is_drafted: mx.array, first: mx.array, start: mx.array, own: mx.array) -> tuple[mx.array, mx.array]:
    """Return the score of the branch's own node, and where the branch continues: at the node found, or at its own."""
    return mx.where(is_drafted, _NEVER, _ALWAYS), mx.where(is_drafted, first.astype(mx.int32) + start, own)
