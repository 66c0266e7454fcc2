"""Files attached to messages, and the form of their text in the prompt."""

import hashlib
import unicodedata
from dataclasses import dataclass
from enum import StrEnum

from rdchat.errors import RdchatError

MOST_CHARACTERS = 8_000_000  # of one file's text: no context holds more, and storing it must not hold the window up
_LONGEST_NAME = 120  # characters


class FileRefusedError(RdchatError):
    """A file cannot be read; the message says why, the hint what to do instead."""


class FileKind(StrEnum):
    """The format that a file was read as."""

    TEXT = "text"
    MARKDOWN = "markdown"
    CSV = "csv"
    HTML = "html"
    PDF = "pdf"
    DOCX = "docx"


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file as it was read.

    Attributes:
        name: Its own, in printable characters.
        kind: What it was read as.
        parts: The text of each page of a PDF; of others one text.
        note: What the person should know of how it was read, a sentence or two; empty for nothing.
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
    """A file of a message, without its text.

    Attributes:
        name: As of `ReadFile`.
        kind: What it was read as.
        digest: SHA-256 of the text, in hexadecimal; the store finds the text by it.
        characters: Length of the text.
        taken: Which part of the file the text is, such as `pages 1 to 4 of 90`; empty where it is all of it.
        note: As of `ReadFile`.
    """

    name: str
    kind: FileKind
    digest: str
    characters: int
    taken: str = ""
    note: str = ""


def attached(file: ReadFile, text: str, taken: str = "") -> AttachedFile:
    """Return the record of a file of which `text` is sent."""
    return AttachedFile(file.name, file.kind, digest_of(text), len(text), taken, file.note)


def whole_text(file: ReadFile) -> str:
    """Return all of a file's text, its pages marked."""
    return pages_text(file, range(len(file.parts))) if file.paged else file.parts[0]


def pages_text(file: ReadFile, pages: range | list[int]) -> str:
    """Return the text of some pages, counted from 0, each below its number; pages without text are left out."""
    return "\n\n".join(f"[page {each + 1}]\n{file.parts[each]}" for each in pages if file.parts[each])


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text as the store has it, without half surrogates."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def block_of(file: AttachedFile, text: str) -> str:
    """Return a file as the prompt has it: the same bytes each time, so that the prefix cache keeps them."""
    tag = "file" if "</file" not in text else f"file-{file.digest[:8]}"  # what is in it must not end it
    name = file.name.replace('"', "'")
    part = f' part="{file.taken}"' if file.taken else ""
    return f'<{tag} name="{name}"{part}>\n{text}\n</{tag}>'


def shown_name(name: str) -> str:
    """Return a file's name in printable characters, in one line of bounded length that keeps its ending."""
    if name.isascii() and name.isprintable() and 0 < len(name) <= _LONGEST_NAME and "  " not in name:
        return name.strip() or "file"  # as most are, of the hundreds in a long chat
    text = unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode())
    printable = "".join(each if each.isprintable() else " " for each in text)
    tidy = " ".join(printable.split()) or "file"
    return tidy if len(tidy) <= _LONGEST_NAME else f"{tidy[: _LONGEST_NAME - 21]}…{tidy[-20:]}"
