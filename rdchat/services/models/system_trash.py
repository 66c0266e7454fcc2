"""The system's Trash: the Finder's on a Mac, the freedesktop's on Linux."""

from pathlib import Path

from PySide6.QtCore import QFile


def move_to_system_trash(folder: Path) -> Path | None:
    """Move a folder to the Trash of its disk; return where it lies there, None where that cannot be done."""
    file = QFile(str(folder))
    moved = file.moveToTrash()
    place = Path(file.fileName())
    return place if moved and place != folder and file.fileName() else None
