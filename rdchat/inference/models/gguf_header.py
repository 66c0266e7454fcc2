"""Reads and checks a GGUF file's header; the `gguf` package's own reader trusts every count and length in the file.

The format: a magic word, a version, the numbers of tensors and of metadata pairs, the pairs, then for each tensor its
name, dimensions, type and offset; then, aligned, the tensors' bytes. All numbers are little-endian.
"""

import math
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from gguf import GGMLQuantizationType
from gguf.constants import GGML_QUANT_SIZES

from rdchat.errors import ModelError
from rdchat.files.foreign_files import check_file, opened, read_errors
from rdchat.inference.models.safetensors_file import MAX_SIZE

_STRING = 8
_ARRAY = 9
_U32 = 4
# Formats of scalars.
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_MAX_TENSORS = 100_000
_MAX_PAIRS = 10_000
# Maximum of all arrays together: the largest vocabularies have 300,000 tokens and twice as many merges.
_MAX_ITEMS = 2_000_000
# Maximum of one text, such as a chat template.
_MAX_TEXT_BYTES = 2**20
_MAX_NAME_BYTES = 512
_MAX_HEADER_BYTES = 256 * 2**20
_MAX_DIMENSIONS = 4
_MAX_ALIGNMENT = 2**20
_HINT = "Download it again."
TYPES_HINT = "Convert the original model with `mlx_lm.convert`, or use a Q4_0, Q4_1, Q8_0 or F16 file of it."


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor's entry in the header.

    Attributes:
        offset: Offset of its first byte from the tensors' beginning.
    """

    name: str
    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    stored_bytes: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(slots=True)
class GgufHeader:
    """A checked header.

    Attributes:
        begin: Offset of the tensors' bytes.
    """

    metadata: dict[str, Any] = field(default_factory=dict)
    tensors: list[GgufTensor] = field(default_factory=list)
    begin: int = 0


class _DamagedError(Exception):
    """A problem of the header, as the end of a sentence."""


def read_gguf_header(source: Path) -> GgufHeader:
    """Read a GGUF file's header, and check that the file contains all that the header lists.

    Sizes in the file are checked against its length and the limits above before anything is allocated.

    Raises:
        ModelError: If it is not a regular file, cannot be read, is not a GGUF file of version 2 or 3, or is damaged.
    """
    size = check_file(source, "Check its path and permissions.")
    try:
        with read_errors(source), opened(source) as file:
            _check_start(source, file)
            return _HeaderReader(file, size).read()
    except _DamagedError as error:
        raise ModelError(f"{source} is damaged or cut short: {error}.", _HINT) from error


def _check_start(source: Path, file: BinaryIO) -> None:
    start = file.read(8)
    if start[:4] != b"GGUF":
        raise ModelError(f"{source} is not a GGUF file.", "Choose a model folder or a GGUF file.")
    version = int.from_bytes(start[4:], "little")
    if version not in {2, 3}:
        raise ModelError(f"{source} is a GGUF file of version {version}; only 2 and 3 can be read.", TYPES_HINT)


@dataclass(slots=True)
class _HeaderReader:
    """Reads the header from the version on.

    Attributes:
        size: Size of the file, in bytes.
        items: Number of array items so far.
        alignment: Alignment of the tensors' bytes.
    """

    file: BinaryIO
    size: int
    items: int = 0
    alignment: int = 32

    def read(self) -> GgufHeader:
        tensors = self._number("Q")
        pairs = self._number("Q")
        if tensors > _MAX_TENSORS:
            raise _DamagedError(f"it lists {tensors:,} tensors")
        if pairs > _MAX_PAIRS:
            raise _DamagedError(f"it lists {pairs:,} metadata pairs")
        header = GgufHeader()
        for _ in range(pairs):
            key = self._text(_MAX_NAME_BYTES)
            header.metadata.setdefault(key, self._value(key))
        header.tensors = [self._tensor() for _ in range(tensors)]
        header.begin = -(-self.file.tell() // self.alignment) * self.alignment
        if len({tensor.name for tensor in header.tensors}) < tensors:
            raise _DamagedError("two of its tensors have the same name")
        end = 0
        for tensor in sorted(header.tensors, key=lambda tensor: (tensor.offset, tensor.name)):
            if tensor.offset < end:
                raise _DamagedError(f"its tensor {tensor.name[:60]!r} overlaps another one")
            end = tensor.offset + tensor.stored_bytes
        if header.begin + end > self.size:
            raise _DamagedError(f"it has {self.size:,} of {header.begin + end:,} bytes")
        return header

    def _value(self, key: str) -> Any:
        kind = self._number("I")
        if kind == _ARRAY:
            return self._array(key)
        if kind == _STRING:
            return self._text(_MAX_TEXT_BYTES)
        if kind not in _FORMATS:
            raise _DamagedError(f"the type of {key[:60]!r} is unknown")
        value = self._number(_FORMATS[kind])
        if key == "general.alignment":
            if kind != _U32 or value.bit_count() != 1 or value > _MAX_ALIGNMENT:
                raise _DamagedError("its alignment is not a power of two")
            self.alignment = value
        return value

    def _array(self, key: str) -> list[Any]:
        kind = self._number("I")
        count = self._number("Q")
        self.items += count
        if self.items > _MAX_ITEMS:
            raise _DamagedError(f"{key[:60]!r} has {count:,} items")
        if kind == _STRING:
            return [self._text() for _ in range(count)]
        if kind not in _FORMATS:
            raise _DamagedError(f"the type of the items of {key[:60]!r} is unknown")
        return list(self._numbers(count, _FORMATS[kind]))

    def _tensor(self) -> GgufTensor:
        name = self._text(_MAX_NAME_BYTES)
        dimensions = self._number("I")
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            raise _DamagedError(f"its tensor {name[:60]!r} has {dimensions:,} dimensions")
        # The file has the innermost dimension first.
        sizes = self._numbers(dimensions, "Q")
        kind = self._number("I")
        offset = self._number("Q")
        try:
            stored = GGMLQuantizationType(kind)
            block, block_bytes = GGML_QUANT_SIZES[stored]
        except (ValueError, KeyError) as error:
            raise _DamagedError(f"the type of its tensor {name[:60]!r} is unknown") from error
        if not all(1 <= size <= MAX_SIZE for size in sizes) or sizes[0] % block:
            raise _DamagedError(f"its tensor {name[:60]!r} has an impossible shape")
        length = math.prod(sizes) // block * block_bytes
        if offset % self.alignment or offset + length > self.size:
            raise _DamagedError(f"its tensor {name[:60]!r} does not lie within the file")
        return GgufTensor(name, stored, sizes[::-1], offset, length)

    def _number(self, kind: str) -> Any:
        return self._numbers(1, kind)[0]

    def _numbers(self, count: int, kind: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{count}{kind}", self._bytes(count * struct.calcsize(f"<{kind}")))

    def _text(self, max_bytes: int | None = None) -> str:
        length = self._number("Q")
        if max_bytes is not None and length > max_bytes:
            raise _DamagedError(f"one of its texts is {length:,} bytes long")
        try:
            return self._bytes(length).decode()
        except UnicodeDecodeError as error:
            raise _DamagedError("one of its texts is not UTF-8") from error

    def _bytes(self, count: int) -> bytes:
        begin = self.file.tell()
        if count > self.size - begin:
            raise _DamagedError("it ends within its header")
        if begin + count > _MAX_HEADER_BYTES:
            raise _DamagedError(f"its header is longer than {_MAX_HEADER_BYTES:,} bytes")
        return self.file.read(count)
