"""Recognises file formats by first bytes and name, refuses those that cannot be read, and decodes text files."""

import codecs
import re
from pathlib import Path

from rdchat.chat.attachments.attached_file import FileKind, FileRefusedError
from rdchat.chat.attachments.text_encoding import guessed

_NAMES = {
    ".md": FileKind.MARKDOWN,
    ".markdown": FileKind.MARKDOWN,
    ".csv": FileKind.CSV,
    ".tsv": FileKind.CSV,
    ".html": FileKind.HTML,
    ".htm": FileKind.HTML,
    ".xhtml": FileKind.HTML,
}
# Some programs put a line before the mark of a PDF.
_PDF_WITHIN = 1024
_IMAGE_BRANDS = (b"heic", b"heix", b"mif1", b"avif", b"WEBP")
_IMAGE = "{name} is an image, which rdchat cannot read yet.", "Describe it, or type its text."
_SOUND = "{name} is audio or video, which rdchat cannot read.", "Type what is said."
_PROGRAM = "{name} is a program, not a text.", "Choose its source code instead."
_ARCHIVE = "{name} is an archive.", "Unpack it and choose files from it."
# First bytes of files that cannot be read; a text may begin with the same letters.
_MAYBE_TEXT = (
    ((b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"\0\0\1\0", b"8BPS"), _IMAGE),
    ((b"ID3", b"\xff\xfb", b"OggS", b"fLaC", b"\x1aE\xdf\xa3"), _SOUND),
    ((b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ"), _PROGRAM),
)
_NO_TEXT = (
    ((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"Rar!", b"\x28\xb5\x2f\xfd"), _ARCHIVE),
    (b"\xd0\xcf\x11\xe0", ("{name} is in an old Office format.", "Save it as DOCX, CSV or PDF.")),
    (b"{\\rtf", ("{name} is RTF, which rdchat does not read.", "Save it as DOCX or as plain text.")),
    (b"SQLite format 3\0", ("{name} is a database.", "Export what you need from it as CSV.")),
    (b"GGUF", ("{name} is a model, not a text.", "Drop it on the window by itself to load it.")),
    (b"bplist", ("{name} is a binary property list.", "Convert it to XML first.")),
)
_BINARY = "{name} is a binary file without text that rdchat can read.", "Export it as text, CSV or PDF."
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    # The mark of UTF-16 is the beginning of this one, so it comes later.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_CHARSET_WITHIN = 4096
_HEAD = 4096
# \x1b sets colours in terminals, and logs keep it.
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_MAX_CONTROLS = 0.01


def kind_of(head: bytes, name: str) -> FileKind | None:
    """Return a file's kind; None for a ZIP, whose content decides.

    Args:
        head: Its first 4 KB or more.
        name: Its name, with the ending.

    Raises:
        FileRefusedError: If rdchat cannot read its format.
    """
    if b"%PDF-" in head[:_PDF_WITHIN]:
        return FileKind.PDF
    if head.startswith(b"PK\x03\x04"):
        return None
    _refuse_known(head, name)
    ending = f".{name.rpartition('.')[2].casefold()}" if "." in name else ""
    if ending in _NAMES:
        return _NAMES[ending]
    beginning = head[:_PDF_WITHIN].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return FileKind.HTML if beginning.startswith((b"<!doctype html", b"<html")) else FileKind.TEXT


def _refuse_known(head: bytes, name: str) -> None:
    brand = head[8:12] if head[4:8] == b"ftyp" or head.startswith(b"RIFF") else b""
    if brand:
        raise refused(_IMAGE if brand in _IMAGE_BRANDS else _SOUND, name)
    for beginnings, refusal in _NO_TEXT if _is_text(head) else (*_MAYBE_TEXT, *_NO_TEXT):
        if head.startswith(beginnings):
            raise refused(refusal, name)
    # A header's length in 64 bits is followed by JSON.
    if head[8:9] == b"{" and head[4:8] == b"\0\0\0\0":
        raise refused(("{name} is a model's weights, not a text.", "Drop the model's folder to load it."), name)


def _is_text(head: bytes) -> bool:
    """Return whether a file is text although its first letters mean another format, such as `BM` or `MZ`."""
    return head[:2].isascii() and not any(byte < 9 for byte in head)


def kind_in_zip(members: set[str], name: str) -> FileKind:
    """Return the kind of a ZIP by the names in it; raises FileRefusedError for formats that cannot be read."""
    if "word/document.xml" in members:
        return FileKind.DOCX
    if "xl/workbook.xml" in members:
        raise refused(("{name} is a spreadsheet.", "Save the sheet that you need as CSV."), name)
    if "ppt/presentation.xml" in members:
        raise refused(("{name} is a presentation.", "Save it as PDF."), name)
    if "content.xml" in members:
        raise refused(("{name} is an OpenDocument file.", "Save it as DOCX, CSV or PDF."), name)
    if any(each.startswith("Index/") for each in members):
        raise refused(("{name} is a Pages, Numbers or Keynote document.", "Export it as PDF, DOCX or CSV."), name)
    if "META-INF/container.xml" in members:
        raise refused(("{name} is an EPUB book.", "Save it as PDF or HTML."), name)
    raise refused(_ARCHIVE, name)


def refused(refusal: tuple[str, str], name: str) -> FileRefusedError:
    """Return the refusal of a file, with its name."""
    return FileRefusedError(refusal[0].format(name=name), refusal[1])


def decoded(data: bytes, name: str, is_html: bool = False) -> tuple[str, str]:
    """Return the text with plain line ends, and a note for the person.

    Raises:
        FileRefusedError: If it is not text.
    """
    text, note = _decoded(data, name, is_html=is_html)
    controls = len(_CONTROLS.findall(text))
    if controls > len(text) * _MAX_CONTROLS:
        raise refused(_BINARY, name)
    if controls:
        text = _CONTROLS.sub("\ufffd", text)
    return text.replace("\r\n", "\n").replace("\r", "\n"), note


def _decoded(data: bytes, name: str, *, is_html: bool) -> tuple[str, str]:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            text = data[len(mark) :].decode(encoding, "replace")
            return text, "Some of its characters are damaged." if "\ufffd" in text else ""
    if b"\0" in data:
        raise refused(_BINARY, name)
    try:
        return data.decode("utf-8"), ""
    except UnicodeDecodeError:
        pass
    if is_html and (declared := _decoded_as_declared(data)) is not None:
        return declared, ""
    return guessed(data)


def _decoded_as_declared(data: bytes) -> str | None:
    """Decode a page by the encoding it declares; None if it declares none, or a wrong one."""
    match = _CHARSET.search(data[:_CHARSET_WITHIN])
    if match is None:
        return None
    try:
        return data.decode(match[1].decode("ascii"))
    except (LookupError, ValueError):
        return None


def looks_readable(path: Path) -> bool:
    """Return whether a file can probably be read; what follows its first bytes may still be refused."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(_HEAD)
        kind = kind_of(head, path.name)
        # Only reading shows what a ZIP is.
        if kind is None:
            return path.suffix.casefold() == ".docx"
        if kind is not FileKind.PDF:
            decoded(head, path.name)
    except (OSError, FileRefusedError):
        return False
    return True
