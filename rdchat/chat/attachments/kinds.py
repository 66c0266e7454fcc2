"""Recognises file formats by first bytes and name, refuses those that cannot be read, and decodes text files.

The window asks `looks_readable` and `is_image` about files that are dropped; `file_reader` uses the rest in its child.
A refusal is a pair of a message, with `{name}` for the file's name, and a hint.

The encoding of a text that is not UTF-8 is guessed by how common its letters are. Libraries for this, such as
charset-normalizer, guess wrong for short texts. Each candidate lists the letters of its languages, the commonest first.
A letter of the text counts for a candidate by its rank, and against it if none of its languages has the letter.
"""

import codecs
import re
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from rdchat.chat.attachments.attached_file import FileKind, FileRefusedError
from rdchat.files import FORMATS, UNREAD, format_of, is_placeholder, opened

_NAMES = {
    ".md": FileKind.MARKDOWN,
    ".markdown": FileKind.MARKDOWN,
    ".ipynb": FileKind.MARKDOWN,
    ".csv": FileKind.CSV,
    ".tsv": FileKind.CSV,
    ".html": FileKind.HTML,
    ".htm": FileKind.HTML,
    ".xhtml": FileKind.HTML,
}
_IMAGE_ENDINGS = {ending for each in FORMATS for ending in each.endings}
# Some programs put a line before the mark of a PDF.
_PDF_WITHIN = 1024
IMAGE_REFUSAL = "{name} is an image, not a text.", "Show it to a model with --image."
_SOUND = "{name} is audio or video, which rdchat cannot read.", "Type what is said."
_PROGRAM = "{name} is a program, not a text.", "Choose its source code instead."
_ARCHIVE = "{name} is an archive.", "Unpack it and choose files from it."
_RTF = "{name} is RTF, which rdchat does not read.", "Save it as DOCX or as plain text."
_PROTECTED = "{name} is protected by a password.", "Save a copy without a password."
# An old Office file, or a new one that is encrypted, and the name of the stream in it.
_OLE = b"\xd0\xcf\x11\xe0"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
# First bytes of files that cannot be read; a text may begin with the same letters.
_REFUSED_BEGINNINGS = (
    ((b"ID3", b"\xff\xfb", b"OggS", b"fLaC", b"\x1aE\xdf\xa3"), _SOUND),
    ((b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ"), _PROGRAM),
    ((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"Rar!", b"\x28\xb5\x2f\xfd"), _ARCHIVE),
    (_OLE, ("{name} is in an old Office format.", "Save it as DOCX, CSV or PDF.")),
    (b"SQLite format 3\0", ("{name} is a database.", "Export what you need from it as CSV.")),
    (b"GGUF", ("{name} is a GGUF model, which rdchat does not read.", "Look for its MLX version in Models > Find.")),
    (b"bplist", ("{name} is a binary property list.", "Convert it to XML first.")),
)
# ZIP archives of other formats, by a name in them, or by a folder.
_IN_ZIP = {
    "xl/workbook.xml": ("{name} is a spreadsheet.", "Save the sheet that you need as CSV."),
    "ppt/presentation.xml": ("{name} is a presentation.", "Save it as PDF."),
    "content.xml": ("{name} is an OpenDocument file.", "Save it as DOCX, CSV or PDF."),
    "Index/": ("{name} is a Pages, Numbers or Keynote document.", "Export it as PDF, DOCX or CSV."),
    "META-INF/container.xml": ("{name} is an EPUB book.", "Save it as PDF or HTML."),
}
_BINARY = "{name} is a binary file without text that rdchat can read.", "Export it as text, CSV or PDF."
# Byte order marks, with the encodings that they mean.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    # The mark of UTF-16 is the beginning of this one, so it comes later.
    ((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "utf-32"),
    ((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16"),
)
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_CHARSET_WITHIN = 4096
_HEAD = 4096
# Control characters, without \x1b: it sets colours in terminals, and logs keep it.
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
# A file with a larger share of them is binary.
_MAX_CONTROLS = 0.01
# Bytes from which an encoding is guessed.
_SAMPLE = 1 << 14
# A candidate needs this score (see `_score`), and so much more than that of Windows' Latin-1.
_MIN = 0.25
_MARGIN = 0.25
# Punctuation and signs that count the same for every candidate.
_SHARED = frozenset("“”‘’„‚‹›«»–—…•€°§©®™№·¿¡\u00a0、。，！？：；（）「」『』《》【】・ー")  # noqa: RUF001  punctuation in many scripts


def kind_of(data: bytes, name: str) -> FileKind | None:
    """Return a file's kind; None for a ZIP, whose content decides.

    First the first bytes count: image, PDF, ZIP, formats that are refused. Then the name's ending, then a beginning as
    HTML. All else is plain text.

    Args:
        data: The file, or its first 4 KB or more.
        name: Its name, with the ending.

    Raises:
        FileRefusedError: If rdchat cannot read its format.
    """
    head = data[:_HEAD]
    if begins_as_image(head):
        return FileKind.IMAGE
    # A text may be about PDFs, so a file with another ending is a PDF only if it is no text.
    is_named = name.casefold().endswith(".pdf") or "." not in name
    if b"%PDF-" in head[:_PDF_WITHIN] and (is_named or not _is_text(head)):
        return FileKind.PDF
    if head.startswith(b"PK\x03\x04"):
        return None
    if data.startswith(_OLE) and _ENCRYPTED in data:
        raise refused(_PROTECTED, name)
    _refuse_known(head, name)
    ending = f".{name.rpartition('.')[2].casefold()}" if "." in name else ""
    if ending in _NAMES:
        return _NAMES[ending]
    beginning = head[:_PDF_WITHIN].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return FileKind.HTML if beginning.startswith((b"<!doctype html", b"<html")) else FileKind.TEXT


def is_image(path: Path) -> bool:
    """Return whether a file begins like an image, or has the name of one and would have to be downloaded.

    Only decoding it shows whether it is one.
    """
    if is_placeholder(path):
        return path.suffix.casefold().removeprefix(".") in _IMAGE_ENDINGS
    with suppress(OSError):
        if path.is_file():
            with opened(path) as file:
                return begins_as_image(file.read(_HEAD))
    return False


def begins_as_image(head: bytes) -> bool:
    """Return whether the first bytes of a file are those of an image.

    A format with `brands`, such as HEIC, cannot be mistaken. A text may begin with the letters of others, such as `BM`.
    """
    image = format_of(head)
    if image is not None and image.brands:
        return True
    return (image is not None or UNREAD.match(head) is not None) and not _is_text(head)


def _refuse_known(head: bytes, name: str) -> None:
    """Raise FileRefusedError for a known format that cannot be read, by its first bytes."""
    # RTF is text itself, so it comes before that test.
    if head.startswith(b"{\\rtf"):
        raise refused(_RTF, name)
    if _is_text(head):
        return
    # The containers of most films and sounds.
    if head[4:8] == b"ftyp" or head.startswith(b"RIFF"):
        raise refused(_SOUND, name)
    for beginnings, refusal in _REFUSED_BEGINNINGS:
        if head.startswith(beginnings):
            raise refused(refusal, name)
    # In safetensors, a header in JSON follows its length in 64 bits.
    if head[8:9] == b"{" and head[4:8] == b"\0\0\0\0":
        raise refused(("{name} is a model's weights, not a text.", "Drop the model's folder to load it."), name)


def _is_text(head: bytes) -> bool:
    """Return whether a file is text although its first letters mean another format, such as `BM` or `MZ`.

    A file of such a format has bytes below 9, which is the tab, and a text has none.
    """
    return head[:2].isascii() and not any(byte < 9 for byte in head)


def kind_in_zip(members: set[str], name: str) -> FileKind:
    """Return the kind of a ZIP by the names in it; raises FileRefusedError for formats that cannot be read."""
    # Word for the web writes `document2.xml`.
    if any(each.startswith("word/document") for each in members):
        return FileKind.DOCX
    folders = {f"{each.partition('/')[0]}/" for each in members if "/" in each}
    refusals = (refusal for part, refusal in _IN_ZIP.items() if part in members or part in folders)
    raise refused(next(refusals, _ARCHIVE), name)


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
    """Return what `decoded` does, before control characters and line ends are replaced.

    The first of these that fits counts: a byte order mark, UTF-8, the encoding that a page declares, a guess. A file
    without a mark that has a zero byte is binary.
    """
    for marks, encoding in _MARKS:
        if data.startswith(marks):
            text = data.decode(encoding, "replace")
            return text, "Some of its characters are damaged." if "\ufffd" in text else ""
    if b"\0" in data:
        raise refused(_BINARY, name)
    with suppress(UnicodeDecodeError):
        return data.decode("utf-8"), ""
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
    # Looking at it would download it.
    if is_placeholder(path):
        return True
    try:
        if not path.is_file():
            return False
        with opened(path) as file:
            head = file.read(_HEAD)
        kind = kind_of(head, path.name)
        # Only reading shows what a ZIP is.
        if kind is None:
            return path.suffix.casefold() == ".docx"
        if kind not in {FileKind.PDF, FileKind.IMAGE}:
            decoded(head, path.name)
    except (OSError, FileRefusedError):
        return False
    return True


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """An encoding that a text may have, from `encodings.toml`.

    Attributes:
        codec: Its name in Python.
        name: Its name for people.
        letters: Letters of its languages, the commonest first.
        others: First and last of its rarer letters.
        has_latin: Whether its languages also use ASCII letters.
    """

    codec: str
    name: str
    letters: str
    others: Sequence[str] = ("", "")
    has_latin: bool = False


def _read_encodings() -> tuple[Encoding, ...]:
    """Return the candidates of `encodings.toml`, where languages share lists of letters."""
    text = resources.files("rdchat.chat.attachments").joinpath("encodings.toml").read_text("utf-8")
    data = tomllib.loads(text)
    return tuple(
        Encoding(**fields | {"letters": "".join(data["letters"][name] for name in fields["letters"])})
        for fields in data["encodings"]
    )


CANDIDATES = _read_encodings()


def guessed(data: bytes) -> tuple[str, str]:
    """Decode a text that is not UTF-8; return it and a note that names the guess and the next two.

    A text with more UTF-8 sequences than wrong bytes, such as a log that was cut, is UTF-8.
    """
    text = data.decode("utf-8", "replace")
    wrong = text.count("\ufffd")
    # This difference counts bytes less characters. A wrong byte adds two: its replacement has three bytes. Any other
    # character beyond ASCII adds one to three. Above three times `wrong`, these others add more than `wrong`.
    if len(text.encode()) - len(text) > 3 * wrong:
        return text, "Some of its bytes are not UTF-8 and were replaced."
    first = re.search(rb"[\x80-\xff]", data)
    start = max(first.start() - 1, 0) if first else 0
    sample = data[start : start + _SAMPLE]
    scores = {each: _score(sample, each) for each in CANDIDATES}
    ordered = sorted(CANDIDATES, key=lambda each: -scores[each])
    best = ordered[0]
    # Windows' Latin-1, the most common one.
    western = CANDIDATES[0]
    if scores[best] < max(_MIN, scores[western] + _MARGIN):
        best = western
    others = [each.name for each in ordered if each is not best][:2]
    note = f"It is not UTF-8. rdchat read it as {best.name}, which is a guess: letters may be wrong. If they are,"
    note += f" it may be {others[0]} or {others[1]}: save it as UTF-8."
    return data.decode(best.codec, "replace"), note


def _score(sample: bytes, encoding: Encoding) -> float:
    """Return the average weight of the characters beyond ASCII, from -1 to 1; see `_weight`."""
    # Incremental: the sample may end within a character.
    text = codecs.getincrementaldecoder(encoding.codec)("replace").decode(sample)
    # In an alphabet the rarest letter weighs 0.2; in other scripts all that are listed weigh 1.
    step = 0.8 / len(encoding.letters) if encoding.letters[0].islower() else 0.0
    by_letter = {letter: 1 - step * rank for rank, letter in enumerate(encoding.letters)}
    # With a space at both ends, `spaced[index]` stands before `text[index]`, and `spaced[index + 2]` after it.
    spaced = f" {text} "
    weights = [
        _weight(spaced[index], letter, spaced[index + 2], by_letter, encoding)
        for index, letter in enumerate(text)
        if letter > "\x7f"
    ]
    return sum(weights) / max(len(weights), 1)


def _weight(before: str, letter: str, after: str, by_letter: dict[str, float], encoding: Encoding) -> float:
    """Return the weight of a letter by its rank, less where its neighbours do not belong there.

    In a Latin alphabet, two accented letters are seldom side by side. In others, such as Cyrillic, no ASCII letter
    stands beside a letter. In none does a capital follow a small letter, a digit stand beside a letter, or the Greek
    final sigma stand inside a word.
    """
    if letter in _SHARED:
        return 0.4
    weight = by_letter.get(letter, by_letter.get(letter.lower(), -1.0))
    if weight < 0 and encoding.others[0] <= letter <= encoding.others[1]:
        weight = 0.1
    if letter.lower() == letter.upper():
        # The script has no alphabet, so any neighbours fit.
        return weight
    if encoding.has_latin:
        if before > "\x7f" and before.isalpha():
            weight -= 0.5
    elif any(each.isalpha() and each.isascii() for each in (before, after)):
        weight -= 1
    is_final_inside = letter == "ς" and after.isalpha()
    if (letter.isupper() and before.islower()) or is_final_inside or before.isdigit() or after.isdigit():
        weight -= 1
    return weight
