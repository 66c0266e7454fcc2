"""Reads the text of a PDF page by page, by pypdf."""

import io
import re
from typing import Any

from rdchat.chat.attachments.attached_file import FileRefusedError

_MOST_PAGES = 10_000
_DAMAGED = "Open it in Preview and export it as a new PDF."
_SPACES = re.compile(r"[ \t\u00a0]+")


class PdfPages:
    """An open PDF.

    Args:
        data: All of the file.
        name: For what is said of it.

    Raises:
        FileRefusedError: If it is damaged or protected.
    """

    def __init__(self, data: bytes, name: str) -> None:
        import pypdf  # noqa: PLC0415  only the reading process needs it

        self._name = name
        try:
            self._reader: Any = pypdf.PdfReader(io.BytesIO(data))
            if self._reader.is_encrypted and not self._unlock():
                raise FileRefusedError(
                    f"{name} is protected by a password.", "Save a copy without one, from Preview for instance."
                )
            self._count = len(self._reader.pages)
        except (FileRefusedError, MemoryError):
            raise
        except Exception as error:  # a stranger's file: anything can be wrong in it
            raise FileRefusedError(f"{name} is damaged, or no PDF.", _DAMAGED) from error
        if not self._count:
            raise FileRefusedError(f"{name} has no pages.", _DAMAGED)
        if self._count > _MOST_PAGES:
            raise FileRefusedError(
                f"{name} has {self._count:,} pages, and rdchat reads {_MOST_PAGES:,} at most.", "Split it first."
            )

    def __len__(self) -> int:
        return self._count

    def _unlock(self) -> bool:
        """Open what anybody may read: many PDFs are encrypted with an empty password."""
        try:
            return bool(self._reader.decrypt(""))
        except MemoryError:
            raise
        except Exception:  # an encryption that needs a package which is not there, too
            return False

    def text(self, page: int) -> str | None:
        """Return the text of a page, counted from 0; None where it cannot be read."""
        try:
            text = self._reader.pages[page].extract_text()
        except MemoryError:
            raise
        except Exception:  # this page's own damage
            return None
        lines = (_SPACES.sub(" ", line).rstrip() for line in text.replace("\r", "\n").split("\n"))
        joined = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
        return "".join(each if each >= " " or each in "\n\t" else "" for each in joined)
