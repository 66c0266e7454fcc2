"""Checks a GGUF file's header before the `gguf` package reads it, which trusts every count and length in it.

The format: the magic word, a version, the numbers of tensors and of metadata pairs, the pairs, then of each tensor its
name, dimensions, type and place; then, aligned, the tensors' bytes. All numbers are little-endian.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from gguf import GGMLQuantizationType
from gguf.constants import GGML_QUANT_SIZES

from rdchat.errors import ModelError
from rdchat.files.foreign_files import check_file

_STRING, _ARRAY, _U32 = 8, 9, 4
_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of the scalar types, in bytes
_UNSIGNED = {0, 2, _U32, 10}
_MOST_TENSORS = 100_000
_MOST_PAIRS = 10_000
_MOST_ITEMS = 2_000_000  # of all arrays together: the largest vocabularies have 300,000 tokens and twice the merges
_MOST_TEXT_BYTES = 2**20  # of one text, such as a chat template
_MOST_NAME_BYTES = 512
_MOST_HEADER_BYTES = 256 * 2**20
_MOST_DIMENSIONS = 4
_MOST_SIZE = 2**31 - 1
_MOST_ALIGNMENT = 2**20
_ALIGNMENT = 32
_HINT = "Download it again."
_TYPES_HINT = "Convert the original model with `mlx_lm.convert`, or use a Q4_0, Q4_1, Q8_0 or F16 file of it."


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor by its entry: the type that its weights are stored in, and how many there are."""

    name: str
    kind: GGMLQuantizationType
    sizes: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """A checked header.

    Attributes:
        architecture: Such as `llama`; empty where it is not named.
        numbers: The metadata's whole numbers, by key.
        tensors: All of them.
    """

    architecture: str
    numbers: Mapping[str, int]
    tensors: tuple[GgufTensor, ...]


class _DamagedError(Exception):
    """What is wrong with the header, as the end of a sentence."""


def check_gguf(source: Path) -> GgufHeader:
    """Check that a GGUF file's header holds together and that the file has all that it announces.

    Nothing is allocated by what the file says.

    Returns:
        What it says.

    Raises:
        ModelError: If it is no regular file, cannot be read, is no GGUF file of version 2 or 3, or is damaged.
    """
    size = check_file(source, "Check its name and permissions.")
    try:
        with source.open("rb") as file:
            _check_start(source, file)
            return _Header(file, size).check()
    except OSError as error:
        raise ModelError(f"{source} cannot be read: {error.strerror}.", "Check its name and permissions.") from error
    except _DamagedError as error:
        raise ModelError(f"{source} is damaged or cut short: {error}.", _HINT) from error


def _check_start(source: Path, file: BinaryIO) -> None:
    start = file.read(8)
    if start[:4] != b"GGUF":
        raise ModelError(f"{source} is no GGUF file.", "Choose a model folder or a GGUF file.")
    version = int.from_bytes(start[4:], "little")
    if version not in {2, 3}:
        raise ModelError(f"{source} is a GGUF file of version {version}; only 2 and 3 can be read.", _TYPES_HINT)


