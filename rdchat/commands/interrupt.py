"""Lets Ctrl-C end work so that partial results are still reported."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130  # the shell's status for a process that Ctrl-C ended


@contextmanager
def ctrl_c_calls(cancel: Callable[[], None]) -> Iterator[None]:
    """Call `cancel` at the first Ctrl-C inside; a second one does not wait."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        cancel()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
