"""Work on the store that would hold the window up, done a slice at a time between the window's own events."""

from collections import deque
from collections.abc import Callable, Iterator

from PySide6.QtCore import QObject, QTimer

from rdchat.errors import StorageError


class SlicedWork(QObject):
    """Runs one iterator after the other, a step per turn of the event loop; the first step of each at once.

    Args:
        on_error: Told of a StorageError, which ends the iterator that raised it.
        parent: The Qt parent.
    """

    def __init__(self, on_error: Callable[[StorageError], object], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._on_error = on_error
        self._works: deque[tuple[Iterator[object], Callable[[], object]]] = deque()
        self._timer = QTimer(self, interval=0)
        self._timer.timeout.connect(self._step)

    @property
    def busy(self) -> bool:
        return bool(self._works)

    def run(self, work: Iterator[object], on_end: Callable[[], object] = lambda: None) -> None:
        """Do the work behind what is under way; `on_end` is called when it is done."""
        self._works.append((work, on_end))
        if len(self._works) == 1:
            self._step()

    def close(self) -> None:
        """Do no more; what is half done is erased or made anew at the next start."""
        self._timer.stop()
        self._works.clear()

    def _step(self) -> None:
        work, on_end = self._works[0]
        try:
            next(work)
        except StopIteration:
            self._works.popleft()
            on_end()
        except StorageError as error:
            self._works.popleft()
            self._on_error(error)
        if not self._works:
            self._timer.stop()
        elif not self._timer.isActive():
            self._timer.start()
