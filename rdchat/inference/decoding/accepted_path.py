"""The acceptance rule: a drafted node is accepted when it equals the token that the target chooses there.

`TokenChooser` makes that choice from logits, position and seed alone. So a reply's text does not depend on its drafts,
at any temperature, except that the number of rows in a call changes the last digits of logits.
"""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.inference.verification.prefix_tree import PrefixTree
from rdchat.inference.verification.verifier import PackedTree


def accepted_path(tree: PrefixTree, chosen: npt.NDArray[np.integer]) -> list[int]:
    """Walk from the root along the tokens that the target chose.

    Args:
        tree: The packed tree.
        chosen: (nodes,) the token that the target chooses after each node.

    Returns:
        Node indices of the accepted path, the root first. Where two children of a node have the same token, the first
        is taken.
    """
    path = [0]
    for node in range(1, len(tree)):
        if tree.parents[node] == path[-1] and tree.tokens[node] == chosen[path[-1]]:
            path.append(node)
    return path


@dataclass(frozen=True, slots=True)
class LazyPath:
    """The accepted path of a round that the device is still computing; the next draft begins with it.

    Attributes:
        nodes: (nodes,) bool: whether each node lies on the path.
        last: () int32: index of the path's last node.
        token: () int32: the token that the target chooses after the path, the next round's root.
        depth: () int32: depth of the last node.
        start: Absolute position of the token after the root. The token after the path comes `depth` positions later.
    """

    tree: PackedTree
    nodes: mx.array
    last: mx.array
    token: mx.array
    depth: mx.array
    start: int

    @classmethod
    def of(cls, tree: PackedTree, chosen: mx.array, start: int) -> "LazyPath":
        """Do what `accepted_path` does, on the device. They differ only where two children have the same token.

        Args:
            tree: The packed tree.
            chosen: (nodes,) the token that the target chooses after each node.
            start: Absolute position of the token that follows the root.
        """
        chosen = chosen.astype(mx.int32)
        wrong = (tree.tokens != chosen[mx.maximum(tree.parents, 0)]) & (tree.parents >= 0)
        if tree.ancestors is None:
            nodes = mx.cumsum(wrong.astype(mx.int32)) == 0
            last = mx.sum(nodes.astype(mx.int32)) - 1
        else:
            nodes = ~mx.any(tree.ancestors & wrong, axis=1)
            last = mx.argmax(mx.where(nodes, tree.depths, -1)).astype(mx.int32)
        return cls(tree, nodes, last, chosen[last], tree.depths[last], start)

    def by_depth(self) -> mx.array:
        """Return the index of the path's node at each depth, (deepest + 1,); behind the last node's without meaning."""
        tree = self.tree
        depths = mx.array(np.arange(self.tree.deepest + 1, dtype=np.int32))
        if tree.ancestors is None:
            return depths
        return mx.argmax(tree.ancestors[self.last] & (tree.depths == depths[:, None]), axis=1)

    def leads_to(self, last: int, token: int) -> bool:
        """Return whether this, once evaluated, is the path that ends at node `last` and is followed by `token`."""
        return int(self.last) == last and int(self.token) == token


def seen_on_paths(seen: mx.array, tree: PackedTree) -> mx.array:
    """Return, for each node, which tokens occurred before the token that follows it: what penalties look at.

    Args:
        seen: (vocabulary,) int32 before the root, see `TokenChooser.seen`.
        tree: The packed tree, perhaps lazy.

    Returns:
        (nodes, vocabulary) int32.
    """
    nodes = mx.arange(len(tree))
    on_path = nodes[:, None] >= nodes if tree.ancestors is None else tree.ancestors
    counts = mx.zeros((len(tree), seen.shape[0]), mx.int32)
    return seen + 2 * counts.at[nodes[:, None], tree.tokens[None]].add(on_path)
