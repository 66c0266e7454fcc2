"""A download as data: its limits, its record, and its progress while it runs.

`Download` is what the process that downloads sends to the app, a few times a second, and what the window shows.
`RunningDownload` is the process's own account, from which it makes these records.
"""

import time
from collections import deque
from dataclasses import dataclass, replace
from enum import StrEnum

from rdchat.errors import RdchatError
from rdchat.hub.endpoint import AccessRefusedError
from rdchat.hub.known_files import RepositoryFiles

# The speed is that of the last seconds.
_SPEED_WINDOW_S = 5.0


class DownloadState(StrEnum):
    """The state of a download. The last four are final; a paused or failed download can be resumed.

    Attributes:
        WAITING: It waits for its turn, while other downloads run.
        ASKING: The hub is asked for the list of files.
        CHECKING: The checksums of the files on disk are compared.
        REMOVED: Its files were removed.
    """

    WAITING = "waiting"
    ASKING = "asking"
    DOWNLOADING = "downloading"
    CHECKING = "checking"
    PAUSED = "paused"
    FAILED = "failed"
    FINISHED = "finished"
    REMOVED = "removed"

    @property
    def has_ended(self) -> bool:
        return self in {DownloadState.PAUSED, DownloadState.FAILED, DownloadState.FINISHED, DownloadState.REMOVED}


@dataclass(frozen=True, slots=True)
class DownloadLimits:
    """Limits of downloads.

    Attributes:
        at_once: Downloads that run at the same time.
        files_at_once: Files of one download that are fetched at the same time.
        stall_s: Time without data after which a new connection is made.
        first_wait_s: Wait before the second try; each wait is twice the last one.
        longest_wait_s: Longest wait between two tries.
        tries: Tries in a row without a byte, after which a download has failed.
        reserve_bytes: Free space to keep on the disk.
        tick_s: Time between two reports of progress.
        lock_wait_s: Wait for another program that downloads the same model, before the download fails.
    """

    at_once: int = 2
    files_at_once: int = 3
    stall_s: float = 30.0
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0
    tries: int = 8
    reserve_bytes: int = 500_000_000
    tick_s: float = 0.25
    lock_wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DownloadFile:
    """A file of a download.

    Attributes:
        name: Its path in the repository.
        done_bytes: Bytes on disk, in the partial file too.
        size: Its size in bytes.
        note: State of its connection; empty while data comes.
    """

    name: str
    done_bytes: int
    size: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Download:
    """A download: its model, its state and its progress.

    Attributes:
        repository: The hub id.
        revision: The requested branch, tag or commit.
        is_model: Whether it is a language model; otherwise a drafter head.
        state: What happens with it now, or how it ended.
        commit: Commit of the revision; empty until the hub has answered.
        files: Its files by name; empty until the hub has answered.
        left_out: Files of the repository that are not downloaded, such as pickles and code.
        fetched_bytes: Bytes received since the download was last started or resumed.
        bytes_per_second: Speed over the last seconds; None while nothing is received.
        notes: States of connections, such as "No data for 30 s. Trying again in 2 s."
        problem: Why it failed.
        hint: What to do about it.
        folder: The snapshot's or drafter's folder, once it is finished.
        lack: What the hub requires first (`endpoint.Lack`); empty if it did not refuse.
        page: The model's page, where there is something to click.
        drafter: Name of the drafter or tower to make from the files, which are then dropped; empty to keep the files.
        companion: The hub id of the drafter that is downloaded after the model; empty for none. See `with_drafter`.
    """

    repository: str
    revision: str = "main"
    is_model: bool = True
    state: DownloadState = DownloadState.WAITING
    commit: str = ""
    files: tuple[DownloadFile, ...] = ()
    left_out: int = 0
    fetched_bytes: int = 0
    bytes_per_second: float | None = None
    notes: tuple[str, ...] = ()
    problem: str = ""
    hint: str = ""
    folder: str = ""
    lack: str = ""
    page: str = ""
    drafter: str = ""
    companion: str = ""

    @property
    def id(self) -> str:
        """Repository and revision as one string; for a drafter its name, which is that of its one folder."""
        return self.drafter or f"{self.repository}\n{self.revision}"

    @property
    def done_bytes(self) -> int:
        """Bytes of its files on disk."""
        return sum(file.done_bytes for file in self.files)

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def seconds_left(self) -> float | None:
        """Seconds left at the present speed; None if unknown."""
        if not self.bytes_per_second or self.state is not DownloadState.DOWNLOADING:
            return None
        return (self.total_bytes - self.done_bytes) / self.bytes_per_second

    @property
    def model_name(self) -> str:
        """The name under which the finished model loads: the hub id, or the path of another revision."""
        return self.repository if self.revision == "main" else self.folder

    def at(self, state: DownloadState) -> "Download":
        """Return the download in another state: what it fetches and its files stay, all that belongs to a state goes.

        Such are speed, notes, problem and folder. The companion goes too: `with_drafter` adds it for people.
        """
        return Download(
            self.repository,
            self.revision,
            self.is_model,
            state,
            self.commit,
            self.files,
            self.left_out,
            drafter=self.drafter,
        )

    def failed(self, error: RdchatError) -> "Download":
        """Return the record of a download that failed with an error."""
        lack, page = (error.lack, error.page) if isinstance(error, AccessRefusedError) else ("", "")
        return replace(self.at(DownloadState.FAILED), problem=error.message, hint=error.hint, lack=lack, page=page)


