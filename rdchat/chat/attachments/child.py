"""The process that reads the files a person brings, `rdchat --child files`; `FileReader` asks it.

Whatever is wrong with a file does no harm here: files are opened for reading only, and nothing is kept.
"""

import errno
import io
import os
import stat
import time
import zipfile
from pathlib import Path
from typing import Any

from rdchat.chat.attachments.attached_file import MOST_CHARACTERS, FileKind, FileRefusedError, shown_name
from rdchat.chat.attachments.decoding import decoded
from rdchat.chat.attachments.docx_text import docx_text
from rdchat.chat.attachments.html_text import html_to_text
from rdchat.chat.attachments.kinds import kind_in_zip, kind_of, refused
from rdchat.chat.attachments.pdf_pages import PdfPages
from rdchat.errors import RdchatError
from rdchat.work.job import Job
from rdchat.work.served import serve

MOST_BYTES = 64 << 20
_HEAD = 4096
_MOST_MEMBERS = 10_000  # of a ZIP
_SLICE_S = 0.3  # of reading pages, between two answers
_DAMAGED_ZIP = "{name} is damaged.", "Open it in the app that made it and save it again."


class OpenedFile:
    """One open file, read a few parts at a time.

    Attributes:
        kind: What it is.
        count: Number of its parts.

    Raises:
        FileRefusedError: If it is nothing that can be read.
    """

    def __init__(self, path: Path) -> None:
        self._name = shown_name(path.name)
        data = _bytes_of(path, self._name)
        self.kind = kind_of(data[:_HEAD], self._name) or _kind_in_zip(data, self._name)
        self._pages: PdfPages | None = None
        self._text, self._note = "", ""
        self._characters = 0
        self._unreadable: list[int] = []
        self._empty: list[int] = []
        if self.kind is FileKind.PDF:
            self._pages = PdfPages(data, self._name)
        elif self.kind is FileKind.DOCX:
            self._text, self._note = docx_text(data, self._name)
        else:
            self._text, self._note = decoded(data, self._name, is_html=self.kind is FileKind.HTML)
            if self.kind is FileKind.HTML:
                self._text = html_to_text(self._text)
        if self._pages is None:
            self._check_text(self._text)
        self.count = len(self._pages) if self._pages else 1

    def read(self, first: int) -> list[str]:
        """Return parts from the place `first` on, at least one; raises FileRefusedError."""
        if self._pages is None:
            return [self._text]
        texts: list[str] = []
        until = time.monotonic() + _SLICE_S
        for page in range(first, self.count):
            text = self._pages.text(page)
            if text is None:
                self._unreadable.append(page + 1)
            elif not text.strip():
                self._empty.append(page + 1)
            texts.append((text or "").strip("\n"))
            self._count_characters(texts[-1])
            if time.monotonic() > until:
                break
        if first + len(texts) == self.count:
            self._end_pages()
        return texts

    @property
    def note(self) -> str:
        """A note for the person about the parts that were read."""
        notes = [self._note] if self._note else []
        if self._unreadable:
            notes.append(f"{pages_words(self._unreadable)} could not be read.")
        if self._empty:
            verb = "has" if len(self._empty) == 1 else "have"
            notes.append(f"{pages_words(self._empty)} {verb} no text, perhaps pictures.")
        return " ".join(notes)

    def _end_pages(self) -> None:
        if len(self._unreadable) == self.count:
            raise FileRefusedError(f"{self._name} is damaged: none of its pages can be read.", "Export it anew.")
        if len(self._unreadable) + len(self._empty) == self.count:
            raise FileRefusedError(
                f"{self._name} has no text: its pages are pictures, such as scans.",
                "Have another app recognise the text first, and save that.",
            )

    def _check_text(self, text: str) -> None:
        if not text.strip():
            raise FileRefusedError(f"{self._name} is empty.", "Choose a file with text in it.")
        self._count_characters(text)

    def _count_characters(self, text: str) -> None:
        self._characters += len(text)
        if self._characters > MOST_CHARACTERS:
            raise FileRefusedError(
                f"{self._name} has more than the {MOST_CHARACTERS // 10**6} million characters that rdchat reads.",
                "Save the part that you need as a file of its own.",
            )


def pages_words(pages: list[int]) -> str:
    """Return `Page 3`, or `Pages 3, 4 and 12`; of many the first ones."""
    if len(pages) == 1:
        return f"Page {pages[0]}"
    if len(pages) > 8:
        return f"Pages {', '.join(map(str, pages[:6]))} and {len(pages) - 6} more"
    return f"Pages {', '.join(map(str, pages[:-1]))} and {pages[-1]}"


def _bytes_of(path: Path, name: str) -> bytes:
    """Return all of a regular file. A pipe or a device is not waited for; of a link, what it leads to counts."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise _unopened(error, name) from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise FileRefusedError(f"{name} is a folder.", "Choose the files in it.")
        raise FileRefusedError(f"{name} is no ordinary file.", "Choose a document.")
    with os.fdopen(descriptor, "rb") as file:
        try:
            data = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise _unopened(error, name) from error
    if len(data) > MOST_BYTES:
        raise FileRefusedError(
            f"{name} is larger than the {MOST_BYTES >> 20} MB that rdchat reads.",
            "Save the part that you need as a file of its own.",
        )
    if not data:
        raise FileRefusedError(f"{name} is empty.", "Choose a file with text in it.")
    return data


def _unopened(error: OSError | ValueError, name: str) -> FileRefusedError:
    code = error.errno if isinstance(error, OSError) else None
    if code in (errno.ENOENT, errno.ENOTDIR):
        return FileRefusedError(f"{name} cannot be found.", "Check its name, or choose it again.")
    if code in (errno.EACCES, errno.EPERM):
        return FileRefusedError(f"{name} may not be read.", "Check its permissions.")
    if code in (errno.ENXIO, errno.EOPNOTSUPP):
        return FileRefusedError(f"{name} is no ordinary file.", "Choose a document.")
    words = (error.strerror or type(error).__name__) if isinstance(error, OSError) else "its name is not valid"
    return FileRefusedError(f"{name} cannot be read: {words}.", "Check the disk, or choose another file.")


def _kind_in_zip(data: bytes, name: str) -> FileKind:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise refused(_DAMAGED_ZIP, name) from error
    if len(members) > _MOST_MEMBERS:
        raise refused(_DAMAGED_ZIP, name)
    return kind_in_zip(set(members), name)


class FileCalls:
    """The calls that the parent may make."""

    def __init__(self) -> None:
        self._file: OpenedFile | None = None

    def open(self, _job: Job[Any], path: str) -> dict[str, Any]:
        """Open a file in the place of the last one."""
        self._file = None  # its memory first
        try:
            self._file = OpenedFile(Path(path))
        except FileRefusedError as error:
            return {"refused": error.message, "hint": error.hint}
        return {"kind": self._file.kind.value, "parts": self._file.count}

    def read(self, _job: Job[Any], first: int) -> dict[str, Any]:
        """Read some parts of the open file; return them with a note about all that were read so far."""
        assert self._file is not None
        try:
            texts = self._file.read(first)
        except FileRefusedError as error:
            return {"refused": error.message, "hint": error.hint}
        except RecursionError as error:
            raise RdchatError("It is nested too deeply.") from error
        return {"texts": [text.encode("utf-8", "replace").decode() for text in texts], "note": self._file.note}


def main() -> int:
    """Answer requests until the parent has gone."""
    calls = FileCalls()
    return serve({"open": calls.open, "read": calls.read})
