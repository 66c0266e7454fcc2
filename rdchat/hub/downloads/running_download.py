"""The state of a running download, in the child process."""

import math
import time
from collections import deque
from dataclasses import replace

from rdchat.hub.downloads.download import Download, DownloadFile, DownloadState
from rdchat.hub.known_files import HubFile, RepositoryFiles

_SPEED_S = 5.0  # over which the speed is measured


class RunningDownload:
    """The state of a running download; `record` is a snapshot of it.

    Args:
        download: Its record as it was.
    """

    def __init__(self, download: Download) -> None:
        self._download = download.at(DownloadState.WAITING)
        self.state = DownloadState.WAITING
        self.files: RepositoryFiles | None = None  # what is fetched; None until the hub has said it
        self.done: dict[str, int] = {}  # bytes that are here, by digest
        self.fetched_bytes = 0  # over the network
        self._notes: dict[str, str] = {}  # what happens to connections, by file's name; "" is the hub's own
        self._waits: dict[str, float] = {}  # when the next try begins, on the monotonic clock; by file's name
        self._speeds: dict[str, deque[tuple[float, int]]] = {}  # moments and bytes, by file's name; "" is of all

    def note(self, name: str, words: str, wait_s: float = 0.0) -> None:
        """Set the note about a connection and the time until the next try; empty words remove the note."""
        self._notes.pop(name, None)
        self._waits.pop(name, None)
        if words:
            self._notes[name] = words
            if wait_s > 0:
                self._waits[name] = time.monotonic() + wait_s

    def note_words(self, name: str) -> str:
        """Return the note about a file's connection; empty where there is none."""
        words, until = self._notes.get(name, ""), self._waits.get(name)
        if until is None:
            return words
        left = math.ceil(until - time.monotonic())
        return f"{words} Trying again in {left} s." if left > 0 else f"{words} Trying again…"

    @property
    def record(self) -> Download:
        """The record of this moment. The speed is measured between the calls."""
        record = replace(
            self._download,
            state=self.state,
            fetched_bytes=self.fetched_bytes,
            bytes_per_second=self._speed("", self.fetched_bytes),
            notes=tuple(map(self.note_words, [name for name in self._notes if name] or self._notes)),
        )
        if self.files is None:
            return record
        files = tuple(map(self._file, self.files.contents))
        return replace(record, commit=self.files.commit, files=files, left_out=len(self.files.left_out))

    def ended(self, state: DownloadState) -> Download:
        """Return the record of the end."""
        self.state = state
        self._notes.clear()
        return self.record

    def _file(self, file: HubFile) -> DownloadFile:
        done = self.done.get(file.digest, 0)
        note = self.note_words(file.name) or self.note_words(restart_note(file))
        speed = self._speed(file.name, done) if 0 < done < file.size else None
        return DownloadFile(file.name, done, file.size, note, speed)

    def _speed(self, name: str, count: int) -> float | None:
        """Return bytes per second over the last seconds; None where nothing is fetched."""
        if self.state is not DownloadState.DOWNLOADING:
            return None
        seen, now = self._speeds.setdefault(name, deque()), time.monotonic()
        seen.append((now, count))
        while len(seen) > 2 and now - seen[0][0] > _SPEED_S:
            seen.popleft()
        start, before = seen[0]
        return (count - before) / (now - start) if now > start else None


def restart_note(file: HubFile) -> str:
    """Return the key of the note that a file was restarted. The note stays until the file is whole."""
    return f"{file.name}: again"
