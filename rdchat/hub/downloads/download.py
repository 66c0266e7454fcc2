"""A download's record, and the limits of downloads."""

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError
from rdchat.hub.hub_errors import LONGEST_WAIT_S, AccessRefusedError


class DownloadState(StrEnum):
    """The state of a download. The last four are final; a paused or failed download can be resumed."""

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
class DownloadLimits:
    """How downloads are done."""

    at_once: int = 2  # downloads that go on together; the others wait
    files_at_once: int = 3  # files of one download that are fetched together
    stall_s: float = 30.0  # without data, after which a new connection is made
    connect_s: float = 15.0  # that making a connection may take
    first_wait_s: float = 1.0  # before the second try; each wait is twice the last one
    longest_wait_s: float = 60.0  # between two tries
    tries: int = 8  # in a row that bring no byte, after which a download has failed
    longest_retry_after_s: float = LONGEST_WAIT_S  # where the hub asks for a longer wait, the download has failed
    reserve_bytes: int = 500_000_000  # of the disk that stay free
    tick_s: float = 0.25  # between two reports of progress
    lock_wait_s: float = 0.0  # for another program that downloads the same model; then the download has failed

    def wait_s(self, failures: int, asked_s: float) -> float | None:
        """Return how long to wait before the next try; None where there is no point in it.

        Args:
            failures: Tries in a row that brought nothing.
            asked_s: That the hub asks to wait.
        """
        if failures >= self.tries or asked_s > self.longest_retry_after_s:
            return None
        return max(asked_s, min(self.first_wait_s * 2.0 ** (failures - 1), self.longest_wait_s))


@dataclass(frozen=True, slots=True)
class DownloadFile:
    """A file of a download."""

    name: str  # its path in the repository
    done_bytes: int  # that are here, in the partial file too
    size: int  # in bytes
    note: str = ""  # what happens to its connection now; empty while data comes
    bytes_per_second: float | None = None  # over the last seconds; None where it is not being fetched

    @property
    def seconds_left(self) -> float | None:
        """Seconds at the present speed; None where that is not known."""
        return (self.size - self.done_bytes) / self.bytes_per_second if self.bytes_per_second else None


@dataclass(frozen=True, slots=True)
class Download:
    """A download: its model, its state and its progress."""

    repository: str  # the hub id
    revision: str = "main"  # the branch, tag or commit that was asked for
    gguf: str = ""  # the GGUF file that was asked for; empty for the only one, or for an MLX model
    is_model: bool = True  # whether it answers by itself; a drafter head does not
    state: DownloadState = DownloadState.WAITING
    commit: str = ""  # that the revision stands for; empty until the hub has said it
    files: tuple[DownloadFile, ...] = ()  # by name; empty until then
    left_out: int = 0  # files of the repository that are not fetched, such as pickles and code
    fetched_bytes: int = 0  # over the network since it was last begun or resumed
    bytes_per_second: float | None = None  # over the last seconds; None where nothing is being fetched
    notes: tuple[str, ...] = ()  # what happens to connections, such as "No data for 30 s. Trying again in 2 s."
    problem: str = ""  # why it failed
    hint: str = ""  # what to do about it
    folder: str = ""  # the snapshot's, once it is finished
    lack: str = ""  # what the hub wants first (`hub_errors.Lack`); empty where it did not refuse
    page: str = ""  # the model's, where there is something to click

    @property
    def id(self) -> str:
        """Repository, revision and GGUF file as one string."""
        return "\n".join((self.repository, self.revision, self.gguf))

    @property
    def done_bytes(self) -> int:
        """Bytes of its files that are here."""
        return sum(file.done_bytes for file in self.files)

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def seconds_left(self) -> float | None:
        """Seconds at the present speed; None where that is not known."""
        if not self.bytes_per_second or self.state is not DownloadState.DOWNLOADING:
            return None
        return (self.total_bytes - self.done_bytes) / self.bytes_per_second

    @property
    def model_name(self) -> str:
        """The name that loads the finished model: the hub id, or the path of another revision or of a GGUF file."""
        names = [file.name for file in self.files]
        if "config.json" in names:
            return self.repository if self.revision == "main" else self.folder
        ggufs = (name for name in names if name.lower().endswith(".gguf"))
        return str(Path(self.folder) / (self.gguf or next(ggufs, "")))

    def at(self, state: DownloadState) -> "Download":
        """Return the download in another state, without the old state's notes and problem."""
        wanted = Download(self.repository, self.revision, self.gguf, self.is_model, state)
        return replace(wanted, commit=self.commit, files=self.files, left_out=self.left_out)

    def failed(self, error: RdchatError) -> "Download":
        """Return the record of a download that an error ended."""
        lack, page = (error.lack, error.page) if isinstance(error, AccessRefusedError) else ("", "")
        failed = replace(self.at(DownloadState.FAILED), problem=error.message, hint=error.hint, lack=lack, page=page)
        return replace(failed, fetched_bytes=self.fetched_bytes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Download":
        """Parse the result of `to_dict`; raises ValueError, TypeError or KeyError for anything else."""
        files = tuple(DownloadFile(**file) for file in fields["files"])
        if not all(
            isinstance(file.name, str) and isinstance(file.done_bytes, int) and isinstance(file.size, int)
            for file in files
        ):
            raise TypeError("no files")
        notes = tuple(fields["notes"])
        return cls(**{**fields, "state": DownloadState(fields["state"]), "files": files, "notes": notes})
