"""Reads files in a child process with limits of time and memory: no file can block or crash this process."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rdchat.chat.attachments.attached_file import FileKind, FileRefusedError, ReadFile, shown_name
from rdchat.inference.prompts.watched_process import ChildError, WatchedProcess

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
        self._child = WatchedProcess("files")
        self._step_s, self._memory_bytes = step_s, memory_bytes

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
        opened = self._ask(name, {"do": "open", "path": os.path.abspath(path)}, waiting)  # noqa: PTH100  keeps links
        count = opened["parts"]
        texts: list[str] = []
        note = ""
        while len(texts) < count:
            tell(len(texts) / count)
            answer = self._ask(name, {"do": "read", "first": len(texts)}, waiting)
            texts += answer["texts"]
            note = answer["note"]
        return ReadFile(name, FileKind(opened["kind"]), tuple(texts), note)

    def close(self) -> None:
        """End the child. Idempotent; the next file starts another."""
        self._child.close()

    def _ask(self, name: str, request: dict[str, Any], waiting: Callable[[], None]) -> dict[str, Any]:
        try:
            answer = self._child.ask(request, self._step_s, self._memory_bytes, waiting)
        except ChildError as error:
            raise FileRefusedError(f"{name} {error.words}.", _HINT) from error
        if "failure" in answer:
            self._child.close()
            raise FileRefusedError(f"{name} {answer['failure']}.", _HINT)
        if "refused" in answer:
            raise FileRefusedError(answer["refused"], answer["hint"])
        return answer
