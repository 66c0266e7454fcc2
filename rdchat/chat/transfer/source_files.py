"""Finds files to import in folders and zip archives, reads them within bounds, and parses their JSON.

A list of chats is read a chat at a time, so it may be of any size; all else is held in memory, within the bounds of
one chat.

Nothing is read that is not a regular file; what an archive says of its sizes is not believed.
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

from rdchat.chat.transfer.formats import jan
from rdchat.chat.transfer.json_list import DamagedListError, JsonList, ListValue, count_marks
from rdchat.errors import StorageError

MOST_BYTES = 100_000_000  # of one chat's JSON; as Python's text it may take four times as much
MOST_MARKS = 4_000_000  # brackets, commas and colons of one chat: each stands for up to 150 bytes once it is read
_FEW_MARKS_BYTES = 4_000_000  # JSON as short as this needs no counting
_BEGINNING = 1 << 20  # what stands before a list of chats is not longer, nor is what stands behind it
_MOST_ENTRIES = 100_000  # of a folder with all below it, and of an archive
TOO_LONG = f"is larger than {MOST_BYTES // 10**6} MB, which is the most rdchat imports of one chat"
_LM_STUDIO_BESIDE = (".config.chat.json", ".metadata.chat.json")


class UnreadableFileError(StorageError):
    """A file cannot be read, so nothing of it is imported."""


class OutOfBoundsError(UnreadableFileError):
    """JSON takes more than one chat may. `words` say what, as the end of a sentence."""

    def __init__(self, what: str, words: str) -> None:
        super().__init__(f"{what} {words}.")
        self.words = words


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of chats.

    Attributes:
        name: What it is called, with its place in a folder or an archive.
        path: The file on the disk that it is, or is in.
        size: Its bytes, as far as can be known before it is read.
        open: Opens it.
        beside: Returns the bytes of the file of another name beside it; None where there is none.
    """

    name: str
    path: Path
    size: int
    open: Callable[[], IO[bytes]]
    beside: Callable[[str], bytes | None]

    def read(self) -> bytes:
        """Return all of it.

        Raises:
            UnreadableFileError: If it cannot be read, or is too large.
        """
        with _errors_in_words(self.path), self.open() as file:
            return _whole(file, self.name)

    def beginning(self) -> bytes:
        """Return its first megabyte. Raises UnreadableFileError."""
        with _errors_in_words(self.path), self.open() as file:
            return file.read(_BEGINNING)

    def in_utf8(self) -> "SourceFile":
        """Return the same file in UTF-8, held in memory where it is not.

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

    def values(self, place: int, end: bytes) -> Generator[ListValue]:
        """Yield the values of a list in UTF-8; one that is longer than `MOST_BYTES` comes cut short.

        Args:
            place: Of the byte behind the list's opening bracket.
            end: JSON that is whole with the list's closing bracket and what stands behind it: `[`, or `{"chats": [`.

        Raises:
            UnreadableFileError: If it cannot be read, or is no whole JSON.
        """
        with _errors_in_words(self.path), self.open() as file:
            file.read(place)
            values = JsonList(file.read, MOST_BYTES)
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
    """Return the files of chats that a path stands for: itself, or those in the folder that it is and below.

    Raises:
        UnreadableFileError: If there is nothing, or too much to look through.
    """
    if not path.is_dir():
        return [path]
    found, seen = [], 0
    for folder, folders, names in os.walk(path):
        folders.sort()
        seen += len(names)
        if seen > _MOST_ENTRIES:
            raise UnreadableFileError(
                f"{path} holds more than {_MOST_ENTRIES:,} files.", "Choose the folder of the chats alone."
            )
        found += [Path(folder) / name for name in sorted(names) if is_chats_name(name, names)]
    if not found:
        raise UnreadableFileError(f"There are no files of chats in {path}.", "Choose another folder, or the files.")
    return found


def is_chats_name(name: str, others: list[str]) -> bool:
    """Tell whether a file in a folder is one of chats, by its name; `others` are all names there."""
    if name == jan.THREAD:
        return jan.MESSAGES not in others
    if name == jan.MESSAGES or name.endswith(".conversation.json"):
        return True
    if name.endswith(".chat.json"):
        return not name.endswith(_LM_STUDIO_BESIDE)
    return name.startswith("conversations") and name.endswith(".json")


def open_source(path: Path) -> Iterator[SourceFile]:
    """Yield the file at `path`, or those within it where it is a zip archive.

    Raises:
        UnreadableFileError: If it cannot be read, or is an archive that is damaged or holds no chats.
    """
    size = _size(path)
    with _errors_in_words(path):
        if _is_zip(path):
            yield from _in_archive(path)
            return
    yield SourceFile(path.name, path, size, partial(_opened, path), lambda name: _read_beside(path.parent / name))


def parsed(data: bytes | bytearray, what: str) -> Any:
    """Parse JSON that a stranger wrote.

    Raises:
        OutOfBoundsError: If it has too many values, numbers of thousands of digits, or is nested too deeply.
        UnreadableFileError: If it is no JSON.
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
    """Refuse JSON that would take much more memory once it is parsed.

    Raises:
        OutOfBoundsError: If it has more than `MOST_MARKS`.
    """
    if len(data) > _FEW_MARKS_BYTES and count_marks(io.BytesIO(data).read) > MOST_MARKS:
        raise OutOfBoundsError(what, "has more parts than rdchat imports of one chat")


