"""Beam search with a drafter head, as one lazy graph: nothing here waits for the device.

Zhang et al. 2024, arXiv 2403.09919, section 3.2, for any `Head`. Each step keeps the most likely nodes below the live
beams; the first `beam_width` of them live on. A node's score is the sum along its path of
`log_softmax(inverse_temperature * log_probs + noise)`, with the warp and noise by which the target's token will be
chosen (docs/adr/0003), so it estimates how likely the target is to choose this very path.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.inference.api.requests import BeamShape
from rdchat.inference.decoding.reductions import log_denominator, top_k
from rdchat.inference.drafting.heads.head import Head, HeadMemory, Root
from rdchat.inference.drafting.scoring import PathScorer
from rdchat.inference.target.fetch import fetch

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# A child must score below its parent, or the best nodes are no subtree: a step costs at least this much, and so little
# that it cannot drown in the sum's rounding.
_SMALLEST_STEP, _LARGEST_STEP = -1 / 128, -200.0


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


class DevicePool(NodePool[mx.array]):
    """What a search kept, perhaps still lazy."""

    def fetch(self) -> "HostPool":
        """Return it on the host; waits for the device unless it is evaluated."""
        tokens, parents, scores, finite = fetch(self.tokens, self.parents, self.scores, mx.array(self.finite))
        host = tokens.astype(np.int64), parents.astype(np.int64), scores.astype(np.float64)
        return NodePool(*host, self.levels, self.width, bool(finite))


HostPool = NodePool[npt.NDArray[Any]]


def children(pool: HostPool, node: int) -> Ints:
    """Return the nodes below a node."""
    return np.flatnonzero(pool.parents == node)


def step_probs(pool: HostPool) -> Floats:
    """Return (nodes,) each node's renormalised probability after its parent; 1 for the root."""
    steps: Floats = np.exp(pool.scores - pool.scores[np.maximum(pool.parents, 0)])
    return steps


@partial(mx.compile, shapeless=False)
def _totals(above: mx.array, logits: mx.array, log_total: mx.array) -> mx.array:
    """Return the scores, (beams, m), of paths that go on from those with the scores `above`, (beams,).

    What is no number becomes minus infinity: a sort may put NaN above all others.
    """
    totals = above[:, None] + mx.clip(logits - log_total, _LARGEST_STEP, _SMALLEST_STEP)
    return mx.where(mx.isnan(totals), -mx.inf, totals)


@partial(mx.compile, shapeless=False)
def _origins(places: mx.array, candidates: mx.array, first: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    """Return (n,) beams, columns and parents of places in a table (beams, candidates) whose first beam is a node."""
    beams = places // candidates
    return beams, places - beams * candidates, (beams + first).astype(mx.int32)


def search(
    head: Head, memory: HeadMemory, scorer: PathScorer, root: Root, *, shape: BeamShape, kept: int
) -> DevicePool:
    """Search for likely paths below a root.

    Args:
        head: The drafter's network.
        memory: What it keeps of the text before the root.
        scorer: Scores their steps.
        root: Where they begin.
        shape: Width and length of the beams.
        kept: Nodes of each level in the result, at least the width: the others are leaves.

    Returns:
        A pool of `1 + (length - 1) * kept` nodes, or fewer where the draft vocabulary is smaller than `kept`.
    """
    kept = min(kept, head.candidates)
    width = min(shape.width, kept)
    first = mx.array(root.token, mx.int32).reshape(1)
    state = memory.state(root)
    keys = scorer.keys(root, shape.length - 1)
    repetition = root.repetition
    totals, candidates = mx.zeros((1,)), mx.array(head.candidates, mx.uint32)
    tokens, parents, scores = [first], [mx.array([-1], mx.int32)], [totals]
    chosen: list[mx.array] = []  # what the tokens were chosen by, where their scores may never be asked for
    for depth in range(1, shape.length):
        scored = scorer.scored(state.logits(), keys[depth - 1 : depth], repetition)
        paths = _totals(totals, scored, log_denominator(scored)).reshape(1, -1)
        if kept == 1:  # the best token is found without its score, which may never be asked for
            places = mx.argmax(scored, axis=-1)
            found = paths[0, places]
            chosen.append(scored[0, places])
        else:
            places, found = (row[0] for row in top_k(paths, kept))
        node = mx.array(1 + (depth - 2) * kept if depth > 1 else 0, mx.uint32)  # of the first live beam
        beams, columns, nodes = _origins(places, candidates, node)
        tokens.append(head.vocabulary[columns])
        parents.append(nodes)
        scores.append(found)
        if depth < shape.length - 1:
            totals = found[:width]
            state = state.after(beams[:width], tokens[-1][:width])
            if repetition is not None:
                repetition = repetition.after(beams[:width], columns[:width])
    above, sums = mx.concatenate(parents), mx.concatenate(scores)
    finite = mx.all(mx.isfinite(mx.concatenate(chosen) if chosen else sums))
    return DevicePool(mx.concatenate(tokens), above, sums, shape.length - 1, shape.width, finite)
