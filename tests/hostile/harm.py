"""Damages files: the steps of `cases/*.json`, flipped bytes, numbers of weights, other things in a file's place."""

import json
import os
import pickle
import random
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.hostile.case import evil_mark
from tests.hostile.data import as_bytes, expanded

HUGE_BYTES = 1 << 38  # a sparse file: its size is a claim, and no disk is filled

Harm = Callable[[Path], object]  # changes a folder
Json = dict[str, Any]


def change_json(path: Path, **changes: object) -> None:
    """Set keys of a JSON object; made where it does not exist."""
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | changes))


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


def with_flips(name: str, seed: int, within: int | None = None) -> Harm:
    """Change some bytes of a file of a folder; see `flipped`."""
    return lambda folder: flipped(folder / name, seed, within=within)


def with_cut(name: str, seed: int) -> Harm:
    """Cut a file of a folder short at a random place."""
    return lambda folder: cut(folder / name, seed)


# Safetensors


def read_safetensors(path: Path) -> tuple[Json, bytes]:
    """Return the header and the bytes behind it."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def write_safetensors(path: Path, header: Mapping[str, Any] | str, body: bytes) -> None:
    """Write a file whose header claims whatever it claims."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


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


def evil_module(folder: Path) -> None:
    """Put Python code beside the model that leaves a mark when it is imported, under the names that are looked for."""
    code = f"open({str(evil_mark(folder.parent))!r}, 'w').close()\nclass Evil: pass\nclass EvilTokenizer: pass\n"
    code += "class Model: pass\nclass ModelArgs: pass\n"
    for name in ("evil", "modeling_evil", "tokenization_evil", "configuration_evil", "model", "setup", "__init__"):
        (folder / f"{name}.py").write_text(code)


class _Evil:
    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self._mark), "w"))


def _edited(content: Any, edits: Sequence[Any]) -> Any:
    """Return JSON with values set, in the order of `edits`: a path and a value, or a path to take out.

    The last key "+" appends to a list.
    """
    holder = {"": content}
    for path, *values in edits:
        part: Any = holder
        keys = ["", *path]
        for key in keys[:-1]:
            part = part[key]
        last = keys[-1]
        if not values:
            del part[last]
        elif last == "+":
            part.append(*values)
        else:
            part[last] = values[0]
    return holder[""]


def _edit(folder: Path, name: str, *edits: Any) -> None:
    path = folder / name
    path.write_text(json.dumps(_edited(json.loads(path.read_text()) if path.exists() else {}, edits)))


def _same_ids(folder: Path, token_id: int) -> None:
    words = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    _edit(folder, "tokenizer.json", [["model", "vocab"], dict.fromkeys(words, token_id)])


def _write(folder: Path, name: str, content: str) -> None:
    (folder / name).write_bytes(as_bytes(content))


def _put_before(folder: Path, name: str, content: str) -> None:
    (folder / name).write_bytes(as_bytes(content) + (folder / name).read_bytes())


def _replace(folder: Path, name: str, old: str, new: str) -> None:
    (folder / name).write_text((folder / name).read_text().replace(old, new))


def _patch(folder: Path, name: str, at: int, content: str) -> None:
    data = (folder / name).read_bytes()
    new = as_bytes(content)
    (folder / name).write_bytes(data[:at] + new + data[at + len(new) :])


def _weights(change: Callable[..., tuple[Any, bytes]]) -> Callable[..., None]:
    """Return a verb that changes the header and the bytes behind it."""

    def verb(folder: Path, *values: Any) -> None:
        path = folder / "model.safetensors"
        write_safetensors(path, *change(*read_safetensors(path), *values))

    return verb


def _labelled(header: Json, body: bytes, facts: Json) -> tuple[Json, bytes]:
    return {name: each | facts if name[0] != "_" else each for name, each in header.items()}, body


def _shards(folder: Path, count: int, said: int) -> None:
    for number in range(count):
        (folder / f"model-{number:05}-of-{said:05}.safetensors").touch()


_VERBS: Mapping[str, Callable[..., object]] = {
    "edit": _edit,
    "write": _write,
    "before": _put_before,
    "replace": _replace,
    "patch": _patch,
    "remove": lambda folder, name: (folder / name).unlink(),
    "rename": lambda folder, name, new: (folder / name).rename(folder / new),
    "folder": lambda folder, name: (folder / name).mkdir(),
    "code": evil_module,
    "pickle": lambda folder, name: (folder / name).write_bytes(pickle.dumps(_Evil(evil_mark(folder.parent)))),
    "shards": _shards,
    "same ids": _same_ids,
    "header": _weights(lambda header, body, *edits: (_edited(header, edits), body)),
    "each tensor": _weights(_labelled),
    "raw header": _weights(lambda _header, body, text: (text, body)),
    "body": _weights(lambda header, _body, byte, count: (header, as_bytes(byte) * count)),
}


def harm_of(steps: Sequence[Any]) -> Harm:
    """Return the harm that does the steps of a case of `cases/folders.json` or `cases/drafters.json`."""

    def harm(folder: Path) -> None:
        for verb, *values in steps:
            _VERBS[verb](folder, *expanded(values))

    return harm


def with_odd_file(name: str, what: str) -> Harm:
    """Put one of `ODD_FILES` in the place of a file of a folder."""

    def harm(folder: Path) -> None:
        _clear(folder / name)
        ODD_FILES[what](folder / name)

    return harm
