"""Progress and results of imports and exports: plain data, sent between processes as JSON."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rdchat.work.job import Job

_REPORT_INTERVAL_S = 0.05


@dataclass(frozen=True, slots=True)
class SkippedChat:
    """A chat that was not imported.

    Attributes:
        title: Its title, or its number in the file.
        reason: A sentence.
    """

    title: str
    reason: str


@dataclass(frozen=True, slots=True)
class PartialChat:
    """A chat that was imported without some of its parts.

    Attributes:
        parts: The parts that were left out: `2 images, 1 tool call`.
    """

    title: str
    parts: str


@dataclass(slots=True)
class FileReport:
    """The result of importing one file: all of its chats appear at once, or none.

    Attributes:
        file: Name of the file.
        source: The app whose format it has, such as `ChatGPT`; empty if unknown.
        chats: Ids of the imported chats.
        messages: Number of their messages.
        without: Imported chats that lack something.
        already_here: Titles of chats that were already in the store.
        not_taken: Chats that could not be imported.
        problem: A sentence: why nothing was imported; empty if the file could be read.
    """

    file: str
    source: str = ""
    chats: list[int] = field(default_factory=list)
    messages: int = 0
    without: list[PartialChat] = field(default_factory=list)
    already_here: list[str] = field(default_factory=list)
    not_taken: list[SkippedChat] = field(default_factory=list)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of an import.

    Attributes:
        files: A report for each file, in the order of reading.
        cancelled: Whether the person stopped it; earlier files are kept.
    """

    files: tuple[FileReport, ...] = ()
    cancelled: bool = False

    @property
    def chats(self) -> tuple[int, ...]:
        """Ids of all imported chats."""
        return tuple(each for file in self.files for each in file.chats)

    @property
    def messages(self) -> int:
        return sum(file.messages for file in self.files)

    @property
    def already_here(self) -> int:
        return sum(len(file.already_here) for file in self.files)

    @property
    def not_taken(self) -> tuple[SkippedChat, ...]:
        """Chats and files that were not imported."""
        return tuple(
            each
            for file in self.files
            for each in (*file.not_taken, *((SkippedChat(file.file, file.problem),) if file.problem else ()))
        )

    @property
    def without(self) -> tuple[PartialChat, ...]:
        return tuple(each for file in self.files for each in file.without)

    @property
    def complete(self) -> bool:
        """Whether every chat of every file was imported, or was here already."""
        return not self.cancelled and not self.not_taken


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The result of an export: number of `chats` written to the file or folder `path`."""

    path: str = ""
    chats: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a long task.

    Attributes:
        text: The present step: `Reading conversations.json`.
        fraction: Share done, from 0 to 1; None if unknown.
    """

    text: str
    fraction: float | None = None


class TaskProgress:
    """Reports the progress of a job as JSON (`Progress`), and ends the work if the job is cancelled."""

    def __init__(self, job: Job[Any], *, silent: bool = False) -> None:
        self.job = job
        self._reported_at = math.inf if silent else 0.0

    def report(self, text: str, fraction: float) -> None:
        """Report progress, at most 20 times a second; raise StopWork if the job was cancelled."""
        self.job.check()
        if time.monotonic() - self._reported_at >= _REPORT_INTERVAL_S:
            self._reported_at = time.monotonic()
            self.job.report_progress({"text": text, "fraction": fraction})


def counted_parts(parts: Mapping[str, int]) -> str:
    """Return such as `2 images, 1 tool call`; parts with an empty name are left out."""
    return ", ".join(f"{number:,} {name}{'s' if number > 1 and not name.endswith('s') else ''}"
                     for name, number in parts.items() if name and number)  # fmt: skip
