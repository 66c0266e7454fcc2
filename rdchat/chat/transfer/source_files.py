"""Finds files to import in folders and zip archives, reads them within limits, and parses their JSON.

It knows the names of files, and not what is in them: `transfer_process` finds that out, in the transfer process.
A list of chats is read a chat at a time, so it may be of any size; everything else is held in memory.

Only regular files are read, and the sizes in an archive are not trusted.
"""

import io
import json
import os
import re
import sys
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from rdchat.chat.transfer.chat_apps import MESSAGES, THREAD
from rdchat.chat.transfer.claude_projects import is_projects_name
from rdchat.errors import ModelError, StorageError
from rdchat.files import check_file, opened, readable_entries

MAX_BYTES = 100_000_000
"""Limit of a chat, and of any other file than a list of chats."""
# Characters that are read at once.
_BEGINNING = 1 << 20
_MAX_ENTRIES = 100_000
# Ends of names of files that are about a chat in another file: those of LM Studio and Jan.
_SIBLINGS = (".config.chat.json", ".metadata.chat.json", THREAD)
# ChatGPT's id of a file begins its name: `file-AbC1-photo.png`, `file_00ef-sanitized.jpg`.
_FILE_ID = re.compile(r"file[-_][0-9A-Za-z]+")
# LM Studio's folder of images, beside that of its chats.
_USER_FILES = "user-files"
_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder()


class UnreadableFileError(StorageError):
    """A file cannot be read, so none of it is imported."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of chats.

    Attributes:
        name: Name of the file; in an archive with its path.
        path: The file on disk, or the archive.
        size: In bytes, as far as known before reading.
        open: Opens it for reading.
        sibling: Returns the file of another name in the same folder.
        find: Returns the file of an image in the same export, by ChatGPT's or LM Studio's name for it.
    """

    name: str
    path: Path
    size: int
    open: Callable[[], IO[bytes]]
    sibling: Callable[[str], "SourceFile | None"]
    find: Callable[[str], "SourceFile | None"]

    def image(self, pointer: str) -> bytes | None:
        """Return the data of an image by a chat's name for it, such as `sediment://file_1`; None if it is not there."""
        with suppress(UnreadableFileError):
            if (file := self.find(pointer.rpartition("/")[2])) is not None:
                return file.read_content()
        return None

    def read_content(self) -> bytes:
        """Return its whole content.

        Raises:
            UnreadableFileError: If it cannot be read, or is too large.
        """
        with _plain_errors(self.path), self.open() as file:
            data = file.read(MAX_BYTES + 1)
        _check_size(data, self.name)
        return data

    def beginning(self) -> str:
        """Return its first million characters. Raises UnreadableFileError."""
        with self._text() as file:
            return file.read(_BEGINNING)

    def list_values(self, start: int, end: str) -> Iterator[tuple[float, Any]]:
        """Yield the values of a list, each with the share of the file before it.

        In the file `{"chats": [{"a": 1}, 23]}` the list begins at 11, and `end` is `{"chats": [`. A value is complete
        once the sign behind it was read: `2` may be the beginning of `23`.

        Args:
            start: Offset after the list's opening bracket, in characters.
            end: JSON to which the closing bracket and what follows in the file are added, to check that the file ends
                as JSON must: `[`, or `{"chats": [`.

        Raises:
            UnreadableFileError: If it cannot be read, is not complete JSON, or a value is too large.
        """
        # The part of the file in memory, the offset in it of the value that is read next, and the number of characters
        # before the part in the file.
        text = ""
        at = 0
        before = start
        # The sign before that value: the list's bracket, or a comma; another sign ends the list.
        mark = "["
        with self._text() as file, _json_errors(self.name):
            file.read(start)
            while mark in ("[", ","):
                at = _after_space(text, at)
                value, after = _value_at(text, at)
                if mark == "[" and text.startswith("]", at):
                    # The list is empty.
                    mark = "]"
                    at += 1
                elif after < len(text):
                    yield min((before + at) / max(self.size, 1), 1.0), value
                    mark = text[after]
                    at = after + 1
                else:
                    # The value may go on. More is read each time, so that a long one is not parsed often.
                    _check_size(text[at:], f"A chat in {self.name}")
                    if not (more := file.read(max(len(text) - at, _BEGINNING))):
                        raise _damaged(self.name)
                    text = text[at:] + more
                    before += at
                    at = 0
            if mark != "]":
                raise _damaged(self.name)
            json.loads(f"{end}]{text[at:]}{file.read(_BEGINNING)}")

    @contextmanager
    def _text(self) -> Iterator[io.TextIOWrapper]:
        """Open the file in the encoding of JSON that it has."""
        with _plain_errors(self.path), self.open() as file:
            encoding = json.detect_encoding(file.read(4))
            file.seek(0)
            yield io.TextIOWrapper(file, encoding, "replace", newline="")

    @property
    def base(self) -> str:
        """Its name without folders."""
        return PurePosixPath(self.name).name


