"""The rows of images: computed by a model's tower, kept by the hash of the pixels, and put into a network's calls.

A row is the embedding that stands in place of a token of an image (see `families`). `TowerInput` is what a loaded model
has; `ImageRows` computes and keeps the rows, and `ImageRowHooks` changes the network's calls. All of it runs on the
engine's thread.

A network of mlx-lm takes rows as the argument `input_embeddings`. Two families need more beside them, which hooks add:
Qwen's models rotate some frequencies of a head by the time of a row, some by its row and some by its column in the
image. mlx-lm's rope modules rotate all by one number, so each axis gets a call of its own, and each feature is taken
from the call of its axis. Qwen3-VL also adds features of the tower's inner layers to the outputs of the network's first
layers (DeepStack). Calls without image rows are computed as if the hooks were not there.
"""

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from rdchat.errors import ImageRefusedError, ModelError, OutOfMemoryError
from rdchat.files import REFETCH_HINT, readable_entries
from rdchat.inference.api import CacheFolder, ChatImage, GenerationRequest, ImageSpan, Stage, images_of
from rdchat.inference.device import is_device_error, memory_errors, on_gpu
from rdchat.inference.models.model_config import read_config, text_config
from rdchat.inference.models.safetensors_file import weight_files
from rdchat.inference.verification import Feed, KVCache, StageTimer, TargetEmbeddings, untimed, wrap_call
from rdchat.inference.vision.families import CACHED_ROWS_BYTES, Vision, image_token
from rdchat.inference.vision.image_process import Waiting
from rdchat.inference.vision.image_prompts import ImagePrompts, positions_by_axis
from rdchat.inference.vision.layer_functions import nothing_computed
from rdchat.inference.vision.prepared_images import Prepared
from rdchat.inference.vision.processors import PROCESSORS
from rdchat.inference.vision.rows_on_disk import read_rows, write_rows
from rdchat.inference.vision.towers import TOWERS, SeenImage, TowerCall, TowerWeights

_LOG = logging.getLogger(__name__)
# Errors of foreign weights and settings: MLX has no words for a number that is too large.
_FOREIGN = (LookupError, ValueError, TypeError, ArithmeticError, RuntimeError)


@dataclass(frozen=True, slots=True)
class CallRows:
    """The inputs of a call with image rows, for all of its rows.

    Attributes:
        embeddings: (1, n, width): the argument `input_embeddings` of the network.
        positions: (3, n) int32 time, row and column of each; None where the caches' offsets are the positions.
        deep: For each of the first layers (n, width): what is added to its output, 0 for text.
        blocks: (n,) for `KVCache.seeing`; None where the rows of an image do not see each other.
    """

    embeddings: mx.array
    positions: mx.array | None = None
    deep: tuple[mx.array, ...] = ()
    blocks: mx.array | None = None


class ImageRowHooks:
    """The hooks of one network for calls with image rows; it does not refer to the network.

    Args:
        network: An mlx-lm model that already has rdchat's other hooks: its rope modules and first layers get a subclass
            that knows this object.
        sections: See `Family.sections`; empty for plain positions.
        deep: Number of layers to which features are added.
        interleaved: See `Family`.
    """

    def __init__(
        self, network: nn.Module, sections: Sequence[int] = (), deep: int = 0, *, interleaved: bool = True
    ) -> None:
        # Those of the call that runs; None outside of such calls.
        self._rows: CallRows | None = None
        for name, module in network.named_modules() if sections else ():
            if "rope" in name.rsplit(".", 1)[-1] and callable(module):
                # Some rope modules of mlx-lm have frequencies of their own, and may name other dimensions.
                dims = 2 * module._freqs.size if hasattr(module, "_freqs") else module.dims
                axes = cache(partial(_axes, tuple(sections), dims, interleaved=interleaved))
                wrap_call(module, partial(self._rotate, axes))
        for number, layer in enumerate(network.layers[:deep]):
            wrap_call(layer, partial(self._add, number))

    @contextmanager
    def rows_for_call(self, rows: CallRows) -> Iterator[None]:
        """Within the block, calls of the network have these rows."""
        self._rows = rows
        try:
            yield
        finally:
            self._rows = None

    def _rotate(
        self, axes: Callable[[int], mx.array], plain: Callable[..., mx.array], x: mx.array, *rest: Any, **named: Any
    ) -> mx.array:
        """Return (1, heads, n, size): what a rope module makes of `x`, by axis. `plain` is its own call.

        In a call with positions by axis, these take the place of the offset that the network gives.
        """
        if self._rows is None or self._rows.positions is None:
            return plain(x, *rest, **named)
        # Rows become a batch, so that each has a position of its own.
        rows = x.transpose(2, 1, 0, 3)
        axis = axes(x.shape[-1])
        time, row, column = (plain(rows, offset=each) for each in self._rows.positions)
        return mx.where(axis == 0, time, mx.where(axis == 1, row, column)).transpose(2, 1, 0, 3)

    def _add(self, number: int, plain: Callable[..., mx.array], *arguments: Any, **named: Any) -> mx.array:
        """Return the output of a layer, with the features for it added. `plain` is its own call."""
        output = plain(*arguments, **named)
        deep = self._rows.deep if self._rows is not None else ()
        return output + deep[number].astype(output.dtype) if deep else output


