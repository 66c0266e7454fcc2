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
    """A chat that was not imported."""

    title: str  # or its place in the file
    reason: str  # a sentence


@dataclass(frozen=True, slots=True)
class PartialChat:
    """A chat that was imported without some of its parts."""

    title: str
    parts: str  # what was left out: `2 images, 1 tool call`


@dataclass(slots=True)
class FileReport:
    """The result of importing one file: all of its chats appear at once, or none."""

    file: str  # its name
    source: str = ""  # the app whose format it has, such as `ChatGPT`; empty if unknown
    chats: list[int] = field(default_factory=list)  # ids of the imported chats
    messages: int = 0  # number of their messages
    without: list[PartialChat] = field(default_factory=list)  # imported chats that lack something
    already_here: list[str] = field(default_factory=list)  # titles of chats that were already in the store
    not_taken: list[SkippedChat] = field(default_factory=list)  # chats that could not be imported
    problem: str = ""  # a sentence that says why nothing was imported; empty if the file could be read


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of an import."""

    files: tuple[FileReport, ...] = ()  # in the order of reading
    cancelled: bool = False  # whether the person stopped it; earlier files are kept

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
    """Progress of a long task."""

    text: str  # what is happening: `Reading conversations.json`
    fraction: float | None = None  # share done, from 0 to 1; None if unknown


class TaskProgress:
    """Reports the progress of a job as JSON (`Progress`), and ends the work if the job is cancelled."""

    def __init__(self, job: Job[Any], *, silent: bool = False) -> None:
        self.job, self._reported_at = job, math.inf if silent else 0.0

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
