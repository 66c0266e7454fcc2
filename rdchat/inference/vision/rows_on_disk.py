"""The rows of images on disk, one file for each image in the folder of its chat's caches: they go when these go.

A file is in safetensors' format. Its header has a checksum of the data and the file's own name, and is compared whole.
The name is a hash of the image's key, the device and the programs, so no other version's rows are read.
"""

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import hashlib
import logging
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx

from rdchat.errors import ModelError
from rdchat.files import read_bytes, write_unflushed
from rdchat.files.cache_folders import make_room
from rdchat.inference.api import CacheFolder
from rdchat.inference.device import array_of, cpu_kernels, fetch
from rdchat.inference.models.safetensors_file import StoredTensor, header_bytes
from rdchat.inference.models.stored_facts import stamp_of

_LOG = logging.getLogger(__name__)
_FOLDER = "images"
_TYPES = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}
_MAX_HEADER_BYTES = 10_000


def read_rows(keep: CacheFolder, key: str, shape: tuple[int, int], number: int) -> list[mx.array] | None:
    """Return the arrays of an image; None without its file, or where that is not just as `write_rows` makes it.

    Such a file is deleted, so that it can be written anew.

    Args:
        keep: The chat's.
        key: Hash of all that decides the rows, but for the programs.
        shape: Of each array.
        number: Of arrays: the image's rows, and one more for each layer that gets features of its own.
    """
    path = _path(keep, key)
    count = number * shape[0] * shape[1]
    try:
        raw = read_bytes(path, max_size=4 * count + _MAX_HEADER_BYTES)
        # The folder's time is that of its last use: `make_room` deletes the oldest first.
        os.utime(path.parent)
    except (ModelError, OSError):
        return None
    # The type is not known: the file is right if it is what `write_rows` makes of its data in one of the types.
    for name, dtype in _TYPES.items():
        data = raw[-count * dtype.size :]
        if raw == _header(path, name, [shape] * number, data) + data:
            return [*array_of(data).view(dtype).reshape(number, *shape)]
    with suppress(OSError):
        path.unlink()
    return None


def write_rows(keep: CacheFolder, key: str, arrays: Sequence[mx.array]) -> None:
    """Write the arrays of an image, all of one type, if there is room."""
    path = _path(keep, key)
    kinds = {array.dtype for array in arrays}
    kind = next((name for name, dtype in _TYPES.items() if kinds == {dtype}), None)
    if kind is None:
        return
    data = b"".join(fetch(mx.contiguous(array).flatten().view(mx.uint8)).data for array in arrays)
    header = _header(path, kind, [array.shape for array in arrays], data)
    try:
        # Not its parents: the chat may be deleted, or its caches cleared.
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if make_room(keep.path.parent, keep.limit_bytes, len(header) + len(data), spared=path.parent):
            write_unflushed(path, header, data)
    except FileNotFoundError:
        pass
    except OSError as error:
        _LOG.warning("The rows of an image are not kept on disk: %s", error.strerror)


def _path(keep: CacheFolder, key: str) -> Path:
    facts = key, str(mx.default_device()), *_programs()
    return keep.path / _FOLDER / hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()


@cache
def _programs() -> tuple[str, ...]:
    """Return what stands for the programs that compute rows: MLX's version, a CPU's kernels, a stamp of this folder."""
    return version("mlx"), cpu_kernels(), stamp_of(Path(__file__).parent).digest


def _header(path: Path, dtype: str, shapes: Sequence[tuple[int, ...]], data: bytes) -> bytes:
    """Return the header of a file with arrays of one type, whose bytes are `data`."""
    size = len(data) // len(shapes)
    tensors = {str(number): StoredTensor(dtype, shape, size) for number, shape in enumerate(shapes)}
    return header_bytes(tensors, "rdchat", image=path.name, crc32=f"{zlib.crc32(data):08x}")
