"""The rows of images: computed by a model's tower, kept by the hash of the pixels, and put into a prompt's calls."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx
import numpy as np

from rdchat.errors import ModelError
from rdchat.files.foreign_files import REFETCH_HINT, readable_entries
from rdchat.inference.api.image_spans import ImageSpan
from rdchat.inference.models.model_config import read_config
from rdchat.inference.models.safetensors_file import weight_files
from rdchat.inference.verification.device import on_gpu
from rdchat.inference.verification.memory_errors import is_device_error, memory_errors
from rdchat.inference.vision.families import KEPT_ROWS_BYTES, Vision
from rdchat.inference.vision.positions import positions_by_axis
from rdchat.inference.vision.prepared import Prepared
from rdchat.inference.vision.seam import CallRows
from rdchat.inference.vision.towers import gemma4, qwen, siglip
from rdchat.inference.vision.towers.tower_weights import TowerWeights

TOWERS = {
    "qwen": qwen.rows,
    "shuffled siglip": siglip.shuffled_rows,
    "pooled siglip": siglip.pooled_rows,
    "siglip of any shape": siglip.naflex_rows,
    "gemma4": gemma4.rows,
}
"""The functions that families name."""


class SeenImage(NamedTuple):
    """What a network gets of an image.

    Attributes:
        rows: (tokens, width).
        deep: Features for the first layers, each (tokens, width).
    """

    rows: mx.array
    deep: tuple[mx.array, ...] = ()


class ImageRows:
    """Computes the rows of images, and keeps those that were used last.

    The tower is loaded at the first image, and freed with this object.

    Args:
        folder: The model's, for messages.
        vision: What it has to see with; it has a family.
        limit_bytes: Memory of all rows that are kept; those of the latest image are in any case.
    """

    def __init__(self, folder: Path, vision: Vision, limit_bytes: int = KEPT_ROWS_BYTES) -> None:
        assert vision.family is not None
        self._name = folder.name
        self._vision = vision
        self._limit = limit_bytes
        self._family = vision.family
        self._settings = dict[str, Any]()
        self._weights: TowerWeights | None = None
        self._kept = OrderedDict[str, SeenImage]()

    def find(self, key: str) -> SeenImage | None:
        """Return the rows of an image if they are kept."""
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def see(self, key: str, image: Prepared, waiting: Callable[[], None] = lambda: None) -> SeenImage:
        """Return the rows of an image.

        Args:
            key: Hash of the very pixels.
            image: The image as the family's processor prepared it.
            waiting: Called after each layer of the tower; an exception that it raises ends the work.

        Raises:
            ModelError: If the tower's weights or settings are damaged.
            OutOfMemoryError: If there was not enough memory.
        """
        if (kept := self.find(key)) is not None:
            return kept

        def evaluate(state: mx.array) -> None:
            mx.eval(state)
            waiting()

        with memory_errors("to read an image"):
            weights = self._weights or self._load()
            try:
                seen = self._compute(weights, image, evaluate)
                mx.eval(seen)
            except (LookupError, ValueError, TypeError, ArithmeticError, RuntimeError) as error:
                # Weights and settings are foreign data: MLX has no words for a number that is too large.
                if is_device_error(error):
                    raise
                raise ModelError(f"The vision part of {self._name} is damaged.", REFETCH_HINT) from error
        self._kept[key] = seen
        while len(self._kept) > 1 and _bytes(self._kept.values()) > self._limit:
            self._kept.popitem(last=False)
        return seen

    def prompt(self, ids: Sequence[int], spans: Sequence[ImageSpan], images: Iterable[SeenImage]) -> "SeenPrompt":
        """Return a prompt with the rows of its images.

        Args:
            ids: Its tokens, negative where they stand for pixels.
            spans: Where these are.
            images: All of its images, in order.
        """
        seen = _joined(images)
        return SeenPrompt(ids, spans, seen, self._family.by_axis, self._family.scale(seen.rows.shape[-1]))

    def _compute(self, weights: TowerWeights, image: Prepared, evaluate: Callable[[mx.array], None]) -> SeenImage:
        tower = TOWERS[self._family.tower]
        layout = image.layout
        patches = image.patches
        # Each token has as many patches.
        ends = np.cumsum([math.prod(grid) for grid in layout.grids]) * (len(patches) // layout.tokens)
        tiles = patches if patches.ndim == 4 else np.split(patches, ends[:-1])
        found = [
            tower(weights, self._settings, mx.array(tile), grid, evaluate)
            for tile, grid in zip(tiles, layout.grids, strict=True)
        ]
        seen = _joined(SeenImage(*each) for each in found)
        if any(each.shape[-1] != self._vision.width for each in (seen.rows, *seen.deep)):
            raise ValueError("The features have another width than the rows")
        return seen

    def _load(self) -> TowerWeights:
        stored: dict[str, mx.array] = {}
        for path in weight_files(self._vision.folder, readable_entries(self._vision.folder)):
            stored |= cast(dict[str, mx.array], mx.load(str(path)))
        arrays = {own: stored[name] for own, name in self._vision.tensors.items()}
        # 16 bits are slow on a CPU.
        wider = {} if on_gpu() else {name: each for name, each in arrays.items() if each.dtype != mx.uint32}
        arrays |= {name: each.astype(mx.float32) for name, each in wider.items()}
        mx.eval(arrays)
        config = read_config(self._vision.folder)
        projector = {name: value for name, value in config.items() if name.startswith("projector_")}
        self._settings = projector | config["vision_config"]
        self._weights = TowerWeights(arrays)
        return self._weights


def _bytes(images: Iterable[SeenImage]) -> int:
    return sum(each.nbytes for rows, deep in images for each in (rows, *deep))


def _joined(images: Iterable[SeenImage]) -> SeenImage:
    images = list(images)
    deep = zip(*(image.deep for image in images), strict=True)
    return SeenImage(mx.concatenate([image.rows for image in images]), tuple(mx.concatenate([*each]) for each in deep))


@dataclass(frozen=True, slots=True)
class SeenPrompt:
    """A prompt with the rows of its images.

    Attributes:
        ids: Its tokens, negative where they stand for pixels.
        spans: The runs of these, in order.
        image: The rows of all of them, one behind the other.
        by_axis: Whether positions are by axis.
        scale: What the network multiplies all rows by.
    """

    ids: Sequence[int]
    spans: Sequence[ImageSpan]
    image: SeenImage
    by_axis: bool = False
    scale: float = 1.0

    def call(self, start: int, end: int, embed: Callable[[mx.array], mx.array]) -> CallRows | None:
        """Return what a call with the tokens from `start` to `end` gets; None if it is plain text.

        Args:
            start: Index of the first token.
            end: Index of the first token behind them.
            embed: From ids, (n,), to embeddings, (n, width), as the network's table has them.
        """
        ids = np.array([*self.ids[start:end]])
        inside = ids < 0
        if not inside.any():
            return None
        before = sum(each < 0 for each in self.ids[:start])
        at = mx.array(np.maximum(before + np.cumsum(inside) - 1, 0))
        is_image = mx.array(inside)[:, None]
        text = embed(mx.array(np.maximum(ids, 0)))
        # The network rounds the scale to its own type.
        rows = (self.image.rows[at] / mx.array(self.scale, text.dtype)).astype(text.dtype)
        deep = tuple(mx.where(is_image, each[at], 0.0).astype(text.dtype) for each in self.image.deep)
        positions = mx.array(positions_by_axis(self.spans, start, end)) if self.by_axis else None
        image = np.searchsorted([span.start for span in self.spans], np.arange(start, end), "right")
        blocks = mx.array(np.where(inside, image, 0) - 1) if self.spans[0].whole else None
        return CallRows(mx.where(is_image, rows, text)[None], positions, deep, blocks)