def files_in(path: Path, unread: list[str]) -> list[Path]:
    """Return the files of chats at a path: itself, or those in that folder and below.

    Args:
        path: The file or folder.
        unread: Gets the names of the other JSON files in the folder, which an export has beside its chats.

    Raises:
        UnreadableFileError: If there are none, or too many files to look through.
    """
    if not path.is_dir():
        return [path]
    files = []
    seen = 0
    for folder, folders, names in os.walk(path):
        folders.sort()
        seen += len(names)
        if seen > _MAX_ENTRIES:
            raise UnreadableFileError(
                f"{path} has more than {_MAX_ENTRIES:,} files.", "Choose a folder with chats only."
            )
        for name in sorted(names):
            file = Path(folder, name)
            is_sibling = name.endswith(_SIBLINGS)
            if is_chats_name(name, names) or (is_projects_name(file) and not is_sibling):
                files.append(file)
            elif name.endswith(".json") and not is_sibling:
                unread.append(os.path.relpath(file, path))
    if not files:
        raise UnreadableFileError(f"There are no files of chats in {path}.", "Choose another folder, or the files.")
    return files


def is_chats_name(name: str, others: list[str]) -> bool:
    """Return whether a file in a folder contains chats, by its name; `others` are all names there.

    Jan's two files of a chat count once, by the one with the messages if it is there.
    """
    if name == THREAD:
        return MESSAGES not in others
    if name == MESSAGES or name.endswith(".conversation.json"):
        return True
    if name.endswith(".chat.json"):
        return not name.endswith(_SIBLINGS)
    return name.startswith("conversations") and name.endswith(".json")


def open_source(path: Path, unread: list[str]) -> Iterator[SourceFile]:
    """Yield the file at `path`, or those inside it if it is a zip archive.

    Args:
        path: The file.
        unread: Gets the names of an archive's other files, in the end: those that nobody opened.

    Raises:
        UnreadableFileError: If it cannot be read, or is an archive that is damaged or has no chats.
    """
    file = _on_disk(path)
    with _plain_errors(path):
        with opened(path) as beginning:
            is_zip = beginning.read(4) in (b"PK\x03\x04", b"PK\x05\x06")
        yield from _in_archive(path, unread) if is_zip else [file]


def parsed(data: bytes, what: str) -> Any:
    """Parse foreign JSON; raise UnreadableFileError if it is not JSON, or goes beyond what Python parses."""
    if not data or data.isspace():
        raise UnreadableFileError(f"{what} is empty.")
    with _json_errors(what):
        return json.loads(data.decode(json.detect_encoding(data), "replace"))


@contextmanager
def _json_errors(what: str) -> Iterator[None]:
    """Turn errors of parsing into errors for people."""
    try:
        yield
    except RecursionError as error:
        raise UnreadableFileError(f"{what} is nested too deeply.") from error
    except json.JSONDecodeError as error:
        raise _damaged(what) from error
    except ValueError as error:
        raise UnreadableFileError(f"{what} has a number that is too long.") from error


