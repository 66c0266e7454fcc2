"""Damages files: changed JSON, flipped bytes, rewritten safetensors headers, other things in a file's place."""

import json
import os
import random
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

HUGE_BYTES = 1 << 38  # a sparse file: its size is a claim, and no disk is filled

Harm = Callable[[Path], object]  # changes a folder
Json = dict[str, Any]


def change_json(path: Path, **changes: object) -> None:
    """Set keys of a JSON object; made where it does not exist."""
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | changes))


def with_json(name: str, **changes: object) -> Harm:
    """Set keys in a JSON file of a folder."""
    return lambda folder: change_json(folder / name, **changes)


def without(name: str, *keys: str) -> Harm:
    """Take keys out of a JSON file of a folder."""

    def harm(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({key: value for key, value in content.items() if key not in keys}))

    return harm


def with_bytes(name: str, content: bytes | str) -> Harm:
    """Write a whole file of a folder."""
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data)


def with_text(name: str, change: Callable[[str], str | bytes]) -> Harm:
    """Change the text of a file of a folder."""

    def harm(folder: Path) -> None:
        changed = change((folder / name).read_text())
        (folder / name).write_bytes(changed.encode() if isinstance(changed, str) else changed)

    return harm


def edited(name: str, edit: Callable[[Json], object]) -> Harm:
    """Edit the JSON object of a file of a folder in place."""

    def harm(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        edit(content)
        (folder / name).write_text(json.dumps(content))

    return harm


def both(*harms: Harm) -> Harm:
    """Do one harm after the other."""

    def harm(folder: Path) -> None:
        for each in harms:
            each(folder)

    return harm


def deep_json(depth: int = 100_000) -> str:
    """Return JSON that is nested deeper than Python's stack."""
    return '{"a":' * depth + "1" + "}" * depth


def flipped(path: Path, seed: int, count: int = 8, within: int | None = None) -> None:
    """Overwrite some bytes of a file with random ones; `within` is the number of first bytes that are hit."""
    chosen = random.Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(count):
        data[chosen.randrange(min(len(data), within or len(data)))] = chosen.randrange(256)
    path.write_bytes(data)


def cut(path: Path, seed: int) -> None:
    """Cut a file short at a random place."""
    os.truncate(path, random.Random(seed).randrange(path.stat().st_size))


def with_flips(name: str, seed: int, count: int = 8, within: int | None = None) -> Harm:
    """Change some bytes of a file of a folder; see `flipped`."""
    return lambda folder: flipped(folder / name, seed, count, within)


def with_cut(name: str, seed: int) -> Harm:
    """Cut a file of a folder short at a random place."""
    return lambda folder: cut(folder / name, seed)


# Safetensors


def read_safetensors(path: Path) -> tuple[Json, bytes]:
    """Return the header and the bytes behind it."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def write_safetensors(path: Path, header: Mapping[str, Any] | str, body: bytes, length: int | None = None) -> None:
    """Write a file whose header claims whatever it claims; `length` is what it says of the header's own length."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + body)


def with_header(edit: Callable[[Json], object], name: str = "model.safetensors") -> Harm:
    """Edit the header of a safetensors file of a folder in place."""

    def harm(folder: Path) -> None:
        header, body = read_safetensors(folder / name)
        edit(header)
        write_safetensors(folder / name, header, body)

    return harm


def with_each_tensor(**facts: object) -> Harm:
    """Set facts of every tensor in the header of a folder's weights."""
    return with_header(lambda header: [header[name].update(facts) for name in header if name != "__metadata__"])


def _half(value: float) -> bytes:
    try:
        return struct.pack("<e", value)
    except OverflowError:
        return struct.pack("<e", float("inf"))


_NUMBERS: Mapping[str, Callable[[float], bytes]] = {
    "F32": partial(struct.pack, "<f"),
    "F16": _half,
    "BF16": lambda value: struct.pack("<f", value)[2:],
}


def with_numbers(value: float, matrices: bool = True, vectors: bool = False) -> Harm:
    """Set every number of a folder's weights, of matrices and of vectors; whole numbers stay."""

    def harm(folder: Path) -> None:
        path = folder / "model.safetensors"
        header, body = read_safetensors(path)
        changed = bytearray(body)
        for name, facts in header.items():
            if name == "__metadata__" or facts["dtype"] not in _NUMBERS:
                continue
            if vectors if len(facts["shape"]) < 2 else matrices:
                first, last = facts["data_offsets"]
                number = _NUMBERS[facts["dtype"]](value)
                changed[first:last] = number * ((last - first) // len(number))
        write_safetensors(path, header, bytes(changed))

    return harm


# Odd things in a file's place


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _socket(path: Path) -> None:
    # a socket's path may have about 100 characters: it is made elsewhere and moved
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"{short}/s")
        shutil.move(f"{short}/s", path)


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, HUGE_BYTES)


ODD_FILES: Mapping[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a socket": _socket,
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link to /dev/stdin": lambda path: path.symlink_to("/dev/stdin"),
    "a dangling link": lambda path: path.symlink_to(path.with_name("nothing")),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a folder": lambda path: path.mkdir(),
    "a huge sparse file": _sparse,
    "an empty file": lambda path: path.touch(),
}


def with_odd_file(name: str, what: str) -> Harm:
    """Put one of `ODD_FILES` in the place of a file of a folder."""

    def harm(folder: Path) -> None:
        _clear(folder / name)
        ODD_FILES[what](folder / name)

    return harm
