"""Verifies the prefix tree of a draft: one target call for all its nodes, then one path is committed.

A packed tree (`PackedTree`) is a prefix tree as arrays on the device, a row of the call for each node; its tokens and
shape may be lazy. `Verifier` opens a round on the target's cache, and commits it or rolls it back.

Where recurrent state cannot be committed in part, the state from before the round is restored, and the accepted tokens
are fed together with the next round's draft, a chain. If several rounds in a row end so, the pending tokens are fed in
a call of their own.
"""

from dataclasses import dataclass, replace

import mlx.core as mx
import numpy as np

from rdchat.inference.device import fetch
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.prefix_tree import PrefixTree
from rdchat.inference.verification.target import LoadedModel

# Up to this many pending rows are cheaper to verify again with the next draft than to feed in their own call.
_MAX_PENDING = 8


@dataclass(frozen=True, slots=True)
class PackedTree:
    """The nodes of a tree; parents come before their children.

    Attributes:
        tokens: (nodes,) int32 token ids, the root first.
        parents: (nodes,) int32 index of each node's parent; -1 for the root.
        depths: (nodes,) int32 distance from the root.
        ancestors: (nodes, nodes) bool: whether node j lies on the way from the root to node i, i itself included; None
            for a chain, where packed order is plain order.
        deepest: Upper bound of the depths.
        leaves: Upper bound of the number of leaves, those of padding not counted.
    """

    tokens: mx.array
    parents: mx.array
    depths: mx.array
    ancestors: mx.array | None
    deepest: int
    leaves: int = 1

    @classmethod
    def pack(cls, tree: PrefixTree, tokens: mx.array | None = None) -> "PackedTree":
        """Pack a tree of known shape, with its own tokens or with `tokens`, (nodes,), perhaps lazy."""
        tokens = mx.array(tree.tokens) if tokens is None else tokens
        ancestors = None if tree.is_chain else mx.array(tree.ancestors())
        shape = mx.array(tree.parents), mx.array(tree.depths), ancestors, int(tree.depths.max())
        return cls(tokens.astype(mx.int32), *shape, leaves=len(set(range(len(tree))) - set(tree.parents.tolist())))

    @classmethod
    def chain(cls, tokens: mx.array) -> "PackedTree":
        """Pack a chain of (nodes,) integer tokens, perhaps lazy."""
        depths = mx.arange(tokens.shape[0], dtype=mx.int32)
        return cls(tokens.astype(mx.int32), depths - 1, depths, None, tokens.shape[0] - 1)

    @classmethod
    def from_parents(cls, tokens: mx.array, parents: mx.array, scores: mx.array, deepest: int) -> "PackedTree":
        """Pack a tree of lazy shape, numbered depth-first with the likeliest child first.

        So an accepted path of likeliest children is contiguous in the caches' rows. Whatever the parents are, node 0
        becomes the root and sees itself alone.

        Args:
            tokens: (nodes,) integers, the root first.
            parents: (nodes,) integers; parents come before their children.
            scores: (nodes,) float32, those of likelier children are higher; of equal ones the earlier node comes first.
            deepest: Upper bound of the depths. If the tree is deeper, the result is not sound (`PrefixTree.is_sound`).

        Example: the tokens `[5, 7, 8, 9, 6]` with the parents `[-1, 0, 0, 1, 2]` and the scores `[0, -2, -1, -3, -4]`
        become `[5, 8, 6, 7, 9]` with the parents `[-1, 0, 1, 0, 3]`.
        """
        # On the host this needs fewer launches.
        nodes = mx.array(np.arange(tokens.shape[0], dtype=np.int32))
        parents = _before(parents, nodes)
        paths = _one_step(parents, nodes)
        reached = 1
        # The number of edges doubles each time.
        while reached < deepest:
            paths = _reach(paths @ paths)
            reached = 2 * reached
        # A node's number is the sum, over the nodes of its path, of 1 and the sizes of the likelier siblings' subtrees.
        steps = mx.sum(_steps(parents, scores, nodes, mx.sum(paths, axis=0)), axis=1, keepdims=True)
        # The order has an old index for each new one; `argsort` of it has a new index for each old one.
        order = mx.argsort((paths @ steps)[:, 0])
        paths = paths[order[:, None], order[None]]
        moved = mx.argsort(order)[parents[order]]
        parents, depths = _numbered(moved, mx.sum(paths, axis=1), nodes)
        leaves = max(tokens.shape[0] - 1, 1)
        return cls(tokens.astype(mx.int32)[order], parents, depths, paths > 0, deepest, leaves)

    def below(self, root: int, vocabulary_size: int) -> "PackedTree":
        """Return the tree with this token as its root and all indices in range, which MLX would not check.

        Args:
            root: Token id.
            vocabulary_size: Token ids are below this.
        """
        limits = mx.array([root, vocabulary_size - 1, self.deepest], mx.int32)
        tokens, parents, depths = _below(self.tokens, self.parents, self.depths, limits)
        return replace(self, tokens=tokens, parents=parents, depths=depths)

    def with_leaves(self, limit: int) -> "PackedTree":
        """Return the tree with at most `limit` leaves; nodes behind them repeat the last one, and are never accepted.

        Of two children with the same token the first is accepted.
        Recurrent state is computed along each path to a leaf, so the bound of a lazy tree decides what that costs.

        Args:
            limit: At least 1. The nodes must be numbered depth-first.

        Example: the tokens `[5, 7, 8, 9, 6]` with the parents `[-1, 0, 1, 0, 0]` have three leaves; `with_leaves(2)`
        has the tokens `[5, 7, 8, 9, 9]` and the same parents.
        """
        paths = self.ancestors
        if paths is None or limit >= self.leaves:
            return self
        nodes = mx.array(np.arange(len(self), dtype=np.int32))
        is_leaf = (mx.sum(paths, axis=0) == 1).astype(mx.int32)
        passed = mx.cumsum(is_leaf)
        last = mx.argmax(passed >= limit)
        # For each node, the node whose values it gets: itself up to the last leaf, then that leaf.
        source = mx.where(passed - is_leaf < limit, nodes, last.astype(mx.int32))
        # A node that repeats the last leaf sees the leaf's ancestors and itself, but not the leaf.
        repeated = (paths[last] & (nodes != last)) | (nodes[:, None] == nodes)
        return replace(
            self,
            tokens=self.tokens[source],
            parents=self.parents[source],
            depths=self.depths[source],
            ancestors=mx.where((source == nodes)[:, None], paths, repeated),
            leaves=limit,
        )

    def padded(self, rows: int) -> "PackedTree":
        """Return the tree padded to `rows` nodes, since some numbers of rows are cheaper than smaller ones.

        With the tokens `[5, 7, 8]`, parents `[-1, 0, 0]` and depths `[0, 1, 1]`, `padded(5)` has the tokens `[5, 7, 8,
        5, 5]`, parents `[-1, 0, 0, -1, -1]`, depths `[0, 1, 1, 0, 0]`, and these rows of `ancestors`:

            1 0 0 0 0
            1 1 0 0 0
            1 0 1 0 0
            0 0 0 1 0
            0 0 0 0 1

        A chain of 2 stays without `ancestors`; `padded(4)` gives it the depths `[0, 1, 2, 3]`.
        """
        count = rows - len(self)
        if count <= 0:
            return self
        tokens = mx.concatenate([self.tokens, mx.repeat(self.tokens[:1], count)])
        parents = mx.concatenate([self.parents, mx.full((count,), -1, mx.int32)])
        ancestors = self.ancestors
        # A chain can be padded as a chain.
        if ancestors is None:
            return PackedTree(tokens, parents, mx.arange(rows, dtype=mx.int32), None, self.deepest)
        depths = mx.concatenate([self.depths, mx.zeros((count,), mx.int32)])
        alone = mx.eye(rows, dtype=mx.bool_)[len(self) :]
        ancestors = mx.concatenate([mx.pad(ancestors, [(0, 0), (0, count)]), alone])
        return PackedTree(tokens, parents, depths, ancestors, self.deepest, self.leaves)

    def __len__(self) -> int:
        return int(self.tokens.shape[0])

    @property
    def arrays(self) -> tuple[mx.array | None, ...]:
        """The arrays that may be lazy, to evaluate together."""
        return self.tokens, self.parents, self.depths, self.ancestors

    def fetch(self) -> PrefixTree:
        """Return the tree in NumPy arrays, without beams; waits for the device if necessary."""
        return PrefixTree(*fetch(self.tokens, self.parents, self.depths))


