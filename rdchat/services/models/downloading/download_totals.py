"""All downloads in sum, and what loads one that has finished. Plain data and pure functions."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rdchat.hub.downloads.download_progress import DownloadProgress, DownloadState


@dataclass(frozen=True, slots=True)
class DownloadTotals:
    """All downloads that go on, together.

    Attributes:
        going: How many go on or wait for their turn.
        failed: How many have failed.
        done_bytes, total_bytes: Of those that go on.
        bytes_per_second: Together.
        seconds_left: Until all are here, as the slowest says or all together; None where that cannot be told.
    """

    going: int = 0
    failed: int = 0
    done_bytes: int = 0
    total_bytes: int = 0
    bytes_per_second: float = 0.0
    seconds_left: float | None = None

    @property
    def fraction(self) -> float:
        return self.done_bytes / self.total_bytes if self.total_bytes else 0.0


def totals_of(downloads: Iterable[DownloadProgress]) -> DownloadTotals:
    """Return what goes on, in sum."""
    every = list(downloads)
    going = [progress for progress in every if not progress.state.has_ended]
    done, total = sum(progress.done_bytes for progress in going), sum(progress.total_bytes for progress in going)
    speed = sum(progress.bytes_per_second or 0.0 for progress in going)
    left = [seconds for progress in going if (seconds := progress.seconds_left) is not None]
    return DownloadTotals(
        going=len(going),
        failed=sum(progress.state is DownloadState.FAILED for progress in every),
        done_bytes=done,
        total_bytes=total,
        bytes_per_second=speed,
        seconds_left=max([(total - done) / speed, *left]) if speed > 0 else None,
    )


def model_name(progress: DownloadProgress) -> str:
    """Return what loads a finished download: its hub id, or the path of what is no main revision or a GGUF file."""
    names = [file.name for file in progress.files]
    if "config.json" in names:
        return progress.repository if progress.revision == "main" else progress.folder
    files = (name for name in names if name.lower().endswith(".gguf"))
    return str(Path(progress.folder) / (progress.gguf or next(files, "")))
