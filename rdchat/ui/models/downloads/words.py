"""Downloads in words and figures. Pure functions."""

from rdchat.hub.downloads.download_progress import DownloadProgress, DownloadState, FileProgress
from rdchat.hub.hub_errors import Lack
from rdchat.services.models.downloading.download_totals import DownloadTotals

_DOT = "  ·  "
_LEAST_SPEED = 1000  # bytes a second; below that nothing can be said of the time left
_GOING = {
    DownloadState.WAITING: "Waiting for its turn",
    DownloadState.ASKING: "Asking the hub for its files…",
    DownloadState.CHECKING: "Checking what is here…",
}
_STOPPED = {DownloadState.PAUSED: "Paused", DownloadState.FAILED: "Stopped"}


def size_words(size: float) -> str:
    """Return bytes as people read them: `12 KB`, `512 MB`, `1.24 GB`, `12.4 GB`."""
    figure, unit = _in_unit(size, size)
    return f"{figure} {unit}"


def part_words(part: float, whole: float) -> str:
    """Return how much of something is here, in the unit of the whole: `0.31 of 1.24 GB`."""
    figure, unit = _in_unit(whole, whole)
    return f"{_in_unit(part, whole)[0]} of {figure} {unit}"


def _in_unit(size: float, of: float) -> tuple[str, str]:
    if of < 999_500:
        return f"{max(round(size / 1e3), 1 if size else 0)}", "KB"
    if of < 999_500_000:
        return f"{size / 1e6:.0f}", "MB"
    return f"{size / 1e9:.{2 if of < 9.995e9 else 1}f}", "GB"


def speed_words(bytes_per_second: float) -> str:
    """Return `850 KB/s` or `24.1 MB/s`."""
    if bytes_per_second < 999_500:
        return f"{bytes_per_second / 1e3:.0f} KB/s"
    return f"{bytes_per_second / 1e6:.1f} MB/s"


def left_words(seconds: float) -> str:
    """Return `12 s left`, `4 min left` or `2 h 5 min left`."""
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s left"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min left"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min left" if hours < 24 else "more than a day left"


def title(progress: DownloadProgress) -> str:
    """Return the name of what is downloaded, with its file and revision where they were asked for."""
    words = progress.repository
    if progress.gguf:
        words += f"{_DOT}{progress.gguf}"
    return f"{words}{_DOT}{progress.revision}" if progress.revision != "main" else words


def state_words(progress: DownloadProgress) -> str:
    """Return where a download stands, in one line."""
    done, total = progress.done_bytes, progress.total_bytes
    here = part_words(done, total) if total else ""
    if progress.state is DownloadState.FINISHED:
        return f"{size_words(total)}{_DOT}complete and checked"
    if stopped := _STOPPED.get(progress.state):
        return f"{stopped}{_DOT}{f'{here} is here' if done else 'nothing is here yet'}"
    if going := _GOING.get(progress.state):
        return f"{going}{_DOT}{here}" if here and progress.state is DownloadState.WAITING else going
    if done == total:
        return f"{size_words(total)} is here{_DOT}checking it…"
    return _going_words(here, progress.bytes_per_second, progress.seconds_left)


def file_words(file: FileProgress) -> str:
    """Return how much of a file is here and how fast it comes; its size where all of it is."""
    if file.done_bytes >= file.size:
        return size_words(file.size)
    return _going_words(part_words(file.done_bytes, file.size), file.bytes_per_second, file.seconds_left)


def _going_words(here: str, speed: float | None, left: float | None) -> str:
    words = here
    if speed and speed >= _LEAST_SPEED:
        words += f"{_DOT}{speed_words(speed)}"
        if left is not None:
            words += f"{_DOT}{left_words(left)}"
    return words


def note_words(progress: DownloadProgress) -> str:
    """Return what keeps a download that goes on from going on; empty where nothing does."""
    notes = list(dict.fromkeys(progress.notes))
    if not notes:
        return ""
    return notes[0] if len(progress.notes) == 1 else f"{notes[0]} ({len(progress.notes)} files)"


def problem_words(progress: DownloadProgress) -> tuple[str, str]:
    """Return why a download failed and what to do about it, as the window has buttons for it."""
    if progress.lack == Lack.TOKEN:
        words = (
            "On the model's page sign in and, where it asks for that, click “Agree and access repository”. "
            "Then give rdchat a token of yours."
        )
    elif progress.lack == Lack.GOOD_TOKEN:
        words = "It may have run out. Make a new one and give it to rdchat."
    elif progress.lack == Lack.AGREEMENT:
        words = (
            "On the model's page click “Agree and access repository”, wait where its authors decide, then try again. "
            "A fine-grained token also has to allow gated repositories."
        )
    else:
        words = progress.hint
    return progress.problem, words


def totals_words(totals: DownloadTotals) -> str:
    """Return all downloads that go on in one line; empty where none does."""
    if not totals.going:
        return ""
    name = "1 download" if totals.going == 1 else f"{totals.going} downloads"
    here = part_words(totals.done_bytes, totals.total_bytes) if totals.total_bytes else ""
    figures = _going_words(here, totals.bytes_per_second, totals.seconds_left)
    return f"{name}{_DOT}{figures}" if figures else name