@mx.compile
def _below(
    tokens: mx.array, parents: mx.array, depths: mx.array, limits: mx.array
) -> tuple[mx.array, mx.array, mx.array]:
    """Clip tokens, parents and depths, (nodes,), to `limits`: root, largest token, largest depth."""
    nodes = mx.arange(tokens.shape[0], dtype=mx.int32)
    token = mx.minimum(mx.maximum(tokens, 0), limits[1])
    depth = mx.minimum(mx.maximum(depths, 0), limits[2])
    return mx.where(nodes == 0, limits[0], token), _before(parents, nodes), mx.where(nodes == 0, 0, depth)


@mx.compile
def _before(parents: mx.array, nodes: mx.array) -> mx.array:
    """Return parents, (nodes,) int32, clipped to earlier nodes; -1 for the root."""
    return mx.minimum(mx.maximum(parents.astype(mx.int32), mx.minimum(nodes - 1, 0)), nodes - 1)


@mx.compile
def _one_step(parents: mx.array, nodes: mx.array) -> mx.array:
    """Return (nodes, nodes) float32: 1 where column j is row i or its parent."""
    return ((nodes[:, None] == nodes) | (parents[:, None] == nodes)).astype(mx.float32)


@mx.compile
def _steps(parents: mx.array, scores: mx.array, nodes: mx.array, sizes: mx.array) -> mx.array:
    """Return (nodes, nodes) float32: 1 for a row's own node, and the sizes of the subtrees of its likelier siblings."""
    likelier = (scores > scores[:, None]) | ((scores == scores[:, None]) & (nodes < nodes[:, None]))
    sizes = mx.where((parents == parents[:, None]) & likelier, sizes, 0.0)
    return mx.where(nodes == nodes[:, None], 1.0, sizes)


