"""Pictures for tests, drawn with whole numbers so that they are the same everywhere."""

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageCms

from rdchat.inference.vision.pixels_child import decoded


def drawn(width: int, height: int) -> npt.NDArray[np.uint8]:
    """Return pixels (height, width, 3) with edges and slopes; `scripts/golden_pixels.py` draws the same."""
    # What overflows counts for nothing.
    y, x = (axis.astype(np.uint16) for axis in np.ogrid[:height, :width])
    grey: npt.NDArray[np.uint16] = (x * x * 7 + y * y * 13 + x * y * 3) // 8
    return np.add.outer(grey.astype(np.uint8), np.array([0, 101, 202], np.uint8))


def photo(width: int = 37, height: int = 23) -> Image.Image:
    """Return a picture of which no turn looks like another."""
    return Image.fromarray(drawn(width, height))


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    """Return an image as a file of a format; without loss where the format can."""
    lossless: dict[str, dict[str, Any]] = {
        "WEBP": {"lossless": True, "exact": True},
        "AVIF": {"quality": 100, "subsampling": "4:4:4"},
    }
    file = io.BytesIO()
    image.save(file, kind, **lossless.get(kind, {}), **options)
    return file.getvalue()


def stored(folder: Path, image: Image.Image, kind: str = "PNG", **options: Any) -> Path:
    """Write an image to a folder as a file."""
    path = folder / f"picture.{kind.lower()}"
    path.write_bytes(encoded(image, kind, **options))
    return path


def pixels_of(data: bytes) -> npt.NDArray[np.uint8]:
    """Return the pixels that a model gets of a file."""
    return np.asarray(decoded(data, "a picture"))


def profile(description: str = "Swapped", *, swapped: bool = True) -> bytes:
    """Return a profile of sRGB, in which red and blue are swapped, so that a conversion is seen."""
    data = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    name = "sRGB built-in".encode("utf-16-be")
    assert name in data
    data = data.replace(name, description.ljust(13)[:13].encode("utf-16-be"))
    if swapped:
        data = data.replace(b"rXYZ", b"____", 1).replace(b"bXYZ", b"rXYZ", 1).replace(b"____", b"bXYZ", 1)
    return data


def png_of(width: int, height: int, body: bytes, *others: bytes) -> bytes:
    """Return a PNG with this compressed body, and other chunks before it."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (struct.pack(">I", len(each) - 4) + each + struct.pack(">I", zlib.crc32(each))
              for each in (head, *others, b"IDAT" + body))  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
