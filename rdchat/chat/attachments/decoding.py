"""Decodes the bytes of text files."""

import codecs
import re
from pathlib import Path

from rdchat.chat.attachments.attached_file import FileKind, FileRefusedError
from rdchat.chat.attachments.kinds import binary, kind_of

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_CHARSET_WITHIN = 4096
_HEAD = 4096  # bytes that `looks_readable` looks at
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")  # \x1b colours what a terminal shows, and logs keep it
_MOST_CONTROLS = 0.01  # of the characters
LATIN_1 = "It is not UTF-8, so it was read as Latin-1: accents may be wrong."


def decoded(data: bytes, name: str, is_html: bool = False) -> tuple[str, str]:
    """Return the text, with plain line ends, and a note for the person.

    Raises:
        FileRefusedError: If it is no text.
    """
    text, note = _decoded(data, name, is_html=is_html)
    found = len(_CONTROLS.findall(text))
    if found > len(text) * _MOST_CONTROLS:
        raise binary(name)
    if found:
        text = _CONTROLS.sub("\ufffd", text)
    return text.replace("\r\n", "\n").replace("\r", "\n"), note


def _decoded(data: bytes, name: str, *, is_html: bool) -> tuple[str, str]:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            text = data[len(mark) :].decode(encoding, "replace")
            return text, "Some of its characters are damaged." if "\ufffd" in text else ""
    if b"\0" in data:
        raise binary(name)
    try:
        return data.decode("utf-8"), ""
    except UnicodeDecodeError:
        pass
    if is_html and (said := _said(data)) is not None:
        return said, ""
    try:
        return data.decode("cp1252"), LATIN_1  # Windows' Latin-1, which has quotes where the other has controls
    except UnicodeDecodeError:
        return data.decode("latin-1"), LATIN_1


def _said(data: bytes) -> str | None:
    """Decode a page as it says itself; None where it does not, or wrongly."""
    found = _CHARSET.search(data[:_CHARSET_WITHIN])
    if found is None:
        return None
    try:
        return data.decode(found[1].decode("ascii"))
    except (LookupError, ValueError):
        return None


def looks_readable(path: Path) -> bool:
    """Tell whether reading a file is likely to go well; what comes behind its first bytes may still be refused."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(_HEAD)
        kind = kind_of(head, path.name)
        if kind is None:  # a ZIP, which only reading tells apart
            return path.suffix.casefold() == ".docx"
        if kind is not FileKind.PDF:
            decoded(head, path.name)
    except (OSError, FileRefusedError):
        return False
    return True
