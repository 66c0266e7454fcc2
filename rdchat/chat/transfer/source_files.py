"""Finds files to import in folders and zip archives, reads them within limits, and parses their JSON.

A list of chats is read a chat at a time, so it may be of any size; everything else is held in memory, within the limits
for one chat.

Only regular files are read, and the sizes in an archive are not trusted.

NumPy finds the ends of a list's values, at some 80 MB a second on a slow core. ijson was tried: its C part, yajl, is 40
times slower with many small values. It refuses numbers and lone surrogates that `json` reads, and must hold a whole
string to skip it.
"""

import io
import json
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from rdchat.chat.transfer import jan
from rdchat.errors import StorageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Once parsed, the JSON of one chat may need four times as much memory.
MAX_BYTES = 100_000_000
# Each bracket, comma and colon of a chat costs up to 150 bytes once parsed.
MAX_MARKS = 4_000_000
_FEW_MARKS_BYTES = 4_000_000
_BEGINNING = 1 << 20
_MAX_ENTRIES = 100_000
TOO_LONG = f"is larger than {MAX_BYTES // 10**6} MB, the limit for one chat"
_LM_STUDIO_SIBLINGS = (".config.chat.json", ".metadata.chat.json")

_CHUNK = 1 << 17
# The title of a chat that is too long is in its beginning.
_PREVIEW_BYTES = 1 << 16
_QUOTE, _OTHER, _COMMA, _OPEN, _CLOSE = 1, 2, 3, 4, 5
_MARKS = {'"': _QUOTE, ":": _OTHER, ",": _COMMA, "[": _OPEN, "{": _OPEN, "]": _CLOSE, "}": _CLOSE}
_KINDS = bytes(_MARKS.get(chr(byte), 0) for byte in range(256))

type _Marks = tuple["NDArray[np.intp]", "NDArray[np.uint8]", "NDArray[np.int32]"]


class UnreadableFileError(StorageError):
    """A file cannot be read, so none of it is imported."""


