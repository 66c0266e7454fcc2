"""The safetensors format: eight bytes of header length, a JSON header, then the tensors' bytes back to back.

Headers are read without touching the weights, so that a damaged file is named in milliseconds. Files are written
tensor by tensor in a fixed order, so that equal tensors give equal bytes on every machine.
"""

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rdchat.errors import ModelError

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_DTYPE_NAMES = {np.dtype("<u4"): "U32", np.dtype("<f4"): "F32", np.dtype("<f2"): "F16"}
_ELEMENT_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}
_DAMAGED_HINT = "Download or convert the model again."


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """What a header says of one tensor: the format's name of its type, its shape, its size in bytes."""

    dtype: str
    shape: tuple[int, ...]
    stored_bytes: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """A tensor to be written; `data` is called when its turn comes, so that one at a time is in memory.

    Attributes:
        name: Name in the file.
        dtype: Little-endian uint32, float32 or float16.
        shape: Shape of what `data` returns.
        data: Makes the array, C-contiguous or not.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    data: Callable[[], npt.NDArray[Any]]

    @property
    def stored_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Read what a safetensors file holds and check that the file is as long as its header says.

    Raises:
        ModelError: If the file cannot be read, is no safetensors file, is cut short, or is longer than it should be.
    """
    try:
        actual = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            header_fits = 2 <= length <= min(_MAX_HEADER_BYTES, actual - _LENGTH_BYTES)
            raw = file.read(length) if header_fits else b""
            file.seek(0)
            start = file.read(20)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", "Check the file and its permissions.") from error
    if start.startswith(b"version https://git"):
        raise ModelError(f"{path} is a Git LFS pointer, not the weights.", "Run `git lfs pull` in its folder.")
    if not header_fits:
        raise ModelError(
            f"{path} is cut short or is no safetensors file: it is {actual:,} bytes long, too few for its own header.",
            _DAMAGED_HINT,
        )
    try:
        tensors, data_bytes = _parse_header(raw)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"The header of {path} is damaged.", _DAMAGED_HINT) from error
    expected = _LENGTH_BYTES + length + data_bytes
    if actual != expected:
        state = "cut short" if actual < expected else "longer than it should be"
        raise ModelError(f"{path} is {state}: {actual:,} of {expected:,} bytes.", _DAMAGED_HINT)
    return tensors


def _parse_header(raw: bytes) -> tuple[dict[str, StoredTensor], int]:
    """Return the tensors by name, and how many bytes they take together."""
    header = json.loads(raw)
    header.pop("__metadata__", None)
    tensors = {}
    data_bytes = 0
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensor = StoredTensor(entry["dtype"], tuple(int(size) for size in entry["shape"]), end - begin)
        width = _ELEMENT_BYTES.get(tensor.dtype)
        if begin < 0 or tensor.stored_bytes < 0 or (width and tensor.elements * width != tensor.stored_bytes):
            raise ValueError(name)
        tensors[name] = tensor
        data_bytes = max(data_bytes, end)
    return tensors, data_bytes


def write_tensors(
    path: Path, tensors: Sequence[PlannedTensor], on_progress: Callable[[float], None] = lambda _fraction: None
) -> None:
    """Write an MLX weight file: wide types first, so that every tensor is aligned, and by name within a type."""
    ordered = sorted(tensors, key=lambda tensor: (-tensor.dtype.itemsize, tensor.name))
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    total = 0
    for tensor in ordered:
        offsets = [total, total + tensor.stored_bytes]
        dtype = _DTYPE_NAMES[tensor.dtype]
        header[tensor.name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        total = offsets[1]
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    with path.open("wb") as file:
        file.write(len(raw).to_bytes(_LENGTH_BYTES, "little") + raw)
        for tensor in ordered:
            array = np.ascontiguousarray(tensor.data())
            assert array.shape == tensor.shape, tensor.name
            assert array.dtype == tensor.dtype, tensor.name
            file.write(array.data)
            on_progress((file.tell() - _LENGTH_BYTES - len(raw)) / max(total, 1))
        file.flush()
        os.fsync(file.fileno())
