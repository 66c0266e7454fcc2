"""Prompts with images for small networks, and how they are read: their rows beside the tokens, and own positions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache as once

import mlx.core as mx
import numpy as np
from hypothesis import strategies as some

from rdchat.inference.api import ImageSpan
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel, TargetEmbeddings
from tests.inference.fakes import ALPHABET, shared_family, shared_llama

_LARGEST = 10_000
# Models whose caches differ, of which a window is shorter than an image.
SEEING = {
    "llama": shared_llama,
    "a sliding window": lambda: shared_llama(sliding_window=5),
    "recurrent state": lambda: shared_family("qwen3_5"),
}


@dataclass(frozen=True)
class Image:
    """An image: what distinguishes its pixels, its tokens, and what it adds to the shift."""

    seed: int
    count: int
    shift: int = 0
    whole: bool = False

    @property
    def ids(self) -> list[int]:
        return [-2 - self.seed * _LARGEST - place for place in range(self.count)]


class ImagePrompt:
    """A prompt made of runs of text and of images; text counts positions up, an image takes its count and shift."""

    def __init__(self, *pieces: Sequence[int] | Image) -> None:
        self.pieces = pieces
        self.tokens = list[int]()
        self.positions = list[int]()
        self.images = list[ImageSpan]()
        following = 0
        for piece in pieces:
            if isinstance(piece, Image):
                self.images.append(ImageSpan(len(self.tokens), piece.count, piece.shift, piece.whole))
                taken = max(piece.count + piece.shift, 1)
                self.positions += [following + place % taken for place in range(piece.count)]
                self.tokens += piece.ids
                following += piece.count + piece.shift
            else:
                self.positions += range(following, following + len(piece))
                self.tokens += piece
                following += len(piece)

    def __repr__(self) -> str:
        return f"ImagePrompt{self.pieces}"

    def __len__(self) -> int:
        return len(self.tokens)

    def blocks(self, start: int, end: int) -> mx.array:
        """Return the number of each row's image in a call, or -1."""
        numbers = np.full(len(self), -1)
        for number, image in enumerate(self.images):
            numbers[image.start : image.end] = number
        return mx.array(numbers[start:end])


def read(model: LoadedModel, cache: KVCache, prompt: ImagePrompt, end: int) -> mx.array:
    """Read a prompt in one call, from where the cache ends; return the logits, (rows, vocabulary).

    Text behind images has its positions from the caches alone.
    """
    start = len(cache.tokens)
    tokens = prompt.tokens[start:end]
    offset = next((layer.offset for layer in cache.layers if hasattr(layer, "offset")), 0)
    own = mx.array(prompt.positions[start:end]) - offset if min(tokens) < 0 else None
    ids = mx.array([max(token, 0) for token in tokens])
    with model.hooks.packed(own):
        logits = model.network(ids[None], cache=cache.layers, input_embeddings=rows_of(model, tokens)[None])[0]
    cache.evaluate()
    cache.extend(tokens)
    return logits


def alone(model: LoadedModel, prompt: ImagePrompt) -> mx.array:
    """Return the logits, (rows, vocabulary), of one call of the network with the prompt's own positions."""
    with model.hooks.packed(mx.array(prompt.positions)):
        ids = mx.zeros((1, len(prompt)), mx.int32)
        rows = rows_of(model, prompt.tokens)
        logits: mx.array = model.network(ids, cache=KVCache(model.network).layers, input_embeddings=rows[None])[0]
    return logits


def fresh(model: LoadedModel, prompt: ImagePrompt) -> KVCache:
    cache = KVCache(model.network)
    cache.images = prompt.images
    return cache


def rows_of(model: LoadedModel, tokens: Sequence[int]) -> mx.array:
    """Return what the network is fed for tokens, (n, width): those of images have rows of their own."""
    embeddings = TargetEmbeddings(model.network, len(ALPHABET))
    ids = np.array(tokens)[:, None]
    own = mx.array(np.stack([_row(min(token, -1), embeddings.width) for token in tokens]))
    return mx.where(mx.array(ids >= 0), embeddings.embed(mx.array(ids[:, 0].clip(0))), own)


@once
def _row(token: int, width: int) -> np.ndarray:
    return np.random.default_rng(-token).normal(size=width).astype(np.float32)


TEXTS = some.lists(some.integers(1, len(ALPHABET) - 1), min_size=1, max_size=8)


@some.composite
def images(draw: some.DrawFn, *, whole: bool = False) -> Image:
    count = draw(some.integers(1, 12))
    return Image(draw(some.integers(1, 4)), count, draw(some.integers(1 - count, 3)), whole)


@some.composite
def prompts(draw: some.DrawFn, *, whole: bool = False) -> ImagePrompt:
    """Draw prompts that begin and end with text, with up to three images."""
    pieces: list[Sequence[int] | Image] = [draw(TEXTS)]
    for _ in range(draw(some.integers(0, 3))):
        pieces.append(draw(images(whole=whole)))
        pieces += [draw(TEXTS)] if draw(some.booleans()) else []
    return ImagePrompt(*pieces, draw(TEXTS))