def _in_archive(path: Path) -> Iterator[SourceFile]:
    with zipfile.ZipFile(path) as archive:
        members = [each for each in archive.infolist() if not each.is_dir()]
        if len(members) > _MOST_ENTRIES:
            raise UnreadableFileError(f"{path.name} holds more than {_MOST_ENTRIES:,} files.")
        by_name = {each.filename: each for each in members}
        folders: dict[str, list[str]] = {}
        for each in by_name:
            folders.setdefault(str(PurePosixPath(each).parent), []).append(PurePosixPath(each).name)
        chosen = [each for each in by_name if _is_ours(each, folders)]
        if not chosen:
            raise UnreadableFileError(f"There are no files of chats in {path.name}.")

        def beside(folder: PurePosixPath, name: str) -> bytes | None:
            member = by_name.get(str(folder / name))
            if member is None:
                return None
            with _errors_in_words(path), _member(archive, member, path) as file:
                return _whole(file, member.filename)

        for each in sorted(chosen):
            member = by_name[each]
            opened = partial(_member, archive, member, path)
            folder = PurePosixPath(each).parent
            yield SourceFile(f"{path.name}/{each}", path, member.file_size, opened, partial(beside, folder))


def _is_ours(name: str, folders: dict[str, list[str]]) -> bool:
    place = PurePosixPath(name)
    if "__MACOSX" in place.parts:  # what the Finder adds
        return False
    alone = len(folders) == 1 and len(next(iter(folders.values()))) == 1
    return (alone and place.suffix == ".json") or is_chats_name(place.name, folders[str(place.parent)])


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> IO[bytes]:
    if member.flag_bits & 1:
        what = f"{path.name}/{member.filename}"
        raise UnreadableFileError(f"{what} is encrypted.", "Unpack it first, then import what is in it.")
    return archive.open(member)


def _whole(file: IO[bytes], what: str) -> bytes:
    data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OutOfBoundsError(what, TOO_LONG)
    return data


def _size(path: Path) -> int:
    try:
        status = path.stat()
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be read: {error.strerror}.", "Check its name.") from error
    if not stat.S_ISREG(status.st_mode):  # reading a pipe or a device may never end
        raise UnreadableFileError(f"{path} is not a file.", "Choose a file of chats.")
    return status.st_size


def _damaged(what: str) -> UnreadableFileError:
    return UnreadableFileError(f"{what} is damaged or cut off: it is not whole JSON.")


def _no_text(what: str) -> UnreadableFileError:
    return UnreadableFileError(f"{what} is no text.")


def _opened(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # a pipe may have come since


def _read_beside(path: Path) -> bytes | None:
    if not path.exists():
        return None
    _size(path)
    with _errors_in_words(path), _opened(path) as file:
        return _whole(file, str(path))


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


@contextmanager
def _errors_in_words(path: Path) -> Iterator[None]:
    """Turn errors of reading a file or an archive into errors for people."""
    try:
        yield
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UnreadableFileError(f"{path.name} is a damaged archive.", "Download it again.") from error
