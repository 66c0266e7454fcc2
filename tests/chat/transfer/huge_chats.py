"""JSON that needs far more memory than its archive, generated in blocks."""

import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.chat.transfer.samples import chatgpt_chat, chatgpt_node

_BLOCK = 1 << 20


def good(title: str) -> bytes:
    """Return the JSON of a chat that nothing is wrong with."""
    return json.dumps(chatgpt_chat(chatgpt_node("q", None, "user", "Fine"), title=title)).encode()


def within(head: bytes, unit: bytes, end: bytes, size: int) -> Iterator[bytes]:
    """Yield a chat named Huge, between two good ones: `unit` again and again, `size` bytes of it."""
    yield b"[" + good("First") + b', {"title": "Huge", "mapping": {"a": ' + head
    block = unit * (_BLOCK // len(unit))
    for _ in range(size // len(block)):
        yield block
    yield end + b"}}, " + good("Last") + b"]"


HUGE: Mapping[str, tuple[bytes, bytes, bytes]] = {
    "dictionaries without content": (b"[{}", b",{}", b"]"),
    "one string": (b'"', b"a", b'"'),
    "one string of escapes": (b'"', rb"\"\\\u00e9", b'"'),
    "one number": (b"1", b"1", b""),
    "lists in lists": (b"[" * 900_000, b"[]," * 10, b"0" + b"]" * 900_000),
    "different keys": (b'{"a":1', b',"b":"cd"', b"}"),
}
"""By what is huge: what stands before it, what is repeated, and what stands behind it."""


def write(path: Path, parts: Iterable[bytes]) -> Path:
    """Write a file."""
    with path.open("wb") as file:
        file.writelines(parts)
    return path


def write_zip(path: Path, parts: Iterable[bytes], name: str = "conversations.json") -> Path:
    """Write an archive of one file."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w", force_zip64=True) as file:
        file.writelines(parts)
    return path
