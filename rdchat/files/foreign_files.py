"""Reads files that strangers made: only regular ones, only up to a size that is sane for their kind.

A named pipe is never opened, as that waits for ever for somebody who writes; nor is a device, a socket, or a link that
leads to one. Links to regular files are followed: the Hugging Face cache is made of them.
"""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from rdchat.errors import ModelError

MOST_ENTRIES = 10_000  # of a folder; the largest models have a few hundred files
_MB = 2**20
_MOST_BYTES = {
    "config.json": 8 * _MB,  # lists each quantised module, in some models twice
    "generation_config.json": _MB,
    "hf_quant_config.json": 8 * _MB,
    "tokenizer_config.json": 32 * _MB,  # of some models with all added tokens
    "chat_template.json": 2 * _MB,
    "special_tokens_map.json": 16 * _MB,
    "added_tokens.json": 32 * _MB,
    "model.safetensors.index.json": 16 * _MB,  # a line for each tensor: the largest models have 140,000
    "vocab.json": 64 * _MB,
    "merges.txt": 64 * _MB,
    "vocab.txt": 64 * _MB,
    "tokenizer.model": 64 * _MB,
    "tokenizer.json": 128 * _MB,
}
_MOST_BYTES_BY_ENDING = {
    ".jinja": _MB,
    ".json": 128 * _MB,
    ".jsonl": 128 * _MB,
    ".txt": 128 * _MB,
    ".model": 128 * _MB,
    ".tiktoken": 64 * _MB,
    ".spm": 64 * _MB,
    ".vocab": 64 * _MB,
    ".bpe": 64 * _MB,
    ".codes": 64 * _MB,
}
_KINDS = {
    stat.S_ISDIR: "a folder",
    stat.S_ISFIFO: "a named pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}
_KERNEL = (("proc",), ("sys",))  # regular by their type, and yet some never end
_HINT = "Download or convert the model again."


def most_bytes(path: Path) -> int | None:
    """Return how large a file of this name may be; None for one that has no limit, such as weights."""
    return _MOST_BYTES.get(path.name, _MOST_BYTES_BY_ENDING.get(path.suffix))


def check_file(path: Path, hint: str = _HINT, most: int | None = None) -> int:
    """Check without opening it that a path leads to a regular file of a sane size.

    Args:
        path: The file; links are followed.
        hint: What to do where it is not.
        most: The most bytes; None for what `most_bytes` says.

    Returns:
        Its size in bytes.

    Raises:
        ModelError: If it does not.
    """
    try:
        status = path.stat()
    except OSError as error:
        lost = path.is_symlink() and isinstance(error, FileNotFoundError)
        reason = "it is a link that leads nowhere" if lost else f"{error.strerror}"
        raise ModelError(f"{path} cannot be read: {reason}.", hint) from error
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for test, name in _KINDS.items() if test(status.st_mode)), "something else")
        raise ModelError(f"{path} is {kind}, not a file.", hint)
    if path.resolve().parts[1:2] in _KERNEL:
        raise ModelError(f"{path} leads to the system's own files.", hint)
    limit = most_bytes(path) if most is None else most
    if limit is not None and status.st_size > limit:
        raise ModelError(
            f"{path} is too large: {status.st_size / 1e6:,.0f} MB, where {limit / 1e6:,.0f} MB are the most.", hint
        )
    return status.st_size


def read_bytes(path: Path, hint: str = _HINT, most: int | None = None) -> bytes:
    """Read a file after `check_file`; never more than it may have, even if it grows meanwhile.

    Raises:
        ModelError: If it is no such file, or cannot be read.
    """
    size = check_file(path, hint, most)
    try:
        with opened(path) as file:
            return file.read(size)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from error


def opened(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        ModelError: If it is none.
        OSError: If it cannot be opened.
    """
    # without waiting, and looked at once it is open: a pipe or a device may have taken the file's place
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ModelError(f"{path} is not a file.", _HINT)
    return os.fdopen(descriptor, "rb")


def read_json(path: Path, hint: str = _HINT, most: int | None = None) -> Any:
    """Read a JSON file of UTF-8; see `read_bytes`.

    Raises:
        ModelError: If it is no such file, cannot be read, is empty, nested too deeply, or no JSON.
    """
    data = read_bytes(path, hint, most)
    if not data.strip():
        raise ModelError(f"{path} is damaged: it is empty.", hint)
    return parse_json(data, f"{path} is damaged", hint)


def parse_json(data: bytes | str, damaged: str, hint: str = _HINT) -> Any:
    """Parse JSON that a stranger wrote.

    Args:
        data: UTF-8.
        damaged: Says what is damaged, as the beginning of a sentence.
        hint: What to do about it.

    Raises:
        ModelError: If it is not UTF-8, no JSON, nested too deeply, or has numbers of thousands of digits.
    """
    try:
        return json.loads(data.decode("utf-8") if isinstance(data, bytes) else data)
    except RecursionError as error:
        raise ModelError(f"{damaged}: it is nested too deeply.", hint) from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{damaged}: it is not UTF-8 text.", hint) from error
    except ValueError as error:
        raise ModelError(f"{damaged}: it is not JSON ({error}).", hint) from error


def entries_of(folder: Path) -> list[Path]:
    """Return what a folder holds, by name.

    Raises:
        ModelError: If that is more than a model has; no more is looked at.
        OSError: If it cannot be read.
    """
    found: list[Path] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if len(found) == MOST_ENTRIES:
                raise ModelError(
                    f"{folder} holds more than {MOST_ENTRIES:,} files, so it is no model folder.",
                    "Choose the folder of one model.",
                )
            found.append(folder / entry.name)
    return sorted(found)


def check_entries(entries: list[Path], is_weights: Callable[[Path], bool]) -> None:
    """Check all files of a folder that mlx-lm or transformers would open by their names, none of which is opened.

    Args:
        entries: What `entries_of` gave.
        is_weights: Tells whether a file is one of weights, which may have any size.

    Raises:
        ModelError: If one of them is not a regular file, or too large for its kind.
    """
    for path in entries:
        if path.name in _MOST_BYTES or is_weights(path) or (most_bytes(path) is not None and not path.is_dir()):
            check_file(path)
        elif path.name == "additional_chat_templates" and path.is_dir():
            check_entries(entries_of(path), lambda _: False)
