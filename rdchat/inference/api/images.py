"""Images of messages, and how many tokens an image may take."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

# The most images of a prompt, and of a message.
MAX_IMAGES = 100
MAX_MESSAGE_IMAGES = 20


@dataclass(frozen=True, slots=True)
class ChatImage:
    """An image of a message.

    Attributes:
        path: The file as it was given; it stays on this machine.
        digest: SHA-256 of the file, in hexadecimal.
        width: Width in pixels, after the turning that the file's EXIF asks for.
        height: Height in pixels, as `width`.
        name: The file's name for people.
    """

    path: Path
    digest: str
    width: int
    height: int
    name: str = ""


class ImageCap(StrEnum):
    """How many tokens an image may take; an image that is small takes fewer.

    Attributes:
        SMALL: About 256.
        MEDIUM: About 1,024.
        FULL: As many as the model takes.
    """

    SMALL = "small"
    MEDIUM = "medium"
    FULL = "full"

    @property
    def tokens(self) -> int | None:
        """The number of tokens; None for the model's own limit."""
        return {ImageCap.SMALL: 256, ImageCap.MEDIUM: 1024}.get(self)
