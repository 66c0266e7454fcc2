"""Where the tokens of images stand in a prompt: their ids, and positions by axis as Qwen's models count them.

A text counts time, row and column up together. The tokens of an image have one time, and the rows and columns of a
grid; the text behind it goes on one after the largest of them. So an image of 2 rows and 4 columns takes 8 tokens, but
4 positions:

    token    a  b  .  .  .  .  .  .  .  .  c
    time     0  1  2  2  2  2  2  2  2  2  6
    row      0  1  2  2  2  2  3  3  3  3  6
    column   0  1  2  3  4  5  2  3  4  5  6

No MLX here.
"""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from rdchat.errors import ModelError
from rdchat.inference.api.messages import ImageSpan, shift_before
from rdchat.inference.vision.families import Family
from rdchat.inference.vision.prepared import Layout

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
    at = 0
    fits = True
    for key, layout in images:
        own = image_ids(key, layout.tokens)
        for rows, columns in layout.grids:
            count = rows * columns
            start = changed.index(token, at) if token in changed[at:] else at
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
    words = np.frombuffer(hashlib.shake_128(key.encode()).digest(4 * count), "<u4")
    return [-2 - int(word) % _IDS for word in words]


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
            axes[:, span.end - start :] += span.shift
    return axes
