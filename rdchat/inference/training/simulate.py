"""How far a head would get on held-out answers, without decoding: a guide while training, not a measurement."""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.inference.recurrent_head import RecurrentHead
from rdchat.inference.training.loss import unroll
from rdchat.inference.training.samples import SampleReader
from rdchat.inference.training.whitening import Coordinates

_ROWS = 512  # roots predicted at a time


@dataclass(frozen=True, slots=True)
class Simulation:
    """What one draft of width 1 would have brought on answers made at temperature 0.

    Attributes:
        accuracy: Share of right tokens at each draft position, given that all before were right.
        tokens_per_target_call: With drafts from the first token of an answer to its last.
    """

    accuracy: tuple[float, ...]
    tokens_per_target_call: float


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What is simulated.

    Attributes:
        roots: (n,) answer tokens of held-out answers at temperature 0, ascending.
        states: (n, width) their hidden states.
    """

    roots: npt.NDArray[np.int64]
    states: npt.NDArray[np.float16]


def simulate(
    head: RecurrentHead, reader: SampleReader, coordinates: Coordinates, vocabulary: mx.array, held_out: HeldOut
) -> Simulation:
    """Predict held-out answers along their own tokens.

    Args:
        head: In training coordinates.
        reader: Gives the samples.
        coordinates: The head's.
        vocabulary: (candidates,) ids of the draft vocabulary.
        held_out: At least one root.
    """
    head.eval()
    roots, guesses = held_out.roots, []
    for start in range(0, len(roots), _ROWS):
        here = slice(start, start + _ROWS)
        batch = reader.batch(roots[here], held_out.states[here])
        features = unroll(head, coordinates.hidden(batch.hidden), coordinates.embed(batch.path))
        guesses.append(np.array(vocabulary[mx.argmax(features @ coordinates.rows.T, axis=-1)]))
    head.train()
    goals = reader.goals(roots)
    right = np.logical_and.accumulate(np.concatenate(guesses) == goals, axis=1)
    reached = np.concatenate([goals[:, :1] >= 0, right[:, :-1] & (goals[:, 1:] >= 0)], axis=1)
    accuracy = right.sum(axis=0) / np.maximum(reached.sum(axis=0), 1)
    return Simulation(tuple(float(share) for share in accuracy), _walk(roots, right.sum(axis=1)))


def _walk(roots: npt.NDArray[np.int64], accepted: npt.NDArray[np.int64]) -> float:
    """Return tokens per call of rounds that each begin where the last one ended."""
    tokens = calls = 0
    following = -1  # the next round's root
    for place, root in enumerate(roots.tolist()):
        if root < following and place and roots[place - 1] == root - 1:
            continue
        gained = int(accepted[place]) + 1
        calls, tokens, following = calls + 1, tokens + gained, root + gained
    return tokens / max(calls, 1)
