"""GGUF files made to hang or fill the memory: each gives a message before anything is read."""

import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from rdchat.errors import ModelError
from rdchat.inference.models.gguf_header import read_gguf_header
from rdchat.inference.models.gguf_import import convert_gguf
from rdchat.inference.models.model_files import check_model_folder
from tests.grids import share
from tests.inference.gguf_samples import write_gguf
from tests.time_limits import at_most

U8, U32, I32, F32, BOOL, STRING, ARRAY = 0, 4, 5, 6, 7, 8, 9


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: bytes, sizes: tuple[int, ...], kind: int = 0, place: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, place)


def header(
    pairs: Sequence[bytes] = (), tensors: Sequence[bytes] = (), announced: tuple[int, int] | None = None
) -> bytes:
    """Return a file's first bytes; `announced` sets other numbers of tensors and pairs than there are."""
    numbers = announced or (len(tensors), len(pairs))
    return b"GGUF" + struct.pack("<IQQ", 3, *numbers) + b"".join(pairs) + b"".join(tensors)


def array(kind: int, count: int, items: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + items


HOSTILE: dict[str, tuple[bytes, str]] = {
    "tensors without end": (header(announced=(2**60, 0)), "it lists 1,152,921,504,606,846,976 tensors"),
    "pairs without end": (header(announced=(0, 2**60)), "it lists 1,152,921,504,606,846,976 metadata pairs"),
    "fewer pairs than announced": (header(announced=(0, 7)), "it ends within its header"),
    "a key of 2**62 bytes": (header([struct.pack("<Q", 2**62)]), "one of its texts is 4,611,686,018,427,387,904 bytes"),
    "a text of 2**62 bytes": (header([pair(b"a", STRING, struct.pack("<Q", 2**62))]), "one of its texts is"),
    "a key that is no text": (header([pair(b"\xff", U8, b"1")]), "one of its texts is not UTF-8"),
    "an unknown type": (header([pair(b"a", 99, b"")]), "the type of 'a' is unknown"),
    "2**60 items": (header([pair(b"a", ARRAY, array(U8, 2**60))]), "'a' has 1,152,921,504,606,846,976 items"),
    "2**60 texts": (header([pair(b"a", ARRAY, array(STRING, 2**60))]), "'a' has"),
    "items that are not there": (header([pair(b"a", ARRAY, array(F32, 1_000_000))]), "it ends within its header"),
    "an item of 2**62 bytes": (
        header([pair(b"a", ARRAY, array(STRING, 1, struct.pack("<Q", 2**62)))]),
        "it ends within its header",
    ),
    "arrays of arrays": (header([pair(b"a", ARRAY, array(ARRAY, 1))]), "the type of the items of 'a' is unknown"),
    "alignment 0": (
        header([pair(b"general.alignment", U32, struct.pack("<I", 0))]),
        "its alignment is not a power of two",
    ),
    "alignment 3": (
        header([pair(b"general.alignment", U32, struct.pack("<I", 3))]),
        "its alignment is not a power of two",
    ),
    "alignment 2**31": (header([pair(b"general.alignment", U32, struct.pack("<I", 2**31))]), "its alignment is no"),
    "no dimension": (header(tensors=[tensor(b"t", ())]), "its tensor 't' has 0 dimensions"),
    "2**32 dimensions": (header(tensors=[text(b"t") + b"\xff" * 4]), "its tensor 't' has 4,294,967,295 dimensions"),
    "sizes that overflow": (header(tensors=[tensor(b"t", (2**31 - 1,) * 4)]), "does not lie within the file"),
    "sizes of 2**63": (header(tensors=[tensor(b"t", (2**63,))]), "its tensor 't' has an impossible shape"),
    "a size of 0": (header(tensors=[tensor(b"t", (0, 4))]), "its tensor 't' has an impossible shape"),
    "half a block": (header(tensors=[tensor(b"t", (33,), kind=2)]), "its tensor 't' has an impossible shape"),
    "an unknown type of weights": (header(tensors=[tensor(b"t", (4,), kind=999)]), "the type of its tensor 't'"),
    "a place beyond the end": (header(tensors=[tensor(b"t", (4,), place=2**62)]), "does not lie within the file"),
    "a place in between": (header(tensors=[tensor(b"t", (4,), place=1)]), "does not lie within the file"),
    "tensors in one place": (
        header(tensors=[tensor(b"t", (8,)), tensor(b"u", (8,))]) + bytes(200),
        "its tensor 'u' overlaps another one",
    ),
    "weights that are not there": (header(tensors=[tensor(b"t", (8,))]), "it has 57 of 96 bytes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_headers_that_announce_what_is_not_there(name: str, tmp_path: Path) -> None:
    data, words = HOSTILE[name]
    (tmp_path / "model.gguf").write_bytes(data)
    with at_most(60), pytest.raises(ModelError) as caught:
        convert_gguf(tmp_path / "model.gguf", tmp_path, lambda _: None)
    assert caught.value.message.startswith(f"{tmp_path / 'model.gguf'} is damaged or cut short: ")
    assert words in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (os.mkfifo, "is a named pipe, not a file"),
        (lambda place: place.symlink_to("/dev/zero"), "is a device, not a file"),
        (lambda place: place.symlink_to(place.name), "cannot be read"),
        (lambda place: place.write_bytes(b""), "is not a GGUF file"),
        (lambda place: place.write_bytes(b"GGUF"), "version 0"),
    ],
)
def test_what_is_no_gguf_file(tmp_path: Path, make: Callable[[Path], object], words: str) -> None:
    make(tmp_path / "model.gguf")
    with at_most(60), pytest.raises(ModelError, match=words):
        read_gguf_header(tmp_path / "model.gguf")


def patched(path: Path, key: bytes, value: bytes) -> Path:
    """Overwrite the value behind a key and its type."""
    data = bytearray(path.read_bytes())
    place = data.index(text(key)) + 8 + len(key) + 4
    data[place : place + len(value)] = value
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("key", "value", "words"),
    share(
        [
            ("llama.attention.head_count", 0, "'llama.attention.head_count' is 0"),
            ("llama.attention.head_count_kv", 0, "'llama.attention.head_count_kv' is 0"),
            ("llama.attention.head_count", 2**32 - 1, "'llama.attention.head_count' is 4294967295"),
            ("llama.attention.head_count", 2**31 - 1, "'llama.attention.key_length' is 0"),
            ("llama.attention.head_count_kv", 2**31 - 1, "does not have the number of rows of its heads"),
            ("llama.attention.head_count", 85, "Its heads have the odd size 3"),
            ("llama.block_count", 10**9, "Its metadata says 1,000,000,000 layers, but it has tensors of 2"),
            ("llama.block_count", 0, "'llama.block_count' is 0"),
            ("llama.context_length", 0, "'llama.context_length' is 0"),
            ("llama.embedding_length", 0, "'llama.embedding_length' is 0"),
            ("llama.feed_forward_length", 2**31, "'llama.feed_forward_length' is 2147483648"),
            ("llama.rope.freq_base", struct.pack("<f", float("inf")), "'llama.rope.freq_base' is inf"),
            ("llama.attention.layer_norm_rms_epsilon", struct.pack("<f", -1.0), "layer_norm_rms_epsilon' is -1.0"),
            ("tokenizer.ggml.bos_token_id", 10**6, "Its 'bos_token_id' is 1000000, which is not one of its tokens"),
        ],
        4,
    ),
)
def test_metadata_with_numbers_that_cannot_be(tmp_path: Path, key: str, value: int | bytes, words: str) -> None:
    """No heads were a division by zero; two billion of them a list of as many rows."""
    source = write_gguf(tmp_path / "model.gguf")
    patched(source, key.encode(), value if isinstance(value, bytes) else struct.pack("<I", value))
    (tmp_path / "out").mkdir()
    with at_most(60), pytest.raises(ModelError) as caught:
        convert_gguf(source, tmp_path / "out", lambda _: None)
    assert words in caught.value.message


def test_metadata_of_another_kind(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "model.gguf")
    data = source.read_bytes()
    key = text(b"llama.block_count")
    source.write_bytes(data.replace(key + struct.pack("<I", U32), key + struct.pack("<I", F32)))
    (tmp_path / "out").mkdir()
    with pytest.raises(ModelError, match=r"'llama\.block_count' is 2\.80"):
        convert_gguf(source, tmp_path / "out", lambda _: None)


def test_a_table_of_one_dimension(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "model.gguf", extra={"token_embd.weight": np.ones(256, np.float32)})
    (tmp_path / "out").mkdir()
    with pytest.raises(ModelError, match=r"It has no table 'token_embd\.weight'"):
        convert_gguf(source, tmp_path / "out", lambda _: None)


@pytest.mark.slow
def test_what_a_good_file_becomes_passes_the_check(tmp_path: Path, model_gguf: Path) -> None:
    read_gguf_header(model_gguf)
    (tmp_path / "out").mkdir()
    convert_gguf(write_gguf(tmp_path / "model.gguf"), tmp_path / "out", lambda _: None)
    assert check_model_folder(tmp_path / "out").sizes.parameters > 0
