"""Shows the progress of long work on the terminal, in one line that is overwritten."""

import shutil
from math import inf
from time import monotonic
from types import TracebackType
from typing import Self, TextIO

from rdchat.inference.api.events import LoadProgress

_ERASE = "\r\x1b[K"


class ProgressLine:
    """Shows progress on a terminal, and nothing or a line for each stage in a file or pipe.

    Args:
        stream: Usually standard error.
        verbose: Whether to print a line for each stage if the stream is not a terminal.
        repeat_s: Seconds after which a line of the same stage is printed there again.
        stays: Whether the last line stays on the terminal.
    """

    def __init__(self, stream: TextIO, verbose: bool = False, repeat_s: float = inf, stays: bool = False) -> None:
        self._stream, self._verbose, self._repeat_s, self._stays = stream, verbose, repeat_s, stays
        self._terminal = stream.isatty()
        self._stage = ""
        self._shown_at = 0.0

    def show(self, progress: LoadProgress) -> None:
        """Show the stage and its percentage."""
        percent = "" if progress.fraction is None else f" {progress.fraction:4.0%}"
        self.show_text(f"{progress.stage}…{percent}" if self._terminal else f"{progress.stage}…", progress.stage)

    def show_text(self, text: str, stage: str) -> None:
        """Show a text in place of the last one; in a file or pipe, only the first text of a stage."""
        if self._terminal:
            self._write_over(text)
        elif self._verbose and (stage != self._stage or monotonic() - self._shown_at > self._repeat_s):
            self._stream.write(f"{text}\n")
            self._shown_at = monotonic()
        self._stage = stage
        self._stream.flush()

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self.clear()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def _write_over(self, text: str) -> None:
        room = shutil.get_terminal_size().columns - 1  # a line that wraps could not be erased
        self._stream.write(f"{_ERASE}{text[:room]}")
        self._stream.flush()

    def clear(self) -> None:
        """Erase the line, before something else is printed."""
        if self._terminal and self._stage:
            self._stream.write(_ERASE)
            self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._stays:
            self.clear()
        elif self._terminal and self._stage:
            self._stream.write("\n")
