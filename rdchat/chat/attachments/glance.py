"""Whether a file may be read, by its name and its first bytes alone."""

from pathlib import Path

from rdchat.chat.attachments.attached_file import FileKind, FileRefusedError
from rdchat.chat.attachments.decoding import decoded
from rdchat.chat.attachments.kinds import kind_of

_HEAD = 4096  # bytes


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
