"""What an image file shows is what a model gets, in transformers' own numbers; or the file is refused."""

import hashlib
import json
import zlib
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as some
from PIL import Image, PngImagePlugin

from rdchat import host
from rdchat.errors import ImageRefusedError, ModelError
from rdchat.inference.api import ImageCap
from rdchat.inference.vision.pixels_child import decoded
from rdchat.inference.vision.processors import PROCESSORS
from tests.inference.vision.pictures import drawn, encoded, photo, pixels_of, png_of, profile

CASES = json.loads((Path(__file__).parent / "golden" / "processors.json").read_text())["cases"]
SETTINGS: dict[str, dict[str, Any]] = {case["processor"]: case["settings"] for case in reversed(CASES)}
SIDES = some.integers(1, 20_000)


# Millions of numbers take long: half of the pictures that become so many run each time.
MANY = 4_000_000


def is_often(number: int, place: int, shape: list[int]) -> bool:
    return prod(shape) < MANY or (number // 2 + place) % 2 == 1


@pytest.mark.parametrize(
    ("number", "size"),
    [
        pytest.param(number, size, marks=() if is_often(number, place, expected["shape"]) else pytest.mark.slow)
        for number, case in enumerate(CASES)
        for place, (size, expected) in enumerate(case["sizes"].items())
    ],
)
def test_patches_are_those_of_transformers(number: int, size: str) -> None:
    case, (width, height) = CASES[number], map(int, size.split("x"))
    expected = case["sizes"][size]
    prepared = PROCESSORS[case["processor"]].prepare(drawn(width, height), case["settings"], case["max_tokens"])
    assert prepared.patches.dtype == np.float32
    assert list(prepared.patches.shape) == expected["shape"]
    assert prepared.patches.mean() == pytest.approx(expected["mean"], abs=1e-3)
    # A compiler for another processor may round a filter of Pillow's otherwise.
    if not host.MACOS:
        # LFM2-VL's are those of transformers to the nearest level of pixels.
        levels = np.rint((prepared.patches + 1) * 127.5).astype(np.uint8)
        numbers = levels if case["processor"] == "lfm2" else prepared.patches
        assert hashlib.sha256(np.ascontiguousarray(numbers)).hexdigest() == expected["sha256"]


@given(width=SIDES, height=SIDES, cap=some.sampled_from(ImageCap))
def test_every_size_has_tokens_within_the_cap(width: int, height: int, cap: ImageCap) -> None:
    for name, settings in SETTINGS.items():
        layout = PROCESSORS[name].layout(width, height, settings, cap.tokens)
        assert all(rows > 0 and columns > 0 for rows, columns in layout.grids)
        assert min(layout.size) > 0
        assert len(layout.grids) == (layout.tiles[0] * layout.tiles[1] or 0) + 1
        if cap.tokens is not None:
            # The whole image stands behind the tiles, and Gemma 3 always takes 256.
            whole = layout.grids[-1] if any(layout.tiles) else (0, 0)
            assert layout.pixel_tokens - whole[0] * whole[1] <= cap.tokens
            assert layout.pixel_tokens <= PROCESSORS[name].layout(width, height, settings, None).pixel_tokens


def test_a_line_of_pixels_is_seen_whole() -> None:
    for width, height in ((20_000, 1), (1, 20_000)):
        for name, settings in SETTINGS.items():
            prepared = PROCESSORS[name].prepare(drawn(width, height), settings, 256)
            assert np.isfinite(prepared.patches).all()
            assert prepared.layout.pixel_tokens <= 320


@pytest.mark.parametrize(
    "wrong",
    [
        {"patch_size": 0}, {"patch_size": True}, {"merge_size": -2}, {"patch_size": "16"},
        {"size": {"longest_edge": 0}}, {"min_pixels": 0.5}, {"image_std": [0.5, 0, 0.5]}, {"image_mean": [1, 2]},
        {"image_mean": "half"}, {"image_std": 1e-60}, {"rescale_factor": float("nan")}, {"resample": 9},
        {"resample": [1]}, {"temporal_patch_size": 2**80},
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_cannot_be_used_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"settings for images are invalid: .+ is ") as caught:
        PROCESSORS["qwen"].prepare(drawn(9, 9), SETTINGS["qwen"] | wrong, None)
    assert "\n" not in str(caught.value)


def test_no_side_is_longer_than_4096_before_it_is_cut_into_tiles() -> None:
    layout = PROCESSORS["idefics3"].layout(9000, 4500, SETTINGS["idefics3"] | {"size": {"longest_edge": 8192}}, None)
    assert layout.size == (4096, 2048)


def test_tiles_without_number_are_refused() -> None:
    wrong = {"token_side": 8, "size": {"longest_edge": 4096}, "max_image_size": {"longest_edge": 1}}
    with pytest.raises(ModelError, match="max_image_size is 1"):
        PROCESSORS["idefics3"].layout(5000, 5000, wrong, None)
    for wrong in ({"max_tiles": 2000}, {"tile_size": 500}, {"tile_size": 16}):
        with pytest.raises(ModelError, match="size or number of tiles"):
            PROCESSORS["lfm2"].layout(5000, 5000, wrong, None)


def test_settings_that_are_missing_or_null_have_the_usual_values() -> None:
    usual = PROCESSORS["qwen"].prepare(drawn(99, 66), {}, None)
    nulls = dict.fromkeys(("patch_size", "size", "min_pixels", "max_pixels", "image_mean", "image_std", "resample"))
    assert np.array_equal(PROCESSORS["qwen"].prepare(drawn(99, 66), nulls, None).patches, usual.patches)


# How to store a picture so that an orientation of EXIF turns it back.
TURNED = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
LOSSLESS = ("PNG", "WEBP", "TIFF")


@pytest.mark.parametrize("kind", [*LOSSLESS, "JPEG", "AVIF"])
@pytest.mark.parametrize("orientation", TURNED)
def test_a_picture_is_the_same_in_all_orientations(orientation: int, kind: str) -> None:
    picture = photo()
    turn = TURNED[orientation]
    exif = Image.Exif()
    if kind in {"JPEG", "AVIF"}:
        # They lose little of a smooth picture.
        picture = picture.resize((8, 5)).resize((37, 23), Image.Resampling.BICUBIC)
    exif[0x0112] = orientation
    data = encoded(picture if turn is None else picture.transpose(turn), kind, exif=exif)
    difference = np.abs(pixels_of(data).astype(int) - np.asarray(picture)).mean()
    assert difference == 0 if kind in LOSSLESS else difference < 8


@pytest.mark.parametrize("exif", [b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0", b"Exif\0\0garbage", b"Exif\0\0"])
def test_a_damaged_exif_turns_nothing(exif: bytes) -> None:
    assert np.array_equal(pixels_of(encoded(photo(), "PNG", exif=exif)), drawn(37, 23))


def see_through(mode: str) -> Image.Image:
    """Return black on the left, and what cannot be seen on the right."""
    image = Image.new("RGBA", (4, 2), (0, 0, 0, 255))
    image.paste((200, 10, 10, 0), (2, 0, 4, 2))
    if mode == "P":
        return image.quantize()
    image = image.convert(mode)
    if mode in {"L", "RGB"}:
        image.info["transparency"] = image.getpixel((3, 0))
    return image


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("RGBA", "PNG"), ("RGBA", "WEBP"), ("RGBA", "TIFF"), ("LA", "PNG"), ("P", "PNG"), ("RGBA", "GIF"), ("L", "PNG"),
     ("RGB", "PNG"), ("RGBA", "AVIF")],
)  # fmt: skip
def test_what_cannot_be_seen_is_white(mode: str, kind: str) -> None:
    image = see_through(mode)
    options = {"transparency": image.info["transparency"]} if "transparency" in image.info else {}
    pixels = pixels_of(encoded(image, kind, **options)).astype(int)
    assert abs(pixels[:, :2]).max() <= 3
    assert abs(pixels[:, 2:] - 255).max() <= 3


def test_half_transparent_pixels_are_mixed_with_white() -> None:
    pixels = pixels_of(encoded(Image.new("RGBA", (1, 1), (100, 0, 200, 128)), "PNG"))
    assert np.abs(pixels[0, 0].astype(int) - [177, 127, 227]).max() <= 1


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("1", "PNG"), ("L", "PNG"), ("P", "PNG"), ("RGB", "PNG"), ("CMYK", "TIFF"), ("YCbCr", "TIFF"), ("LAB", "TIFF"),
     ("P", "GIF"), ("P", "BMP"), ("L", "BMP"), ("1", "TIFF"), ("L", "JPEG"), ("CMYK", "JPEG"), ("RGB", "AVIF"),
     ("RGB", "WEBP"), ("RGBX", "TIFF")],
)  # fmt: skip
def test_black_and_white_are_so_in_every_mode(mode: str, kind: str) -> None:
    image = Image.new("RGB", (32, 32), "black")
    image.paste("white", (16, 0, 32, 32))
    pixels = pixels_of(encoded(image.convert(mode), kind)).astype(int)
    assert pixels.shape == (32, 32, 3)
    assert pixels[:, :16].max() <= 6
    assert pixels[:, 16:].min() >= 249


