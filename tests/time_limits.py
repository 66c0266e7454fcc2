"""Ends what hangs, so that a test fails instead."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise where the block takes longer, even if it waits for a named pipe; in the main thread only."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
