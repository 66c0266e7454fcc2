"""Finds files to import in folders and zip archives, reads them within limits, and parses their JSON.

A list of chats is read a chat at a time, so it may be of any size; everything else is held in memory, within the limits
for one chat.

Only regular files are read, and the sizes in an archive are not trusted.
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
from typing import IO, Any

from rdchat.chat.transfer import jan
from rdchat.chat.transfer.json_list import DamagedListError, JsonList, ListValue, count_marks
from rdchat.errors import StorageError

# Once parsed, the JSON of one chat may need four times as much memory.
MAX_BYTES = 100_000_000
# Each bracket, comma and colon of a chat costs up to 150 bytes once parsed.
MAX_MARKS = 4_000_000
_FEW_MARKS_BYTES = 4_000_000
_BEGINNING = 1 << 20
_MAX_ENTRIES = 100_000
TOO_LONG = f"is larger than {MAX_BYTES // 10**6} MB, the limit for one chat"
_LM_STUDIO_SIBLINGS = (".config.chat.json", ".metadata.chat.json")


class UnreadableFileError(StorageError):
    """A file cannot be read, so none of it is imported."""


class OutOfBoundsError(UnreadableFileError):
    """JSON exceeds the limits for one chat. `reason` says how, as the end of a sentence."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} {reason}.")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of chats.

    Attributes:
        name: With its path in an archive.
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
