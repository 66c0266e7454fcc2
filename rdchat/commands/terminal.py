"""Terminal output: a progress line that is overwritten, tables, and Ctrl-C that keeps partial results."""

import io
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import inf
from time import monotonic
from types import FrameType

from rdchat.errors import InvalidSettingError, one_line, without_controls
from rdchat.inference.api.events import LoadProgress

# The shell's status for a process that Ctrl-C ended.
INTERRUPTED = 130
_ERASE = "\r\x1b[K"


class TerminalStream(io.TextIOWrapper):
    """Standard output or error on a terminal: what models, servers and files say cannot control it.

    Each write is checked for itself, so an escape sequence in several parts is no exception.

    Args:
        stream: The stream as Python opened it.
    """

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(stream.buffer, stream.encoding, stream.errors, line_buffering=True)
        # Collected before, it would close their file.
        self._original = stream

    def write(self, text: str) -> int:
        return super().write(without_controls(text))

    def erase_line(self) -> None:
        super().write(_ERASE)


class ProgressLine(AbstractContextManager["ProgressLine"]):
    """Shows progress on standard error: on a terminal; in a file or pipe, nothing or a line for each stage.

    Args:
        verbose: Whether to print a line for each stage if it is not a terminal.
        repeat_s: Seconds after which a stage's line is printed again there.
    """

    def __init__(self, verbose: bool = False, repeat_s: float = inf) -> None:
        self._stream = sys.stderr
        self._verbose = verbose
        self._repeat_s = repeat_s
        self._terminal = self._stream.isatty()
        self._stage = ""
        self._printed_at = 0.0

    def show(self, progress: LoadProgress) -> None:
        """Show the stage and its percentage."""
        percent = "" if progress.fraction is None else f" {progress.fraction:4.0%}"
        self.show_text(f"{progress.stage}…{percent}" if self._terminal else f"{progress.stage}…", progress.stage)

    def show_text(self, text: str, stage: str) -> None:
        """Show a text instead of the last one; in a file or pipe, only the first text of a stage."""
        if self._terminal:
            # A line that wraps could not be erased.
            room = shutil.get_terminal_size().columns - 1
            self._erase()
            self._stream.write(one_line(text)[:room])
        elif self._verbose and (stage != self._stage or monotonic() - self._printed_at > self._repeat_s):
            self._stream.write(f"{text}\n")
            self._printed_at = monotonic()
        self._stage = stage
        self._stream.flush()

    def print_line(self, text: str) -> None:
        """Write a line that stays."""
        self.clear()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def clear(self) -> None:
        """Erase the line, before something else is printed."""
        if self._terminal and self._stage:
            self._erase()
            self._stream.flush()

    def _erase(self) -> None:
        if isinstance(self._stream, TerminalStream):
            self._stream.erase_line()

    def __exit__(self, *_error: object) -> None:
        self.clear()


@contextmanager
def ctrl_c_calls(cancel: Callable[[], None]) -> Iterator[None]:
    """Call `cancel` at the first Ctrl-C in the block; a second one interrupts at once."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        cancel()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def agreed(yes: bool, question: str) -> bool:
    """Print what will be done, and ask unless `--yes` was given.

    Raises:
        InvalidSettingError: If there is nobody to ask.
    """
    print(question, file=sys.stderr)
    if yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidSettingError("There is no terminal to ask you.", "Add --yes.")
    print("Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines, with columns as wide as their widest cell; foreign text cannot break a line."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
