"""The repetition penalty in a drafter head's scores, so that it does not offer what the target has to avoid.

The penalty divides positive logits and multiplies negative ones, so it depends on where the target's logits have their
zero. A head that is trained on probabilities does not learn that: its log-probabilities are moved to where the target's
logits were when it last chose a token.
"""

from dataclasses import dataclass, replace

import mlx.core as mx
import numpy as np

from rdchat.inference.decoding.accepted_path import LazyPath
from rdchat.inference.decoding.reductions import log_denominator
from rdchat.inference.target.fetch import fetch


@dataclass(frozen=True, slots=True)
class Repetition:
    """The penalty's inputs.

    Attributes:
        seen: (draft_vocabulary_size,) bool, or (beams, draft_vocabulary_size): tokens that occurred before.
        log_denominator: () float32: log of the sum of exp(target's logits), where it last chose a token.
    """

    seen: mx.array
    log_denominator: mx.array

    def after(self, beams: mx.array, columns: mx.array) -> "Repetition":
        """Return it after one more token of each live beam.

        Args:
            beams: (width,) the beam that each one grew from.
            columns: (width,) its token, as a column of the draft vocabulary.
        """
        seen = self.seen if self.seen.ndim == 1 else self.seen[beams]
        return replace(self, seen=seen | (mx.arange(seen.shape[-1]) == columns[:, None]))


class RepetitionTracker:
    """Tracks the penalty's inputs over one reply; nothing here waits for the device.

    Args:
        vocabulary: (draft_vocabulary_size,) ids of the tokens that can be drafted, ascending.
        prompt: Token ids.
    """

    def __init__(self, vocabulary: mx.array, prompt: list[int]) -> None:
        self._vocabulary = fetch(vocabulary)
        self._seen = np.zeros(self._vocabulary[-1] + 2, np.bool_)  # by token; the last stands for all beyond
        self._log_denominator: mx.array | None = None
        self.add(prompt)

    def add(self, tokens: list[int], logits: mx.array | None = None) -> None:
        """Take new tokens of the reply, and the target's logits, (vocabulary,), that the last of them is from."""
        self._seen[np.minimum(np.array([*tokens], np.int64), len(self._seen) - 1)] = True
        if logits is not None:
            self._log_denominator = _log_denominator(logits)

    def after(self, path: LazyPath, logits: mx.array) -> Repetition:
        """Return the penalty's inputs behind a round that the device still works on.

        Args:
            path: What it will have accepted.
            logits: (vocabulary,) the target's, that the last token is chosen from.
        """
        columns = mx.array(self._vocabulary)
        on_path = mx.where(path.nodes, path.tokens, -1)[:, None] == columns
        seen = mx.array(self._seen[self._vocabulary]) | mx.any(on_path, axis=0) | (columns == path.token)
        return Repetition(seen, _log_denominator(logits))

    def current(self) -> Repetition | None:
        """Return the penalty's inputs; None before the target's logits are known."""
        denominator = self._log_denominator
        return None if denominator is None else Repetition(mx.array(self._seen[self._vocabulary]), denominator)


def _log_denominator(logits: mx.array) -> mx.array:
    return log_denominator(logits[None].astype(mx.float32))[0, 0]
