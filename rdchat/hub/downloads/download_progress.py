"""What is asked of a download and what it tells, as plain data: it crosses between processes as lines of JSON."""

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any


class DownloadState(StrEnum):
    """Where a download stands. The last four are its ends; a paused or failed one can be resumed."""

    WAITING = "waiting"  # for others, of which so many go on at once
    ASKING = "asking"  # the hub, for its files
    DOWNLOADING = "downloading"
    CHECKING = "checking"  # checksums of what was here
    PAUSED = "paused"
    FAILED = "failed"
    FINISHED = "finished"
    REMOVED = "removed"  # nothing of it is left

    @property
    def has_ended(self) -> bool:
        return self in {DownloadState.PAUSED, DownloadState.FAILED, DownloadState.FINISHED, DownloadState.REMOVED}


@dataclass(frozen=True, slots=True)
class DownloadRequest:
    """What is to be downloaded.

    Attributes:
        id: The one who asks chose it.
        repository: The hub id.
        revision: A branch, tag or commit.
        gguf: The GGUF file to take, where there are several; empty for the only one, or for an MLX model.
    """

    id: str
    repository: str
    revision: str = "main"
    gguf: str = ""


@dataclass(frozen=True, slots=True)
class DownloadLimits:
    """How downloads are done.

    Attributes:
        at_once: Downloads that go on together; the others wait.
        files_at_once: Files of one download that are fetched together.
        stall_s: Seconds without data after which a connection is given up and made anew.
        connect_s: Seconds that making a connection may take.
        first_wait_s, longest_wait_s: Between two tries; each wait is twice the last one.
        tries: In a row that bring no byte, after which a download has failed.
        longest_retry_after_s: That the hub may ask to wait; where it asks for more, the download has failed.
        reserve_bytes: Of the disk that stay free.
        tick_s: Between two reports of progress.
        lock_wait_s: That a download waits for another program that downloads the same model; then it has failed.
    """

    at_once: int = 2
    files_at_once: int = 3
    stall_s: float = 30.0
    connect_s: float = 15.0
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0
    tries: int = 8
    longest_retry_after_s: float = 600.0
    reserve_bytes: int = 500_000_000
    tick_s: float = 0.25
    lock_wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FileProgress:
    """A file of a download: bytes that are here of how many, partial ones included.

    Attributes:
        name: Its path in the repository.
        done_bytes: That are here.
        size: In bytes.
        note: What happens to its connection now; empty while data comes.
        bytes_per_second: Of the last seconds; None where it is not being fetched.
    """

    name: str
    done_bytes: int
    size: int
    note: str = ""
    bytes_per_second: float | None = None

    @property
    def seconds_left(self) -> float | None:
        """Seconds at the present speed; None where that says nothing."""
        return (self.size - self.done_bytes) / self.bytes_per_second if self.bytes_per_second else None


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """Where a download stands.

    Attributes:
        id: Which download.
        repository: The hub id.
        revision: The branch, tag or commit that was asked for.
        state: What goes on.
        commit: The commit that it stands for; empty until the hub has said it.
        files: By name; empty until then.
        left_out: How many files of the repository are not fetched, such as pickles and code.
        fetched_bytes: That came over the network since it was last begun or resumed.
        bytes_per_second: Of the last seconds; None where nothing is being fetched.
        notes: What happens to connections now, such as "No data for 30 s. Trying again in 2 s."; a sentence or two
            for each file that waits.
        problem, hint: Why it failed, and what to do.
        folder: The snapshot's folder once it is finished.
        gguf: The GGUF file that was asked for; empty for the only one, or for an MLX model.
        lack: What the hub wants before it gives the model (`hub_errors.Lack`); empty where it did not refuse.
        page: The model's page, where there is something to click.
    """

    id: str
    repository: str
    revision: str
    state: DownloadState
    commit: str = ""
    files: tuple[FileProgress, ...] = ()
    left_out: int = 0
    fetched_bytes: int = 0
    bytes_per_second: float | None = None
    notes: tuple[str, ...] = ()
    problem: str = ""
    hint: str = ""
    folder: str = ""
    gguf: str = ""
    lack: str = ""
    page: str = ""

    @property
    def done_bytes(self) -> int:
        """Bytes of its files that are here."""
        return sum(file.done_bytes for file in self.files)

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def seconds_left(self) -> float | None:
        """Seconds at the present speed; None where that says nothing."""
        if not self.bytes_per_second or self.state is not DownloadState.DOWNLOADING:
            return None
        return (self.total_bytes - self.done_bytes) / self.bytes_per_second

    def resumed(self) -> "DownloadProgress":
        """Return what it is once it was asked to go on, before anything is known of that."""
        waiting = DownloadProgress(self.id, self.repository, self.revision, DownloadState.WAITING)
        return replace(waiting, commit=self.commit, files=self.files, left_out=self.left_out, gguf=self.gguf)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "DownloadProgress":
        """Return what `to_json` wrote."""
        files = tuple(FileProgress(**file) for file in fields["files"])
        notes = tuple(fields["notes"])
        return cls(**{**fields, "state": DownloadState(fields["state"]), "files": files, "notes": notes})
