"""The prefix tree of a draft: beams with common prefixes merged, one node for each token the target must verify."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class PrefixTree:
    """A tree of tokens whose root is the token the target already chose.

    Parents come before their children, so a running pass over the nodes sees each parent first. With the beams
    `[[5, 7, 8], [5, 7, 9]]` the tokens are `[5, 7, 8, 9]`, the parents `[-1, 0, 1, 1]`, the depths `[0, 1, 2, 2]` and
    the beam nodes `[[0, 1, 2], [0, 1, 3]]`.

    Attributes:
        tokens: (nodes,) int32 token ids, the root first.
        parents: (nodes,) int32 index of each node's parent; -1 for the root.
        depths: (nodes,) int32 distance from the root.
        beam_nodes: (beam_width, beam_length) int32: the node of each beam position; empty for a tree that was not made
            from beams.
    """

    tokens: Ints
    parents: Ints
    depths: Ints
    beam_nodes: Ints = field(default_factory=lambda: np.empty((0, 0), dtype=np.int32))

    @classmethod
    def from_beams(cls, beams: Sequence[Sequence[int]] | npt.NDArray[np.integer]) -> "PrefixTree":
        """Merge beams; nodes are numbered in order of first appearance, beam by beam.

        Args:
            beams: (beam_width, beam_length) token ids; the first column holds the root's token only.

        Raises:
            ValueError: If the beams are not such a matrix.
        """
        matrix = _as_matrix(beams)
        # Nodes by parent and token.
        numbers: dict[tuple[int, int], int] = {}
        tokens: list[int] = []
        parents: list[int] = []
        depths: list[int] = []
        beam_nodes = np.empty(matrix.shape, dtype=np.int32)
        for row, beam in enumerate(matrix.tolist()):
            parent = -1
            for depth, token in enumerate(beam):
                node = numbers.setdefault((parent, token), len(tokens))
                if node == len(tokens):
                    tokens.append(token)
                    parents.append(parent)
                    depths.append(depth)
                beam_nodes[row, depth] = parent = node
        return cls(_ints(tokens), _ints(parents), _ints(depths), beam_nodes)

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


def _as_matrix(beams: Sequence[Sequence[int]] | npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    try:
        matrix = np.asarray(beams)
    except ValueError as error:
        raise ValueError("beams must all have the same length") from error
    if matrix.ndim != 2 or matrix.size == 0 or not np.issubdtype(matrix.dtype, np.integer):
        kind = f"{matrix.shape} {matrix.dtype}"
        raise ValueError(f"beams must be a (beam_width, beam_length) matrix of token ids, not {kind}")
    if (matrix[:, 0] != matrix[0, 0]).any():
        raise ValueError("beams must all begin with one token, the root")
    return matrix


def _ints(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int32)
