"""The undo history of the list of conversations."""

from collections.abc import Callable
from dataclasses import dataclass

from rdchat.errors import StorageFullError, StorageLockedError

_MOST = 100


@dataclass(frozen=True, slots=True)
class Step:
    """A step that can be undone.

    Attributes:
        words: What, such as `Delete “Soup”`.
        undo: Takes it back; raises StorageError where the store does not let it.
    """

    words: str
    undo: Callable[[], object]


class UndoHistory:
    """The last steps of this run of the app, latest first to be undone."""

    def __init__(self) -> None:
        self._steps: list[Step] = []

    @property
    def words(self) -> str:
        """What would be undone next; empty where there is nothing."""
        return self._steps[-1].words if self._steps else ""

    @property
    def last(self) -> Step | None:
        """The step that would be undone next."""
        return self._steps[-1] if self._steps else None

    def add(self, words: str, undo: Callable[[], object]) -> None:
        self._steps = [*self._steps[1 - _MOST :], Step(words, undo)]

    def undo(self) -> None:
        """Take the last step back; it stays to be tried again where the disk is in the way.

        Raises:
            StorageError: Such as that what it was done to is deleted for good by now; then the step is forgotten.
        """
        if self._steps:
            step = self._steps.pop()
            try:
                step.undo()
            except (StorageFullError, StorageLockedError):
                self._steps.append(step)
                raise
