"""The child process that reads attached files, `rdchat --child files`, for `FileReader`.

A damaged file does no harm here: files are opened for reading only, and nothing is kept.
"""

import errno
import io
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

from rdchat.chat.attachments.attached_file import MOST_CHARACTERS, FileKind, FileRefusedError, shown_name
from rdchat.chat.attachments.document_text import docx_text, pdf_texts
from rdchat.chat.attachments.html_text import html_to_text
from rdchat.chat.attachments.kinds import decoded, kind_in_zip, kind_of, refused
from rdchat.work.job import Job
from rdchat.work.served import serve

MOST_BYTES = 64 << 20
_HEAD = 4096
_MOST_MEMBERS = 10_000  # in a ZIP
_TOO_LARGE = "Save the part that you need as a separate file."
_EMPTY = "{name} is empty.", "Choose a file with text in it."
_NO_FILE = "{name} is not an ordinary file.", "Choose a document."
_GONE = "{name} cannot be found.", "Check its path, or choose it again."
_FORBIDDEN = "You do not have permission to read {name}.", "Check its permissions."
_WORDS = {
    errno.ENOENT: _GONE, errno.ENOTDIR: _GONE, errno.EACCES: _FORBIDDEN, errno.EPERM: _FORBIDDEN,
    errno.ENXIO: _NO_FILE, errno.EOPNOTSUPP: _NO_FILE,
}  # message and hint by the system's codes  # fmt: skip
_DAMAGED_ZIP = "{name} is damaged.", "Open it in the app that made it and save it again."


def read_file(job: Job[Any], path: str) -> dict[str, Any]:
    """Read a file; return its kind, the texts of its parts, and a note for the person.

    Args:
        job: Receives the share of pages read; the time limit applies to each page.
        path: The file.

    Raises:
        FileRefusedError: If it cannot be read.
    """
    name = shown_name(Path(path).name)
    data = _bytes_of(Path(path), name)
    kind = kind_of(data[:_HEAD], name) or _kind_in_zip(data, name)
    if kind is FileKind.PDF:
        texts, note = pdf_texts(data, name, job.report_progress)
    else:
        text, note = docx_text(data, name) if kind is FileKind.DOCX else decoded(data, name, kind is FileKind.HTML)
        texts = [html_to_text(text) if kind is FileKind.HTML else text]
        if not texts[0].strip():
            raise refused(_EMPTY, name)
    if sum(map(len, texts)) > MOST_CHARACTERS:
        raise FileRefusedError(
            f"{name} is too long: rdchat reads up to {MOST_CHARACTERS // 10**6} million characters.",
            _TOO_LARGE,
        )
    return {"kind": kind.value, "texts": [text.encode("utf-8", "replace").decode() for text in texts], "note": note}


def _bytes_of(path: Path, name: str) -> bytes:
    """Return all of a regular file. Pipes and devices are refused without waiting; links are followed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise _unopened(error, name) from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise FileRefusedError(f"{name} is a folder.", "Choose the files in it.")
        raise refused(_NO_FILE, name)
    with os.fdopen(descriptor, "rb") as file:
        try:
            data = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise _unopened(error, name) from error
    if len(data) > MOST_BYTES:
        raise FileRefusedError(
            f"{name} is too large: rdchat reads up to {MOST_BYTES >> 20} MB.",
            _TOO_LARGE,
        )
    if not data:
        raise refused(_EMPTY, name)
    return data


def _unopened(error: OSError | ValueError, name: str) -> FileRefusedError:
    code = error.errno if isinstance(error, OSError) else None
    if code in _WORDS:
        return refused(_WORDS[code], name)
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


def main() -> int:
    """Answer requests until the parent ends."""
    return serve({"read_file": read_file})