@dataclass(slots=True)
class _Header:
    """Reads on behind the version.

    Attributes:
        file: The file.
        size: Its bytes.
        items: How many items of arrays were met.
        alignment: Of the tensors' bytes.
    """

    file: BinaryIO
    size: int
    items: int = 0
    alignment: int = _ALIGNMENT
    architecture: str = ""
    numbers: dict[str, int] = field(default_factory=dict)
    tensors: list[GgufTensor] = field(default_factory=list)

    def check(self) -> GgufHeader:
        tensors, pairs = self._number(8), self._number(8)
        if tensors > _MOST_TENSORS:
            raise _DamagedError(f"it announces {tensors:,} tensors")
        if pairs > _MOST_PAIRS:
            raise _DamagedError(f"it announces {pairs:,} metadata pairs")
        for _ in range(pairs):
            self._pair()
        places = [self._tensor() for _ in range(tensors)]
        begin = -(-self.file.tell() // self.alignment) * self.alignment
        end = 0
        for place, name, length in sorted(places):
            if place < end:
                raise _DamagedError(f"its tensor {name[:60]!r} overlaps another one")
            end = place + length
        if begin + end > self.size:
            raise _DamagedError(f"it has {self.size:,} of {begin + end:,} bytes")
        return GgufHeader(self.architecture, self.numbers, tuple(self.tensors))

    def _pair(self) -> None:
        key = self._text(_MOST_NAME_BYTES)
        kind = self._number(4)
        if kind == _ARRAY:
            self._array(key)
        elif kind == _STRING:
            text = self._text(_MOST_TEXT_BYTES)
            if key == "general.architecture":
                self.architecture = text[:_MOST_NAME_BYTES]
        elif kind in _WIDTHS:
            value = self._number(_WIDTHS[kind])
            if kind in _UNSIGNED:
                self.numbers[key] = value
            if key == "general.alignment":
                self._align(kind, value)
        else:
            raise _DamagedError(f"the type of {key[:60]!r} is unknown")

    def _align(self, kind: int, value: int) -> None:
        if kind != _U32 or value.bit_count() != 1 or value > _MOST_ALIGNMENT:
            raise _DamagedError("its alignment is no power of two")
        self.alignment = value

    def _array(self, key: str) -> None:
        kind, count = self._number(4), self._number(8)
        self.items += count
        if self.items > _MOST_ITEMS:
            raise _DamagedError(f"{key[:60]!r} has {count:,} items")
        if kind == _STRING:
            for _ in range(count):
                self._skip_text()
        elif kind in _WIDTHS:
            self._skip(count * _WIDTHS[kind])
        else:
            raise _DamagedError(f"the type of the items of {key[:60]!r} is unknown")

    def _tensor(self) -> tuple[int, str, int]:
        """Return where a tensor begins, behind the header, its name, and how many bytes it takes."""
        name = self._text(_MOST_NAME_BYTES)
        dimensions = self._number(4)
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            raise _DamagedError(f"its tensor {name[:60]!r} has {dimensions:,} dimensions")
        sizes = [self._number(8) for _ in range(dimensions)]
        kind, place = self._number(4), self._number(8)
        try:
            stored = GGMLQuantizationType(kind)
            block, block_bytes = GGML_QUANT_SIZES[stored]
        except (ValueError, KeyError) as error:
            raise _DamagedError(f"the type of its tensor {name[:60]!r} is unknown") from error
        if not all(1 <= size <= _MOST_SIZE for size in sizes) or sizes[0] % block:
            raise _DamagedError(f"its tensor {name[:60]!r} has a shape that cannot be")
        length = block_bytes * (sizes[0] // block)
        for size in sizes[1:]:
            length *= size
        if place % self.alignment or place + length > self.size:
            raise _DamagedError(f"its tensor {name[:60]!r} does not lie within the file")
        self.tensors.append(GgufTensor(name, stored, tuple(sizes)))
        return place, name, length

    def _number(self, width: int) -> int:
        return int.from_bytes(self._bytes(width), "little")

    def _text(self, most: int) -> str:
        length = self._number(8)
        if length > most:
            raise _DamagedError(f"one of its texts is {length:,} bytes long")
        try:
            return self._bytes(length).decode()
        except UnicodeDecodeError as error:
            raise _DamagedError("one of its texts is not UTF-8") from error

    def _skip_text(self) -> None:
        self._skip(self._number(8))

    def _bytes(self, count: int) -> bytes:
        data = self.file.read(count)
        if len(data) < count:
            raise _DamagedError("it ends within its header")
        return data

    def _skip(self, count: int) -> None:
        begin = self.file.tell()
        if count > self.size - begin:
            raise _DamagedError("it ends within its header")
        if begin + count > _MOST_HEADER_BYTES:
            raise _DamagedError(f"its header is longer than {_MOST_HEADER_BYTES:,} bytes")
        self.file.seek(count, os.SEEK_CUR)