class OutOfBoundsError(UnreadableFileError):
    """JSON exceeds the limits for one chat. `reason` is the end of a sentence about it."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} {reason}.")
        self.reason = reason


class DamagedListError(ValueError):
    """The list does not end, or a value is missing."""


@dataclass(frozen=True, slots=True)
class ListValue:
    """A value of the list.

    Attributes:
        data: Its JSON in UTF-8; only the beginning if it is too long.
        too_long: Whether it exceeds the limit for one value.
        before: Bytes of the list before it.
    """

    data: bytearray
    too_long: bool
    before: int


class JsonList:
    """The values of a list, one after another.

    Args:
        read: Returns up to this many bytes of UTF-8, fewer only at the end; starts after the list's bracket.
        max_bytes: Limit for one value.

    Attributes:
        rest: The bytes that were read after the list, known after its last value; the file may have more.
    """

    def __init__(self, read: Callable[[int], bytes], max_bytes: int) -> None:
        self._read, self._max_bytes = read, max_bytes
        self.rest = b""

    def __iter__(self) -> Iterator[ListValue]:
        """Yield the values.

        Raises:
            DamagedListError: If the list is incomplete, or a value is missing before a comma.
        """
        scanner, value, length, before, count = _Scanner(depth=1), bytearray(), 0, 0, 0
        while chunk := _join_escapes(self._read):
            offsets, kinds, depths = scanner.scan(chunk)
            begin = 0
            for at in ((depths == 0) | ((depths == 1) & (kinds == _COMMA))).nonzero()[0]:
                end, is_last = int(offsets[at]), depths[at] == 0
                length += self._extend(value, length, chunk[begin:end])
                if value and not value.isspace():
                    count += 1
                    yield ListValue(value, length > self._max_bytes, before + end - length)
                elif count or not is_last:
                    raise DamagedListError
                if is_last:
                    self.rest = chunk[end + 1 :]
                    return
                value, length, begin = bytearray(), 0, end + 1
            length += self._extend(value, length, chunk[begin:])
            before += len(chunk)
        raise DamagedListError

    def _extend(self, value: bytearray, length: int, more: bytes) -> int:
        """Add more of a value after its first `length` bytes; return the number of bytes added."""
        if length + len(more) <= self._max_bytes:
            value += more
        elif length <= self._max_bytes:
            value += more[:_PREVIEW_BYTES]
            del value[_PREVIEW_BYTES:]
        return len(more)


def count_marks(read: Callable[[int], bytes]) -> int:
    """Return the number of brackets, commas and colons outside of strings: a measure of the memory once parsed.

    Args:
        read: Returns up to this many bytes of UTF-8, fewer only at the end.
    """
    scanner, count = _Scanner(depth=0), 0
    while chunk := _join_escapes(read):
        count += len(scanner.scan(chunk)[0])
    return count


class _Scanner:
    """Finds the marks outside of strings, a chunk at a time.

    Args:
        depth: Number of open brackets before the first chunk.
    """

    def __init__(self, depth: int) -> None:
        self._depth, self._in_string = depth, 0

    def scan(self, chunk: bytes) -> _Marks:
        r"""Return offsets, kinds and depths of a chunk's marks, each (marks,); it must not end within an escape.

        A depth is the number of open brackets after the mark.
        """
        import numpy as np  # noqa: PLC0415  the window, which imports this too, starts without it

        # In a run of backslashes each pair is one escape; an odd one escapes what follows.
        plain = chunk.replace(rb"\\", b"__").replace(rb"\"", b"__") if b"\\" in chunk else chunk
        kinds = np.frombuffer(plain.translate(_KINDS), np.uint8)
        offsets = np.flatnonzero(kinds)
        kinds = kinds[offsets]
        quotes = kinds == _QUOTE
        if self._in_string or quotes.any():
            # The sum may wrap.
            in_string = np.cumsum(quotes, dtype=np.uint8) + np.uint8(self._in_string) & 1
            self._in_string = int(in_string[-1]) if len(in_string) else self._in_string
            outside = (in_string | quotes) == 0
            offsets, kinds = offsets[outside], kinds[outside]
        steps = (kinds == _OPEN).view(np.int8) - (kinds == _CLOSE).view(np.int8)
        depths = np.cumsum(steps, dtype=np.int32) + np.int32(self._depth)
        self._depth = int(depths[-1]) if len(depths) else self._depth
        return offsets, kinds, depths


def _join_escapes(read: Callable[[int], bytes]) -> bytes:
    """Return a chunk, with one more byte if it would end within an escape."""
    chunk = read(_CHUNK)
    return chunk + read(1) if (len(chunk) - len(chunk.rstrip(b"\\"))) % 2 else chunk


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of chats.

    Attributes:
        name: Name of the file; in an archive with its path.
        path: The file on disk, or the archive.
        size: In bytes, as far as known before reading.
        sibling: Returns the file of another name in the same folder.
    """

    name: str
    path: Path
    size: int
    open: Callable[[], IO[bytes]]
    sibling: Callable[[str], "SourceFile | None"]

    def read(self) -> bytes:
        """Return its whole content.

        Raises:
            UnreadableFileError: If it cannot be read, or is too large.
        """
        with _plain_errors(self.path), self.open() as file:
            return _limited(file, self.name)

    def beginning(self) -> bytes:
        """Return its first megabyte. Raises UnreadableFileError."""
        with _plain_errors(self.path), self.open() as file:
            return file.read(_BEGINNING)

    def in_utf8(self) -> "SourceFile":
        """Return the file in UTF-8; if it has another encoding, it is held in memory.

        Raises:
            UnreadableFileError: If it cannot be read, or is too large to be held.
        """
        encoding = json.detect_encoding(self.beginning()[:4])
        if encoding == "utf-8":
            return self
        try:
            data = self.read().decode(encoding, "surrogatepass").encode("utf-8", "surrogatepass")
        except UnicodeError as error:
            raise _no_text(self.name) from error
        return replace(self, size=len(data), open=partial(io.BytesIO, data))

    def values(self, start: int, end: bytes) -> Generator[ListValue]:
        """Yield the values of a list in UTF-8; those longer than `MAX_BYTES` are cut.

        Args:
            start: Offset after the list's opening bracket.
            end: JSON that becomes complete with the closing bracket and what follows: `[`, or `{"chats": [`.

        Raises:
            UnreadableFileError: If it cannot be read, or is not complete JSON.
        """
        with _plain_errors(self.path), self.open() as file:
            file.read(start)
            values = JsonList(file.read, MAX_BYTES)
            try:
                yield from values
            except DamagedListError as error:
                raise _damaged(self.name) from error
            rest = values.rest + file.read(_BEGINNING)
            if len(rest) > _BEGINNING and not rest.isspace():
                raise _damaged(self.name)
            parsed(end + b"]" + rest, self.name)

    @property
    def base(self) -> str:
        """Its name without folders."""
        return PurePosixPath(self.name).name


def files_in(path: Path) -> list[Path]:
    """Return the files of chats at a path: itself, or those in that folder and below.

    Raises:
        UnreadableFileError: If there are none, or too many files to look through.
    """
    if not path.is_dir():
        return [path]
    files, seen = [], 0
    for folder, folders, names in os.walk(path):
        folders.sort()
        seen += len(names)
        if seen > _MAX_ENTRIES:
            raise UnreadableFileError(
                f"{path} has more than {_MAX_ENTRIES:,} files.", "Choose a folder with chats only."
            )
        files += [Path(folder) / name for name in sorted(names) if is_chats_name(name, names)]
    if not files:
        raise UnreadableFileError(f"There are no files of chats in {path}.", "Choose another folder, or the files.")
    return files


