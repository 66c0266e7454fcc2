"""Reads files in a child process with limits of time and memory, so that no file can block or crash the app."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rdchat.chat.attachments.attached_file import FileKind, FileRefusedError, ReadFile, printable_name
from rdchat.errors import RdchatError
from rdchat.work.child_limits import ChildError, Limits
from rdchat.work.child_process import ChildProcess

# A page of a thousand drawings takes some seconds.
_STEP_S = 30.0
_MEMORY_BYTES = 1 << 30
_HINT = "The file may be damaged. Save it again in the app that made it, or choose another one."


class FileReader:
    """Reads one file at a time, on the calling thread; the child starts with the first file.

    Args:
        step_s: Time limit for opening a file, and for each of its pages.
        memory_bytes: Memory limit of the child.
    """

    def __init__(self, step_s: float = _STEP_S, memory_bytes: int = _MEMORY_BYTES) -> None:
        self._child = ChildProcess("files")
        self._limits = Limits(step_s, memory_bytes)

    def read(
        self,
        path: Path,
        on_progress: Callable[[float], object] = lambda _fraction: None,
        waiting: Callable[[], None] = lambda: None,
    ) -> ReadFile:
        """Read a file.

        Args:
            path: Any path that a person may drop.
            on_progress: Called on another thread with the share of pages read, from 0 to 1.
            waiting: Called every 20 ms; an exception from it ends the reading and is raised.

        Raises:
            FileRefusedError: If it cannot be read, or needs too much time or memory.
        """
        name = printable_name(path.name)
        arguments = {"path": os.path.abspath(path)}  # noqa: PTH100  keeps links
        try:
            read = partial(_file_of, name)
            job = self._child.submit("read_file", arguments, self._limits, read=read, on_progress=on_progress)
            result: ReadFile = job.result(waiting)
            return result
        except ChildError as error:
            raise FileRefusedError(f"{name} {error.reason}.", error.hint if error.interrupted else _HINT) from error
        except RdchatError as error:
            named = error.message.startswith(name)
            message = error.message if named else f"{name} could not be read. {error.message}"
            raise FileRefusedError(message, error.hint if named else _HINT) from error

    def close(self) -> None:
        """End the child. Idempotent; the next file starts another one."""
        self._child.close()


def _file_of(name: str, answer: Any) -> ReadFile:
    texts = answer["texts"]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise TypeError("no texts")
    return ReadFile(name, FileKind(answer["kind"]), tuple(texts), str(answer["note"]))
