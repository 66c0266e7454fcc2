"""Where the images of a prompt stand among its tokens.

There an image's tokens have negative ids below -1, made of the hash of the pixels that the model sees and of each
token's place in them. So equal ids mean equal rows, and another image of the same size has other ids.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImageSpan:
    """The tokens of one image in a prompt, or of one tile of it.

    Attributes:
        start: Index of the first.
        count: Their number.
        shift: Is added to the positions of all tokens behind the image. An image of r x c tokens that takes max(r, c)
            positions has max(r, c) - r * c.
        whole: Whether the rows see each other, so that a cache holds all of them or none.
        columns: Tokens in a row of it.
    """

    start: int
    count: int
    shift: int = 0
    whole: bool = False
    columns: int = 1

    @property
    def end(self) -> int:
        """Index behind the last token."""
        return self.start + self.count


def shift_before(images: Iterable[ImageSpan], index: int) -> int:
    """Return what the images that end at or before an index add to the position of the token there."""
    return sum(image.shift for image in images if image.end <= index)
