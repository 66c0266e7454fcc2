"""Hidden states of answers that were made before, read again in batches."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.hooks import HiddenReads
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.shards import TrainingConversation

_CALL_TOKENS = 4096  # tokens in one call, padding included


def answer_states(
    model: LoadedModel, conversations: Sequence[TrainingConversation], reads: HiddenReads
) -> npt.NDArray[np.float16]:
    """Return (answer tokens, width) the states that the answers' tokens were chosen from, answer by answer.

    They agree with those kept while the data was made up to rounding: the same sums, in another order.
    """
    states = _read_all(model, conversations, reads)
    pairs = zip(states, conversations, strict=True)
    return np.concatenate([row[item.answer_start - 1 : -1] for row, item in pairs])


def conversation_states(
    model: LoadedModel, conversations: Sequence[TrainingConversation], reads: HiddenReads
) -> npt.NDArray[np.float16]:
    """Return (tokens, width) the states at all tokens of conversations, one conversation after another."""
    return np.concatenate(_read_all(model, conversations, reads))


def _read_all(
    model: LoadedModel, conversations: Sequence[TrainingConversation], reads: HiddenReads
) -> list[npt.NDArray[np.float16]]:
    """Return the states at each conversation's tokens, read in groups of about the same length."""
    model.hooks.read(reads)
    order = sorted(range(len(conversations)), key=lambda place: len(conversations[place].tokens))
    found: dict[int, npt.NDArray[np.float16]] = {}
    while order:
        count = 1
        while count < len(order) and (count + 1) * len(conversations[order[count]].tokens) <= _CALL_TOKENS:
            count += 1
        group, order = order[:count], order[count:]
        found |= zip(group, _read(model, [conversations[place] for place in group]), strict=True)
    return [found[place] for place in range(len(conversations))]


def _read(model: LoadedModel, conversations: Sequence[TrainingConversation]) -> list[npt.NDArray[np.float16]]:
    """Pads on the right: what follows a token cannot change its state."""
    width = max(len(item.tokens) for item in conversations)
    model.network(mx.array([[*item.tokens, *[0] * (width - len(item.tokens))] for item in conversations]))
    assert model.hooks.hidden is not None
    states = fetch(model.hooks.hidden.astype(mx.float16))
    return [row[: len(item.tokens)] for row, item in zip(states, conversations, strict=True)]
