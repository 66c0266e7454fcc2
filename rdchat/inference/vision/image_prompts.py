"""Where images stand in a model's prompts: their text, the ids of their tokens, and their positions. No MLX here.

The tokens of an image have negative ids, which no vocabulary has. Each is made of a hash of all that decides the
image's rows, and of its index in the image. So two prompts with the same ids have the same pixels, and all that
compares tokens (caches in memory and on disk, lookup, the index of replies) is right with images without knowing of
them. The network gets rows of embeddings in place of these ids.

Qwen's models count positions by axis. A text counts time, row and column up together. The tokens of an image have one
time, and the rows and columns of a grid; the text behind it goes on one after the largest of them. So an image of 2
rows and 4 columns takes 8 tokens, but 4 positions:

    token    a  b  .  .  .  .  .  .  .  .  c
    time     0  1  2  2  2  2  2  2  2  2  6
    row      0  1  2  2  2  2  3  3  3  3  6
    column   0  1  2  3  4  5  2  3  4  5  6
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rdchat.errors import ImageRefusedError, ModelError, PromptTooLongError
from rdchat.inference.api import MAX_IMAGES, ChatImage, ImageCap, ImageSpan, shift_before
from rdchat.inference.models.model_config import read_config
from rdchat.inference.models.stored_facts import stamp_of
from rdchat.inference.vision.families import Family, image_token
from rdchat.inference.vision.image_process import Waiting, shared_images
from rdchat.inference.vision.prepared_images import Layout, Prepared
from rdchat.inference.vision.processors import PROCESSORS

# The ids of images are from -2 down to the least number of 32 bits.
_IDS = 2**31 - 1


def with_images(
    ids: Sequence[int], token: int, images: Iterable[tuple[str, Layout]], family: Family
) -> tuple[list[int], list[ImageSpan]]:
    """Return a prompt with the ids of its images, and where they stand.

    Args:
        ids: The prompt's ids.
        token: The id that stands for pixels in them.
        images: In order, the hash of the very pixels that the model sees, and their layout.
        family: The model's.

    Raises:
        ModelError: If the prompt does not have the tokens of just these images.
    """
    changed = list(ids)
    spans = list[ImageSpan]()
    # The end of the last run of tokens, and whether all runs so far had the image's tokens; the check is at the end.
    at = 0
    fits = True
    for key, layout in images:
        # The ids of the image that are not in the prompt yet: each run takes its part of them.
        own = image_ids(key, layout.pixel_tokens)
        for rows, columns in layout.grids:
            # The tokens of each run: a row, where a token of text ends it, or a tile.
            for count in [columns] * rows if family.breaks else [rows * columns]:
                start = at
                # Where no token is left, `start` stays at `at`: there the comparison below fails.
                with suppress(ValueError):
                    start = changed.index(token, at)
                at = start + count
                fits = fits and changed[start:at] == [token] * count
                changed[start:at] = own[:count]
                own = own[count:]
                shift = max(rows, columns) - count if family.by_axis else 0
                spans.append(ImageSpan(start, count, shift, family.blocks, columns))
    if not fits or token in changed:
        raise ModelError("The model's tokenizer does not keep the images of this chat apart.", "Choose another model.")
    return changed, spans


def image_ids(key: str, count: int) -> list[int]:
    """Return the ids of an image's tokens, below -1: each depends on the hash of the pixels and on its place."""
    numbers = np.frombuffer(hashlib.shake_128(key.encode()).digest(4 * count), "<u4")
    return [-2 - int(word) % _IDS for word in numbers]


def positions_by_axis(spans: Sequence[ImageSpan], start: int, end: int) -> npt.NDArray[np.int32]:
    """Return (3, end - start): time, row and column of the tokens from `start` to `end`.

    Args:
        spans: The prompt's images, in order.
        start: Index of the first token.
        end: Index of the first token behind them.
    """
    axes = np.tile(np.arange(start, end, dtype=np.int32), (3, 1)) + np.int32(shift_before(spans, start))
    for span in spans:
        if start < span.end and span.start < end:
            inside = np.arange(max(span.start, start), min(span.end, end))
            row, column = np.divmod(inside - span.start, span.columns)
            first = span.start + shift_before(spans, span.start)
            axes[:, inside - start] = first + np.stack([0 * row, row, column])
            # The text behind the image goes on after the image's largest position.
            axes[:, span.end - start :] += span.shift
    return axes


class ImagePrompts:
    """The images of one model's prompts. Only their sizes are needed, so tokens are counted without pixels.

    Args:
        folder: Has the tower (`Vision`).
        family: How it sees.

    Attributes:
        placeholder: What chat templates write for an image.
        token: The id that stands for pixels.
        failed: Digests of images that could not be seen since the model was loaded; a line stands for each.
    """

    def __init__(self, folder: Path, family: Family) -> None:
        self.family = family
        self.placeholder = family.placeholder
        self._settings = family.image_settings(folder)
        self._tower = stamp_of(folder).digest
        self.token = image_token(read_config(folder))
        self.failed = set[str]()

    def is_unseen(self, image: ChatImage) -> bool:
        """Return whether an image failed."""
        return image.digest in self.failed

    def expanded(self, images: Sequence[ChatImage], cap: ImageCap, limit: int) -> list[str]:
        """Return the text of each image, in the place of its placeholder; raises as `ModelPrompts.encode` does."""
        if len(images) > MAX_IMAGES:
            raise ImageRefusedError(f"This chat has {len(images)} images; a prompt takes {MAX_IMAGES}.", "Remove some.")
        layouts = [self._layout(each, cap) for each in images]
        # Foreign settings decide it, so it is checked before a text is built.
        if (tokens := sum(each.pixel_tokens for each in layouts)) > limit:
            raise PromptTooLongError(f"The images have {tokens:,} tokens, more than the model takes.", "Remove some.")
        return [self.family.expanded(each) for each in layouts]

    def insert_images(
        self, ids: Sequence[int], images: Sequence[ChatImage], cap: ImageCap
    ) -> tuple[list[int], list[ImageSpan]]:
        """Return a prompt with the ids of its images, and where they stand; raises as `with_images` does."""
        keyed = ((self.key(each, cap), self._layout(each, cap)) for each in images)
        return with_images(ids, self.token, keyed, self.family)

    def tokens(self, image: ChatImage, cap: ImageCap) -> int:
        """Return the number of tokens that stand for an image's pixels."""
        return self._layout(image, cap).pixel_tokens

    def key(self, image: ChatImage, cap: ImageCap) -> str:
        """Return a hash of all that decides what the model sees: pixels, and the tower."""
        facts = image.digest, self._tower, self.family.processor, sorted(self._settings.items(), key=str), cap.value
        return hashlib.sha256(json.dumps(facts, default=str).encode()).hexdigest()

    def prepare(self, image: ChatImage, cap: ImageCap, waiting: Waiting) -> Prepared:
        """Decode an image for the model's tower; raises as `ImageProcess.prepare` does."""
        return shared_images().prepare(
            image.path, self.family.processor, self._settings, cap.tokens, name=image.name, waiting=waiting
        )

    def _layout(self, image: ChatImage, cap: ImageCap) -> Layout:
        return PROCESSORS[self.family.processor].layout(image.width, image.height, self._settings, cap.tokens)
