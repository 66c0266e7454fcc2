"""Files attached to messages: what is stored of one, its text in the prompt, and which part of a long one is sent.

`FileReader` reads a file into a `ReadFile`. A message has an `AttachedFile` of it, without the text, which the store
keeps by its digest. `block_of` writes a text into the prompt.

The second half, from `PASSAGE` on, is about a file that is too long to send. A `Part` is sent instead: pages that the
person chooses, or the passages that match the question best (`ranked`). A passage is a piece of at most `PASSAGE`
characters. Nothing here opens a file.
"""

import base64
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, count, groupby

from rdchat.chat.attachments.passage_index import PassageIndex
from rdchat.errors import RdchatError
from rdchat.files import format_of

# No context holds a longer text, and storing one must not block the window.
MAX_CHARACTERS = 8_000_000
MAX_IMAGE_BYTES = 50_000_000
MAX_FILES = 20
# No model here takes a longer message, and storing one would block the window.
MAX_MESSAGE_CHARACTERS = 2_000_000
_MAX_IMAGES_BYTES = 100_000_000
_LONGEST_NAME = 120
# Normalizing takes time with the square of the number of marks on one letter. So a longer name is cut before.
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
    # The store keeps texts by their digest. Without this word, a text file with the same bytes would have the same one.
    digest = f"image {hashlib.sha256(data).hexdigest()}"
    return AttachedFile(printable_name(name), FileKind.IMAGE, digest, len(text), "", note, width, height), text


def image_data(text: str) -> bytes:
    """Return the data of an image's text; ValueError if it is not base64."""
    return base64.b64decode(text, validate=True)


def too_large(files: Sequence[AttachedFile]) -> str:
    """Return why files cannot be stored with one message; empty if they can.

    The text of an image is base64: four characters for three bytes.
    """
    if sum(file.characters for file in files if file.kind is not FileKind.IMAGE) > MAX_MESSAGE_CHARACTERS:
        return f"The files have more than {MAX_MESSAGE_CHARACTERS // 10**6} million characters. Choose parts of them."
    if sum(file.characters for file in files if file.kind is FileKind.IMAGE) * 3 // 4 > _MAX_IMAGES_BYTES:
        return f"The images have more than {_MAX_IMAGES_BYTES // 10**6} MB. Remove some of them."
    return ""


def full_text(file: ReadFile) -> str:
    """Return all of a file's text, with marks between pages."""
    return _pages_text(file, range(1, len(file.parts) + 1)) if file.paged else file.parts[0]


def _pages_text(file: ReadFile, numbers: Sequence[int]) -> str:
    """Return the text of some pages, counted from 1, each under its number; pages without text are left out."""
    return "\n\n".join(f"[page {each}]\n{file.parts[each - 1]}" for each in numbers if file.parts[each - 1])


def block_of(file: AttachedFile, text: str) -> str:
    """Return a file's text as part of a prompt: always the same bytes, so that the prefix cache stays valid."""
    if file.kind is FileKind.IMAGE:
        return f"[{file.name}: an image that cannot be read]"
    name = file.name.replace('"', "'")
    # The part of an imported file may be any text.
    taken = " ".join(file.taken.replace('"', "'").split())
    part = f' part="{taken}"' if taken else ""
    rest = f' name="{name}"{part}>\n{text}\n'
    tag = free_tag("file", rest)
    return f"<{tag}{rest}</{tag}>"


def free_tag(name: str, text: str) -> str:
    """Return the first of `file`, `file-2`, `file-3`, … that neither begins nor ends in a text, in any case."""
    taken = set(re.findall(rf"<\s{{0,9}}/?\s{{0,9}}{name}(-[0-9]+)?", text.lower()))
    return name + next(each for each in chain([""], map("-{}".format, count(2))) if each not in taken)


def printable_name(name: str) -> str:
    """Return a file's name on one line of limited length, in printable characters, with its ending."""
    if name.isascii() and name.isprintable() and 0 < len(name) <= _LONGEST_NAME and "  " not in name:
        # This is a short cut: a long chat has hundreds of files, and nearly all names need nothing more.
        return name.strip() or "file"
    if len(name) > 2 * _LONGEST_READ:
        name = name[:_LONGEST_READ] + name[-_LONGEST_READ:]
    text = unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode())
    printable = "".join(each if each.isprintable() else " " for each in text)
    tidy = " ".join(printable.split()) or "file"
    return tidy if len(tidy) <= _LONGEST_NAME else f"{tidy[: _LONGEST_NAME - 21]}…{tidy[-20:]}"


# Parts of files that are too long to send.

# So many characters are some 300 tokens of English.
PASSAGE = 1200
# A longer first line of a CSV file is no head of a table.
_LONGEST_HEAD = 300
# Of more numbers, or ranges of numbers, only the count is written.
_MAX_NAMED = 12
_RANGE = re.compile(r"\s*(\d+)\s*(?:[-\u2013]\s*(\d+)\s*)?")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a file.

    Attributes:
        text: The text to send.
        label: Which part it is, such as `pages 1 to 4 of 90`; empty for all of it.
    """

    text: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a file, some hundred tokens long.

    Attributes:
        text: Its text.
        page: Page on which it begins, counted from 1; None where the file has no pages.
    """

    text: str
    page: int | None = None


