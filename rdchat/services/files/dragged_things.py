"""Finds out what a drop of files and folders on a window would do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from rdchat.chat.attachments.attached_file import shown_name
from rdchat.chat.attachments.glance import looks_readable
from rdchat.services.background.background_work import BackgroundWork


class Landing(Enum):
    """Where a drop lands."""

    NOWHERE = auto()  # the drop is refused, with a reason
    CHAT = auto()  # as files of the next message
    MODEL = auto()  # as the model that answers


@dataclass(frozen=True, slots=True)
class Dragged:
    """What is dragged."""

    paths: tuple[str, ...]  # of this machine
    landing: Landing
    name: str = ""  # of the file, or how many there are
    is_model: bool = False  # whether a drop is meant as a model


class DraggedThings(QObject):
    """Looks at files on a thread, since a sleeping disk takes seconds. Lives on the main thread.

    Args:
        problem: Returns why a model cannot be loaded, empty if it can. Called on a thread.
        takes_files: Whether files that are not models are taken.
        parent: The Qt parent.
    """

    seen = Signal(Dragged)

    def __init__(self, problem: Callable[[str], str], *, takes_files: bool, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._problem, self._takes_files = problem, takes_files
        self._task = BackgroundWork("dragged things", self)

    def look(self, paths: Sequence[str]) -> None:
        """Look at files; `seen` follows. If that fails, they are taken for a model, and the drop reports the error."""
        shown = tuple(paths)
        look = partial(_looked, shown, self._problem, takes_files=self._takes_files)
        unknown = Dragged(shown, Landing.NOWHERE, is_model=True)
        self._task.replace(look, self.seen.emit, failed=lambda _error: self.seen.emit(unknown))

    def close(self) -> None:
        """End the look."""
        self._task.close()


def is_model(path: Path) -> bool:
    """Tell whether a path is meant as a model: a folder, or a file of weights."""
    return path.suffix.lower() in {".gguf", ".safetensors"} or path.is_dir()


def _looked(paths: tuple[str, ...], problem: Callable[[str], str], _job: object, *, takes_files: bool) -> Dragged:
    if any(is_model(Path(path)) for path in paths) or not takes_files:
        fits = len(paths) == 1 and not problem(paths[0])
        landing = Landing.MODEL if fits else Landing.NOWHERE
        return Dragged(paths, landing, shown_name(Path(paths[0]).name), is_model=True)
    readable = [path for path in paths if looks_readable(Path(path))]
    if not readable:
        return Dragged(paths, Landing.NOWHERE)
    name = shown_name(Path(readable[0]).name) if len(readable) == 1 else f"{len(readable)} files"
    return Dragged(paths, Landing.CHAT, name)