@mx.compile
def _numbered(parents: mx.array, rows: mx.array, nodes: mx.array) -> tuple[mx.array, mx.array]:
    """Return parents and depths, both (nodes,) int32.

    A node that is not behind its parent gets a wrong depth, by which `PrefixTree.is_sound` finds it.

    Args:
        parents: (nodes,) the numbers of the parents.
        rows: (nodes,) float32 number of nodes on the path to each.
        nodes: (nodes,) int32.
    """
    parents = mx.where(nodes == 0, -1, parents.astype(mx.int32))
    return parents, mx.where(parents < nodes, rows.astype(mx.int32) - 1, 0)


@mx.compile
def _reach(paths: mx.array) -> mx.array:
    return (paths > 0).astype(mx.float32)


@dataclass(frozen=True, slots=True)
class Verified:
    """The target's output for a tree, lazy.

    Attributes:
        logits: (nodes, vocabulary), in the model's dtype: logits of the token after each node.
        hidden: (nodes, width): each node's hidden state; None where the trunk has no hook.
    """

    logits: mx.array
    hidden: mx.array | None


class Verifier:
    """Opens rounds on the target's cache, and commits or rolls them back.

    Args:
        model: The target.
        cache: Its cache, with rounds; `cache.tokens` is kept up to date.
    """

    def __init__(self, model: LoadedModel, cache: KVCache) -> None:
        self._model = model
        self._cache = cache
        self._stateful = cache.has_state
        # Accepted tokens that the cache does not hold.
        self._pending: list[int] = []
        # Number of rows of the open round.
        self._fed = 0

    @property
    def position(self) -> int:
        """Return the number of committed tokens: the position of the next round's root."""
        return len(self._cache.tokens) + len(self._pending)

    def verify(self, tree: PackedTree, rows: int = 0) -> Verified:
        """Feed a tree, perhaps lazy; the round stays open until `commit` or `rollback`.

        Args:
            tree: Its root is the last chosen token.
            rows: Pad the call to this many rows, where that is cheaper; not with recurrent state, since a chain that is
                accepted whole costs least.
        """
        if len(self._pending) > _MAX_PENDING:
            self.catch_up()
        pending = len(self._pending)
        nodes = len(tree)
        tree = tree if self._stateful else tree.padded(rows)
        tokens = tree.tokens
        chain = tree.ancestors is None
        self._fed = pending + len(tree)
        self._cache.open_round(tree.depths, tree.ancestors, tree.deepest, tree.leaves)
        if pending:
            assert chain
            tokens = mx.concatenate([mx.array(self._pending, dtype=tokens.dtype), tokens])
        with self._model.hooks.packed(None if chain else tree.depths):
            logits, hidden = self._model.call(tokens, self._cache)
        # Neither pending tokens before the tree nor padding behind it.
        drafted = slice(pending, pending + nodes)
        return Verified(logits[drafted], None if hidden is None else hidden[drafted])

    def catch_up(self) -> None:
        """Feed accepted tokens that the cache does not hold yet, in a call of their own."""
        if self._pending:
            self._model.network(mx.array([self._pending]), cache=self._cache.layers)
            self._cache.tokens += self._pending
            self._pending = []

    def commit(self, tokens: list[int], path: list[int]) -> None:
        """Keep a path of the open round.

        Args:
            tokens: The tokens along the path, root first.
            path: Their node indices.
        """
        # The pending tokens were fed as the first rows of the call, before the nodes.
        pending = len(self._pending)
        rows = [*range(pending), *(pending + node for node in path)]
        # The earlier pending tokens stay pending too: the rollback drops their rows with the others.
        if len(rows) < self._fed and not self._cache.can_commit_part:
            self.rollback()
            self._pending += tokens
            return
        self._cache.close_round(rows)
        self._cache.tokens += [*self._pending, *tokens]
        self._pending = []

    def rollback(self) -> None:
        """Keep nothing of the open round."""
        self._cache.rollback()
