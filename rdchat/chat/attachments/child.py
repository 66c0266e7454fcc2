"""The process that reads the files a person brings: `rdchat --child files`. `FileReader` asks it.

It opens files for reading only, and holds nothing that is worth keeping.
"""

from pathlib import Path
from typing import Any

from rdchat.chat.attachments.attached_file import FileRefusedError
from rdchat.chat.attachments.opened_file import OpenedFile
from rdchat.errors import RdchatError
from rdchat.work.job import Job
from rdchat.work.served import serve


class FileCalls:
    """What the parent may ask."""

    def __init__(self) -> None:
        self._file: OpenedFile | None = None

    def open(self, _job: Job[Any], path: str) -> dict[str, Any]:
        """Open a file in the place of the last one."""
        self._file = None  # its memory first
        try:
            self._file = OpenedFile(Path(path))
        except FileRefusedError as error:
            return {"refused": error.message, "hint": error.hint}
        return {"kind": self._file.kind.value, "parts": self._file.count}

    def read(self, _job: Job[Any], first: int) -> dict[str, Any]:
        """Read some parts of the open file; return them with what is to be said of those read so far."""
        assert self._file is not None
        try:
            texts = self._file.read(first)
        except FileRefusedError as error:
            return {"refused": error.message, "hint": error.hint}
        except RecursionError as error:
            raise RdchatError("It is nested too deeply.") from error
        return {"texts": [text.encode("utf-8", "replace").decode() for text in texts], "note": self._file.note}


def main() -> int:
    """Answer requests until the parent has gone."""
    calls = FileCalls()
    return serve({"open": calls.open, "read": calls.read})
