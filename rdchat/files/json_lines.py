"""Reads what a child process writes: a JSON object a line."""

import json
from collections.abc import Iterator
from typing import IO, Any

MOST_BYTES = 2**26  # of a line; the report of an import of 100,000 chats has 10 MB


def json_lines(stream: IO[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the objects until the stream ends; a last line that a kill cut short is left out.

    Raises:
        ValueError: If a line is no JSON object, or longer than `MOST_BYTES`.
    """
    while (line := stream.readline(MOST_BYTES)).endswith(b"\n"):
        try:
            data = json.loads(line)
        except RecursionError as error:
            raise ValueError("a line is nested too deeply") from error
        if not isinstance(data, dict):
            raise ValueError("a line is no JSON object")
        yield data
    if len(line) == MOST_BYTES:
        raise ValueError("a line is too long")
