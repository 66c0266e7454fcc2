"""Draft accuracy on held-out answers, by teacher forcing instead of decoding: an estimate while training."""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.inference.drafting.heads.recurrent_head import RecurrentHead
from rdchat.inference.target.fetch import fetch
from rdchat.inference.training.head.loss import unroll
from rdchat.inference.training.head.preparation import Prepared

_ROWS = 512  # roots predicted at a time


@dataclass(frozen=True, slots=True)
class Simulation:
    """Estimated acceptance of drafts of width 1 on answers made at temperature 0.

    Attributes:
        accuracy: (steps,) share of right tokens at each draft position, given that all before were right.
        tokens_per_target_call: Of rounds from the first token of an answer to its last.
    """

    accuracy: tuple[float, ...]
    tokens_per_target_call: float


def simulate(head: RecurrentHead, prepared: Prepared) -> Simulation:
    """Predict the held-out answers along their own tokens.

    Args:
        head: Trained on whitened inputs; weights not folded.
        prepared: Its training data.
    """
    head.eval()
    reader, whitening = prepared.reader, prepared.whitening
    roots, states = prepared.held_out.roots, prepared.held_out.states
    guesses = [np.empty((0, reader.steps), np.int32)]
    for start in range(0, len(roots), _ROWS):
        here = slice(start, start + _ROWS)
        batch = reader.batch(roots[here], states[here])
        features = unroll(head, whitening.hidden(batch.hidden), whitening.embed(batch.path))
        guesses.append(fetch(prepared.vocabulary[mx.argmax(features @ whitening.rows.T, axis=-1)]))
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
