"""Progress of long work on the terminal: one line that is written over, and nothing where nobody watches."""

import shutil
from types import TracebackType
from typing import Self, TextIO

from rdchat.inference.api.events import LoadProgress

_ERASE = "\r\x1b[K"


class ProgressLine:
    """Shows `LoadProgress` on a terminal; on a file or pipe each new stage gets a line where `verbose`.

    Args:
        stream: Usually standard error.
        verbose: Whether to name the stages where the stream is no terminal.
    """

    def __init__(self, stream: TextIO, verbose: bool = False) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._verbose = verbose
        self._stage = ""

    def show(self, progress: LoadProgress) -> None:
        """Show where the work stands."""
        percent = "" if progress.fraction is None else f" {progress.fraction:4.0%}"
        self.show_text(f"{progress.stage}…{percent}" if self._terminal else f"{progress.stage}…", progress.stage)

    def show_text(self, text: str, stage: str) -> None:
        """Show words in the place of the last ones; where that is no terminal, only the first words of a stage."""
        if self._terminal:
            self.write_over(text)
        elif self._verbose and stage != self._stage:
            self._stream.write(f"{text}\n")
        self._stage = stage
        self._stream.flush()

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self.clear()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def write_over(self, text: str) -> None:
        """Write a line in the place of the last one; the stream is a terminal."""
        room = shutil.get_terminal_size().columns - 1  # a line that is broken could not be erased
        self._stream.write(f"{_ERASE}{text[:room]}")
        self._stream.flush()

    def clear(self) -> None:
        """Take the line away, before something else is printed."""
        if self._terminal and self._stage:
            self._stream.write(_ERASE)
            self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()
