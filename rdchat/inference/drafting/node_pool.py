"""What a beam search kept: plain data, on the device (`beam_search.DevicePool`) or on the host. No MLX here."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class NodePool[Array]:
    """All nodes that a beam search kept, level by level below the root, which is node 0; each level best first.

    Attributes:
        tokens: (nodes,) int32.
        parents: (nodes,) int32; -1 for the root.
        scores: (nodes,) float32, the sum of renormalised log-scores along the path, below the parent's; 0 for the root.
        levels: Number of levels below the root.
        width: Beams of the search.
        finite: () bool: whether the head gave finite scores; else the nodes are worth nothing.
    """

    tokens: Array
    parents: Array
    scores: Array
    levels: int
    width: int
    finite: Array | bool = True

    @property
    def level_size(self) -> int:
        """Nodes of each level but the root's."""
        tokens: Any = self.tokens
        return (int(tokens.shape[0]) - 1) // self.levels

    def level(self, depth: int) -> slice:
        """Return the nodes at a depth, from 1."""
        return slice(1 + (depth - 1) * self.level_size, 1 + depth * self.level_size)

    def cut(self, levels: int) -> Self:
        """Return its first levels: what a search that ends there keeps."""
        if levels == self.levels:
            return self
        columns: Any = (self.tokens, self.parents, self.scores)
        tokens, parents, scores = (column[: 1 + levels * self.level_size] for column in columns)
        return replace(self, tokens=tokens, parents=parents, scores=scores, levels=levels)

    def fetch(self) -> "NodePool[npt.NDArray[Any]]":
        """Return it on the host, where it is."""
        host: Any = self
        return host  # type: ignore[no-any-return]


HostPool = NodePool[npt.NDArray[Any]]


def children(pool: HostPool, node: int) -> Ints:
    """Return the nodes below a node."""
    return np.flatnonzero(pool.parents == node)


def step_probs(pool: HostPool) -> Floats:
    """Return (nodes,) each node's renormalised probability after its parent; 1 for the root."""
    steps: Floats = np.exp(pool.scores - pool.scores[np.maximum(pool.parents, 0)])
    return steps
