"""Slow work beside the main thread of which only the latest counts."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from PySide6.QtCore import QObject, Qt, Signal, Slot

from rdchat.errors import RdchatError
from rdchat.services.background.work_queue import Messenger, outcome_of

Tell = Callable[[object], None]


class LatestTask(QObject):
    """Does what is asked for on a thread of Python's, in place of what was asked for before. Lives on the main thread.

    Nothing is told any more of work that was replaced or stopped. It ends when it next tells something, or else by
    itself: a request to the hub cannot be cut short.

    Args:
        name: Of the threads.
        parent: The Qt parent.
    """

    told = Signal(object)  # what the work says in between
    done = Signal(object)  # what it returned
    failed = Signal(RdchatError)
    _came = Signal(int, str, object)

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self._number = 0
        self._messenger: Messenger | None = None  # of the latest task
        self._running = False
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._came.connect(self._take, Qt.ConnectionType.QueuedConnection)

    @property
    def running(self) -> bool:
        """Whether something is being done whose end is to be told."""
        return self._running

    def start(self, work: Callable[[Tell], object]) -> None:
        """Do this instead of what is being done; `done` or `failed` follows.

        Args:
            work: Is given a function that tells something in between, and that does not return once the work is not
                wanted any more: what it raises then is to be let through.
        """
        if self._closed:
            return
        self.stop()
        self._running = True
        self._messenger = Messenger(partial(self._came.emit, self._number))
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        about = (self._name, work, self._messenger)
        thread = threading.Thread(target=_run, args=about, name=self._name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Let nothing follow from what is being done."""
        self._number += 1
        self._running = False
        if self._messenger is not None:
            self._messenger.close()

    def close(self, timeout_s: float = 2.0) -> None:
        """Tell nothing more, and wait for what is being done, but not for ever: a disk or a hub may hang."""
        self._closed = True
        self.stop()
        end = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0))

    @Slot(int, str, object)
    def _take(self, number: int, what: str, value: object) -> None:
        if number != self._number:
            return
        if what == "told":
            self.told.emit(value)
            return
        self._running = False
        if isinstance(value, RdchatError):
            self.failed.emit(value)
        else:
            self.done.emit(value)


def _run(name: str, work: Callable[[Tell], object], messenger: Messenger) -> None:
    def tell(something: object) -> None:
        if not messenger.tell("told", something):
            raise _NotWantedError

    with suppress(_NotWantedError):
        messenger.tell("ended", outcome_of(lambda: work(tell), name))


class _NotWantedError(BaseException):
    """Ends work that was replaced or stopped; no work that catches its own errors catches this one."""
