"""The process that reads the files a person brings: `rdchat --child files`.

It answers one request after the other on its standard input, and ends where that ends. It opens files for reading only,
and holds nothing that is worth keeping: `file_reader` ends it where it takes too long or too much memory.
"""

import json
import signal
from pathlib import Path
from typing import Any

from rdchat.chat.attachments.attached_file import FileRefusedError
from rdchat.chat.attachments.opened_file import OpenedFile
from rdchat.inference.prompts.frames import child_streams, read_frame, write_frame


class RequestHandler:
    """Answers the parent's requests: one method for each kind."""

    def __init__(self) -> None:
        self._file: OpenedFile | None = None

    def open(self, path: str) -> dict[str, Any]:
        """Open a file in the place of the last one."""
        self._file = None  # its memory first
        self._file = OpenedFile(Path(path))
        return {"kind": self._file.kind.value, "parts": self._file.count}

    def read(self, first: int) -> dict[str, Any]:
        """Read some parts of the open file, and say what is to be said of those read so far."""
        assert self._file is not None
        texts = self._file.read(first)
        return {"texts": [text.encode("utf-8", "replace").decode() for text in texts], "note": self._file.note}


def _answer(handler: RequestHandler, request: dict[str, Any]) -> dict[str, Any]:
    signal.setitimer(signal.ITIMER_REAL, request["seconds"])  # ends this process where nobody is left to do so
    try:
        return handler.open(request["path"]) if request["do"] == "open" else handler.read(request["first"])
    except FileRefusedError as error:
        return {"refused": error.message, "hint": error.hint}
    except MemoryError:
        return {"failure": "took more memory than there is"}
    except RecursionError:
        return {"failure": "is nested too deeply"}
    except Exception as error:  # a stranger's file: anything can be wrong in it
        return {"failure": f"could not be read ({type(error).__name__})"}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main() -> None:
    """Answer requests until standard input ends."""
    source, sink = child_streams()
    write_frame(sink, json.dumps({"ready": True}).encode())
    handler = RequestHandler()
    while (frame := read_frame(source)) is not None:
        write_frame(sink, json.dumps(_answer(handler, json.loads(frame))).encode())