def with_drafter(model: Download, drafter: Download) -> Download:
    """Return a model's download and that of its drafter as one, for people. The drafter's follows the model's.

    State, speed and notes are the model's until it is finished, then the drafter's; the files are those of both. A
    drafter that failed is a problem of a finished model.
    """
    current = drafter if model.state is DownloadState.FINISHED else model
    if current is drafter and drafter.state is DownloadState.FAILED:
        hint = "The model works without it. Get it later in the details of the model."
        return replace(model, problem=f"Its drafter could not be downloaded. {drafter.problem}", hint=hint)
    files = model.files
    # The total is unknown before the model's files are listed.
    if files:
        name = drafter.repository.rpartition("/")[2]
        files += tuple(replace(file, name=f"{name}/{file.name}") for file in drafter.files)
    return replace(
        current,
        repository=model.repository,
        revision=model.revision,
        is_model=True,
        files=files,
        folder=model.folder,
        companion=drafter.repository,
    )


class RunningDownload:
    """The progress of a running download, in the child process; `record` is a snapshot of it.

    Args:
        download: Its record before it was begun or resumed.

    Attributes:
        state: What happens now.
        files: The files to fetch; None until the hub has listed them.
        done: Bytes on disk, by digest.
        fetched_bytes: Bytes received over the network.
    """

    def __init__(self, download: Download) -> None:
        self._download = download.at(DownloadState.WAITING)
        self.state = DownloadState.WAITING
        self.files: RepositoryFiles | None = None
        self.done: dict[str, int] = {}
        self.fetched_bytes = 0
        # States of connections, by name of the file.
        self._notes: dict[str, str] = {}
        # Moments by the monotonic clock, with the bytes received until then.
        self._received: deque[tuple[float, int]] = deque()

    def note(self, name: str, text: str) -> None:
        """Set the state of a connection; an empty text removes it.

        Args:
            name: Name of the file; empty for requests to the hub.
            text: The note.
        """
        # A note that changes becomes the last one.
        self._notes.pop(name, None)
        if text:
            self._notes[name] = text

    @property
    def record(self) -> Download:
        """The present record. Its speed is measured between the calls of this.

        Its notes are those of the files, or, where there are none, that of the requests to the hub.
        """
        record = replace(
            self._download,
            state=self.state,
            fetched_bytes=self.fetched_bytes,
            bytes_per_second=self._speed(),
            notes=tuple(text for name, text in self._notes.items() if name) or tuple(self._notes.values()),
        )
        if self.files is None:
            return record
        files = (
            DownloadFile(file.name, self.done.get(file.digest, 0), file.size, self._notes.get(file.name, ""))
            for file in self.files.contents
        )
        return replace(record, commit=self.files.commit, files=tuple(files), left_out=len(self.files.left_out))

    def ended(self, state: DownloadState) -> Download:
        """Return the last record."""
        self.state = state
        self._notes.clear()
        return self.record

    def _speed(self) -> float | None:
        """Return bytes per second over the last seconds; None while nothing is received."""
        if self.state is not DownloadState.DOWNLOADING:
            return None
        received = self._received
        now = time.monotonic()
        received.append((now, self.fetched_bytes))
        while len(received) > 2 and now - received[0][0] > _SPEED_WINDOW_S:
            received.popleft()
        start, before = received[0]
        return (self.fetched_bytes - before) / (now - start) if now > start else None
