"""Beam search with a drafter head, as one lazy graph: nothing here waits for the device.

Zhang et al. 2024, arXiv 2403.09919, section 3.2, for any `Head`. Each step keeps the most likely nodes below the live
beams; the first `beam_width` of them live on. A node's score is the sum along its path of
`log_softmax(inverse_temperature * log_probs + noise)`, with the warp and noise by which the target's token will be
chosen (docs/adr/0003), so it estimates how likely the target is to choose this very path.
"""

from dataclasses import dataclass
from functools import partial
from typing import override

import mlx.core as mx
import numpy as np

from rdchat.inference.api.requests import BeamShape, SamplingParams
from rdchat.inference.decoding.noise import gumbel_of, noise_keys
from rdchat.inference.decoding.reductions import log_denominator, top_k
from rdchat.inference.decoding.sampling import filter_border, has_filter, penalize
from rdchat.inference.drafting.heads.head import Head, HeadMemory, Root
from rdchat.inference.drafting.node_pool import HostPool, NodePool
from rdchat.inference.drafting.repetition import Repetition
from rdchat.inference.target.fetch import fetch

_FILTER_CANDIDATES = 64  # a filter that keeps more tokens than this drops the others from the draft too

# A child must score below its parent, or the best nodes are no subtree: a step costs at least this much, and so little
# that it cannot drown in the sum's rounding.
_SMALLEST_STEP, _LARGEST_STEP = -1 / 128, -200.0


@dataclass(frozen=True, slots=True, eq=False)
class DevicePool(NodePool[mx.array]):
    """What a search kept, perhaps still lazy."""

    @override
    def fetch(self) -> HostPool:
        """See `NodePool`; waits for the device unless it is evaluated."""
        tokens, parents, scores, finite = fetch(self.tokens, self.parents, self.scores, mx.array(self.finite))
        host = tokens.astype(np.int64), parents.astype(np.int64), scores.astype(np.float64)
        return NodePool(*host, self.levels, self.width, bool(finite))


class PathScorer:
    """Turns a head's logits into steps of a path's score.

    Args:
        sampling: How the target's tokens are chosen.
        seed: 64-bit reply seed.
        vocabulary: (draft_vocabulary_size,) ids of the tokens that can be drafted.
        inverse_temperature: The drafter's fitted scalar.
    """

    def __init__(
        self, sampling: SamplingParams, seed: int, vocabulary: mx.array, inverse_temperature: float = 1.0
    ) -> None:
        self._sampling = sampling
        self._seed = seed
        self._vocabulary = vocabulary
        self._factor = mx.array(inverse_temperature / (sampling.temperature or 1.0), mx.float32)

    @property
    def penalizes(self) -> bool:
        """Whether tokens that occurred before score less."""
        return self._sampling.repetition_penalty != 1

    def keys(self, root: Root, count: int) -> mx.array:
        """Return the keys of the noise, (count, 2), at the positions that follow a root."""
        keys = noise_keys(self._seed, range(root.position + 1, root.position + 1 + root.latest + count))
        return keys if root.later is None else keys[root.later + mx.array(np.arange(count, dtype=np.int32))]

    def steps(self, logits: mx.array, position: int, repetition: Repetition | None = None) -> mx.array:
        """Return what each token adds to the score of a path, all strictly negative.

        Args:
            logits: (beams, draft_vocabulary_size) float32.
            position: Absolute position of the tokens that are drafted.
            repetition: What the penalty is reckoned from; None leaves it out.

        Returns:
            (beams, draft_vocabulary_size) float32.
        """
        scored = self.scored(logits, noise_keys(self._seed, (position,)), repetition)
        return _steps(scored, log_denominator(scored))

    def scored(self, logits: mx.array, keys: mx.array, repetition: Repetition | None = None) -> mx.array:
        """Return `steps` before they are normalised, beam by beam: in the same order, and some passes less.

        Args:
            logits: (beams, draft_vocabulary_size) float32.
            keys: (1, 2) of the noise at the position of the tokens that are drafted.
            repetition: What the penalty is reckoned from; None leaves it out.
        """
        sampling = self._sampling
        if repetition is not None:
            moved = _moved(logits, log_denominator(logits), repetition.log_denominator)
            logits = penalize(moved, repetition.seen, sampling.repetition_penalty)
        if sampling.temperature == 0:
            return logits
        noise = keys, self._vocabulary[None]
        if not has_filter(sampling):
            return _noisy(logits, self._factor, *noise)
        _, values = top_k(logits, min(_FILTER_CANDIDATES, logits.shape[-1]))
        border = filter_border(values, log_denominator(logits) if sampling.top_p < 1 else None, sampling)
        return _noisy_above(logits, border, self._factor, *noise)


@partial(mx.compile, shapeless=False)
def _moved(logits: mx.array, log_total: mx.array, wanted: mx.array) -> mx.array:
    """Return logits, (n, m), moved so that the log of their sum of exp, (n, 1), becomes `wanted`, ()."""
    return logits + (wanted - log_total)


@partial(mx.compile, shapeless=False)
def _noisy(logits: mx.array, factor: mx.array, keys: mx.array, ids: mx.array) -> mx.array:
    """Return the logits times a factor, with the noise of its keys, (1, 2), and tokens, (1, m)."""
    return factor * logits + gumbel_of(keys, ids)


@partial(mx.compile, shapeless=False)
def _noisy_above(logits: mx.array, border: mx.array, factor: mx.array, keys: mx.array, ids: mx.array) -> mx.array:
    return mx.where(logits >= border, factor * logits, -mx.inf) + gumbel_of(keys, ids)


@partial(mx.compile, shapeless=False)
def _steps(logits: mx.array, log_total: mx.array) -> mx.array:
    return mx.clip(logits - log_total, _LARGEST_STEP, _SMALLEST_STEP)


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
