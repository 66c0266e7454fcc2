"""Beam search with a drafter head, as one lazy graph that never waits for the device.

Zhang et al. 2024, arXiv 2403.09919, section 3.2, for any `Head`. Each step keeps the most likely nodes below the live
beams; the first `beam_width` of them are the next live beams. A node's score is the sum along its path of
`log_softmax(inverse_temperature * log_probs + noise)`, with the warp and noise of the target's own choice
(docs/adr/0003). So it estimates how likely the target is to choose this very path.

The most probable nodes become a lazy tree, with a branch from prompt lookup. Scores fall along every path, so the best
nodes form a subtree; in ascending order parents come before their children. The root is always selected, so the result
is a tree whatever the scores are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import mlx.core as mx

from rdchat.inference.api.requests import BeamShape
from rdchat.inference.decoding.reductions import log_denominator, top_k
from rdchat.inference.drafting.heads.head import Head, HeadMemory, Root
from rdchat.inference.drafting.scoring import PathScorer
from rdchat.inference.target.packed_tree import PackedTree

# A child must score below its parent, or the best nodes are not a subtree. So a step costs at least this much, yet too
# little to be lost in the sum's rounding.
_SMALLEST_STEP, _LARGEST_STEP = -1 / 128, -200.0
_ROOT, _ALWAYS, _NEVER = 2.0, 1.0, -mx.inf  # scores are below 0


@dataclass(frozen=True, slots=True, eq=False)
class NodePool:
    """All nodes that a beam search kept, level by level below the root (node 0); each level best first."""

    tokens: mx.array  # (nodes,) int32
    parents: mx.array  # (nodes,) int32; -1 for the root
    # (nodes,) float32: the sum of renormalised log-scores along the path, below the parent's; 0 for the root.
    scores: mx.array
    levels: int  # number of levels below the root
    width: int  # beams of the search
    finite: mx.array | bool = True  # () bool: whether the head's scores are finite; if not, the draft is dropped

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
        kept = slice(1 + levels * self.level_size)
        tokens, parents, scores = self.tokens[kept], self.parents[kept], self.scores[kept]
        return replace(self, tokens=tokens, parents=parents, scores=scores, levels=levels)


@partial(mx.compile, shapeless=False)
def _totals(above: mx.array, logits: mx.array, log_total: mx.array) -> mx.array:
    """Return the scores, (beams, m), of paths that extend those with the scores `above`, (beams,).

    NaN becomes minus infinity, because a sort may put NaN first.
    """
    totals = above[:, None] + mx.clip(logits - log_total, _LARGEST_STEP, _SMALLEST_STEP)
    return mx.where(mx.isnan(totals), -mx.inf, totals)


@partial(mx.compile, shapeless=False)
def _origins(places: mx.array, candidates: mx.array, first: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    """Return (n,) beams, columns and parents of flat indices into a table (beams, candidates); `first` is beam 0."""
    beams = places // candidates
    return beams, places - beams * candidates, (beams + first).astype(mx.int32)


def search(head: Head, memory: HeadMemory, scorer: PathScorer, root: Root, *, shape: BeamShape, kept: int) -> NodePool:
    """Search for likely paths below a root.

    Args:
        head: The drafter's network.
        memory: Its memory of the text before the root.
        scorer: Scores the steps.
        root: Where the paths begin.
        shape: Width and length of the beams.
        kept: Nodes of each level in the result, at least the width; those beyond the width are leaves.

    Returns:
        A pool of `1 + (length - 1) * kept` nodes, or fewer where the draft vocabulary is smaller than `kept`.
    """
    kept = min(kept, head.candidates)
    width = min(shape.width, kept)
    first = mx.array(root.token, mx.int32).reshape(1)
    state = memory.state(root)
    keys = scorer.keys(root, shape.length - 1)
    totals, candidates = mx.zeros((1,)), mx.array(head.candidates, mx.uint32)
    tokens, parents, scores = [first], [mx.array([-1], mx.int32)], [totals]
    chosen: list[mx.array] = []  # scores of the chosen tokens; with kept == 1 the path scores may never be computed
    for depth in range(1, shape.length):
        scored = scorer.scored(state.logits(), keys[depth - 1 : depth])
        paths = _totals(totals, scored, log_denominator(scored)).reshape(1, -1)
        if kept == 1:  # an argmax finds the best token without computing its path score
            places = mx.argmax(scored, axis=-1)
            found = paths[0, places]
            chosen.append(scored[0, places])
        else:
            places, found = (row[0] for row in top_k(paths, kept))
        node = mx.array(1 + (depth - 2) * kept if depth > 1 else 0, mx.uint32)  # the first live beam
        beams, columns, nodes = _origins(places, candidates, node)
        tokens.append(head.vocabulary[columns])
        parents.append(nodes)
        scores.append(found)
        if depth < shape.length - 1:
            totals = found[:width]
            state = state.after(beams[:width], tokens[-1][:width])
    above, sums = mx.concatenate(parents), mx.concatenate(scores)
    finite = mx.all(mx.isfinite(mx.concatenate(chosen) if chosen else sums))
    return NodePool(mx.concatenate(tokens), above, sums, shape.length - 1, shape.width, finite)


def best_nodes(pool: NodePool, count: int, branch: Sequence[int] = ()) -> tuple[PackedTree, mx.array]:
    """Select nodes of a pool.

    Args:
        pool: The nodes of a beam search.
        count: Nodes to select, the root and the branch among them.
        branch: Tokens of a path below the root to include in any case, at most as many as the pool has levels.

    Returns:
        The tree of `min(count, nodes)` nodes; and (nodes,) bool: which of them only the branch offers.

    Example: three nodes of two levels of two, with the best path root, a, c.

        tokens  root a b c d      scores 0 -0.1 -2 -0.3 -1.5      parents -1 0 0 1 1
        without a branch          root a c        parents -1 0 1
        five, with branch [b, e]  root a b c e    parents -1 0 0 1 2, and only the branch offers e
    """
    drafted = pool.tokens.shape[0]
    tokens, parents, scores = _with_branch(pool, branch)
    count = min(max(count, 1 + len(branch)), tokens.shape[0])
    ranks = _ranks(scores, mx.arange(scores.shape[0]))
    selected = mx.sort(mx.argpartition(ranks, -count)[-count:]).astype(mx.int32)
    parents = mx.sum(selected <= parents[selected][:, None], axis=1) - 1  # indices among the selected; the root's is -1
    tree = PackedTree.from_parents(tokens[selected], parents, min(pool.levels, count - 1))
    return tree, selected >= drafted


def _with_branch(pool: NodePool, branch: Sequence[int]) -> tuple[mx.array, mx.array, mx.array]:
    """Return tokens, parents and scores with the branch's nodes appended.

    Where the pool already has a node of the branch, that one is used instead.
    """
    if not branch:
        return pool.tokens, pool.parents, pool.scores
    at = mx.array(0, mx.int32)  # the branch's last node, drafted or appended
    scores, parents, appended = [pool.scores[:1]], [], []
    for depth, token in enumerate(branch, start=1):
        level = pool.level(depth)
        same, kept = _same(pool.parents[level], pool.tokens[level], pool.scores[level], at, mx.array(token, mx.int32))
        scores.append(kept)
        parents.append(at)
        own = mx.array(pool.tokens.shape[0] + depth - 1, mx.int32)
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
def _taken(found: mx.array, first: mx.array, start: mx.array, own: mx.array) -> tuple[mx.array, mx.array]:
    """Return the score of the branch's own node, and where the branch continues: at the node found, or at its own."""
    return mx.where(found, _NEVER, _ALWAYS), mx.where(found, first.astype(mx.int32) + start, own)
