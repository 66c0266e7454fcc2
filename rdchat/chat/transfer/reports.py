"""Progress and results of imports and exports; plain data that crosses between processes as JSON."""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rdchat.chat.plain_data import from_plain
from rdchat.work.job import Job

_TELL_S = 0.05


@dataclass(frozen=True, slots=True)
class NotTaken:
    """A chat that was not taken.

    Attributes:
        title: Its title, or its place in the file.
        reason: Why not, as a sentence.
    """

    title: str
    reason: str


@dataclass(frozen=True, slots=True)
class Without:
    """A chat that was taken, but for some of it.

    Attributes:
        title: Its title.
        parts: What was left out: `2 images, 1 tool call`.
    """

    title: str
    parts: str


@dataclass(frozen=True, slots=True)
class FileReport:
    """The result of importing one file: all of its chats appear at once, or none.

    Attributes:
        file: Its name.
        source: Whose format it has: `ChatGPT`; empty where that was not found out.
        chats: Ids of the chats that were taken.
        messages: Number of their messages.
        without: Those of them that lack something.
        already_here: Titles of chats that were left out because the store has them.
        not_taken: Chats that could not be taken.
        problem: Why nothing of the file was taken, as a sentence; empty where it could be read.
    """

    file: str
    source: str = ""
    chats: tuple[int, ...] = ()
    messages: int = 0
    without: tuple[Without, ...] = ()
    already_here: tuple[str, ...] = ()
    not_taken: tuple[NotTaken, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of an import.

    Attributes:
        files: In the order in which they were read.
        cancelled: Whether the person stopped it; the files before are taken.
    """

    files: tuple[FileReport, ...] = ()
    cancelled: bool = False

    @property
    def chats(self) -> tuple[int, ...]:
        """Ids of all chats that were taken."""
        return tuple(each for file in self.files for each in file.chats)

    @property
    def messages(self) -> int:
        return sum(file.messages for file in self.files)

    @property
    def already_here(self) -> int:
        return sum(len(file.already_here) for file in self.files)

    @property
    def not_taken(self) -> tuple[NotTaken, ...]:
        """Chats and files that were not taken."""
        return tuple(
            each
            for file in self.files
            for each in (*file.not_taken, *((NotTaken(file.file, file.problem),) if file.problem else ()))
        )

    @property
    def without(self) -> tuple[Without, ...]:
        return tuple(each for file in self.files for each in file.without)

    @property
    def complete(self) -> bool:
        """Whether every file and every chat was taken, or was here already."""
        return not self.cancelled and not self.not_taken

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads, with lists as JSON has them."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ImportReport":
        return from_plain(cls(), data)[0]


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The result of an export: so many `chats` were written to the file or folder `path`."""

    path: str = ""
    chats: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a long task.

    Attributes:
        words: What is being done: `Reading conversations.json`.
        fraction: Share that is done, from 0 to 1; None where that is not known.
    """

    words: str
    fraction: float | None = field(default=None)


class TaskProgress:
    """Reports the progress of a job as JSON (`Progress`), and ends the work of one that was cancelled."""

    def __init__(self, job: Job[Any], *, silent: bool = False) -> None:
        self.job, self._told = job, math.inf if silent else 0.0

    def tell(self, words: str, fraction: float) -> None:
        """Report progress, 20 times a second at most; raise StopWork if the job was cancelled."""
        self.check()
        if time.monotonic() - self._told >= _TELL_S:
            self._told = time.monotonic()
            self.job.tell({"words": words, "fraction": fraction})

    def check(self) -> None:
        """Raise StopWork if the job was cancelled."""
        self.job.check()


def counted_parts(parts: Mapping[str, int]) -> str:
    """Return `2 images, 1 tool call`; what is not worth telling has an empty name."""
    return ", ".join(f"{number:,} {name}{'s' if number > 1 and not name.endswith('s') else ''}"
                     for name, number in parts.items() if name and number)  # fmt: skip
