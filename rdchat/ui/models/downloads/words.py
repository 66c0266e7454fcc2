"""Texts about downloads. Pure functions."""

from rdchat.hub.downloads.download import Download, DownloadFile, DownloadState
from rdchat.hub.hub_errors import WINDOW_HINTS, Lack
from rdchat.services.models.downloads.downloads import DownloadTotals
from rdchat.ui.style.formatting import byte_rate, file_size, part_size, time_left

_DOT = "  ·  "
_MIN_SPEED = 1000  # bytes a second; at a lower speed the time left is not shown
_GOING = {
    DownloadState.WAITING: "Waiting",
    DownloadState.ASKING: "Getting the list of files…",
    DownloadState.CHECKING: "Checking the files…",
}
_STOPPED = {DownloadState.PAUSED: "Paused", DownloadState.FAILED: "Stopped"}


def title(progress: Download) -> str:
    """Return the name of the download, with the GGUF file and the revision that were asked for."""
    words = progress.repository
    if progress.drafter:
        return f"{words}{_DOT}MTP layers"
    if progress.gguf:
        words += f"{_DOT}{progress.gguf}"
    return f"{words}{_DOT}{progress.revision}" if progress.revision != "main" else words


def state_text(progress: Download) -> str:
    """Return the state of a download in one line."""
    done, total = progress.done_bytes, progress.total_bytes
    here = part_size(done, total) if total else ""
    if progress.state is DownloadState.FINISHED:
        return f"{file_size(total)}{_DOT}complete{'' if progress.drafter else ' and checked'}"
    if stopped := _STOPPED.get(progress.state):
        return f"{stopped}{_DOT}{f'{here} downloaded' if done else 'nothing downloaded yet'}"
    if going := _GOING.get(progress.state):
        return f"{going}{_DOT}{here}" if here and progress.state is DownloadState.WAITING else going
    if done == total:
        return f"{file_size(total)} downloaded{_DOT}checking…"
    return _progress_text(here, progress.bytes_per_second, progress.seconds_left)


def share(progress: Download) -> float | None:
    """Return the downloaded share, from 0 to 1; None before the hub has named the files."""
    return progress.done_bytes / progress.total_bytes if progress.total_bytes else None


def file_text(file: DownloadFile) -> str:
    """Return the downloaded part of a file; only the size of a complete file."""
    return file_size(file.size) if file.done_bytes >= file.size else part_size(file.done_bytes, file.size)


def _progress_text(here: str, speed: float | None, left: float | None) -> str:
    words = here
    if speed and speed >= _MIN_SPEED:
        words += f"{_DOT}{byte_rate(speed)}"
        if left is not None:
            words += f"{_DOT}{time_left(left)}"
    return words


def note_text(progress: Download) -> str:
    """Return the connection problem of a running download; empty without one."""
    notes = list(dict.fromkeys(progress.notes))
    if not notes:
        return ""
    return notes[0] if len(progress.notes) == 1 else f"{notes[0]} ({len(progress.notes)} files)"


def problem_text(progress: Download) -> tuple[str, str]:
    """Return why a download failed, and what to do about it."""
    return progress.problem, WINDOW_HINTS[Lack(progress.lack)] if progress.lack else progress.hint


def totals_text(totals: DownloadTotals) -> str:
    """Return the sum of the running downloads in one line; empty where none runs."""
    if not totals.going:
        return ""
    name = "1 download" if totals.going == 1 else f"{totals.going} downloads"
    here = part_size(totals.done_bytes, totals.total_bytes) if totals.total_bytes else ""
    figures = _progress_text(here, totals.bytes_per_second, totals.seconds_left)
    return f"{name}{_DOT}{figures}" if figures else name
