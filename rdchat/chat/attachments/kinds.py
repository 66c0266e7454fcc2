"""Tells the format of a file by its first bytes and its name, and why a file is not read."""

from rdchat.chat.attachments.attached_file import FileKind, FileRefusedError

_NAMES = {
    ".md": FileKind.MARKDOWN,
    ".markdown": FileKind.MARKDOWN,
    ".csv": FileKind.CSV,
    ".tsv": FileKind.CSV,
    ".html": FileKind.HTML,
    ".htm": FileKind.HTML,
    ".xhtml": FileKind.HTML,
}
_PDF_WITHIN = 1024  # bytes in which a PDF says so: some programs put a line of their own before it
_IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"\0\0\1\0", b"8BPS")
_IMAGE_BRANDS = (b"heic", b"heix", b"mif1", b"avif")
_SOUNDS = (b"ID3", b"\xff\xfb", b"OggS", b"fLaC", b"\x1aE\xdf\xa3")
_PROGRAMS = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ")
_ARCHIVES = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"Rar!", b"\x28\xb5\x2f\xfd")
_IMAGE = "{name} is an image, and rdchat cannot look at images yet.", "Describe it, or type in what it says."
_SOUND = "{name} is sound or video, which rdchat cannot listen to.", "Type in what is said."
_PROGRAM = "{name} is a program, not a text.", "Choose its source instead."
_ARCHIVE = "{name} is an archive.", "Unpack it, and choose the files in it."
_OTHERS = (
    (b"\xd0\xcf\x11\xe0", ("{name} is in an old format of Office.", "Save it as DOCX, CSV or PDF.")),
    (b"{\\rtf", ("{name} is RTF, which rdchat does not read.", "Save it as DOCX or as plain text.")),
    (b"SQLite format 3\0", ("{name} is a database.", "Export what you need from it as CSV.")),
    (b"GGUF", ("{name} is a model, not a text.", "Drop it on the window by itself to load it.")),
    (b"bplist", ("{name} is a binary property list.", "Convert it to XML first.")),
)
_BINARY = "{name} is a binary file: there is no text in it that rdchat can read.", "Export it as text, CSV or PDF."


def kind_of(head: bytes, name: str) -> FileKind | None:
    """Return what a file is; None for a ZIP, which has to be looked into.

    Args:
        head: Its first 4 KB or more.
        name: Its name, with the ending.

    Raises:
        FileRefusedError: If it is nothing that is read.
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
    is_riff = head.startswith(b"RIFF")
    brand = head[8:12] if head[4:8] == b"ftyp" or is_riff else b""
    words = next((words for magic, words in _OTHERS if head.startswith(magic)), None)
    if (head.startswith(_IMAGES) and not _is_text(head)) or brand in (*_IMAGE_BRANDS, b"WEBP"):
        words = _IMAGE
    elif brand or (head.startswith(_SOUNDS) and not _is_text(head)):
        words = _SOUND
    elif head.startswith(_PROGRAMS) and not _is_text(head):
        words = _PROGRAM
    elif head.startswith(_ARCHIVES):
        words = _ARCHIVE
    elif head[8:9] == b"{" and head[4:8] == b"\0\0\0\0":  # the length of a header, in 64 bits, then JSON
        words = ("{name} is a model's weights, not a text.", "Drop the model's folder to load it.")
    if words is not None:
        raise refused(words, name)


def _is_text(head: bytes) -> bool:
    """Tell whether a file whose first letters mean something else, such as `BM` or `MZ`, is text all the same."""
    return head[:2].isascii() and not any(byte < 9 for byte in head)


def kind_in_zip(members: set[str], name: str) -> FileKind:
    """Return what a ZIP is by the names in it; raises FileRefusedError for what is not read."""
    if "word/document.xml" in members:
        return FileKind.DOCX
    if "xl/workbook.xml" in members:
        raise refused(("{name} is a spreadsheet.", "Save the sheet that you need as CSV."), name)
    if "ppt/presentation.xml" in members:
        raise refused(("{name} is a presentation.", "Save it as PDF."), name)
    if "content.xml" in members:
        raise refused(("{name} is an OpenDocument file.", "Save it as DOCX, CSV or PDF."), name)
    if any(each.startswith("Index/") for each in members):
        raise refused(("{name} is a document of Pages, Numbers or Keynote.", "Export it as PDF, DOCX or CSV."), name)
    if "META-INF/container.xml" in members:
        raise refused(("{name} is an EPUB book.", "Save it as PDF or HTML."), name)
    raise refused(_ARCHIVE, name)


def binary(name: str) -> FileRefusedError:
    """Return the refusal of a file that is no text."""
    return refused(_BINARY, name)


def refused(words: tuple[str, str], name: str) -> FileRefusedError:
    """Return a refusal of a file by its name."""
    return FileRefusedError(words[0].format(name=name), words[1])
