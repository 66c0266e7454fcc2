"""Messages between two processes: four bytes of length, big-endian, then the bytes."""

import os
import signal
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


def child_streams() -> tuple[BinaryIO, BinaryIO]:
    """Make this process one that answers its parent; return where requests come from and where answers go.

    Ctrl-C is for the parent, which ends this process; an alarm ends it. What libraries print goes nowhere.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return source, sink
