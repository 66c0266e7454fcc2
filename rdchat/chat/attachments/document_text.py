"""Reads the text of DOCX files, with headings, lists and tables (by mammoth), and of PDF files, by page (by pypdf)."""

import io
import re
import zipfile
from collections.abc import Callable
from typing import TYPE_CHECKING
from xml.parsers import expat

from rdchat.chat.attachments.attached_file import FileRefusedError
from rdchat.chat.attachments.html_text import html_to_text
from rdchat.chat.attachments.kinds import refused

if TYPE_CHECKING:
    import pypdf

_MOST_BYTES = 256 << 20  # unpacked, with pictures
_MOST_XML_BYTES = 32 << 20  # of one part; its tree takes some twenty times as much memory
_PICTURES = "word/media/"
_CHUNK = 1 << 12  # small, because what follows a declaration is read with it
_DTD, _ELEMENT = "declaration", "element"  # a declaration must come before the first element
_DAMAGED_DOCX = "{name} is damaged or not a DOCX file.", "Open it in Word or Pages and save it again."
_LARGE = "{name} is too large for rdchat.", "Save the part that you need as a separate file."
_MOST_PAGES = 10_000
_DAMAGED = "Open it in Preview and export it as a new PDF."
_SPACES = re.compile(r"[ \t\u00a0]+")


def docx_text(data: bytes, name: str) -> tuple[str, str]:
    """Return the text and a note.

    Raises:
        FileRefusedError: If it is damaged or too large.
    """
    import mammoth  # noqa: PLC0415  only the reading process needs it

    try:
        safe = io.BytesIO(_without_dtds(data, name))
        html = mammoth.convert_to_html(safe, convert_image=lambda _image: []).value
    except (FileRefusedError, MemoryError):
        raise
    except Exception as error:  # a foreign file: anything can be wrong in it
        raise refused(_DAMAGED_DOCX, name) from error
    text = html_to_text(html)
    if not text.strip():
        raise FileRefusedError(f"{name} has no text.", "It may have only pictures, which rdchat cannot read yet.")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        has_pictures = any(each.startswith(_PICTURES) for each in archive.namelist())
    return text, "Its pictures were left out." if has_pictures else ""


def _without_dtds(data: bytes, name: str) -> bytes:
    """Return a DOCX without the parts that have a document type declaration, whose entities could grow without end.

    Word never writes one. An SVG picture may have one, and is not read; without its text part, a document is damaged.
    All parts are checked, because a relationship may make any of them the text.

    Raises:
        FileRefusedError: If it is too large.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()  # reading a member gives no more bytes than listed here
        if sum(each.file_size for each in members) > _MOST_BYTES:
            raise refused(_LARGE, name)
        kinds = {each: _beginning_of(archive, each) for each in members}
        for each, kind in kinds.items():
            if kind == _ELEMENT and each.file_size > _MOST_XML_BYTES and not each.filename.startswith(_PICTURES):
                raise refused(_LARGE, name)
        if _DTD not in kinds.values():
            return data
        copy = io.BytesIO()
        with zipfile.ZipFile(copy, "w") as kept:
            for each, kind in kinds.items():
                if kind == _ELEMENT:  # nothing else is read
                    kept.writestr(each.filename, archive.read(each))
        return copy.getvalue()


def _beginning_of(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str | None:
    """Return what a part begins with, `_DTD` or `_ELEMENT`, by mammoth's own parser; None if it is not XML."""
    found: list[str] = []
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = lambda *_declaration: found.append(_DTD)
    parser.StartElementHandler = lambda *_element: found.append(_ELEMENT)
    try:
        with archive.open(member) as file:
            while not found and (chunk := file.read(_CHUNK)):
                parser.Parse(chunk)
        if not found:
            parser.Parse(b"", True)
    except MemoryError:
        raise
    except Exception:  # noqa: S110  no XML, or cannot be unpacked: a picture may be damaged, and mammoth tells of the text
        pass
    return found[0] if found else None


def pdf_texts(data: bytes, name: str, tell: Callable[[float], object]) -> tuple[list[str], str]:
    """Return the text of each page and a note on pages without text.

    Args:
        data: The whole file.
        name: Its name.
        tell: Called with the share of pages read.

    Raises:
        FileRefusedError: If it is damaged, protected, or has no text.
    """
    pages = _opened(data, name)
    texts: list[str] = []
    unreadable: list[int] = []
    for page in range(len(pages)):
        tell(page / len(pages))
        text = _text_of(pages, page)
        if text is None:
            unreadable.append(page + 1)
        texts.append((text or "").strip("\n"))
    empty = [page for page, text in enumerate(texts, start=1) if page not in unreadable and not text.strip()]
    if len(unreadable) == len(texts):
        raise FileRefusedError(f"{name} is damaged: none of its pages can be read.", "Export it again.")
    if len(unreadable) + len(empty) == len(texts):
        raise FileRefusedError(
            f"{name} has no text: its pages are pictures, for example scans.",
            "Use another app to recognise the text, and save the result.",
        )
    notes = [f"{_pages_words(unreadable)} could not be read."] if unreadable else []
    verb = "has" if len(empty) == 1 else "have"
    notes += [f"{_pages_words(empty)} {verb} no text, perhaps pictures."] if empty else []
    return texts, " ".join(notes)


def _opened(data: bytes, name: str) -> "list[pypdf.PageObject]":
    import pypdf  # noqa: PLC0415  only the reading process needs it

    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not _unlock(reader):
            raise FileRefusedError(
                f"{name} is protected by a password.", "Save a copy without a password, for example in Preview."
            )
        count = len(reader.pages)
    except (FileRefusedError, MemoryError):
        raise
    except Exception as error:  # a foreign file: anything can be wrong in it
        raise FileRefusedError(f"{name} is damaged or not a PDF file.", _DAMAGED) from error
    if not count:
        raise FileRefusedError(f"{name} has no pages.", _DAMAGED)
    if count > _MOST_PAGES:
        raise FileRefusedError(
            f"{name} has {count:,} pages, and rdchat reads at most {_MOST_PAGES:,}.", "Split it first."
        )
    return reader.pages  # type: ignore[return-value]  # a sequence, read when asked for


def _unlock(reader: "pypdf.PdfReader") -> bool:
    """Open a PDF that is encrypted with an empty password, as many are."""
    try:
        return bool(reader.decrypt(""))
    except MemoryError:
        raise
    except Exception:  # includes encryption that needs a missing package
        return False


def _text_of(pages: "list[pypdf.PageObject]", page: int) -> str | None:
    """Return the text of a page; None where it cannot be read."""
    try:
        text = pages[page].extract_text()
    except MemoryError:
        raise
    except Exception:  # damage of this page
        return None
    lines = (_SPACES.sub(" ", line).rstrip() for line in text.replace("\r", "\n").split("\n"))
    joined = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
    return "".join(each if each >= " " or each in "\n\t" else "" for each in joined)


def _pages_words(pages: list[int]) -> str:
    """Return `Page 3`, or `Pages 3, 4 and 12`; only the first ones of many."""
    if len(pages) == 1:
        return f"Page {pages[0]}"
    if len(pages) > 8:
        return f"Pages {', '.join(map(str, pages[:6]))} and {len(pages) - 6} more"
    return f"Pages {', '.join(map(str, pages[:-1]))} and {pages[-1]}"
