"""Finds out what files that are dragged over a window would become if they were dropped."""

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
    """Where they would land."""

    NOWHERE = auto()  # dropped all the same, they are refused in words
    CHAT = auto()  # as files of the next message
    MODEL = auto()  # as the model that answers


@dataclass(frozen=True, slots=True)
class Dragged:
    """What is dragged.

    Attributes:
        paths: Of this machine.
        landing: What would become of it.
        name: Of the file, or how many there are.
    """

    paths: tuple[str, ...]
    landing: Landing
    name: str = ""


class DraggedThings(QObject):
    """Looks at them beside the window: a disk that sleeps may take its time. Lives on the main thread.

    Args:
        problem: Returns why a model cannot be loaded; empty where nothing stands against it. Called on a thread.
        takes_files: Whether files that are no models have a place to land.
        parent: The Qt parent.
    """

    seen = Signal(Dragged)

    def __init__(self, problem: Callable[[str], str], *, takes_files: bool, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._problem, self._takes_files = problem, takes_files
        self._task = BackgroundWork("dragged things", self)

    def look(self, paths: Sequence[str]) -> None:
        """Look at these; `seen` follows. Where that fails, the drop says what is wrong."""
        self._task.replace(partial(_looked, tuple(paths), self._problem, takes_files=self._takes_files), self.seen.emit)

    def close(self) -> None:
        """Look no more."""
        self._task.close()


def is_model(path: Path) -> bool:
    """Tell whether something that is dropped is meant as a model: a folder, or a file of weights."""
    return path.suffix.lower() in {".gguf", ".safetensors"} or path.is_dir()


def _looked(paths: tuple[str, ...], problem: Callable[[str], str], _job: object, *, takes_files: bool) -> Dragged:
    if any(is_model(Path(path)) for path in paths) or not takes_files:
        fits = len(paths) == 1 and not problem(paths[0])
        return Dragged(paths, Landing.MODEL if fits else Landing.NOWHERE, shown_name(Path(paths[0]).name))
    readable = [path for path in paths if looks_readable(Path(path))]
    if not readable:
        return Dragged(paths, Landing.NOWHERE)
    name = shown_name(Path(readable[0]).name) if len(readable) == 1 else f"{len(readable)} files"
    return Dragged(paths, Landing.CHAT, name)
