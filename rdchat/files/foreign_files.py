"""Reads foreign files: only regular ones, and only up to a reasonable size for their kind.

A named pipe is never opened, because that waits for ever for a writer; nor is a device, a socket, or a link to one.
Links to regular files are followed: the Hugging Face cache consists of them.

Sizes of files and memory as text, in powers of ten as in Finder.
"""

import errno
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from rdchat.errors import ModelError
from rdchat.wording import size_text

# The largest models have a few hundred files.
MAX_ENTRIES = 10_000
_MB = 2**20
_MAX_BYTES = {
    # It lists each quantised module, in some models twice.
    "config.json": 8 * _MB,
    "generation_config.json": _MB,
    "hf_quant_config.json": 8 * _MB,
    # Some models list all added tokens.
    "tokenizer_config.json": 32 * _MB,
    "chat_template.json": 2 * _MB,
    "special_tokens_map.json": 16 * _MB,
    "added_tokens.json": 32 * _MB,
    # It has a line for each tensor: the largest models have 140,000.
    "model.safetensors.index.json": 16 * _MB,
    "tokenizer.json": 128 * _MB,
} | dict.fromkeys(("merges.txt", "tokenizer.model", "vocab.json", "vocab.txt"), 64 * _MB)
_MAX_BYTES_BY_ENDING = {
    ".jinja": _MB,
    **dict.fromkeys((".json", ".jsonl", ".model", ".txt"), 128 * _MB),
    **dict.fromkeys((".bpe", ".codes", ".spm", ".tiktoken", ".vocab"), 64 * _MB),
}
_KINDS = {
    stat.S_ISDIR: "a folder",
    stat.S_ISFIFO: "a named pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}
# Files in these folders look regular, and some never end.
_KERNEL = (("proc",), ("sys",))
REFETCH_HINT = "Download or convert the model again."


def max_bytes(path: Path) -> int | None:
    """Return the size limit for a file of this name; None for files without one, such as weights."""
    return _MAX_BYTES.get(path.name, _MAX_BYTES_BY_ENDING.get(path.suffix))


def check_file(path: Path, hint: str = REFETCH_HINT, max_size: int | None = None) -> int:
    """Check that a path leads to a regular file of a reasonable size, without opening it.

    Args:
        path: The file; links are followed.
        hint: What to do if it does not.
        max_size: Size limit in bytes; None for that of `max_bytes`.

    Returns:
        Its size in bytes.

    Raises:
        ModelError: If it does not.
    """
    try:
        status = path.stat()
    except OSError as error:
        lost = isinstance(error, FileNotFoundError) and path.is_symlink()
        reason = "it is a broken link" if lost else f"{error.strerror}"
        raise ModelError(f"{path} cannot be read: {reason}.", hint) from error
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for test, name in _KINDS.items() if test(status.st_mode)), "something else")
        raise ModelError(f"{path} is {kind}, not a file.", hint)
    if path.resolve().parts[1:2] in _KERNEL:
        raise ModelError(f"{path} is a system file.", hint)
    limit = max_bytes(path) if max_size is None else max_size
    if limit is not None and status.st_size > limit:
        raise ModelError(f"{path} is too large: {size_text(status.st_size)}; the limit is {size_text(limit)}.", hint)
    return status.st_size


def read_bytes(path: Path, hint: str = REFETCH_HINT, max_size: int | None = None) -> bytes:
    """Read a file after `check_file`; never more than the limit, even if it grows meanwhile.

    Raises:
        ModelError: If the check fails, or the file cannot be read.
    """
    size = check_file(path, hint, max_size)
    with read_errors(path), opened(path) as file:
        return file.read(size)


def read_text(path: Path, hint: str, max_size: int) -> str:
    """Read a text in UTF-8, perhaps with a byte order mark; see `read_bytes`.

    Raises:
        ModelError: If it cannot be read, or is no such text.
    """
    try:
        return read_bytes(path, hint, max_size).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not UTF-8 text.", "Save it as UTF-8.") from error


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Raise ModelError where the system cannot read a file or a folder in the block."""
    try:
        yield
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from error


def opened(path: Path) -> BufferedReader:
    """Open a regular file for reading; every file of others is opened here.

    Raises:
        OSError: If it cannot be opened, or is not a regular file.
    """
    # It is opened without blocking and checked when open: a pipe or a device may have replaced the file.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ENXIO, "it is not a file", str(path))
    return os.fdopen(descriptor, "rb")


def read_json(path: Path, hint: str = REFETCH_HINT, max_size: int | None = None) -> Any:
    """Read a JSON file in UTF-8; see `read_bytes`.

    Raises:
        ModelError: If it cannot be read, is empty, nested too deeply, or not JSON.
    """
    data = read_bytes(path, hint, max_size)
    if not data.strip():
        raise ModelError(f"{path} is damaged: it is empty.", hint)
    return parse_json(data, f"{path} is damaged", hint)


def read_object(path: Path, hint: str = REFETCH_HINT, max_size: int | None = None) -> dict[str, Any]:
    """Read a JSON file that holds an object; see `read_json`."""
    data = read_json(path, hint, max_size)
    if not isinstance(data, dict):
        raise ModelError(f"{path} is damaged: it is not a JSON object.", hint)
    return data


def parse_json(data: bytes | str, damaged: str, hint: str = REFETCH_HINT) -> Any:
    """Parse foreign JSON.

    Args:
        data: Text, or bytes in UTF-8, perhaps with a byte order mark.
        damaged: Name of the damaged thing, as the beginning of the message.
        hint: What to do about it.

    Raises:
        ModelError: If it is not UTF-8 or not JSON, is nested too deeply, or has numbers of thousands of digits.
    """
    try:
        return json.loads(data.decode("utf-8-sig") if isinstance(data, bytes) else data)
    except RecursionError as error:
        raise ModelError(f"{damaged}: it is nested too deeply.", hint) from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{damaged}: it is not UTF-8 text.", hint) from error
    except ValueError as error:
        raise ModelError(f"{damaged}: it is not JSON ({error}).", hint) from error


def entries_of(folder: Path) -> list[Path]:
    """Return the entries of a folder, by name.

    Raises:
        ModelError: If there are more than a model has; the rest is not read.
        OSError: If it cannot be read.
    """
    paths: list[Path] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if len(paths) == MAX_ENTRIES:
                raise ModelError(
                    f"{folder} has more than {MAX_ENTRIES:,} files, so it is not a model folder.",
                    "Choose the folder of one model.",
                )
            paths.append(folder / entry.name)
    return sorted(paths)


def readable_entries(folder: Path) -> list[Path]:
    """Return the entries of a folder, by name; none if it is missing, unreadable or too large."""
    try:
        return entries_of(folder)
    except (ModelError, OSError):
        return []


def check_entries(entries: list[Path], is_weights: Callable[[Path], bool]) -> None:
    """Check all files of a folder that mlx-lm or transformers would open by name, without opening them.

    Args:
        entries: The result of `entries_of`.
        is_weights: Returns whether a file has weights, which may be of any size.

    Raises:
        ModelError: If one of them is not a regular file, or too large for its kind.
    """
    for path in entries:
        if path.name in _MAX_BYTES or is_weights(path) or (max_bytes(path) is not None and not path.is_dir()):
            check_file(path)
        elif path.name == "additional_chat_templates" and path.is_dir():
            check_entries(entries_of(path), lambda _: False)
