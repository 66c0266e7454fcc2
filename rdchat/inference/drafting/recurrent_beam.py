"""Beam search in the recurrent drafter, as one lazy graph: nothing here waits for the device.

Zhang et al. 2024, arXiv 2403.09919, section 3.2. Each step keeps the most likely nodes below the live beams; the first
`beam_width` of them live on. A node's score is the sum along its path of `log_softmax(inverse_temperature * log_probs +
noise)`, with the warp and noise by which the target's token will be chosen (docs/adr/0003), so it estimates how likely
the target is to choose this very path.
"""

from dataclasses import dataclass

import mlx.core as mx

from rdchat.inference.api.requests import BeamShape, SamplingParams
from rdchat.inference.decoding.noise import gumbel_noise
from rdchat.inference.decoding.sampling import filter_border, has_filter, penalize, softmax_denominator, top_k
from rdchat.inference.drafting.bound_head import BoundHead
from rdchat.inference.drafting.node_pool import NodePool
from rdchat.inference.drafting.repetition import Repetition

_FILTER_CANDIDATES = 64  # a filter that keeps more tokens than this drops the others from the draft too

# A child must score below its parent, or the best nodes are no subtree: a step costs at least this much, and so little
# that it cannot drown in the sum's rounding.
_SMALLEST_STEP, _LARGEST_STEP = -1 / 128, -200.0


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
        self._inverse_temperature = inverse_temperature

    @property
    def penalizes(self) -> bool:
        """Whether tokens that occurred before score less."""
        return self._sampling.repetition_penalty != 1

    def steps(self, logits: mx.array, position: int, repetition: Repetition | None = None) -> mx.array:
        """Return what each token adds to the score of a path, all strictly negative.

        Args:
            logits: (beams, draft_vocabulary_size) float32.
            position: Absolute position of the tokens that are drafted.
            repetition: What the penalty is reckoned from; None leaves it out.

        Returns:
            (beams, draft_vocabulary_size) float32.
        """
        sampling = self._sampling
        if repetition is not None:
            moved = logits + (repetition.log_denominator - log_denominator(logits))
            logits = penalize(moved, repetition.seen, sampling.repetition_penalty)
        if sampling.temperature > 0:
            warped = self._inverse_temperature / sampling.temperature * logits
            if has_filter(sampling):
                _, values = top_k(logits, min(_FILTER_CANDIDATES, logits.shape[-1]))
                border = filter_border(values, softmax_denominator(logits), sampling)
                warped = mx.where(logits >= border, warped, -mx.inf)
            logits = warped + gumbel_noise(self._seed, mx.array([position]), self._vocabulary)
        return mx.clip(logits - log_denominator(logits), _LARGEST_STEP, _SMALLEST_STEP)


def log_denominator(logits: mx.array) -> mx.array:
    """Return the log, (n, 1), of the sum of exp(logit) over each row, (n, vocabulary) float32."""
    return mx.max(logits, axis=-1, keepdims=True) + mx.log(softmax_denominator(logits))


@dataclass(frozen=True, slots=True)
class Root:
    """Where a draft begins.

    Attributes:
        token: The token the target chose last.
        position: Its absolute position.
        hidden: (input_size,) the target's hidden states that it was chosen from, those of the token before.
        repetition: What the repetition penalty is reckoned from, the root itself included; None leaves it out.
    """

    token: int
    position: int
    hidden: mx.array
    repetition: Repetition | None = None


def search(head: BoundHead, scorer: PathScorer, root: Root, shape: BeamShape, kept: int) -> NodePool[mx.array]:
    """Search for likely paths below a root.

    Args:
        head: The drafter.
        scorer: Scores their steps.
        root: Where they begin.
        shape: Width and length of the beams.
        kept: Nodes of each level in the result, at least the width: the others are leaves.

    Returns:
        A pool of `1 + (length - 1) * kept` nodes, or fewer where the draft vocabulary is smaller than `kept`.
    """
    kept = min(kept, head.candidates)
    width = min(shape.width, kept)
    context = head.context(root.hidden[None])
    state = head.advance(None, mx.array([root.token]))
    repetition = root.repetition
    nodes, totals = mx.zeros((1,), mx.int32), mx.zeros((1,))
    tokens, parents, scores = [mx.array([root.token], mx.int32)], [mx.array([-1], mx.int32)], [totals]
    for depth in range(1, shape.length):
        steps = scorer.steps(head.logits(context, state), root.position + depth, repetition)
        best, best_scores = top_k((totals[:, None] + steps).reshape(1, -1), kept)
        beams, columns = best[0] // head.candidates, best[0] % head.candidates
        tokens.append(head.vocabulary[columns])
        parents.append(nodes[beams])
        scores.append(best_scores[0])
        if depth < shape.length - 1:
            totals = scores[-1][:width]
            nodes = mx.arange(width, dtype=mx.int32) + (1 + (depth - 1) * kept)
            state = head.advance(state[beams[:width]], tokens[-1][:width])
            if repetition is not None:
                repetition = repetition.after(beams[:width], columns[:width])
    found, above, sums = mx.concatenate(tokens), mx.concatenate(parents), mx.concatenate(scores)
    return NodePool(found, above, sums, shape.length - 1, shape.width)
