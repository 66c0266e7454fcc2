"""The sum of all downloads. Plain data and a pure function."""

from collections.abc import Iterable
from dataclasses import dataclass

from rdchat.hub.downloads.download import Download, DownloadState


@dataclass(frozen=True, slots=True)
class DownloadTotals:
    """All downloads that go on, together."""

    going: int = 0  # that go on or wait for their turn
    failed: int = 0
    done_bytes: int = 0  # of those that go on
    total_bytes: int = 0
    bytes_per_second: float = 0.0
    seconds_left: float | None = None  # until all are here; None where that cannot be told

    @property
    def fraction(self) -> float:
        return self.done_bytes / self.total_bytes if self.total_bytes else 0.0


def totals_of(downloads: Iterable[Download]) -> DownloadTotals:
    """Return what goes on, in sum."""
    every = list(downloads)
    going = [download for download in every if not download.state.has_ended]
    done, total = sum(download.done_bytes for download in going), sum(download.total_bytes for download in going)
    speed = sum(download.bytes_per_second or 0.0 for download in going)
    left = [seconds for download in going if (seconds := download.seconds_left) is not None]
    return DownloadTotals(
        going=len(going),
        failed=sum(download.state is DownloadState.FAILED for download in every),
        done_bytes=done,
        total_bytes=total,
        bytes_per_second=speed,
        seconds_left=max([(total - done) / speed, *left]) if speed > 0 else None,
    )