def _value_at(text: str, at: int) -> tuple[Any, int]:
    """Return the JSON value at an offset, and the offset of the sign behind it.

    That is the end of the text if the value may be incomplete.
    """
    try:
        value, after = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError:
        return None, len(text)
    return value, _after_space(text, after)


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _in_archive(path: Path, unread: list[str]) -> Iterator[SourceFile]:
    with opened(path) as file, zipfile.ZipFile(file) as archive:
        # The Finder adds a folder of its own.
        left = {each for each in archive.infolist() if not each.is_dir() and not each.filename.startswith("__MACOSX/")}
        # An archive may have a name several times.
        paths = {each.filename: PurePosixPath(each.filename) for each in left}
        if len(paths) > _MAX_ENTRIES:
            raise UnreadableFileError(f"{path.name} has more than {_MAX_ENTRIES:,} files.")
        folders = defaultdict[PurePosixPath, list[str]](list)
        for each in paths.values():
            folders[each.parent].append(each.name)
        # JSON that is the only file has chats, whatever its name.
        chosen = sorted(
            name
            for name, each in paths.items()
            if is_chats_name(each.name, folders[each.parent])
            or is_projects_name(each)
            or (len(paths) == 1 and each.suffix == ".json")
        )
        if not chosen:
            raise UnreadableFileError(f"There are no files of chats in {path.name}.")
        images = _by_pointer(sorted(paths))
        for name in chosen:
            yield _packed(archive, path, name, images, left)
        unread += sorted(each.filename for each in left)


def _packed(
    archive: zipfile.ZipFile, path: Path, name: str, images: Mapping[str, str], left: set[zipfile.ZipInfo]
) -> SourceFile:
    """Return a file in an archive, which leaves the files that are `left` once it is opened."""
    member = archive.NameToInfo[name]
    folder = PurePosixPath(name).parent
    called = f"{path.name}/{name}"

    def open_member() -> IO[bytes]:
        if member.flag_bits & 1:
            raise UnreadableFileError(f"{called} is encrypted.", "Unpack it first, then import its content.")
        left.discard(member)
        return archive.open(member)

    def sibling(other: str) -> SourceFile | None:
        is_there = str(folder / other) in archive.NameToInfo
        return _packed(archive, path, str(folder / other), images, left) if is_there else None

    def find(pointer: str) -> SourceFile | None:
        return _packed(archive, path, images[pointer], images, left) if pointer in images else None

    return SourceFile(called, path, member.file_size, open_member, sibling, find)


def _by_pointer(names: Iterable[str]) -> dict[str, str]:
    """Return the files among an export's files that may be images, by the names (pointers) that chats have for them."""
    images = dict[str, str]()
    for each in names:
        base = PurePosixPath(each).name
        if (match := _FILE_ID.match(base)) is not None:
            images[match[0]] = each
        if PurePosixPath(each).parent.name == _USER_FILES:
            images[base] = each
    return images


def _on_disk(path: Path) -> SourceFile:
    try:
        size = check_file(path, "Choose a file of chats.", sys.maxsize)
    except ModelError as error:
        raise UnreadableFileError(error.message, error.hint) from error

    def sibling(name: str) -> SourceFile | None:
        return _on_disk(path.parent / name) if (path.parent / name).exists() else None

    # Looked for once, at the first image of this file. LM Studio's folder of images is beside the one of all its chats,
    # and a chat may be several folders below that.
    @cache
    def images() -> dict[str, str]:
        folders = (path.parent, *(each / _USER_FILES for each in path.parents))
        return _by_pointer(str(each) for folder in folders for each in readable_entries(folder))

    def find(pointer: str) -> SourceFile | None:
        return _on_disk(Path(images()[pointer])) if pointer in images() else None

    return SourceFile(path.name, path, size, partial(opened, path), sibling, find)


def _check_size(data: bytes | str, what: str) -> None:
    if len(data) > MAX_BYTES:
        raise UnreadableFileError(f"{what} is larger than {MAX_BYTES // 10**6} MB, the limit for one chat.")


def _damaged(what: str) -> UnreadableFileError:
    return UnreadableFileError(f"{what} is not valid JSON: it is damaged or incomplete, or no file that rdchat reads.")


@contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading a file or an archive into errors for people."""
    try:
        yield
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UnreadableFileError(f"{path.name} is a damaged archive.", "Download it again.") from error
