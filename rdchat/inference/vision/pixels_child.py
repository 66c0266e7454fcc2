"""Decodes images and prepares them for models, in a child, `rdchat --child images`: image files are foreign data.

Only pixels leave the child: no EXIF, which may name a place, and no other metadata.
"""

import hashlib
import io
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageCms, ImageOps

from rdchat import host, mac_desktop
from rdchat.errors import ImageRefusedError, ModelError
from rdchat.files import FORMATS, HEIC, format_of, read_bytes
from rdchat.inference.vision.image_process import as_file
from rdchat.inference.vision.processors import PROCESSORS
from rdchat.work import Job, serve

MAX_BYTES = 50_000_000
MAX_PIXELS = 100_000_000
_MAX_CONVERTED_BYTES = 4 * MAX_PIXELS
# Decoding takes up to 5 s, and an image is looked at, drawn and prepared: so the pixels of the latest ones are kept.
_CACHED_BYTES = 3 * MAX_PIXELS
# Pillow reads more, but some of these run programs: EPS starts Ghostscript. HEIC it does not read.
_NAMES = {each.name.upper(): each.name for each in FORMATS if each is not HEIC}
# Such as `PNG, JPEG or WebP`.
_KINDS = " or ".join(", ".join(_NAMES.values()).rsplit(", ", 1))
_SAVE_AGAIN = "Open it in another app and save it as PNG or JPEG."
_CHOOSE = f"Choose an image of up to {MAX_BYTES // 10**6} MB, or check its path and permissions."
_SAVE_SMALLER = "Save a smaller copy of it."
# What a profile calls its colours, and Pillow's mode of them.
_SPACES = {"GRAY": "L", "RGB ": "RGB", "CMYK": "CMYK"}
# The largest number in usual grey images with 32 bits is one of these; 1.0 only where the numbers are floats.
_USUAL_RANGES = (1.0, 255.0, 65535.0)


@dataclass(frozen=True, slots=True)
class _Picture:
    """A decoded image: its pixels, (height, width, 3), its format, and the note for the person."""

    pixels: npt.NDArray[np.uint8]
    format: str
    note: str


# By the hash of the file.
_cached = OrderedDict[bytes, _Picture]()


def look(_job: Job[Any], path: str, name: str, out: str) -> dict[str, Any]:  # noqa: ARG001  all calls have it
    """Decode an image; return its size, its format, and a note for the person.

    Args:
        path: The file.
        name: Its name for people.
        out: A file that may be written, in a private folder.

    Raises:
        ImageRefusedError: If it cannot be read.
    """
    picture = _picture(Path(path), name)
    height, width, _ = picture.pixels.shape
    return {"width": width, "height": height, "format": picture.format, "note": picture.note}


def prepare(
    _job: Job[Any],
    path: str,
    name: str,
    out: str,
    *,
    processor: str,
    settings: dict[str, Any],
    max_tokens: int | None,
) -> dict[str, Any]:
    """Write an image's patches to `out` as NumPy does, and return their `Layout`.

    Args:
        _job: Not used.
        path: See `look`.
        name: See `look`.
        out: See `look`.
        processor: A key of `PROCESSORS`.
        settings: See `Processor`.
        max_tokens: See `Processor`.

    Raises:
        ImageRefusedError: If it cannot be read.
        ModelError: If the settings are invalid.
    """
    prepared = PROCESSORS[processor].prepare(_picture(Path(path), name).pixels, settings, max_tokens)
    with Path(out).open("wb") as file:
        np.save(file, prepared.patches, allow_pickle=False)
    return asdict(prepared.layout)


def draw(_job: Job[Any], path: str, name: str, out: str, size: Sequence[int]) -> dict[str, Any]:
    """Write an image to `out` as PNG without metadata, scaled down where it is larger than `size`, width and height.

    Raises:
        ImageRefusedError: If it cannot be read.
    """
    image = Image.fromarray(_picture(Path(path), name).pixels)
    image.thumbnail((size[0], size[1]), Image.Resampling.LANCZOS)
    image.save(out, "PNG")
    return {}


def forget(_job: Job[Any]) -> dict[str, Any]:
    """Forget the images that are kept."""
    _cached.clear()
    return {}


def _picture(path: Path, name: str) -> _Picture:
    """Decode an image, unless it is kept."""
    try:
        data = read_bytes(path, _CHOOSE, MAX_BYTES)
    except ModelError as error:
        raise ImageRefusedError(error.message.replace(str(path), name), error.hint) from error
    key = hashlib.sha256(data).digest()
    picture = _cached.pop(key, None) or _decode(data, name)
    _cached[key] = picture
    # The newest one always stays: its three bytes a pixel are within the limit by themselves.
    while sum(each.pixels.nbytes for each in _cached.values()) > _CACHED_BYTES:
        _cached.popitem(last=False)
    return picture


def _decode(data: bytes, name: str) -> _Picture:
    """Decode an image; a HEIC one is converted by the system first."""
    kind = ""
    if format_of(data) is HEIC:
        try:
            data = _converted(data)
        except (OSError, ModelError) as error:
            reader = "this Mac cannot read" if host.MACOS else "rdchat reads only on a Mac"
            raise ImageRefusedError(f"{name} is a HEIC image, which {reader}.", _SAVE_AGAIN) from error
        kind = "HEIC"
    pixels = np.asarray(decoded(data, name))
    # Opened once more, for the format and the note: `decoded` returns pixels alone.
    opened = _opened(data, name)
    # MPO is JPEG with more pictures.
    kind = kind or _NAMES.get(str(opened.format), "JPEG")
    return _Picture(pixels, kind, _note(opened))


