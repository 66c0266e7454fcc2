"""Reads files in a child process with limits of time and memory: no file can block or crash this process."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rdchat.chat.attachments.attached_file import FileKind, FileRefusedError, ReadFile, shown_name
from rdchat.errors import RdchatError
from rdchat.work.child_limits import ChildError, Limits
from rdchat.work.child_process import ChildProcess

_STEP_S = 30.0  # opening, or a slice of pages: a page of a thousand drawings takes some seconds
_MEMORY_BYTES = 1 << 30
_HINT = "The file may be damaged. Save it anew from the app that made it, or choose another."


class FileReader:
    """Reads one file at a time, on whichever thread asks; the child is begun with the first one.

    Args:
        step_s: Limit of time for opening a file, and for each slice of its pages.
        memory_bytes: Limit of the memory that the child takes.
    """

    def __init__(self, step_s: float = _STEP_S, memory_bytes: int = _MEMORY_BYTES) -> None:
        self._child = ChildProcess("files")
        self._limits = Limits(step_s, memory_bytes)

    def read(
        self,
        path: Path,
        tell: Callable[[float], object] = lambda _fraction: None,
        waiting: Callable[[], None] = lambda: None,
    ) -> ReadFile:
        """Read a file.

        Args:
            path: Anything that a person may drop.
            tell: Called with the part that is read, from 0 to 1.
            waiting: Called every 20 ms; what it raises ends the reading and goes on to the caller.

        Raises:
            FileRefusedError: If it is nothing that can be read, or took too long or too much memory.
        """
        name = shown_name(path.name)
        opening = {"path": os.path.abspath(path)}  # noqa: PTH100  keeps links
        kind, count = self._ask(name, "open", opening, waiting, _kind_and_count)
        texts: list[str] = []
        note = ""
        while len(texts) < count:
            tell(len(texts) / count)
            more, note = self._ask(name, "read", {"first": len(texts)}, waiting, _texts_and_note)
            texts += more
        return ReadFile(name, kind, tuple(texts), note)

    def close(self) -> None:
        """End the child. Idempotent; the next file starts another."""
        self._child.close()

    def _ask[T](
        self, name: str, do: str, arguments: dict[str, Any], waiting: Callable[[], None], read: Callable[[Any], T]
    ) -> T:
        def read_or_refuse(answer: Any) -> T:
            if "refused" in answer:
                raise FileRefusedError(str(answer["refused"]), str(answer["hint"]))
            return read(answer)

        try:
            answer: T = self._child.submit(do, arguments, self._limits, read=read_or_refuse).result(waiting)
        except FileRefusedError:
            raise
        except ChildError as error:
            raise FileRefusedError(f"{name} {error.words}.", error.hint if error.interrupted else _HINT) from error
        except RdchatError as error:
            self._child.close()
            raise FileRefusedError(f"{name} could not be read. {error.message}", _HINT) from error
        return answer


def _kind_and_count(answer: Any) -> tuple[FileKind, int]:
    return FileKind(answer["kind"]), int(answer["parts"])


def _texts_and_note(answer: Any) -> tuple[list[str], str]:
    texts = answer["texts"]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise TypeError("no texts")
    return texts, str(answer["note"])
