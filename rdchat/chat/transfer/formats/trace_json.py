"""Traces as plain JSON: what `trace_format` packs, unpacked, so that others can read it.

A trace is a list of streams, one for each time that the reply was written on; a stream is the list of its lines.
"""

import json
import zlib
from typing import Any

from rdchat.chat.trace_format import decode

_MOST_BYTES = 64 << 20  # as `trace_format` reads
_LEAST = -1e308  # in the place of a log-probability of minus infinity, which only Python's JSON has


def plain_trace(packed: bytes) -> list[list[Any]] | None:
    """Return the lines of each stream; None where they are damaged or of a version that is not known."""
    if decode(packed) is None:
        return None
    streams = []
    while packed:
        unpacker = zlib.decompressobj()
        lines = unpacker.decompress(packed, _MOST_BYTES)
        streams.append([json.loads(line, parse_constant=lambda _: _LEAST) for line in lines.splitlines()])
        packed = unpacker.unused_data
    return streams


def packed_trace(plain: Any) -> bytes | None:
    """Return a trace as the store keeps it; None where `plain` is none."""
    if not isinstance(plain, list) or not plain or not all(isinstance(stream, list) and stream for stream in plain):
        return None
    packed = b"".join(zlib.compress(b"".join(_line(line) for line in stream)) for stream in plain)
    return packed if decode(packed) is not None else None


def _line(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"