def test_grey_of_16_and_32_bits_keeps_its_range() -> None:
    ramp = np.arange(256, dtype=np.int64)[None]
    expected = np.repeat(ramp[..., None], 3, -1)
    for numbers in (ramp * 257, ramp):
        if numbers.max() > 255:
            for kind in ("PNG", "TIFF"):
                image = Image.fromarray(numbers.astype(np.uint16))
                assert np.array_equal(pixels_of(encoded(image, kind)), expected)
        for dtype in (np.int32, np.float32):
            assert np.array_equal(pixels_of(encoded(Image.fromarray(numbers.astype(dtype)), "TIFF")), expected)
    unit = Image.fromarray((ramp / 255).astype(np.float32))
    assert np.abs(pixels_of(encoded(unit, "TIFF")).astype(int) - expected).max() <= 1


def test_grey_of_any_floats_is_a_picture() -> None:
    for numbers in ([np.nan, np.inf, -np.inf, 3], [-3e38, 0, 1, 3e38], [-5, -4, -3, -2], [0, 0, 0, 0], [np.nan] * 4):
        image = Image.fromarray(np.array([numbers], np.float32))
        assert pixels_of(encoded(image, "TIFF")).shape == (1, 4, 3)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P"])
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_colours_of_a_profile_become_those_of_srgb(kind: str, mode: str) -> None:
    image = Image.new("RGB", (2, 2), (255, 0, 0)).convert(mode)
    pixels = pixels_of(encoded(image, kind, icc_profile=profile()))
    assert np.abs(pixels.astype(int) - [0, 0, 255]).max() <= 2


