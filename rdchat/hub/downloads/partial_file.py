"""A file that is not here whole: its bytes so far, beside the ETag and the size that they belong to."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rdchat.errors import RdchatError
from rdchat.files.atomic_file import write_json
from rdchat.files.foreign_files import read_json
from rdchat.hub.known_files import HubFile

_MOST_FACTS = 10_000  # bytes of the file beside it


class PartialFile:
    """The bytes of one blob from its first on, in a name of rdchat's own; the size of the file says how many.

    Written without a buffer, so that what was received outlasts this process, however it ends. Only who holds the
    repository's lock may write.

    Args:
        folder: Is there.
        file: The file as the hub describes it.
    """

    def __init__(self, folder: Path, file: HubFile) -> None:
        self.path = folder / f"{file.digest}.part"
        self._facts = folder / f"{file.digest}.json"
        self.file = file
        self.etag = self._read_etag()
        if self.etag is None or self.size > file.size or not self._is_own():
            self.path.unlink(missing_ok=True)

    @property
    def size(self) -> int:
        """How many of its bytes are here."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def begin(self, etag: str) -> None:
        """Begin anew with the first byte of what has this ETag, which may be empty."""
        self.path.unlink(missing_ok=True)
        write_json(self._facts, {"etag": etag, "size": self.file.size})
        self.etag = etag

    @contextmanager
    def opened(self) -> Iterator[Callable[[bytes], None]]:
        """Give what adds bytes to it; these raise OSError where the disk does not take them, or not all."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        with os.fdopen(descriptor, "ab", buffering=0) as file:

            def append(data: bytes) -> None:
                written = file.write(data)
                while written < len(data):  # a disk that is nearly full takes a part
                    written += file.write(data[written:])

            yield append

    def remove(self) -> None:
        for path in (self.path, self._facts):
            path.unlink(missing_ok=True)

    def forget_facts(self) -> None:
        """Remove what stood beside it, once it has taken its place."""
        with suppress(OSError):
            self._facts.unlink(missing_ok=True)

    def _is_own(self) -> bool:
        """Tell whether nothing lies in its place, or a file that no other place leads to: others are not written."""
        try:
            status = self.path.lstat()
        except FileNotFoundError:
            return True
        return stat.S_ISREG(status.st_mode) and status.st_nlink == 1

    def _read_etag(self) -> str | None:
        """Return the ETag of what was begun; None where nothing usable was."""
        try:
            facts = read_json(self._facts, most=_MOST_FACTS)
        except (RdchatError, OSError):
            return None
        if not isinstance(facts, dict) or facts.get("size") != self.file.size or not isinstance(facts.get("etag"), str):
            return None
        return str(facts["etag"])
