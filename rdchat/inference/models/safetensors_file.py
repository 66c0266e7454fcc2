"""Reads and writes safetensors: eight bytes of header length, a JSON header, then the tensors' bytes back to back.

Headers are read without the weights, so that a damaged file is found in milliseconds. Files are written tensor by
tensor in a fixed order, so that equal tensors give equal bytes on every machine.

The library `safetensors` does not do this: it has one message for a file that is too short and for one that is too
long; it takes sizes that MLX cannot count; it gives no offsets; and it writes from tensors that are all in memory.
"""

import hashlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from rdchat.errors import ModelError
from rdchat.files import (
    REFETCH_HINT,
    check_file,
    opened,
    parse_json,
    read_bytes,
    read_errors,
    read_object,
)
from rdchat.paths import is_utf8

_LENGTH_BYTES = 8
# The format allows 100 MB; the largest models need 12 MB in one file.
MAX_HEADER_BYTES = 32 * 2**20
# The largest models have some 100,000 tensors.
MAX_TENSORS = 500_000
_MAX_ELEMENTS = 2**63 - 1
# MLX counts one dimension in 32 bits.
MAX_SIZE = 2**31 - 1
_MAX_DIMENSIONS = 32
_DTYPE_NAMES = {np.dtype("<u4"): "U32", np.dtype("<f4"): "F32", np.dtype("<f2"): "F16"}
_ELEMENT_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}

# Numbered weight files, any file that an index may list, and what mlx-lm does not read as weights.
_SHARD = re.compile(r"model-\d{1,20}-of-(\d{1,20})\.safetensors", re.ASCII)
_SHARD_NAME = re.compile(r"[^/\\\x00-\x1f]{1,200}\.safetensors")
_OTHER_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.npz", "*.h5", "*.msgpack", "*.safetensors")
# Most missing files that a message names.
_NAMED_SHARDS = 3
# The largest models have some 200 files.
_MAX_FILES = 2000

# Hashed samples of each weight file: 1 MB, spread evenly.
_SAMPLES = 256
_SAMPLE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor's entry in the header.

    Attributes:
        dtype: Name of its type in the format.
        stored_bytes: Number of its bytes.
        offset: Offset of its first byte in the file; 0 for a tensor that is yet to be written.
    """

    dtype: str
    shape: tuple[int, ...]
    stored_bytes: int
    offset: int = field(default=0, compare=False)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """A tensor to be written; `data` is called when it is written, so that only one tensor is in memory.

    Attributes:
        name: Name in the file.
        dtype: Little-endian uint32, float32 or float16.
        shape: Shape of the result of `data`.
        data: Makes the array, C-contiguous or not.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    data: Callable[[], npt.NDArray[Any]]

    @property
    def stored(self) -> StoredTensor:
        """The tensor's entry in the header."""
        return StoredTensor(_DTYPE_NAMES[self.dtype], self.shape, math.prod(self.shape) * self.dtype.itemsize)


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Read a safetensors header, and check that the file has the length in it.

    Sizes in the file are checked against its length before anything is allocated.

    Raises:
        ModelError: If the file is not a regular file, cannot be read, has a path that is not UTF-8, is not a
            safetensors file, is incomplete, or is too long; or if its tensors overlap or have impossible shapes.
    """
    actual = check_file(path)
    if not is_utf8(path):
        raise ModelError(
            f"{path} cannot be read: its path is not UTF-8 text, which MLX needs.", "Rename the file or its folders."
        )
    with read_errors(path), opened(path) as file:
        start = file.read(_LENGTH_BYTES)
        length = int.from_bytes(start, "little")
        raw = file.read(min(length, MAX_HEADER_BYTES))
    if (start + raw[:20]).startswith(b"version https://git"):
        raise ModelError(f"{path} is a Git LFS pointer, not the weights.", "Run `git lfs pull` in its folder.")
    if not 2 <= length <= actual - _LENGTH_BYTES:
        raise ModelError(
            f"{path} is incomplete or not a safetensors file: its {actual:,} bytes are fewer than its header needs.",
            REFETCH_HINT,
        )
    if length > MAX_HEADER_BYTES:
        raise ModelError(f"The header of {path} is too long: {length:,} bytes.", REFETCH_HINT)
    damaged = f"The header of {path} is damaged"
    tensors, expected = _tensors_in(parse_json(raw, damaged), _LENGTH_BYTES + length, damaged)
    if actual != expected:
        state = "incomplete" if actual < expected else "longer than it should be"
        raise ModelError(f"{path} is {state}: {actual:,} of {expected:,} bytes.", REFETCH_HINT)
    return tensors


def _tensors_in(header: Any, start: int, damaged: str) -> tuple[dict[str, StoredTensor], int]:
    """Return a header's tensors by name, and the length that the file must have.

    Args:
        header: The parsed JSON.
        start: Offset of the first tensor's bytes; the others follow back to back.
        damaged: Beginning of the error messages.

    Raises:
        ModelError: If a tensor is impossible, or does not begin where another one ends.
    """
    if not isinstance(header, dict) or len(header) > MAX_TENSORS:
        raise ModelError(f"{damaged}: it lists no tensors, or too many.", REFETCH_HINT)
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        tensor = _read_tensor(entry, start)
        if tensor is None:
            raise ModelError(f"{damaged}: {_short(name)} has an impossible shape or position.", REFETCH_HINT)
        tensors[name] = tensor
    end = start
    for begin, stored_bytes, name in sorted((each.offset, each.stored_bytes, name) for name, each in tensors.items()):
        if begin != end:
            raise ModelError(f"{damaged}: {_short(name)} does not follow the tensor before it.", REFETCH_HINT)
        end = begin + stored_bytes
    return tensors, end


def _read_tensor(entry: Any, start: int) -> StoredTensor | None:
    """Return the tensor of a header's entry; None where the entry is invalid or its number of bytes wrong."""
    if not isinstance(entry, dict) or not isinstance(dtype := entry.get("dtype"), str):
        return None
    shape = entry.get("shape")
    offsets = entry.get("data_offsets")
    if not (_are_sizes(shape, MAX_SIZE) and len(shape) <= _MAX_DIMENSIONS and _are_sizes(offsets, _MAX_ELEMENTS)):
        return None
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        return None
    tensor = StoredTensor(dtype, tuple(shape), offsets[1] - offsets[0], start + offsets[0])
    width = _ELEMENT_BYTES.get(dtype)
    if tensor.elements > _MAX_ELEMENTS or (width and tensor.elements * width != tensor.stored_bytes):
        return None
    return tensor


