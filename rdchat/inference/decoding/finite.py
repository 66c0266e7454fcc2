"""Whether a model computed numbers to choose a token from."""

import mlx.core as mx

from rdchat.errors import ModelError
from rdchat.inference.verification.device import on_gpu
from rdchat.inference.verification.target import LoadedModel

# MLX's own is six launches; compiled it is one.
_is_finite = mx.compile(mx.isfinite)


def finite_rows(logits: mx.array) -> mx.array:
    """Return whether each row of logits, (n, vocabulary), has numbers to choose from: (n,) bool, lazy."""
    # One pass: the largest of numbers with a NaN among them is NaN.
    largest = mx.max(logits, axis=-1)
    # On a CPU a compiled function needs a compiler, and saves nothing.
    return _is_finite(largest) if on_gpu() else mx.abs(largest) < mx.inf


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
