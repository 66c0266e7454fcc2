"""Arrays that the device fails to compute, because their file was cut short."""

import os
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn

from rdchat.inference.verification.target import LoadedModel


def failing_array(folder: Path, shape: tuple[int, ...] = ()) -> mx.array:
    """Return a lazy array of zeros; whoever waits for it is told of an error, and finds numbers in it afterwards."""
    path = folder / "array.safetensors"
    path.unlink(missing_ok=True)  # another file than that of an array before
    mx.save_safetensors(str(path), {"zeros": mx.zeros(shape)})
    held = mx.load(str(path))
    assert isinstance(held, dict)
    os.truncate(path, 8)
    return held["zeros"]


class Failure:
    """Lets one of the arrays that it is given fail.

    Attributes:
        calls_left: Arrays until that one; None for never again.
    """

    def __init__(self, folder: Path) -> None:
        self.calls_left: int | None = None
        self._folder = folder

    def __call__(self, array: mx.array) -> mx.array:
        if self.calls_left == 0:
            self.calls_left = None
            return array + failing_array(self._folder)
        if self.calls_left is not None:
            self.calls_left -= 1
        return array


class _FailingEmbedding(nn.Module):
    """Embeds tokens; where it fails, so does all that is computed from them, rows of a KV cache included."""

    def __init__(self, embedding: nn.Embedding, failure: Failure) -> None:
        super().__init__()
        self.embedding = embedding
        self._failure = failure

    def __call__(self, tokens: mx.array) -> mx.array:
        return self._failure(self.embedding(tokens))

    def as_linear(self, hidden: mx.array) -> mx.array:
        logits: mx.array = self.embedding.as_linear(hidden)
        return logits

    @property
    def weight(self) -> mx.array:
        weight: mx.array = self.embedding.weight
        return weight


def let_fail(model: LoadedModel, failure: Failure) -> None:
    """Have a small llama's embeddings fail when they are told to."""
    inner = model.network.model
    inner.embed_tokens = _FailingEmbedding(inner.embed_tokens, failure)