def _are_sizes(values: Any, limit: int) -> TypeGuard[list[int]]:
    """Return whether a value is a list of whole numbers from 0 to a limit."""
    return isinstance(values, list) and all(type(value) is int and 0 <= value <= limit for value in values)


def _short(name: str) -> str:
    """Return a foreign tensor's name for a message."""
    # Lone surrogates cannot be printed.
    text = name.encode("utf-8", "replace").decode()
    return text if len(text) <= 100 else text[:100] + "..."


def header_bytes(tensors: Mapping[str, StoredTensor], written_by: str, **facts: str) -> bytes:
    """Return the beginning of a file with these tensors back to back, in this order: its header with the length.

    Args:
        tensors: By name; their offsets do not matter.
        written_by: The file's `format`, such as `mlx`.
        facts: Further metadata.
    """
    header: dict[str, Any] = {"__metadata__": {"format": written_by, **facts}}
    total = 0
    for name, stored in tensors.items():
        offsets = [total, total + stored.stored_bytes]
        header[name] = {"dtype": stored.dtype, "shape": list(stored.shape), "data_offsets": offsets}
        total = offsets[1]
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return len(raw).to_bytes(_LENGTH_BYTES, "little") + raw


def write_tensors(path: Path, tensors: Sequence[PlannedTensor], on_progress: Callable[[float], None]) -> None:
    """Write an MLX weight file: wide types first, so that every tensor is aligned, then by name.

    `on_progress` gets the fraction that is written, after each tensor.
    """
    ordered = sorted(tensors, key=lambda tensor: (-tensor.dtype.itemsize, tensor.name))
    total = sum(tensor.stored.stored_bytes for tensor in ordered)
    head = header_bytes({tensor.name: tensor.stored for tensor in ordered}, "mlx")
    with path.open("wb") as file:
        file.write(head)
        for tensor in ordered:
            array = np.ascontiguousarray(tensor.data())
            assert array.shape == tensor.shape, tensor.name
            assert array.dtype == tensor.dtype, tensor.name
            file.write(array.data)
            on_progress((file.tell() - len(head)) / max(total, 1))
        file.flush()
        os.fsync(file.fileno())


def is_weights(path: Path) -> bool:
    """Return whether mlx-lm reads a file as weights."""
    return path.match("model*.safetensors")


