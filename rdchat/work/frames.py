"""Messages between two processes: four bytes of length, big-endian, then JSON."""

import json
from typing import Any, BinaryIO

from rdchat.errors import RdchatError

MAX_BYTES = 2**28
"""The longest message."""
_LENGTH_BYTES = 4

Message = dict[str, Any]


class FrameError(RdchatError):
    """A message is too long, or is not a JSON object."""


def packed(message: Message) -> bytes:
    """Return the bytes that carry a message.

    Raises:
        FrameError: If it is longer than `MAX_BYTES`.
    """
    content = json.dumps(message).encode()
    if len(content) > MAX_BYTES:
        raise FrameError(f"{len(content):,} bytes are too many for one message.")
    return len(content).to_bytes(_LENGTH_BYTES, "big") + content


def read_message(source: BinaryIO) -> Message | None:
    """Wait for the next message of a blocking stream; None if the other side closed it.

    Raises:
        FrameError: If it is longer than `MAX_BYTES`, or not a JSON object.
    """
    length = source.read(_LENGTH_BYTES)
    if len(length) < _LENGTH_BYTES:
        return None
    number = int.from_bytes(length, "big")
    if number > MAX_BYTES:
        raise FrameError("A process sent a message that is too long.")
    content = source.read(number)
    if len(content) < number:
        return None
    try:
        message = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FrameError("A process sent what is not JSON.") from error
    if not isinstance(message, dict):
        raise FrameError("A process sent JSON that is not an object.")
    return message
