"""Checks that a model decodes a batch as it decodes each sequence alone, on a few tokens."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx_lm.models.cache import make_prompt_cache

from rdchat.errors import ModelError
from rdchat.inference.target.capability import TOLERANCE
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.batched_decoding import BatchedDecoder
from rdchat.inference.training.data.grouped_attention import batch_attention

_PREFIX, _PROMPTS = (1, 2), ((3,), (4, 5, 6, 7, 8))
_STEPS = ((9, 10), (11, 12))


def check_batched_decoding(model: LoadedModel) -> None:
    """Refuse a model whose logits in a batch differ from those of each sequence alone.

    Raises:
        ModelError: If it keeps more than keys and values between tokens, or reads positions or masks in a way of its
            own; the message says so.
    """
    if any(not hasattr(layer, "keys") for layer in make_prompt_cache(model.network)):
        raise _refusal(model, "it keeps more than keys and values between tokens")
    try:
        error, tolerance = _compare(model)
    except Exception as failure:  # unmodified models do what they like with caches and masks
        raise _refusal(model, " ".join(str(failure).split())[:120]) from failure
    if not error <= tolerance:  # also where it is NaN
        raise _refusal(model, f"its logits came out different, off by {error:.2g} deviations")


def _refusal(model: LoadedModel, reason: str) -> ModelError:
    return ModelError(
        f"{model.info.name} cannot answer many questions at once, so no drafter can be trained for it: {reason}.",
        "Pick another model.",
    )


def _compare(model: LoadedModel) -> tuple[float, float]:
    """Return the largest difference from sequences that are fed alone, in standard deviations, and the tolerance."""
    with batch_attention(model.network):
        decoder = BatchedDecoder.read(model, _PREFIX, _PROMPTS)
        decoder.step(_STEPS[0])
        logits, hidden = decoder.step(_STEPS[1])
        found = [_host(logits), _host(hidden)]
    errors = []
    for sequence, prompt in enumerate(_PROMPTS):
        expected = _alone(model, [*_PREFIX, *prompt, *(tokens[sequence] for tokens in _STEPS)])
        errors += [
            np.abs(rows[sequence] - row).max() / (row.std() or 1.0) for rows, row in zip(found, expected, strict=True)
        ]
    return float(np.max(errors)), TOLERANCE.get(logits.dtype, TOLERANCE[mx.float32])


def _alone(model: LoadedModel, tokens: Sequence[int]) -> list[npt.NDArray[np.float32]]:
    """Return the logits and the hidden state of the last of some tokens."""
    logits = model.network(mx.array([tokens]), cache=make_prompt_cache(model.network))
    assert model.hooks.hidden is not None
    return [_host(array[0, -1]) for array in (logits, model.hooks.hidden)]


def _host(array: mx.array) -> npt.NDArray[np.float32]:
    return np.array(array.astype(mx.float32))