def weight_files(folder: Path, entries: list[Path]) -> tuple[Path, ...]:
    """Return the files of a folder's weights, and check that none is missing.

    They are the files `model*.safetensors` that the index lists. Without an index, or with one that lists none of those
    here, they are all `model*.safetensors`. Without any such file, all that the index lists is missing.

    Args:
        folder: The model's folder.
        entries: The folder's entries.

    Raises:
        ModelError: If some or all are missing.
    """
    files = [path for path in entries if is_weights(path)]
    indexed = _indexed(folder / "model.safetensors.index.json")
    listed = [path for path in files if path.name in indexed]
    if listed or not files:
        files = listed
    else:
        # An index that lists only files that are gone is that of an earlier version, and does not count.
        indexed = set()
    missing = _missing_shards(indexed, files)
    if missing:
        raise ModelError(f"{folder} is incomplete: {missing}.", REFETCH_HINT)
    if len(files) > _MAX_FILES:
        raise ModelError(f"{folder} has more than {_MAX_FILES:,} files of weights.", REFETCH_HINT)
    if files:
        return tuple(files)
    others = [path.name for pattern in _OTHER_WEIGHTS for path in entries if path.match(pattern)]
    if others:
        raise ModelError(
            f"{folder} has its weights in {others[0]}, which mlx-lm cannot read.",
            f"Convert it first: `mlx_lm.convert --hf-path {folder} --mlx-path NEW_FOLDER`.",
        )
    raise ModelError(f"{folder} has no weights (model*.safetensors).", REFETCH_HINT)


def _missing_shards(indexed: set[str], files: list[Path]) -> str:
    """Return which weight files are missing, by the index or by the numbers in the others' names; empty for none."""
    names = {path.name for path in files}
    if missing := sorted(indexed - names):
        named = ", ".join(missing[:_NAMED_SHARDS])
        more = f" and {len(missing) - _NAMED_SHARDS:,} more" if len(missing) > _NAMED_SHARDS else ""
        return f"{named}{more} {'is' if len(missing) == 1 else 'are'} missing"
    for count, present in Counter(match[1] for name in names if (match := _SHARD.fullmatch(name))).items():
        if present < int(count):
            return f"it has {present:,} of {int(count):,} files of weights"
    return ""


def _indexed(index: Path) -> set[str]:
    """Return the names of the weight files that an index lists; each must be in its folder."""
    if not index.exists():
        return set()
    files = read_object(index).get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise ModelError(f"{index} is damaged.", REFETCH_HINT)
    names = set(files.values())
    for name in names:
        if not _SHARD_NAME.fullmatch(name):
            raise ModelError(f"{index} has an invalid file name: {name[:100]!r}.", REFETCH_HINT)
    return names


def read_headers(folder: Path, files: Sequence[Path]) -> dict[str, StoredTensor]:
    """Return the tensors of all weight files of a folder by name; see `read_header`.

    Raises:
        ModelError: If a header is damaged, two files have the same tensor, or they have too many tensors or none.
    """
    tensors: dict[str, StoredTensor] = {}
    for path in files:
        header = read_header(path)
        if twice := tensors.keys() & header.keys():
            raise ModelError(
                f"{folder} has the tensor {_short(min(twice))} twice: in {path.name} and in another file.",
                "Remove the files that belong to another version of the model.",
            )
        tensors |= header
        if len(tensors) > MAX_TENSORS:
            raise ModelError(f"{folder} has more than {MAX_TENSORS:,} tensors.", REFETCH_HINT)
    if not any(tensor.elements for tensor in tensors.values()):
        raise ModelError(f"{folder} has no weights: its files are empty.", REFETCH_HINT)
    return tensors


def target_hash(model_folder: Path) -> str:
    """Return a hash of a model's stored weights and tokenizer, whatever precision they are loaded in.

    It covers names, types, shapes and offsets of all tensors, 1 MB of each weight file, and the whole `tokenizer.json`.
    It takes milliseconds, and distinguishes a fine-tuned model from its base.

    Raises:
        ModelError: If a file cannot be read.
    """
    digest = hashlib.sha256()
    with read_errors(model_folder):
        # These are the files that mlx-lm reads.
        for path in sorted(model_folder.glob("model*.safetensors")):
            check_file(path)
            for block in _samples(path):
                digest.update(block)
        tokenizer = model_folder / "tokenizer.json"
        digest.update(read_bytes(tokenizer) if tokenizer.exists() else b"")
    return digest.hexdigest()


def _samples(path: Path) -> Iterator[bytes]:
    """Yield what `target_hash` covers of a weight file: its header, and samples spread evenly."""
    size = path.stat().st_size
    with opened(path) as file:
        length = file.read(8)
        # In a damaged file this may be any number.
        header = min(int.from_bytes(length, "little"), size, MAX_HEADER_BYTES)
        yield length + file.read(header)
        for sample in range(_SAMPLES):
            file.seek(max(size - _SAMPLE_BYTES, 0) * sample // (_SAMPLES - 1))
            yield file.read(_SAMPLE_BYTES)
