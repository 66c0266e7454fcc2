"""The formats of image files: how they begin, and their names in files, in programs and for people.

Every part of rdchat takes them from here. The first bytes are only a sign of a format: the decoder may still refuse the
file.
"""

import re
from typing import NamedTuple


class ImageFormat(NamedTuple):
    """A format that rdchat reads.

    Attributes:
        name: For people; in capitals Pillow's name, in small letters that of its media type.
        endings: Of file names; the first is the usual one.
        beginning: Matches the first bytes; None for the container of ISO 14496-12, where `brands` decide.
        brands: Words of four letters in the first box of that container, such as `heic`; a file with one of them has
            this format.
    """

    name: str
    endings: tuple[str, ...]
    beginning: re.Pattern[bytes] | None = None
    brands: frozenset[bytes] = frozenset()

    @property
    def media_type(self) -> str:
        return f"{MEDIA}{self.name.lower()}"


MEDIA = "image/"
"""What media types of images begin with."""
PNG = ImageFormat("PNG", ("png",), re.compile(rb"\x89PNG"))
JPEG = ImageFormat("JPEG", ("jpg", "jpeg"), re.compile(rb"\xff\xd8\xff"))
WEBP = ImageFormat("WebP", ("webp",), re.compile(rb"RIFF.{4}WEBP", re.DOTALL))
GIF = ImageFormat("GIF", ("gif",), re.compile(rb"GIF8"))
AVIF = ImageFormat("AVIF", ("avif",), brands=frozenset((b"avif", b"avis")))
# ISO 23008-12. An AVIF file may have the last two beside a brand of its own, so AVIF comes before HEIC in `FORMATS`.
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1")
HEIC = ImageFormat("HEIC", ("heic",), brands=frozenset(_HEIC_BRANDS))
TIFF = ImageFormat("TIFF", ("tif", "tiff"), re.compile(rb"II\*\0|MM\0\*"))
BMP = ImageFormat("BMP", ("bmp",), re.compile(rb"BM"))
FORMATS = (PNG, JPEG, WEBP, GIF, AVIF, HEIC, TIFF, BMP)
"""The formats, the best to take from another program first. All but HEIC are read everywhere, HEIC on a Mac."""
UNREAD = re.compile(rb"\0\0\x01\0|8BPS")
"""How images in formats that rdchat does not read begin: icons and Photoshop's."""


def format_of(head: bytes) -> ImageFormat | None:
    """Return the format of a file by its first bytes; None if it is none of `FORMATS`.

    A text may begin with the letters of one that has no `brands`.
    """
    brands = _brands_of(head)
    return next(
        (each for each in FORMATS if (each.beginning.match(head) if each.beginning else each.brands & brands)), None
    )


def _brands_of(head: bytes) -> frozenset[bytes]:
    """Return the brands of a file, its own and those that it is compatible with; none for another container."""
    box = head[: int.from_bytes(head[:4], "big")] if head[4:8] == b"ftyp" else b""
    # Four bytes of a version follow the first.
    return frozenset(box[at : at + 4] for at in (8, *range(16, len(box), 4)))