def is_chats_name(name: str, others: list[str]) -> bool:
    """Return whether a file in a folder contains chats, by its name; `others` are all names there."""
    if name == jan.THREAD:
        return jan.MESSAGES not in others
    if name == jan.MESSAGES or name.endswith(".conversation.json"):
        return True
    if name.endswith(".chat.json"):
        return not name.endswith(_LM_STUDIO_SIBLINGS)
    return name.startswith("conversations") and name.endswith(".json")


def open_source(path: Path) -> Iterator[SourceFile]:
    """Yield the file at `path`, or those inside it if it is a zip archive.

    Raises:
        UnreadableFileError: If it cannot be read, or is an archive that is damaged or has no chats.
    """
    file = _on_disk(path)
    with _plain_errors(path):
        with path.open("rb") as beginning:
            is_zip = beginning.read(4) in (b"PK\x03\x04", b"PK\x05\x06")
        yield from _in_archive(path) if is_zip else [file]


def parsed(data: bytes | bytearray, what: str) -> Any:
    """Parse foreign JSON.

    Raises:
        OutOfBoundsError: If it has too many values, numbers of thousands of digits, or is nested too deeply.
        UnreadableFileError: If it is not JSON.
    """
    if not data or data.isspace():
        raise UnreadableFileError(f"{what} is empty.")
    check_marks(data, what)
    try:
        return json.loads(data)
    except RecursionError as error:
        raise OutOfBoundsError(what, "is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise _no_text(what) from error
    except json.JSONDecodeError as error:
        raise _damaged(what) from error
    except ValueError as error:
        raise OutOfBoundsError(what, "has a number that is too long") from error
    except MemoryError as error:
        raise OutOfBoundsError(what, "takes more memory than there is") from error


def check_marks(data: bytes | bytearray, what: str) -> None:
    """Refuse JSON that would need much more memory once parsed.

    Raises:
        OutOfBoundsError: If it has more than `MAX_MARKS`.
    """
    if len(data) > _FEW_MARKS_BYTES and count_marks(io.BytesIO(data).read) > MAX_MARKS:
        raise OutOfBoundsError(what, "has too many parts for one chat")


def _in_archive(path: Path) -> Iterator[SourceFile]:
    with zipfile.ZipFile(path) as archive:
        names = [each.filename for each in archive.infolist() if not each.is_dir()]
        if len(names) > _MAX_ENTRIES:
            raise UnreadableFileError(f"{path.name} has more than {_MAX_ENTRIES:,} files.")
        folders: dict[str, list[str]] = {}
        for each in names:
            folders.setdefault(str(PurePosixPath(each).parent), []).append(PurePosixPath(each).name)
        chosen = sorted({each for each in names if _is_ours(each, folders)})
        if not chosen:
            raise UnreadableFileError(f"There are no files of chats in {path.name}.")
        for each in chosen:
            yield _packed(archive, path, each)


def _is_ours(name: str, folders: dict[str, list[str]]) -> bool:
    path = PurePosixPath(name)
    # The Finder adds this folder.
    if "__MACOSX" in path.parts:
        return False
    alone = len(folders) == 1 and len(next(iter(folders.values()))) == 1
    return (alone and path.suffix == ".json") or is_chats_name(path.name, folders[str(path.parent)])


def _packed(archive: zipfile.ZipFile, path: Path, name: str) -> SourceFile:
    member, folder = archive.NameToInfo[name], PurePosixPath(name).parent
    called = f"{path.name}/{name}"

    def opened() -> IO[bytes]:
        if member.flag_bits & 1:
            raise UnreadableFileError(f"{called} is encrypted.", "Unpack it first, then import its content.")
        return archive.open(member)

    def sibling(other: str) -> SourceFile | None:
        is_there = str(folder / other) in archive.NameToInfo
        return _packed(archive, path, str(folder / other)) if is_there else None

    return SourceFile(called, path, member.file_size, opened, sibling)


def _on_disk(path: Path) -> SourceFile:
    try:
        status = path.stat()
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be read: {error.strerror}.", "Check its path.") from error
    # Reading a pipe or a device may never end.
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableFileError(f"{path} is not a file.", "Choose a file of chats.")

    # The file may have become a pipe meanwhile.
    def opened() -> IO[bytes]:
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")

    def sibling(name: str) -> SourceFile | None:
        return _on_disk(path.parent / name) if (path.parent / name).exists() else None

    return SourceFile(path.name, path, status.st_size, opened, sibling)


def _limited(file: IO[bytes], what: str) -> bytes:
    data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise OutOfBoundsError(what, TOO_LONG)
    return data


def _damaged(what: str) -> UnreadableFileError:
    return UnreadableFileError(f"{what} is damaged or incomplete: it is not valid JSON.")


def _no_text(what: str) -> UnreadableFileError:
    return UnreadableFileError(f"{what} is not text.")


@contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading a file or an archive into errors for people."""
    try:
        yield
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UnreadableFileError(f"{path.name} is a damaged archive.", "Download it again.") from error
