"""Reads foreign files: only regular ones, up to a reasonable size for their kind; and dataclasses from their JSON.

A named pipe is never opened, because that waits for ever for a writer; nor is a device, a socket, or a link to one.
Links to regular files are followed: the Hugging Face cache consists of them.

Dataclasses are read in two ways: `plain` raises an error for a missing or wrong field, `from_plain` takes the default
instead, so it reads the data of any version.
"""

import errno
import json
import math
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from io import BufferedReader
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin, get_type_hints

from rdchat.errors import ModelError
from rdchat.wording import size_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

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
# SF_DATALESS in `st_flags` of macOS.
_DATALESS = 0x40000000
# Files in these folders look regular, and some never end.
_KERNEL = (("proc",), ("sys",))
REFETCH_HINT = "Download or convert the model again."
TEMPLATES = "additional_chat_templates/"
"""The one folder of a repository whose files are downloaded too."""
# Further ones are *.json and *.tiktoken.
TOKENIZER_FILES = (
    "chat_template.jinja",
    "merges.txt",
    "spiece.model",
    "tiktoken.model",
    "tokenizer.model",
    "tokenizer.model.v3",
    "vocab.txt",
)


def max_bytes(path: Path) -> int | None:
    """Return the size limit for a file of this name; None for files without one, such as weights."""
    return _MAX_BYTES.get(path.name, _MAX_BYTES_BY_ENDING.get(path.suffix))


def is_placeholder(path: Path) -> bool:
    """Return whether a file's content is in iCloud or a similar service, and not on this disk: reading downloads it."""
    with suppress(OSError):
        status = path.stat()
        return stat.S_ISREG(status.st_mode) and bool(getattr(status, "st_flags", 0) & _DATALESS)
    return False


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
        # A folder with the name of one of these files, such as config.json, is refused too.
        has_limit = max_bytes(path) is not None and not path.is_dir()
        if has_limit or path.name in _MAX_BYTES or is_weights(path):
            check_file(path)
        elif path.name == "additional_chat_templates" and path.is_dir():
            check_entries(entries_of(path), lambda _: False)


_RANGE = 2**64

type Reader = Callable[[Any], Any]


def json_or_none(text: str | bytes) -> Any:
    """Parse JSON; return None where it is damaged or nested too deeply. A byte that is no text is U+FFFD."""
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text), "replace")
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def as_text(value: object) -> str:
    """Return a text as it is, and any other JSON value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def is_nested_deeper(value: object, levels: int) -> bool:
    """Return whether a JSON value has more levels of objects and lists than `levels`."""
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)
                 if isinstance(inner, dict | list)]  # fmt: skip
    return bool(level)


def from_plain[T: "DataclassInstance"](default: T, data: Mapping[str, Any]) -> tuple[T, list[str]]:
    """Return `default` with the values in `data`.

    A wrong field of a dataclass inside is replaced alone. A value of the right type that is out of range is found by
    setting one field after the other.

    Args:
        default: Has the value of every field that is missing or wrong in `data`.
        data: Parsed JSON. Unknown names are ignored.

    Returns:
        The dataclass, and the names of wrong fields, such as `sampling.top_p`.
    """
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for name, read in _readers(type(default)).items():
        if name not in data:
            continue
        try:
            current = getattr(default, name)
            if is_dataclass(current) and not isinstance(current, type) and isinstance(data[name], Mapping):
                values[name], inner = from_plain(current, data[name])
                wrong += [f"{name}.{field}" for field in inner]
            else:
                values[name] = read(data[name])
        except (TypeError, ValueError, OverflowError):
            wrong.append(name)
    try:
        return replace(default, **values), wrong
    # A value is out of range: find which.
    except ValueError:
        for name, value in values.items():
            try:
                default = replace(default, **{name: value})
            except ValueError:
                wrong.append(name)
        return default, wrong


def plain[T: "DataclassInstance"](kind: type[T], data: Any) -> T:
    """Return a dataclass from the parsed JSON of its `asdict`; unknown names are ignored.

    All of its fields must be there; in dataclasses inside it, those with a default may be missing.

    Args:
        kind: The dataclass.
        data: The JSON.

    Raises:
        TypeError: If a field is missing or has another type.
        ValueError: If a value is out of range.
    """
    made: T = _builder(kind)(data)
    if not _readers(kind).keys() <= data.keys():
        raise TypeError(f"{data!r} is not a {kind}")
    return made


@cache
def _readers(kind: type["DataclassInstance"]) -> dict[str, Reader]:
    hints = get_type_hints(kind)
    return {field.name: reader_of(hints[field.name]) for field in fields(kind)}


def reader_of(hint: Any) -> Reader:
    """Return the function that converts parsed JSON to type `hint`; it raises TypeError or ValueError.

    These types are known: `X | None`; tuples (of any length), lists and frozensets from a list; dicts with names as
    keys; dataclasses; enums by value; and float (also from an integer), int, str, bool, and bytes from Latin-1 text.
    """
    if get_origin(hint) is UnionType:
        (inner,) = (reader_of(option) for option in get_args(hint) if option is not NoneType)
        return lambda value: None if value is None else inner(value)
    if (kind := get_origin(hint)) in {tuple, list, frozenset}:
        inner = reader_of(get_args(hint)[0])
        items = _exactly(list)
        return lambda value: kind([inner(item) for item in items(value)])
    if kind is dict:
        inner = reader_of(get_args(hint)[1])
        return lambda value: {name: inner(item) for name, item in _exactly(dict)(value).items()}
    if is_dataclass(hint):
        return _builder(hint)
    if issubclass(hint, Enum):
        return cast("Reader", hint)
    return {float: _finite, int: _integer, bytes: _latin_1}.get(hint) or _exactly(hint)


def _builder(kind: Any) -> Reader:
    """Return the function that makes a dataclass from JSON, which must have right values and no missing fields."""
    readers = _readers(kind)
    needed = {field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING}
    mapping = _exactly(dict)

    def build(value: Any) -> Any:
        data = mapping(value)
        if not needed <= data.keys():
            raise TypeError(f"{value!r} is not a {kind}")
        return kind(**{name: read(data[name]) for name, read in readers.items() if name in data})

    return build


def _finite(value: Any) -> float:
    number = value if type(value) is float else float(_integer(value))
    if not math.isfinite(number):  # Python's JSON allows infinity and NaN, with which no figure can be computed
        raise ValueError(f"{value!r} is not a finite number")
    return number


def _integer(value: Any) -> int:
    number: int = _exactly(int)(value)
    # Larger numbers may overflow in a division.
    if abs(number) >= _RANGE:
        raise ValueError("a number is too large")
    return number


def _latin_1(value: Any) -> bytes:
    text: str = _exactly(str)(value)
    return text.encode("latin-1")


def _exactly(kind: Any) -> Reader:
    def read(value: Any) -> Any:
        # `isinstance` would accept True for 1.
        if type(value) is not kind:
            raise TypeError(f"{value!r} is not a {kind}")
        return value

    return read
