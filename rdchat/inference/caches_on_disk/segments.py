"""Files of a KV cache on disk, for `disk_caches`: which arrays a file holds, and how it is written and read.

A row is what a layer keeps for one token: its key and value. A conversation's rows are cut into segments, a file for
each: blocks of `ROWS` tokens, and ends, which hold the rows behind the last block. An end has also the state of the
layers that cannot be trimmed, such as recurrent ones, since such a state is good for one position only.

The header of a file follows from the model, the tokens and the positions, and is known before the file is read, except
for the checksum of its numbers. So a file is used only if it has exactly this header, and no foreign header is parsed.
"""

import hashlib
import logging
import re
import shutil
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from rdchat.errors import ModelError
from rdchat.files import read_bytes, write_unflushed
from rdchat.inference.device import array_of, fetch
from rdchat.inference.models.safetensors_file import StoredTensor, header_bytes
from rdchat.inference.verification import (
    AttentionRows,
    KVCache,
    RoundArraysCache,
    RowBuffer,
    UnsupportedCacheError,
    has_all_rows,
    leaves,
)

_LOG = logging.getLogger(__name__)
ROWS = 128
"""Tokens of a block: for an 8B model in bfloat16 17 MB, which are copied in milliseconds."""
# The name of a segment's file.
_NAME = re.compile(r"(\d{1,9})-([0-9a-f]{32})\.(rows|end)", re.ASCII)
# Names of the types in a file's header.
_NAMES = {mx.float32: "F32", mx.float16: "F16", mx.bfloat16: "BF16", mx.int32: "I32", mx.uint32: "U32"}
_MLX_TYPES = {name: dtype for dtype, name in _NAMES.items()}


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a conversation's cache: a block of rows, or the rows behind the last block.

    Attributes:
        end: Position behind its last row: the number of tokens up to there.
        digest: Hash of all tokens of the conversation up to `end`.
        is_end: Whether a prompt or a reply ends there. Then it has also the state of the layers that cannot be trimmed.
    """

    end: int
    digest: str
    is_end: bool

    @classmethod
    def named(cls, name: str) -> "Segment | None":
        """Return the segment with this name; None for other files."""
        match = _NAME.fullmatch(name)
        return match and cls(int(match[1]), match[2], match[3] == "end")

    @property
    def start(self) -> int:
        """Position of its first row."""
        return (self.end - 1) // ROWS * ROWS

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.end}-{self.digest}.{'end' if self.is_end else 'rows'}"


def digests_of(tokens: Sequence[int], ends: Iterable[int]) -> dict[int, str]:
    """Return a hash of the first tokens, for each of some numbers of tokens (`ends`)."""
    data = np.array([*tokens], "<i8").tobytes()
    digest = hashlib.blake2b(digest_size=16)
    hashed = 0
    results = {}
    for end in sorted(ends):
        digest.update(data[8 * hashed : 8 * end])
        results[end] = digest.hexdigest()
        hashed = end
    return results


class CacheLayout:
    """The arrays of a model's KV cache in a fixed order, found by feeding it one token, and the files of its segments.

    A leaf is the cache of one layer. There are three kinds: with a row for each token (`has_all_rows`), with the rows
    of a window alone, and with recurrent state (`RoundArraysCache`). The last two make the state of an end.

    Args:
        network: The target.
        facts: All else that the numbers depend on, besides the tokens.

    Attributes:
        key: A hash of the facts and of the types and shapes of the arrays.
        has_state: Whether some cannot be trimmed: recurrent state, windows, chunks.
        row_arrays: Number of a segment's arrays that are rows; they come first.

    Raises:
        UnsupportedCacheError: If some of its caches cannot be kept.
    """

    def __init__(self, network: nn.Module, facts: object) -> None:
        cache = KVCache(network)
        mx.eval(network(mx.array([[0]]), cache=cache.layers))
        self._sample = leaves(cache.layers)
        if not all(isinstance(leaf, AttentionRows | RoundArraysCache) for leaf in self._sample):
            raise UnsupportedCacheError("its caches are not of a known type")
        states = [leaf.cache if isinstance(leaf, RoundArraysCache) else leaf.state for leaf in self._sample]
        # The header entries of each layer's arrays, None for an array that it does not have.
        self._arrays = [[*map(_entry, arrays)] for arrays in states]
        self.has_state = not all(map(has_all_rows, self._sample))
        self.row_arrays = sum(len(entries) for leaf, entries in self._parts() if has_all_rows(leaf))
        kinds = [(type(leaf).__name__, vars(leaf).get("_window"), entries) for leaf, entries in self._parts()]
        self.key = hashlib.blake2b(repr((facts, kinds)).encode(), digest_size=16).hexdigest()
        # Of the sample only the kinds and windows of the caches are still needed.
        for leaf in self._sample:
            if isinstance(leaf, AttentionRows):
                leaf.buffer = RowBuffer()

    def _parts(self, cache: KVCache | None = None) -> list[tuple[Any, list[StoredTensor | None]]]:
        """Return the caches of the layers, by default the sample's, each with the header entries of its arrays."""
        return list(zip(leaves(cache.layers) if cache else self._sample, self._arrays, strict=True))

    def tensors(self, segment: Segment) -> dict[str, StoredTensor]:
        """Return the entries of a segment's header, numbered: the rows of all layers, then at an end the states."""
        rows = list[StoredTensor]()
        state = list[StoredTensor]()
        for leaf, entries in self._parts():
            if has_all_rows(leaf):
                rows += [_with_rows(each, segment.end - segment.start) for each in entries if each]
            elif segment.is_end and isinstance(leaf, AttentionRows):
                state += [_with_rows(each, segment.end - leaf.first_needed(segment.end)) for each in entries if each]
            elif segment.is_end:
                state += [each for each in entries if each]
        return {str(number): tensor for number, tensor in enumerate(rows + state)}

    def copy_rows(self, cache: KVCache, segment: Segment) -> list[mx.array]:
        """Return a copy of a segment's rows, of the layers that have all of them."""
        copies = list[mx.array]()
        for leaf in leaves(cache.layers):
            if has_all_rows(leaf):
                copies += leaf.copy_from(segment.start, segment.end)
        return copies

    def copy_state(self, cache: KVCache) -> list[mx.array]:
        """Return a copy of the other layers' state after the cache's last token. Between calls, after `evaluate`."""
        state = list[mx.array]()
        position = len(cache.tokens)
        for leaf in leaves(cache.layers):
            if isinstance(leaf, RoundArraysCache):
                # Models replace these arrays, so they need no copy.
                state += [array for array in leaf.cache if array is not None]
            elif not has_all_rows(leaf):
                state += leaf.copy_from(leaf.first_needed(position))
        return state

    def append_rows(self, cache: KVCache, rows: list[mx.array]) -> None:
        """Append rows, as of `copy_rows`, to the layers that have all of them, and wait until they are there."""
        remaining = iter(rows)
        for leaf, entries in self._parts(cache):
            if has_all_rows(leaf):
                leaf.append([next(remaining) for _ in entries])
        mx.eval([leaf.state for leaf in leaves(cache.layers) if has_all_rows(leaf)])

    def cut(self, cache: KVCache) -> None:
        """Drop rows that `append_rows` added behind the cache's tokens, because the next file could not be used."""
        for leaf in leaves(cache.layers):
            if has_all_rows(leaf):
                leaf.trim(leaf.length - len(cache.tokens))

    def set_state(self, cache: KVCache, state: list[mx.array], position: int) -> None:
        """Replace the other layers' state by that of `copy_state` at a position."""
        remaining = iter(state)
        for leaf, entries in self._parts(cache):
            if isinstance(leaf, RoundArraysCache):
                leaf.cache = [each and next(remaining) for each in entries]
            elif not has_all_rows(leaf):
                leaf.replace_rows([next(remaining) for _ in entries], position)

    # Files

    def _header(self, segment: Segment, checksum: int) -> bytes:
        tensors = self.tensors(segment)
        return header_bytes(tensors, "rdchat", model=self.key, segment=segment.name, crc32=f"{checksum:08x}")

    def data(self, segment: Segment, arrays: list[mx.array]) -> bytes | None:
        """Return a segment's arrays as the bytes of its file; None if they have not the layout's shapes and types."""
        expected = [(each.dtype, each.shape) for each in self.tensors(segment).values()]
        if [(_NAMES.get(array.dtype), array.shape) for array in arrays] != expected:
            return None
        return b"".join(fetch(mx.contiguous(array).flatten().view(mx.uint8)).data for array in arrays)

    def write_segment(self, folder: Path, segment: Segment, data: bytes) -> None:
        """Write a segment's file; see `write_unflushed`."""
        write_unflushed(folder / segment.name, self._header(segment, zlib.crc32(data)), data)

    def read_segment(self, folder: Path, segment: Segment) -> list[mx.array] | None:
        """Return a segment's arrays; None without its file, and where it is not exactly as `write_segment` makes it.

        Such a file is removed.
        """
        path = folder / segment.name
        # The header is as long with any checksum.
        start = len(self._header(segment, 0))
        tensors = self.tensors(segment).values()
        size = start + sum(tensor.stored_bytes for tensor in tensors)
        try:
            raw = read_bytes(path, max_size=size)
        except ModelError:
            raw = b""
        if len(raw) != size or raw[:start] != self._header(segment, zlib.crc32(raw[start:])):
            with suppress(FileNotFoundError):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
                _LOG.warning("A damaged or foreign file was removed from the caches on disk")
            return None
        arrays = []
        for tensor in tensors:
            end = start + tensor.stored_bytes
            array = array_of(raw[start:end])
            arrays.append(array.view(_MLX_TYPES[tensor.dtype]).reshape(tensor.shape))
            start = end
        return arrays


def _entry(array: mx.array | None) -> StoredTensor | None:
    """Return an array's entry in a header."""
    if array is not None and array.dtype not in _NAMES:
        raise UnsupportedCacheError(f"its caches have the type {array.dtype}")
    return None if array is None else StoredTensor(_NAMES[array.dtype], array.shape, array.nbytes)


def _with_rows(tensor: StoredTensor, rows: int) -> StoredTensor:
    """Return the entry of an array with another number of rows, (1, heads, rows, width)."""
    shape = (*tensor.shape[:2], rows, tensor.shape[3])
    return replace(tensor, shape=shape, stored_bytes=tensor.stored_bytes // tensor.shape[2] * rows)
