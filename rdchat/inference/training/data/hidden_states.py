"""Hidden states of answers that were made before, read again in batches."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.hooks import HiddenReads
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.batched_decoding import padded, parts_of_a_call
from rdchat.inference.training.data.shards import TrainingConversation

_CALL_TOKENS = 4096  # tokens in one call, padding included

Halves = npt.NDArray[np.float16]


def answer_states(model: LoadedModel, conversations: Sequence[TrainingConversation], reads: HiddenReads) -> Halves:
    """Return (answer tokens, width) the states that the answers' tokens were chosen from, answer by answer.

    They agree with those kept while the data was made up to rounding: the same sums, in another order.
    """
    pairs = zip(_read(model, conversations, reads), conversations, strict=True)
    return np.concatenate([row[item.answer_start - 1 : -1] for row, item in pairs])


def conversation_states(
    model: LoadedModel, conversations: Sequence[TrainingConversation], reads: HiddenReads
) -> Halves:
    """Return (tokens, width) the states at all tokens of conversations, one conversation after another."""
    return np.concatenate(_read(model, conversations, reads))


def _read(model: LoadedModel, conversations: Sequence[TrainingConversation], reads: HiddenReads) -> list[Halves]:
    """Return the states at each conversation's tokens; those of about the same length are read in one call."""
    model.hooks.read(reads)
    order = sorted(range(len(conversations)), key=lambda place: len(conversations[place].tokens))
    found: dict[int, Halves] = {}
    for part in parts_of_a_call([len(conversations[place].tokens) for place in order], _CALL_TOKENS):
        group = order[part.start : part.stop]
        model.network(padded([conversations[place].tokens for place in group]))
        assert model.hooks.hidden is not None
        states = fetch(model.hooks.hidden.astype(mx.float16))
        found |= {place: row[: len(conversations[place].tokens)] for place, row in zip(group, states, strict=True)}
    return [found[place] for place in range(len(conversations))]
