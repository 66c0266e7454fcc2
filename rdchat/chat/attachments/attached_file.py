"""Files attached to messages, and the form of their text in the prompt."""

import base64
import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rdchat.errors import RdchatError
from rdchat.files.image_formats import format_of

# No context holds a longer text, and storing one must not block the window.
MAX_CHARACTERS = 8_000_000
MAX_IMAGE_BYTES = 50_000_000
MAX_FILES = 20
# No model here takes a longer message, and storing one would block the window.
MAX_MESSAGE_CHARACTERS = 2_000_000
_MAX_IMAGES_BYTES = 100_000_000
_LONGEST_NAME = 120
# Normalizing takes as long as the square of a letter's marks.
_LONGEST_READ = 1000


class FileRefusedError(RdchatError):
    """A file cannot be read; the message gives the reason, the hint a remedy."""


class FileKind(StrEnum):
    """The format that a file was read as.

    Attributes:
        IMAGE: An image. Its text is the file as it was given, in base64.
    """

    TEXT = "text"
    MARKDOWN = "markdown"
    CSV = "csv"
    HTML = "html"
    PDF = "pdf"
    DOCX = "docx"
    IMAGE = "image"


@dataclass(frozen=True, slots=True)
class ReadFile:
    """The content of a file.

    Attributes:
        name: The file's name, in printable characters.
        kind: The format it was read as.
        parts: The text of each page of a PDF; one text for other formats.
        note: What the person should know about the reading, a sentence or two; may be empty.
    """

    name: str
    kind: FileKind
    parts: tuple[str, ...]
    note: str = ""

    @property
    def paged(self) -> bool:
        """Whether its parts are pages."""
        return self.kind is FileKind.PDF


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """A file attached to a message, without its text.

    Attributes:
        name: As in `ReadFile`.
        kind: The format it was read as.
        digest: SHA-256 of the text, in hexadecimal, or `image` with that of an image's data; the key of the text in
            the store. Images of earlier versions have no `image` in it.
        characters: Length of the text.
        taken: Which part of the file it is, such as `pages 1 to 4 of 90`; empty for all of it.
        note: As in `ReadFile`.
        width: Of an image, in pixels, as it is shown; 0 until it was decoded.
        height: As `width`.
    """

    name: str
    kind: FileKind
    digest: str
    characters: int
    taken: str = ""
    note: str = ""
    width: int = 0
    height: int = 0


def attached(file: ReadFile, text: str, taken: str = "") -> AttachedFile:
    """Return the record of a file whose `text` is sent; the digest is of the stored text, without lone surrogates."""
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    return AttachedFile(file.name, file.kind, digest, len(text), taken, file.note)


def image_file(data: bytes, name: str, note: str = "", width: int = 0, height: int = 0) -> tuple[AttachedFile, str]:
    """Return an image as a file with its text; a name without an ending gets that of its format."""
    text = base64.b64encode(data).decode()
    if "." not in name:
        known = format_of(data)
        name += f".{known.endings[0] if known else 'image'}"
    # Otherwise an image whose data are a text would stand in its place.
    digest = f"image {hashlib.sha256(data).hexdigest()}"
    return AttachedFile(printable_name(name), FileKind.IMAGE, digest, len(text), "", note, width, height), text


def image_data(text: str) -> bytes:
    """Return the data of an image's text; ValueError if it is not base64."""
    return base64.b64decode(text, validate=True)


def too_large(files: Sequence[AttachedFile]) -> str:
    """Return why files cannot be stored with one message; empty if they can."""
    if sum(file.characters for file in files if file.kind is not FileKind.IMAGE) > MAX_MESSAGE_CHARACTERS:
        return f"The files have more than {MAX_MESSAGE_CHARACTERS // 10**6} million characters. Choose parts of them."
    if sum(file.characters for file in files if file.kind is FileKind.IMAGE) * 3 // 4 > _MAX_IMAGES_BYTES:
        return f"The images have more than {_MAX_IMAGES_BYTES // 10**6} MB. Remove some of them."
    return ""


def full_text(file: ReadFile) -> str:
    """Return all of a file's text, with marks between pages."""
    return pages_text(file, range(len(file.parts))) if file.paged else file.parts[0]


def pages_text(file: ReadFile, pages: range | list[int]) -> str:
    """Return the text of some pages, counted from 0, each under its number; pages without text are left out."""
    return "\n\n".join(f"[page {each + 1}]\n{file.parts[each]}" for each in pages if file.parts[each])


def block_of(file: AttachedFile, text: str) -> str:
    """Return a file's text as part of a prompt: always the same bytes, so that the prefix cache stays valid."""
    if file.kind is FileKind.IMAGE:
        return f"[{file.name}: an image that cannot be read]"
    # The text must not contain its own end tag.
    tag = "file" if "</file" not in text else f"file-{file.digest[:8]}"
    name = file.name.replace('"', "'")
    part = f' part="{file.taken}"' if file.taken else ""
    return f'<{tag} name="{name}"{part}>\n{text}\n</{tag}>'


def printable_name(name: str) -> str:
    """Return a file's name on one line of limited length, in printable characters, with its ending."""
    if name.isascii() and name.isprintable() and 0 < len(name) <= _LONGEST_NAME and "  " not in name:
        # This is true for nearly all of the hundreds of files in a long chat.
        return name.strip() or "file"
    if len(name) > 2 * _LONGEST_READ:
        name = name[:_LONGEST_READ] + name[-_LONGEST_READ:]
    text = unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode())
    printable = "".join(each if each.isprintable() else " " for each in text)
    tidy = " ".join(printable.split()) or "file"
    return tidy if len(tidy) <= _LONGEST_NAME else f"{tidy[: _LONGEST_NAME - 21]}…{tidy[-20:]}"
