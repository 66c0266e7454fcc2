"""The process that decodes images: no file harms the app, and nothing but pixels leaves it."""

import contextlib
import io
import os
import re
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as some
from PIL import Image, PngImagePlugin

from rdchat import host, mac_desktop
from rdchat.chat.attachments.kinds import begins_as_image, is_image
from rdchat.errors import ImageRefusedError, ModelError
from rdchat.inference.vision import pixels_child
from rdchat.inference.vision.image_process import ImageFacts, ImageProcess
from rdchat.inference.vision.processors import PROCESSORS
from rdchat.work.child_process import Limits
from rdchat.work.job import Job
from tests.inference.vision.pictures import drawn, encoded, photo, pixels_of, png_of, profile, stored
from tests.time_limits import at_most

SETTINGS = {"size": {"shortest_edge": 3136, "longest_edge": 1003520}}
KINDS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")


@pytest.fixture(scope="module")
def images() -> Iterator[ImageProcess]:
    process = ImageProcess()
    yield process
    process.child.close()


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_has_a_size_and_a_format(kind: str, images: ImageProcess, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = {} if kind in {"GIF", "BMP"} else {"exif": exif}
    name = "WebP" if kind == "WEBP" else kind
    expected = ImageFacts(23, 37, name) if turned else ImageFacts(37, 23, name)
    assert images.check_image(stored(tmp_path, photo(), kind, **turned)) == expected


def test_patches_come_whole_from_the_process(images: ImageProcess, tmp_path: Path) -> None:
    prepared = images.prepare(stored(tmp_path, photo(200, 90)), "qwen", SETTINGS, 64)
    expected = PROCESSORS["qwen"].prepare(drawn(200, 90), SETTINGS, 64)
    assert prepared.layout == expected.layout
    assert np.array_equal(prepared.patches, expected.patches)


@pytest.mark.parametrize(
    ("kind", "note"),
    [("GIF", "Only its first frame is used."), ("PNG", "Only its first frame is used."),
     ("WEBP", "Only its first frame is used."), ("AVIF", "Only its first frame is used."),
     ("TIFF", "Only its first page is used."), ("MPO", "")],
)  # fmt: skip
def test_of_several_pictures_the_first_is_used_and_named_so(
    kind: str, note: str, images: ImageProcess, tmp_path: Path
) -> None:
    """The others of a photo, as phones store them, are depths and brighter copies."""
    others = [Image.new("RGB", (37, 23), "red"), Image.new("RGB", (37, 23), "blue")]
    path = stored(tmp_path, photo(), kind, save_all=True, append_images=others)
    assert images.check_image(path).note == note
    with Image.open(path) as image:
        first = stored(tmp_path, image.convert("RGB"), "BMP")
    assert images.scale_image(path, (100, 100)) == images.scale_image(first, (100, 100))


def test_damage_behind_the_first_frame_does_no_harm(images: ImageProcess, tmp_path: Path) -> None:
    data = encoded(photo(), "GIF", save_all=True, append_images=[Image.new("RGB", (37, 23), "red")])
    (tmp_path / "a.gif").write_bytes(data[:-40])
    assert images.check_image(tmp_path / "a.gif").width == 37


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF", "AVIF", "GIF"])
def test_nothing_but_pixels_leaves_the_process(kind: str, images: ImageProcess, tmp_path: Path) -> None:
    exif = Image.Exif()
    texts = PngImagePlugin.PngInfo()
    exif[0x010E] = "at home"
    texts.add_text("Comment", "at home")
    more = {"exif": exif, "icc_profile": profile("sRGB at home", swapped=False)}
    more |= {"PNG": {"pnginfo": texts, "dpi": (300, 300)}, "JPEG": {"comment": b"at home", "dpi": (300, 300)}}.get(
        kind, {}
    )
    path = stored(tmp_path, photo(), kind, **({"comment": b"at home"} if kind == "GIF" else more))
    assert len(re.findall(b"at home|a\0t\0 \0h\0o\0m\0e", path.read_bytes())) >= (1 if kind == "GIF" else 2)
    data = images.scale_image(path, (1000, 1000))
    chunks = re.findall(rb"IHDR|IDAT|IEND|tEXt|iTXt|zTXt|eXIf|iCCP|pHYs|tIME", data)
    assert set(chunks) == {b"IHDR", b"IDAT", b"IEND"}
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), pixels_of(path.read_bytes()))


