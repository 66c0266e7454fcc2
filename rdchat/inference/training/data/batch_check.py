"""Checks that a model decodes a batch as it decodes each sequence alone, on a few tokens.

How far rounding alone separates the two is shown by sequences that are fed at once and token by token.
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx_lm.models.cache import make_prompt_cache

from rdchat.errors import ModelError
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.rounding import most, row_errors, typical
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.batched_decoding import BatchedDecoder

_PREFIX, _PROMPTS = (1, 2), ((3,), (4, 5, 6, 7, 8), (9, 3, 7), (6, 4))
_STEPS = ((9, 10, 5, 13), (11, 12, 14, 3))


def check_batched_decoding(model: LoadedModel) -> None:
    """Refuse a model whose logits in a batch differ from those of each sequence alone.

    Raises:
        ModelError: If it keeps more than keys and values between tokens, or reads positions or masks in a way of its
            own; the message says so.
    """
    if any(not hasattr(layer, "keys") for layer in make_prompt_cache(model.network)):
        raise _refusal(model, "it keeps more than keys and values between tokens")
    try:
        error, limit = _compare(model)
    except Exception as failure:  # models may use caches and masks in any way
        raise _refusal(model, " ".join(str(failure).split())[:120]) from failure
    if not error <= limit:  # also where it is NaN
        raise _refusal(model, f"its logits came out different, off by {error:.2g} deviations")


def _refusal(model: LoadedModel, reason: str) -> ModelError:
    return ModelError(
        f"{model.info.name} cannot answer many questions at once, so no drafter can be trained for it: {reason}.",
        "Pick another model.",
    )


def _compare(model: LoadedModel) -> tuple[float, float]:
    """Return how far sequences are from those fed alone, in standard deviations, and how far they may be."""
    decoder = BatchedDecoder.read(model, _PREFIX, _PROMPTS)
    decoder.step(_STEPS[0])
    logits, hidden = decoder.step(_STEPS[1])
    found = [_host(logits), _host(hidden)]
    errors, noise = list[float](), list[float]()
    for sequence, prompt in enumerate(_PROMPTS):
        tokens = [*_PREFIX, *prompt, *(step[sequence] for step in _STEPS)]
        at_once, one_by_one = _alone(model, [tokens]), _alone(model, [[token] for token in tokens])
        for rows, expected, again in zip(found, at_once, one_by_one, strict=True):
            errors += row_errors(rows[sequence : sequence + 1], expected)
            noise += row_errors(again, expected)
    return typical(errors), most(noise, logits.dtype)


def _alone(model: LoadedModel, calls: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float32]]:
    """Return the logits and the hidden state, (1, width), of the last token of a sequence that is fed in some calls."""
    caches = make_prompt_cache(model.network)
    for tokens in calls:
        logits = model.network(mx.array([tokens]), cache=caches)
    assert model.hooks.hidden is not None
    return [_host(array[0, -1:]) for array in (logits, model.hooks.hidden)]


def _host(array: mx.array) -> npt.NDArray[np.float32]:
    return fetch(array.astype(mx.float32))