def _converted(data: bytes) -> bytes:
    """Return an image that only the system can read as TIFF.

    Raises:
        OSError: If the system cannot read it either.
        ModelError: If the TIFF is too large.
    """
    with as_file(data) as path:
        tiff = path.with_suffix(".tiff")
        if not mac_desktop.convert_to_tiff(path, tiff):
            raise OSError("no TIFF")
        return read_bytes(tiff, _SAVE_SMALLER, _MAX_CONVERTED_BYTES)


def _opened(data: bytes, name: str) -> Image.Image:
    """Read the header of an image, and refuse one that is too large before its pixels are read."""
    try:
        image = Image.open(io.BytesIO(data), formats=tuple(_NAMES))
    except MemoryError:
        raise
    # Anything can be wrong in a foreign file.
    except Exception as error:
        raise ImageRefusedError(f"{name} is damaged, or no {_KINDS} image.", _SAVE_AGAIN) from error
    pixels = image.width * image.height
    if pixels > MAX_PIXELS:
        limit = f"rdchat reads images up to {MAX_PIXELS // 10**6}"
        raise ImageRefusedError(f"{name} has {pixels / 1e6:,.0f} megapixels, and {limit}.", _SAVE_SMALLER)
    return image


def _note(image: Image.Image) -> str:
    """Return a note for the person if the image has more pictures. Those of MPO are depths and the like."""
    try:
        has_more = image.format != "MPO" and getattr(image, "is_animated", False)
    # Only what follows the first picture is damaged.
    except Exception:
        return ""
    return f"Only its first {'page' if image.format == 'TIFF' else 'frame'} is used." if has_more else ""


def decoded(data: bytes, name: str) -> Image.Image:
    """Return the pixels of an image in sRGB, turned as its EXIF asks, without alpha.

    Args:
        data: The file.
        name: Its name for people.

    Raises:
        ImageRefusedError: If it is damaged, too large, or no image.
    """
    try:
        # Nothing but the call holds the image, so that its memory is free once it is converted.
        return _over_white(_turned(_opened(data, name)))
    except (ImageRefusedError, MemoryError):
        raise
    # As in `_opened`.
    except Exception as error:
        raise ImageRefusedError(f"{name} is damaged: not all of it can be decoded.", _SAVE_AGAIN) from error


def _turned(image: Image.Image) -> Image.Image:
    """Decode an image and turn it as its EXIF asks; a damaged EXIF turns nothing."""
    image.load()
    try:
        ImageOps.exif_transpose(image, in_place=True)
    except MemoryError:
        raise
    except Exception:
        return image
    return image


def _over_white(image: Image.Image) -> Image.Image:
    """Return an image in sRGB without alpha.

    First it is brought to 8 bits and a mode of colours that profiles know, and its alpha is taken out; then its colours
    are converted; then it is laid over white where it had alpha.
    """
    profile = image.info.get("icc_profile")
    alpha = None
    if image.mode in {"I", "F"} or image.mode.startswith("I;16"):
        image = _in_eight_bits(image)
    elif image.has_transparency_data:
        grey = image.mode in {"LA", "La"}
        with_alpha, without = ("LA", "L") if grey else ("RGBA", "RGB")
        image = image if image.mode == with_alpha else image.convert(with_alpha)
        alpha = image.getchannel("A")
        image = image.convert(without)
    elif image.mode not in _SPACES.values():
        image = image.convert("L" if image.mode == "1" else "RGB")
    image = _in_srgb(image, profile)
    image = image if image.mode == "RGB" else image.convert("RGB")
    if alpha is None:
        return image
    white = Image.new("RGB", image.size, "white")
    white.paste(image, mask=alpha)
    return white


def _in_eight_bits(image: Image.Image) -> Image.Image:
    """Return a grey image of larger numbers in 8 bits. The range of 32 bits is the smallest usual one that has room."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    numbers = np.nan_to_num(np.array(image, np.float32), copy=False, posinf=0.0, neginf=0.0)
    low = min(0.0, float(numbers.min()))
    high = float(numbers.max())
    ranges = _USUAL_RANGES if image.mode == "F" else _USUAL_RANGES[1:]
    full = next((each for each in ranges if high <= each), high)
    scale = 255 / (full - low)
    # The difference of two numbers may be too large for 32 bits.
    numbers *= scale
    numbers -= low * scale
    return Image.fromarray(numbers.clip(0, 255, out=numbers).astype(np.uint8))


def _in_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    """Convert an image from its profile's colours to sRGB; a damaged profile, or one of other colours, is left out."""
    if not profile:
        return image
    try:
        given = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        # Most are sRGB, and a conversion would only round.
        is_srgb = ImageCms.getProfileDescription(given).startswith("sRGB")
        if is_srgb or _SPACES.get(given.profile.xcolor_space) != image.mode:
            return image
        return ImageCms.profileToProfile(image, given, ImageCms.createProfile("sRGB"), outputMode="RGB") or image
    except MemoryError:
        raise
    # As in `_opened`.
    except Exception:
        return image


def main() -> int:
    """Answer requests until the parent ends."""
    # The limit is ours: a warning or an error of Pillow's own would come first.
    Image.MAX_IMAGE_PIXELS = None
    return serve({"look": look, "prepare": prepare, "draw": draw, "forget": forget}, prepare=Image.init)
