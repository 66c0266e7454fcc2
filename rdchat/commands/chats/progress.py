"""Shows the progress of imports, exports and backups in the terminal."""

from collections.abc import Callable
from typing import Any

from rdchat.chat.transfer.reports import Progress
from rdchat.commands.progress import ProgressLine
from rdchat.errors import one_line
from rdchat.work.job import Job


def counted(number: int, name: str) -> str:
    """Return `1 chat` or `1,204 chats`."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def shown_progress(line: ProgressLine) -> Callable[[Progress], None]:
    """Return what shows progress in a line."""

    def show(progress: Progress) -> None:
        percent = "" if progress.fraction is None else f" {progress.fraction:4.0%}"
        line.show_text(f"{one_line(progress.words)}…{percent}", progress.words)

    return show


def shown_job(line: ProgressLine) -> Job[Any]:
    """Return a job for work in this process that shows its progress in a line."""
    show = shown_progress(line)
    return Job(lambda told: show(Progress(told["words"], told["fraction"])))