def test_a_profile_of_srgb_changes_no_number() -> None:
    # It is swapped, so that a conversion would be seen.
    data = encoded(photo(), "PNG", icc_profile=profile("sRGB IEC61966"))
    assert np.array_equal(pixels_of(data), drawn(37, 23))


@pytest.mark.parametrize("given", [b"garbage", b"\0" * 128, profile()[:200], profile()[:-40]])
def test_a_damaged_profile_is_left_out(given: bytes) -> None:
    assert np.array_equal(pixels_of(encoded(photo(), "PNG", icc_profile=given)), drawn(37, 23))


def test_a_profile_of_other_colours_is_left_out() -> None:
    grey = pixels_of(encoded(photo().convert("L"), "PNG", icc_profile=profile()))
    assert np.array_equal(grey[..., 0], np.asarray(photo().convert("L")))


@pytest.mark.parametrize("size", [(1, 1), (20_000, 1), (1, 20_000)])
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "TIFF"])
def test_the_smallest_and_the_longest_images_are_read(size: tuple[int, int], kind: str) -> None:
    assert pixels_of(encoded(Image.new("RGB", size, "teal"), kind)).shape == (size[1], size[0], 3)


@pytest.mark.parametrize("size", [(60_000, 60_000), (100_000_001, 1), (2**31 - 1, 2**31 - 1)])
def test_more_than_100_megapixels_are_refused_before_decoding(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load", lambda _image: pytest.fail("decoded"))
    with pytest.raises(ImageRefusedError, match=r"a picture has [\d,]+ megapixels, and rdchat reads images up to 100"):
        decoded(png_of(*size, zlib.compress(bytes(99))), "a picture")


def test_what_is_cut_off_is_called_damaged() -> None:
    for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"):
        data = encoded(photo(), kind)
        with pytest.raises(ImageRefusedError, match="a picture is damaged"):
            decoded(data[: len(data) * 2 // 3], "a picture")


@pytest.mark.parametrize("kind", ["PPM", "TGA", "ICO", "PDF", "EPS", "JPEG2000", "PCX", "DDS"])
def test_other_formats_are_refused(kind: str) -> None:
    with pytest.raises(ImageRefusedError, match="no PNG, JPEG"):
        decoded(encoded(photo(32, 32), kind), "a picture")
