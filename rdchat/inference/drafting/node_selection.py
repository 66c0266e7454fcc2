"""The most probable nodes of a whole draft, together with a branch from prompt lookup, as a lazy tree.

Scores fall along every path, so the best nodes form a subtree; in ascending order parents stay before their children.
Whatever the scores are, the root is selected and the tree is one. Nothing here waits for the device.
"""

from collections.abc import Sequence
from functools import partial

import mlx.core as mx

from rdchat.inference.drafting.beam_search import NodePool
from rdchat.inference.target.packed_tree import PackedTree

_ROOT, _ALWAYS, _NEVER = 2.0, 1.0, -mx.inf  # scores are below 0


def best_nodes(pool: NodePool[mx.array], count: int, branch: Sequence[int] = ()) -> tuple[PackedTree, mx.array]:
    """Select nodes of a pool.

    Args:
        pool: What a beam search kept.
        count: Nodes to select, the root and the branch among them.
        branch: Tokens of a path below the root that is offered in any case, at most as long as the pool is deep.

    Returns:
        The tree of `min(count, nodes)` nodes; and (nodes,) bool: which of them the branch alone offers.

    Example: three nodes of two levels of two, of which the best path is root, a, c.

        tokens  root a b c d      scores 0 -0.1 -2 -0.3 -1.5      parents -1 0 0 1 1
        without a branch          root a c        parents -1 0 1
        five, with branch [b, e]  root a b c e    parents -1 0 0 1 2, of which the branch alone offers e
    """
    drafted = pool.tokens.shape[0]
    tokens, parents, scores = _with_branch(pool, branch)
    count = min(max(count, 1 + len(branch)), tokens.shape[0])
    ranks = _ranks(scores, mx.arange(scores.shape[0]))
    selected = mx.sort(mx.argpartition(ranks, -count)[-count:]).astype(mx.int32)
    parents = mx.sum(selected <= parents[selected][:, None], axis=1) - 1  # places among the selected; the root's is -1
    tree = PackedTree.from_parents(tokens[selected], parents, min(pool.levels, count - 1))
    return tree, selected >= drafted


def _with_branch(pool: NodePool[mx.array], branch: Sequence[int]) -> tuple[mx.array, mx.array, mx.array]:
    """Return tokens, parents and scores with the branch's nodes appended.

    Where the pool holds a node of the branch already, that one is kept instead.
    """
    if not branch:
        return pool.tokens, pool.parents, pool.scores
    at = mx.array(0, mx.int32)  # the branch's node above, drafted or appended
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
    """Return scores by which the root, node 0, is above all others; those that are no number are below all others."""
    below = mx.minimum(mx.where(mx.isnan(scores), _NEVER, scores), _ALWAYS)
    return mx.where(nodes == 0, _ROOT, below)


@partial(mx.compile, shapeless=False)
def _same(
    parents: mx.array, tokens: mx.array, scores: mx.array, at: mx.array, token: mx.array
) -> tuple[mx.array, mx.array]:
    """Return which nodes of a level are a token below a node, and the level's scores with those always taken."""
    same = (parents == at) & (tokens == token)
    return same, mx.where(same, _ALWAYS, scores)


@partial(mx.compile, shapeless=False)
def _taken(found: mx.array, first: mx.array, start: mx.array, own: mx.array) -> tuple[mx.array, mx.array]:
    """Return the score of the branch's own node, and where the branch goes on: at the node found, or at its own."""
    return mx.where(found, _NEVER, _ALWAYS), mx.where(found, first.astype(mx.int32) + start, own)