def all_of(file: ReadFile) -> Part:
    """Return all of a file."""
    return Part(full_text(file))


def beginning(file: ReadFile, characters: int) -> Part:
    """Return at most `characters` from the beginning, cut at a line end if one is in the last tenth of them.

    The label has whole percents, at most 99 since something was cut; below 1 % one digit, such as `0.3%`.
    """
    text = full_text(file)
    if characters >= len(text):
        return Part(text)
    line_end = text.rfind("\n", characters * 9 // 10, characters)
    end = line_end if line_end > 0 else characters
    percent = max(end / len(text) * 100, 0.01)
    share = f"{percent:.1g}" if percent < 1 else f"{min(round(percent), 99)}"
    return Part(text[:end].rstrip(), f"the first {share}% of it")


def pages(file: ReadFile, chosen: Iterable[int]) -> Part:
    """Return some pages, counted from 1."""
    numbers = sorted({each for each in chosen if 1 <= each <= len(file.parts)})
    if len(numbers) == len(file.parts):
        return all_of(file)
    return Part(_pages_text(file, numbers), f"{numbers_text('page', numbers)} of {len(file.parts)}")


def parsed_pages(text: str, count: int) -> list[int] | None:
    """Read page numbers such as `1-4, 7`; None if they are invalid or a page does not exist."""
    numbers: list[int] = []
    for each in text.split(","):
        match = _RANGE.fullmatch(each)
        if match is None or len(match[1]) > 6 or len(match[2] or "") > 6:
            return None
        first = int(match[1])
        last = int(match[2] or match[1])
        if not 1 <= first <= last <= count:
            return None
        numbers += range(first, last + 1)
    return sorted(set(numbers))


def passages_of(file: ReadFile) -> list[Passage]:
    """Cut a file into passages at paragraphs where possible, else at lines, words, or anywhere.

    Each passage of a CSV file begins with the file's first line, which names the columns.
    """
    if not file.paged:
        texts = _cut(file.parts[0])
        head = file.parts[0].partition("\n")[0]
        if file.kind is FileKind.CSV and len(head) <= _LONGEST_HEAD:
            texts[1:] = [f"{head}\n{text}" for text in texts[1:]]
        return [Passage(text) for text in texts]
    return [Passage(text, page) for page, part in enumerate(file.parts, start=1) for text in _cut(part)]


def ranked(passages: Sequence[Passage], question: str) -> list[int]:
    """Return the indices of passages with words of the question, the best first; see `PassageIndex.ranked`."""
    return PassageIndex([("", [each.text for each in passages])]).ranked(question)[0]


def joined(passages: Sequence[Passage], chosen: Iterable[int]) -> Part:
    """Return passages in the file's order, with neighbours joined, each with its number and page."""
    indices = sorted(set(chosen))
    text = "\n\n".join(_run_text(passages, run) for run in _runs(indices))
    return Part(text, f"{numbers_text('passage', [each + 1 for each in indices])} of {len(passages)}")


def numbers_text(noun: str, numbers: Sequence[int]) -> str:
    """Return `page 3`, or `pages 1 to 4 and 7`, of sorted numbers; of many, only how many they are: `40 pages`."""
    names = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in _runs(numbers)]
    if len(names) > _MAX_NAMED:
        return f"{len(numbers)} {noun}s"
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{noun if len(numbers) == 1 else f'{noun}s'} {listed}"


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """Return sorted numbers as lists of consecutive ones: 1, 2, 3, 7 as 1 to 3, and 7."""
    # Number minus index is the same for all of a run, and larger for the next run.
    groups = groupby(enumerate(numbers), lambda indexed: indexed[1] - indexed[0])
    return [[number for _, number in group] for _, group in groups]


def _run_text(passages: Sequence[Passage], run: Sequence[int]) -> str:
    """Return the text of consecutive passages, by their indices, under a line with their numbers and pages."""
    first = passages[run[0]].page
    last = passages[run[-1]].page
    where = f", {numbers_text('page', range(first, last + 1))}" if first and last else ""
    numbers = numbers_text("passage", [each + 1 for each in run])
    return f"[{numbers}{where}]\n" + "\n".join(passages[each].text for each in run)


def _cut(text: str) -> list[str]:
    """Split a text into pieces of at most `PASSAGE` characters; see `piece_end`."""
    pieces: list[str] = []
    index = 0
    while index < len(text):
        end = piece_end(text, index, PASSAGE)
        piece = text[index:end].strip("\n")
        if piece.strip():
            pieces.append(piece)
        index = end
    return pieces


def piece_end(text: str, start: int, size: int) -> int:
    """Return where a piece of a text ends that begins at `start` and has at most `size` characters.

    It ends in the second half of these: behind the last paragraph that ends there, else behind the last line, else the
    last sentence, else the last word; else it has `size` characters.
    """
    end = start + size
    if end >= len(text):
        return len(text)
    earliest = start + size // 2
    ends = (text.rfind(mark, earliest, end) + len(mark) for mark in ("\n\n", "\n", ". ", " "))
    return next((each for each in ends if each > earliest), end)