def test_a_drawing_is_scaled_down_and_never_up(images: ImageProcess, tmp_path: Path) -> None:
    path = stored(tmp_path, photo(300, 100))
    sizes = [Image.open(io.BytesIO(images.scale_image(path, size))).size for size in ((30, 30), (900, 900))]
    assert sizes == [(30, 10), (300, 100)]


@pytest.mark.parametrize("name", ["", "a\nb\x1b[31m.png", "x" * 3000])
def test_a_refusal_is_one_line_with_the_name(name: str, images: ImageProcess, tmp_path: Path) -> None:
    (tmp_path / "real.png").write_bytes(b"garbage")
    with pytest.raises(ImageRefusedError) as caught:
        images.check_image(tmp_path / "real.png", name=name)
    assert str(caught.value).isprintable()
    assert caught.value.message.startswith(name[:1] or "real.png")
    assert str(tmp_path) not in str(caught.value)


def test_what_is_no_file_is_refused_at_once(images: ImageProcess, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    large = tmp_path / "large.png"
    with large.open("wb") as file:
        file.truncate(50_000_001)
    for path in (tmp_path, tmp_path / "none", tmp_path / "empty", tmp_path / "pipe", Path("/dev/zero"), large):
        with at_most(60), pytest.raises(ImageRefusedError, match=re.escape(path.name)):
            images.check_image(path)
    with pytest.raises(ImageRefusedError, match="too large: 50 MB; the limit is 50 MB"):
        images.check_image(large)


@pytest.mark.skipif(host.MACOS, reason="a Mac reads it")
@pytest.mark.parametrize("brands", [b"heic\0\0\0\0mif1heic", b"mif1\0\0\0\0mif1heic"])
def test_heic_is_refused_with_a_remedy_where_the_system_cannot_read_it(
    brands: bytes, images: ImageProcess, tmp_path: Path
) -> None:
    (tmp_path / "a.heic").write_bytes(struct.pack(">I", 8 + len(brands)) + b"ftyp" + brands + bytes(99))
    with pytest.raises(ImageRefusedError, match=r"a HEIC image, which rdchat reads only on a Mac\. .*JPEG"):
        images.check_image(tmp_path / "a.heic")


@pytest.mark.parametrize("brand", b"heic heix heim heis hevc hevx hevm hevs mif1 msf1".split())
def test_heic_of_each_brand_is_converted_once_by_the_system(
    brand: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another program stands here for the one of a Mac; it keeps the turn in the TIFF."""
    path = tmp_path / "a.heic"
    other = tmp_path / "b.heic"
    converted = list[bytes]()
    path.write_bytes(b"\0\0\0\x10ftyp" + brand + bytes(99))
    other.write_bytes(path.read_bytes() + bytes(9))
    assert is_image(path), "it can be attached"

    def convert(image: Path, tiff: Path) -> bool:
        converted.append(image.read_bytes())
        turned = Image.Exif()
        turned[0x0112] = 6
        photo().save(tiff, "TIFF", exif=turned)
        return True

    monkeypatch.setattr(mac_desktop, "convert_to_tiff", convert)
    pixels_child._cached.clear()
    facts = pixels_child.look(Job(), str(path), "a.heic", str(tmp_path / "out"))
    assert facts == {"width": 23, "height": 37, "format": "HEIC", "note": ""}
    pixels_child.look(Job(), str(other), "b.heic", str(tmp_path / "out"))
    for size in ((10, 10), (100, 100)):
        pixels_child.draw(Job(), str(path), "a.heic", str(tmp_path / "out"), size)
    with Image.open(tmp_path / "out") as whole:
        assert whole.size == (23, 37)
    assert converted == [path.read_bytes(), other.read_bytes()]


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Return the data of each image that this process decodes."""
    found = list[bytes]()
    real = pixels_child.decoded

    def count(data: bytes, name: str) -> Image.Image:
        found.append(data)
        return real(data, name)

    monkeypatch.setattr(pixels_child, "decoded", count)
    pixels_child._cached.clear()
    yield found
    pixels_child._cached.clear()


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_that_is_looked_at_drawn_and_prepared_is_decoded_once(
    kind: str, decodings: list[bytes], tmp_path: Path
) -> None:
    """A chat's file is a copy of the one that was looked at."""
    path = stored(tmp_path, photo(90, 60), kind)
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    out = tmp_path / "out"
    pixels_child.look(Job(), str(path), "a", str(out))
    pixels_child.draw(Job(), str(copy), "b", str(out), (20, 20))
    pixels_child.prepare(Job(), str(copy), "b", str(out), processor="qwen", settings=SETTINGS, max_tokens=64)
    assert decodings == [path.read_bytes()]
    expected = PROCESSORS["qwen"].prepare(pixels_of(path.read_bytes()), SETTINGS, 64).patches
    assert np.array_equal(np.load(out), expected)
    pixels_child.forget(Job())
    assert not pixels_child._cached


def test_pixels_of_the_images_that_were_used_last_are_kept_within_a_limit(
    decodings: list[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Enough for two of the three.
    monkeypatch.setattr(pixels_child, "_CACHED_BYTES", 700)
    decoded = list[int]()
    for number in (0, 1, 0, 2, 0, 1):
        path = tmp_path / str(number)
        path.write_bytes(encoded(photo(10 + number, 10), "PNG"))
        before = len(decodings)
        pixels_child.look(Job(), str(path), "a", "")
        decoded += [number] * (len(decodings) - before)
    assert decoded == [0, 1, 2, 1]


def test_a_damaged_image_is_not_kept(decodings: list[bytes], tmp_path: Path) -> None:
    whole = encoded(photo(64, 64), "PNG")
    (tmp_path / "a").write_bytes(whole[: len(whole) // 2])
    for _ in range(2):
        with pytest.raises(ImageRefusedError):
            pixels_child.look(Job(), str(tmp_path / "a"), "a", "")
    assert len(decodings) == 2
    assert not pixels_child._cached


def test_no_process_starts_to_forget_images() -> None:
    process = ImageProcess()
    process.forget_images()
    assert process.child.starts == 0


def test_a_film_is_no_image_and_an_image_whose_own_brand_is_unknown_is_one() -> None:
    assert not begins_as_image(b"\0\0\0\x18ftypisom\0\0\0\0mp42avc1" + b"heic")
    assert begins_as_image(b"\0\0\0\x18ftypMiHE\0\0\0\0miafheic")
    assert begins_as_image(b"\0\0\0\x18ftypMA1B\0\0\0\0miafavif")


def test_settings_of_a_model_are_blamed_and_not_the_image(images: ImageProcess, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="settings for images are invalid"):
        images.prepare(stored(tmp_path, photo()), "qwen", {"patch_size": 0}, None)


def riff(*parts: bytes) -> bytes:
    body = b"WEBP" + b"".join(parts)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def packed_zeros(count: int) -> bytes:
    """Return zeros, compressed: a million of them, again and again."""
    packer = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    million = packer.compress(bytes(1_000_000)) + packer.flush(zlib.Z_FULL_FLUSH)
    rest = packer.compress(bytes(count % 1_000_000)) + packer.flush()
    # The first half of the checksum is the number of zeros.
    return zlib.compress(b"")[:2] + million * (count // 1_000_000) + rest + struct.pack(">HH", count % 65521, 1)


NOTHING = packed_zeros(100_000_000)
HOSTILE = {
    "bomb of text": png_of(1, 1, zlib.compress(bytes(4)), b"zTXtComment\0\0" + NOTHING),
    "bomb of a profile": png_of(1, 1, zlib.compress(bytes(4)), b"iCCPprofile\0\0" + NOTHING),
    "more pixels than its size": png_of(1, 1, NOTHING),
    "line of 2**31 pixels": png_of(2**31 - 1, 1, b""),
    "no pixels": png_of(0, 9, b""),
    "pages in a ring": b"II*\0\x08\0\0\0" + b"\0\0" + b"\x08\0\0\0",
    "65535 entries": b"II*\0\x08\0\0\0\xff\xff" + b"\0\x01\x04\0\xff\xff\xff\xff\x08\0\0\0" * 9,
    "strips of 4 GB": encoded(photo(), "TIFF").replace(struct.pack("<HHII", 279, 4, 1, 37 * 23 * 3),
                                                      struct.pack("<HHII", 279, 4, 1, 2**32 - 1)),
    "canvas of 2**48 pixels": riff(b"VP8X\x0a\0\0\0\x02\0\0\0" + b"\xff" * 6),
    "ring of boxes": b"\0\0\0\x14ftypmif1\0\0\0\0avif" + b"\0\0\0\0meta" * 9,
    "bitmap of 2**31 lines": b"BM" + struct.pack("<IIIIiiHHIIiiII", 54, 0, 54, 40, 9, -(2**31), 1, 24, *[0] * 6),
    "screen without size": b"GIF89a" + bytes(9) + b",\0\0\0\0\xff\xff\xff\xff\0\x08\0;",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_a_picture_or_is_refused(name: str, images: ImageProcess, tmp_path: Path) -> None:
    path = tmp_path / "hostile"
    path.write_bytes(HOSTILE[name])
    starts = images.child.starts
    with at_most(60), contextlib.suppress(ImageRefusedError):
        assert images.check_image(path).width < 100
    assert images.child.pid is not None, "it ended the process"
    assert images.child.starts <= max(starts, 1)


def test_an_image_that_takes_too_much_memory_or_time_is_ended(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.png"
    bomb.write_bytes(png_of(6_000, 6_000, packed_zeros((1 + 3 * 6_000) * 6_000)))
    assert bomb.stat().st_size < 500_000
    small = stored(tmp_path, photo(), "JPEG")
    for limits, words in (
        (Limits(60.0, 50 << 20), "more than 52 MB of memory"),
        (Limits(0.0, 2**31), "longer than"),
    ):
        process = ImageProcess(limits)
        with at_most(60), pytest.raises(ImageRefusedError, match=rf"bomb\.png took {words}"):
            process.check_image(bomb)
        # The next image has a process of its own.
        if limits.seconds == 60.0:
            assert process.check_image(small).width == 37
        process.child.close()


def test_waiting_ends_when_the_person_cancels(images: ImageProcess, tmp_path: Path) -> None:
    class CancelledByPersonError(Exception):
        pass

    def cancel() -> None:
        raise CancelledByPersonError

    path = stored(tmp_path, photo())
    images.check_image(path)
    pid = images.child.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # so that it does not answer before
    with pytest.raises(CancelledByPersonError):
        images.check_image(path, waiting=cancel)
    assert images.check_image(path).width == 37


@cache
def photo_file(kind: str) -> bytes:
    return encoded(photo(), kind)


@settings(max_examples=50)
@given(kind=some.sampled_from(KINDS), changes=some.lists(some.tuples(some.floats(0, 1), some.binary(max_size=4))))
def test_each_file_is_a_picture_or_is_refused_in_a_line(
    kind: str, changes: list[tuple[float, bytes]], images: ImageProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(photo_file(kind))
    for place, bytes_of in changes:
        at = int(place * len(data))
        data[at : at + len(bytes_of) or at + 9] = bytes_of
    path = tmp_path_factory.mktemp("harmed") / "harmed"
    path.write_bytes(data)
    refusal = None
    try:
        facts = images.check_image(path)
    except ImageRefusedError as error:
        refusal = error
    if refusal is None:
        assert facts.width * facts.height <= 100_000_000
    else:
        assert refusal.message.startswith("harmed ")
        assert str(refusal).isprintable()


def test_the_app_loads_no_pillow_and_the_child_no_mlx() -> None:
    for module, absent in (("image_process", {"PIL"}), ("pixels_child", {"mlx", "transformers"})):
        code = f"import sys, rdchat.inference.vision.{module}; print({absent} & {{*sys.modules}})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
        assert done.stdout == "set()\n"
