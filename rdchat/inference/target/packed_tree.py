"""A prefix tree as the device holds it: its arrays may be lazy, so that drafting and verifying are one graph."""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from rdchat.inference.target.prefix_tree import PrefixTree


@dataclass(frozen=True, slots=True)
class PackedTree:
    """The nodes of a tree; parents come before their children.

    Attributes:
        tokens: (nodes,) int32 token ids, the root first.
        parents: (nodes,) int32 index of each node's parent; -1 for the root.
        depths: (nodes,) int32 distance from the root.
        ancestors: (nodes, nodes) bool: whether node j lies on the way from the root to node i, i itself included; None
            for a chain, where packed order is plain order.
        deepest: The largest depth that a node may have.
    """

    tokens: mx.array
    parents: mx.array
    depths: mx.array
    ancestors: mx.array | None
    deepest: int

    @classmethod
    def of(cls, tree: PrefixTree, tokens: mx.array | None = None) -> "PackedTree":
        """Pack a tree whose shape is known, with its own tokens or with lazy ones."""
        tokens = mx.array(tree.tokens) if tokens is None else tokens
        ancestors = None if tree.is_chain else mx.array(tree.ancestors())
        return cls(
            tokens.astype(mx.int32), mx.array(tree.parents), mx.array(tree.depths), ancestors, int(tree.depths.max())
        )

    @classmethod
    def chain(cls, tokens: mx.array) -> "PackedTree":
        """Pack a chain of lazy tokens, (nodes,)."""
        depths = mx.arange(tokens.shape[0], dtype=mx.int32)
        return cls(tokens.astype(mx.int32), depths - 1, depths, None, tokens.shape[0] - 1)

    @classmethod
    def from_parents(cls, tokens: mx.array, parents: mx.array, depths: mx.array, deepest: int) -> "PackedTree":
        """Pack a tree of lazy shape, none of whose nodes comes before its parent."""
        nodes = mx.arange(tokens.shape[0], dtype=mx.int32)
        ancestors, at = nodes[:, None] == nodes[None], parents
        for _ in range(deepest):
            ancestors = ancestors | (at[:, None] == nodes[None])
            at = mx.where(at < 0, -1, parents[at])
        return cls(tokens.astype(mx.int32), parents.astype(mx.int32), depths.astype(mx.int32), ancestors, deepest)

    def padded(self, rows: int) -> "PackedTree":
        """Return the tree with rows behind it that mean nothing: no node sees them, and no node is their parent.

        Some numbers of rows are cheaper to verify than smaller ones.
        """
        count = rows - len(self)
        if count <= 0:
            return self
        tokens = mx.concatenate([self.tokens, mx.repeat(self.tokens[:1], count)])
        parents = mx.concatenate([self.parents, mx.full((count,), -1, mx.int32)])
        ancestors = self.ancestors
        if ancestors is None:  # behind a chain they may go on as a chain
            return PackedTree(tokens, parents, mx.arange(rows, dtype=mx.int32), None, self.deepest)
        depths = mx.concatenate([self.depths, mx.zeros((count,), mx.int32)])
        alone = mx.eye(rows, dtype=mx.bool_)[len(self) :]
        ancestors = mx.concatenate([mx.pad(ancestors, [(0, 0), (0, count)]), alone])
        return PackedTree(tokens, parents, depths, ancestors, self.deepest)

    def __len__(self) -> int:
        return int(self.tokens.shape[0])

    @property
    def arrays(self) -> tuple[mx.array | None, ...]:
        """All that may be lazy."""
        return self.tokens, self.parents, self.depths, self.ancestors

    def fetch(self) -> PrefixTree:
        """Return the tree on the host; waits for the device unless its arrays are evaluated."""
        none = np.empty((0, 0), dtype=np.int32)
        return PrefixTree(np.array(self.tokens), np.array(self.parents), np.array(self.depths), none)