def _axes(sections: Sequence[int], dims: int, width: int, *, interleaved: bool) -> mx.array:
    """Return (width,): the axis by which each feature of a head turns; those that do not turn have the first.

    Features i and i + dims / 2 turn together. If interleaved, frequencies 1, 4, 7 and so on are the row's and 2, 5, 8
    and so on the column's, as many as their sections have. Otherwise the time's come first, then the row's.
    """
    frequency = np.arange(width) % (dims // 2)
    if not interleaved:
        # The search gives 3 for those behind all sections, which do not turn.
        return mx.array(np.searchsorted(np.cumsum(sections), frequency, "right") % 3)
    axis = np.zeros(width, np.int32)
    for number in (1, 2):
        axis[(frequency % 3 == number) & (frequency < 3 * sections[number])] = number
    return mx.array(axis)


class ImageRows:
    """Computes the rows of images, and keeps those that were used last, those of the latest image in any case.

    The tower is loaded at the first image, and freed with this object.

    Args:
        folder: The model's, for messages.
        vision: What it has to see with; it has a family.
    """

    def __init__(self, folder: Path, vision: Vision) -> None:
        assert vision.family
        self._name = folder.name
        self._vision = vision
        self._family = vision.family
        # The tower's settings and weights: `see` sets both at the first image, and nothing clears them.
        self._settings = dict[str, Any]()
        self._weights: TowerWeights | None = None
        # By the hash of the pixels, the last used last.
        self._recent = OrderedDict[str, SeenImage]()

    def stored_rows(self, key: str) -> SeenImage | None:
        """Return the rows of an image if they are kept."""
        if key in self._recent:
            self._recent.move_to_end(key)
        return self._recent.get(key)

    def see(self, key: str, image: Prepared, waiting: Callable[[], None] = lambda: None) -> SeenImage:
        """Compute the rows of an image.

        Args:
            key: Hash of the very pixels.
            image: The image as the family's processor prepared it.
            waiting: Called after each layer of the tower; an exception that it raises ends the work.

        Raises:
            ModelError: If the tower's weights or settings are damaged.
            OutOfMemoryError: If there was not enough memory.
        """

        def evaluate(state: mx.array) -> None:
            mx.eval(state)
            waiting()

        with memory_errors("to read an image"):
            if self._weights is None:
                arrays, self._settings = self._stored()
                mx.eval(arrays)
                self._weights = TowerWeights(arrays)
            try:
                seen = self._compute(self._weights, image, evaluate)
                mx.eval(seen)
            except _FOREIGN as error:
                if is_device_error(error):
                    raise
                raise ModelError(f"The vision part of {self._name} is damaged.", REFETCH_HINT) from error
        return self._remember(key, seen)

    def drop_rows(self) -> None:
        """Forget the rows that are kept in memory."""
        self._recent.clear()

    def read_rows(self, key: str, count: int, keep: CacheFolder) -> SeenImage | None:
        """Return the rows of an image with this many tokens from the disk; None if they are not there."""
        arrays = read_rows(keep, key, (count, self._vision.width), 1 + self._vision.deep)
        return self._remember(key, SeenImage(arrays[0], tuple(arrays[1:]))) if arrays else None

    def _remember(self, key: str, seen: SeenImage) -> SeenImage:
        """Keep the rows of an image, and forget those that were not used for longest if there are too many."""
        self._recent[key] = seen
        while (
            len(self._recent) > 1
            and sum(each.nbytes for image in self._recent.values() for each in image.arrays) > CACHED_ROWS_BYTES
        ):
            self._recent.popitem(last=False)
        return seen

    def prompt(self, ids: list[int], spans: Sequence[ImageSpan], images: Iterable[SeenImage]) -> "SeenPrompt":
        """Return a prompt with the rows of its images.

        Args:
            ids: Its tokens, negative where they stand for pixels.
            spans: Where these are.
            images: All of its images, in order.
        """
        seen = _joined(images)
        return SeenPrompt(ids, spans, seen, self._family.by_axis, self._family.scale(seen.rows.shape[-1]))

    def _compute(self, weights: TowerWeights, image: Prepared, evaluate: Callable[[mx.array], None]) -> SeenImage:
        """Return the rows of an image, tile after tile, not evaluated yet."""
        tower = TOWERS[self._family.tower]
        layout = image.layout
        patches = image.patches
        # Four axes are tiles of pixels. Otherwise the patches of all tiles follow one another, and all tokens have the
        # same number of patches.
        ends = np.cumsum([math.prod(grid) for grid in layout.grids]) * (len(patches) // layout.pixel_tokens)
        tiles = patches if patches.ndim == 4 else np.split(patches, ends[:-1])
        seen = _joined(
            tower(TowerCall(weights, self._settings, mx.array(tile), grid, evaluate))
            for tile, grid in zip(tiles, layout.grids, strict=True)
        )
        if any(each.shape[-1] != self._vision.width for each in seen.arrays):
            raise ValueError("The features have another width than the rows")
        return seen

    def check_shapes(self) -> None:
        """Check that the tower can compute an image. Shapes decide it: nothing is read or computed.

        Raises:
            ModelError: If it cannot; or if the settings are invalid.
        """
        # One token, or as few as the settings allow, and one tile.
        settings = self._family.image_settings(self._vision.folder) | {"do_image_splitting": False}
        processor = PROCESSORS[self._family.processor]
        layout = processor.layout(1, 1, settings, 1)
        try:
            patches = mx.zeros(processor.patches_shape(settings, layout))
            patches = patches[0] if patches.ndim == 4 else patches
            arrays, own = self._stored()
            tower = TOWERS[self._family.tower]
            with nothing_computed():
                seen = tower(TowerCall(TowerWeights(arrays), own, patches, layout.grids[0], lambda _: None))
            fits = {each.shape for each in seen.arrays} == {(layout.pixel_tokens, self._vision.width)}
        except _FOREIGN as error:
            _LOG.warning("The vision of a model does not fit: %s", error)
            fits = False
        if not fits:
            raise ModelError("Its vision is of a kind that rdchat does not know, or does not fit its settings.")

    def _stored(self) -> tuple[dict[str, mx.array], dict[str, Any]]:
        """Return the weights by our own names, which are not read yet, and the settings of the tower."""
        stored: dict[str, mx.array] = {}
        for path in weight_files(self._vision.folder, readable_entries(self._vision.folder)):
            stored |= cast(dict[str, mx.array], mx.load(str(path)))
        arrays = {own: stored[name] for own, name in self._vision.tensors.items()}
        for name, each in arrays.items():
            # 16 bits are slow on a CPU.
            if not on_gpu() and each.dtype != mx.uint32:
                arrays[name] = each.astype(mx.float32)
        config = read_config(self._vision.folder)
        projector = {name: value for name, value in config.items() if name.startswith("projector_")}
        # Mistral 3's projector has that of the text model.
        epsilon = {"text_norm_eps": text_config(config).get("rms_norm_eps", 1e-5)}
        return arrays, projector | epsilon | config["vision_config"]


def seeing(folder: Path, vision: Vision) -> Vision:
    """Return what a model of a folder sees with: without a tower that does not fit, but with the reason."""
    if vision.family:
        try:
            ImageRows(folder, vision).check_shapes()
            image_token(read_config(vision.folder))
        except ModelError as error:
            return Vision(None, {}, reason=error.message)
    return vision


def _joined(images: Iterable[SeenImage]) -> SeenImage:
    """Return the rows of images or tiles, one behind the other."""
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

    ids: list[int]
    spans: Sequence[ImageSpan]
    image: SeenImage
    by_axis: bool = False
    scale: float = 1.0

    def rows_for_call(self, start: int, end: int, embed: Callable[[mx.array], mx.array]) -> CallRows | None:
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
        # For each token the index of its image row; text has any.
        before = sum(each < 0 for each in self.ids[:start])
        at = mx.array(np.maximum(before + np.cumsum(inside) - 1, 0))
        is_image = mx.array(inside)[:, None]
        text = embed(mx.array(np.maximum(ids, 0)))
        # The network rounds the scale to its own type.
        rows = (self.image.rows[at] / mx.array(self.scale, text.dtype)).astype(text.dtype)
        deep = tuple(mx.where(is_image, each[at], 0.0).astype(text.dtype) for each in self.image.deep)
        positions = mx.array(positions_by_axis(self.spans, start, end)) if self.by_axis else None
        # The search numbers the spans from 1, and `blocks` has them from 0, with -1 for text. All spans of a model are
        # bidirectional, or none is.
        image = np.searchsorted([span.start for span in self.spans], np.arange(start, end), "right")
        blocks = mx.array(np.where(inside, image, 0) - 1) if self.spans[0].bidirectional else None
        return CallRows(mx.where(is_image, rows, text)[None], positions, deep, blocks)


class TowerInput:
    """Implements `ImageInput` with a vision tower.

    Args:
        folder: The model's folder.
        vision: What it has to see with (`vision_of`); it has a family.
        network: The network, with rdchat's other hooks.
        vocabulary_size: Columns of its logits.

    Attributes:
        prompts: The images of its prompts.
        token: The id that stands for pixels in them.
    """

    def __init__(self, folder: Path, vision: Vision, network: nn.Module, vocabulary_size: int) -> None:
        assert vision.family
        self.prompts = ImagePrompts(vision.folder, vision.family)
        self.token = self.prompts.token
        self._rows = ImageRows(folder, vision)
        self._network = network
        sections = vision.family.sections(read_config(folder))
        self._hooks = ImageRowHooks(network, sections, vision.deep, interleaved=vision.family.interleaved)
        table = TargetEmbeddings(network, vocabulary_size)
        if vision.width != table.width:
            widths = f"gives rows of {vision.width} numbers; its text model takes {table.width}"
            raise ModelError(f"The vision of {folder.name} {widths}.", REFETCH_HINT)
        self._embed = table.embed

    def insert_images(self, ids: list[int], request: GenerationRequest) -> tuple[list[int], list[ImageSpan]]:
        """See `ImageInput`."""
        images = self._images(request)
        return self.prompts.insert_images(ids, images, request.image_cap) if images else (ids, [])

    def drop_rows(self) -> None:
        """See `ImageInput`."""
        self._rows.drop_rows()

    def see(
        self,
        ids: list[int],
        spans: Sequence[ImageSpan],
        request: GenerationRequest,
        waiting: Waiting,
        *,
        start: int,
        stage: StageTimer = untimed,
    ) -> Iterator[tuple[int, Feed | None]]:
        """See `ImageInput`.

        Images that end before `start` are left out. For the others the rows are found or computed, one image after the
        other: before each, the number of images left is yielded. At last `_feed` is, which puts them into the calls.
        """
        images = self._images(request)
        counts = [self.prompts.tokens(image, request.image_cap) for image in images]
        pixels = [index for index, token in enumerate(ids) if token < 0]
        # Those of the images that end before `start` are in the cache, and their rows are not needed.
        read = sum(index < start for index in pixels)
        old = sum(end <= read for end in accumulate(counts))
        skipped = sum(counts[:old])
        # They are fed as text: `rows_for_call` finds an image's row by counting the negative ids before it.
        fed = list(ids)
        for index in pixels[:skipped]:
            fed[index] = 0
        seen = list[SeenImage]()
        for image, count in zip(images[old:], counts[old:], strict=True):
            yield len(images) - old - len(seen), None
            seen.append(self._see(image, count, request, waiting, stage))
        if sum(len(each.rows) for each in seen) != len(pixels) - skipped:
            raise ModelError("An image of this chat has changed on the disk.", "Attach it again.")
        yield 0, partial(self._feed, self._rows.prompt(fed, spans, seen))

    def _feed(self, prompt: SeenPrompt, cache: KVCache, start: int, end: int) -> None:
        """Feed the tokens of a prompt from `start` to `end`, with the rows of its images."""
        rows = prompt.rows_for_call(start, end, self._embed)
        tokens = mx.maximum(mx.array(prompt.ids[start:end])[None], 0)
        if rows is None:
            self._network(tokens, cache=cache.layers)
            return
        windows_only = self.prompts.family.windows_only
        seeing = nullcontext() if rows.blocks is None else cache.seeing(rows.blocks, windows_only=windows_only)
        with self._hooks.rows_for_call(rows), seeing:
            self._network(tokens, cache=cache.layers, input_embeddings=rows.embeddings)

    def _see(
        self, image: ChatImage, count: int, request: GenerationRequest, waiting: Waiting, stage: StageTimer
    ) -> SeenImage:
        """Return the rows of an image with `count` tokens: those in memory, on disk, or computed now."""
        cap = request.image_cap
        keep = request.keep
        key = self.prompts.key(image, cap)
        seen = self._rows.stored_rows(key)
        if seen is None and keep:
            with stage(Stage.READ_ROWS):
                seen = self._rows.read_rows(key, count, keep)
        if seen is not None:
            return seen
        try:
            with stage(Stage.PREPARE_IMAGE):
                prepared = self.prompts.prepare(image, cap, waiting)
            with stage(Stage.TOWER):
                seen = self._rows.see(key, prepared, waiting)
        except OutOfMemoryError:
            # There may be more later.
            raise
        except (ImageRefusedError, ModelError) as error:
            self.prompts.failed.add(image.digest)
            hint = f"{error.hint} Or try again: the model then gets a line of text in its place."
            raise ImageRefusedError(error.message, hint) from error
        if keep:
            write_rows(keep, key, seen.arrays)
        return seen

    def _images(self, request: GenerationRequest) -> list[ChatImage]:
        """Return the images of a request, but for those that failed."""
        return [each for each in images_of(request.messages) if not self.prompts.is_unseen(each)]
