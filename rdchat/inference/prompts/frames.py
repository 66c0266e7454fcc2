"""Messages between two processes: four bytes of length, big-endian, then the bytes."""

from typing import BinaryIO

LENGTH_BYTES = 4
MOST_BYTES = 2**28


class FrameTooLongError(ValueError):
    """A message has more than `MOST_BYTES`."""


def framed(content: bytes) -> bytes:
    """Return the bytes that carry `content`.

    Raises:
        FrameTooLongError: If it does not fit into a frame.
    """
    if len(content) > MOST_BYTES:
        raise FrameTooLongError(f"{len(content):,} bytes do not fit into a frame")
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


def write_frame(sink: BinaryIO, content: bytes) -> None:
    """Send one message."""
    sink.write(framed(content))
    sink.flush()


def read_frame(source: BinaryIO) -> bytes | None:
    """Return the next message; None where the other side has gone."""
    length = source.read(LENGTH_BYTES)
    content = source.read(int.from_bytes(length, "big")) if len(length) == LENGTH_BYTES else b""
    return content or None
