"""Tells what a drop of files and folders on a window would do."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rdchat.chat.attachments.attached_file import printable_name
from rdchat.chat.attachments.kinds import looks_readable


@dataclass(frozen=True, slots=True)
class Dragged:
    """Files and folders that are dragged or dropped.

    Attributes:
        paths: Of this machine.
        is_model: Else they are files for the next message.
        name: Of the file, or how many there are; empty if nothing can be read.
        problem: Why a model cannot be loaded, a sentence or two.
    """

    paths: tuple[str, ...]
    is_model: bool
    name: str = ""
    problem: str = ""


def look_at(paths: tuple[str, ...], problem: Callable[[str], str], *, takes_files: bool) -> Dragged:
    """Look at files and folders, which takes seconds on a sleeping disk.

    Args:
        paths: Where they are; not empty.
        problem: Returns why a model cannot be loaded, empty if it can.
        takes_files: Whether files that are not models are taken.
    """
    if any(is_model(Path(path)) for path in paths) or not takes_files:
        if len(paths) > 1:
            problem_text = f"{len(paths)} things were dropped. Drop one model folder, or one GGUF file."
            return Dragged(paths, is_model=True, problem=problem_text)
        return Dragged(paths, True, printable_name(Path(paths[0]).name), problem(paths[0]))
    readable = [path for path in paths if looks_readable(Path(path))]
    one = printable_name(Path(readable[0]).name) if readable else ""
    return Dragged(paths, False, f"{len(readable)} files" if len(readable) > 1 else one)


def is_model(path: Path) -> bool:
    """Tell whether a path is meant as a model: a folder, or a file of weights."""
    return path.suffix.lower() in {".gguf", ".safetensors"} or path.is_dir()
