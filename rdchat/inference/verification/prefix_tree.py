"""The prefix tree of a draft: beams with common prefixes merged, one node for each token the target must verify."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class PrefixTree:
    """A tree of tokens whose root is the token the target already chose.

    Parents come before their children, so a running pass over the nodes sees each parent first. With the beams
    `[[5, 7, 8], [5, 7, 9]]` the tokens are `[5, 7, 8, 9]`, the parents `[-1, 0, 1, 1]`, and the depths `[0, 1, 2, 2]`.

    Attributes:
        tokens: (nodes,) int32 token ids, the root first.
        parents: (nodes,) int32 index of each node's parent; -1 for the root.
        depths: (nodes,) int32 distance from the root.
    """

    tokens: Ints
    parents: Ints
    depths: Ints

    @classmethod
    def from_tokens(cls, tokens: npt.ArrayLike, parents: npt.ArrayLike) -> "PrefixTree":
        """Return the tree of token ids, (nodes,), with these parents, (nodes,); -1 for the root."""
        # The parents stand for the depths until these are counted.
        tree = cls(*(np.array(values, np.int32) for values in (tokens, parents, parents)))
        return replace(tree, depths=tree.ancestors().sum(axis=1, dtype=np.int32) - 1)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        """Whether every node but the last has just one child, so that packed order is plain order."""
        return bool((self.parents == np.arange(-1, len(self) - 1)).all())

    @property
    def is_sound(self) -> bool:
        """Whether node 0 is the only root, parents come before their children, and depths follow from parents."""
        parents = self.parents[1:]
        return bool(
            self.parents[0] == -1
            and self.depths[0] == 0
            and (parents >= 0).all()
            and (parents < np.arange(1, len(self))).all()
            and (self.depths[1:] == self.depths[parents] + 1).all()
        )

    def ancestors(self) -> npt.NDArray[np.bool_]:
        """Return (nodes, nodes) bool: whether node j lies on the way from the root to node i, i itself included."""
        mask = np.eye(len(self), dtype=bool)
        for node, parent in enumerate(self.parents.tolist()):
            if parent >= 0:
                mask[node] |= mask[parent]
        return mask
