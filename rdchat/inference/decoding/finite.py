"""Whether a model computed numbers to choose a token from."""

import mlx.core as mx

from rdchat.errors import ModelError
from rdchat.inference.verification.target import LoadedModel


def finite_rows(logits: mx.array) -> mx.array:
    """Return whether each row of logits, (n, vocabulary), has numbers to choose from: (n,) bool, lazy."""
    # One pass: the largest of numbers with a NaN among them is NaN.
    return mx.isfinite(mx.max(logits, axis=-1))


def check_finite(finite: object, model: LoadedModel) -> None:
    """Raise ModelError unless logits are finite.

    Args:
        finite: Whether they are; a lazy array is waited for.
        model: The model that computed them.
    """
    if not finite:
        raise ModelError(
            f"{model.info.name} computed numbers that are not finite.",
            "Choose float32. If that does not help, its weights are damaged: get the model again.",
        )
