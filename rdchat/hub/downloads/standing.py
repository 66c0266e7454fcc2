"""Where one download stands inside the downloading process."""

import math
import time
from dataclasses import dataclass, field

from rdchat.hub.downloads.download_progress import DownloadState, FileProgress
from rdchat.hub.known_files import HubFile, RepositoryFiles


@dataclass(slots=True)
class Standing:
    """Where a download stands, changed as it goes on.

    Attributes:
        state: What goes on.
        files: What is fetched; None until the hub has said it.
        done: Bytes of each digest that are here.
        fetched_bytes: That came over the network.
        notes: By file's name, what happens to its connection; the empty name is the hub's own.
        waits: By file's name, when the next try begins, in seconds of the monotonic clock.
    """

    state: DownloadState = DownloadState.WAITING
    files: RepositoryFiles | None = None
    done: dict[str, int] = field(default_factory=dict)
    fetched_bytes: int = 0
    notes: dict[str, str] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)

    def note(self, name: str, words: str, wait_s: float = 0.0) -> None:
        """Say what happens to a connection, and how long it is until the next try; no words: all is well again."""
        self.notes.pop(name, None)
        self.waits.pop(name, None)
        if words:
            self.notes[name] = words
            if wait_s > 0:
                self.waits[name] = time.monotonic() + wait_s

    def note_words(self, name: str) -> str:
        """Return what is to be said of a file's connection at this moment; empty where nothing is."""
        words, until = self.notes.get(name, ""), self.waits.get(name)
        if until is None:
            return words
        left = math.ceil(until - time.monotonic())
        return f"{words} Trying again in {left} s." if left > 0 else f"{words} Trying again…"

    def all_notes(self) -> tuple[str, ...]:
        """Return what is to be said of each file's connection; where all are well, what is of the hub."""
        return tuple(self.note_words(name) for name in [name for name in self.notes if name] or self.notes)

    def file_progress(self) -> tuple[FileProgress, ...]:
        """Return each content once, under its first name."""
        if self.files is None:
            return ()
        once = {file.digest: file for file in reversed(self.files.files)}
        return tuple(
            FileProgress(
                file.name,
                self.done.get(file.digest, 0),
                file.size,
                self.note_words(file.name) or self.note_words(restart_note(file)),
            )
            for file in sorted(once.values(), key=lambda file: file.name)
        )


def restart_note(file: HubFile) -> str:
    """Return the name of the note that a file began anew, which stays until it is whole."""
    return f"{file.name}: again"
