"""Reads the text of a PDF page by page, by pypdf."""

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from rdchat.chat.attachments.attached_file import FileRefusedError

if TYPE_CHECKING:
    import pypdf

_MOST_PAGES = 10_000
_DAMAGED = "Open it in Preview and export it as a new PDF."
_SPACES = re.compile(r"[ \t\u00a0]+")


def pdf_texts(data: bytes, name: str, tell: Callable[[float], object]) -> tuple[list[str], str]:
    """Return the text of each page and a note on pages without text.

    Args:
        data: All of the file.
        name: Its name.
        tell: Called with the share of the pages that is read.

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
        raise FileRefusedError(f"{name} is damaged: none of its pages can be read.", "Export it anew.")
    if len(unreadable) + len(empty) == len(texts):
        raise FileRefusedError(
            f"{name} has no text: its pages are pictures, such as scans.",
            "Have another app recognise the text first, and save that.",
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
                f"{name} is protected by a password.", "Save a copy without one, from Preview for instance."
            )
        count = len(reader.pages)
    except (FileRefusedError, MemoryError):
        raise
    except Exception as error:  # a stranger's file: anything can be wrong in it
        raise FileRefusedError(f"{name} is damaged, or no PDF.", _DAMAGED) from error
    if not count:
        raise FileRefusedError(f"{name} has no pages.", _DAMAGED)
    if count > _MOST_PAGES:
        raise FileRefusedError(
            f"{name} has {count:,} pages, and rdchat reads {_MOST_PAGES:,} at most.", "Split it first."
        )
    return reader.pages  # type: ignore[return-value]  # a sequence, read when asked for


def _unlock(reader: "pypdf.PdfReader") -> bool:
    """Open what anybody may read: many PDFs are encrypted with an empty password."""
    try:
        return bool(reader.decrypt(""))
    except MemoryError:
        raise
    except Exception:  # an encryption that needs a package which is not there, too
        return False


def _text_of(pages: "list[pypdf.PageObject]", page: int) -> str | None:
    """Return the text of a page; None where it cannot be read."""
    try:
        text = pages[page].extract_text()
    except MemoryError:
        raise
    except Exception:  # this page's own damage
        return None
    lines = (_SPACES.sub(" ", line).rstrip() for line in text.replace("\r", "\n").split("\n"))
    joined = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
    return "".join(each if each >= " " or each in "\n\t" else "" for each in joined)


def _pages_words(pages: list[int]) -> str:
    """Return `Page 3`, or `Pages 3, 4 and 12`; of many the first ones."""
    if len(pages) == 1:
        return f"Page {pages[0]}"
    if len(pages) > 8:
        return f"Pages {', '.join(map(str, pages[:6]))} and {len(pages) - 6} more"
    return f"Pages {', '.join(map(str, pages[:-1]))} and {pages[-1]}"
