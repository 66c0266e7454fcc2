"""Stands in for files that iCloud has not downloaded: on macOS their status has a flag, and reading downloads them."""

from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rdchat.chat.attachments.file_reader import FileReader
from rdchat.files import foreign_files


def _placeholder(path: Path) -> Any:
    status = path.stat()
    return SimpleNamespace(st_mode=status.st_mode, st_size=status.st_size, st_flags=0x40000060)


@contextmanager
def only_in_cloud(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> Any:
    """Have files be placeholders in this process until `FileReader.download` has ended without an error.

    Reading one of them in this process fails the test. A download of one that is removed fails.
    """
    waiting = {path: _placeholder(path) for path in paths}

    def stat(path: Path, *, follow_symlinks: bool = True) -> Any:
        return waiting[path] if path in waiting else path_stat(path, follow_symlinks=follow_symlinks)

    def read(path: Path) -> Any:
        assert path not in waiting, "it is downloaded in the app's own process"
        return opened(path)

    def end_download(reader: FileReader, path: Path, *arguments: Callable[[], None]) -> None:
        download(reader, path, *arguments)
        waiting.pop(path, None)

    path_stat = Path.stat
    opened = foreign_files.opened
    download = FileReader.download
    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", stat)
        for module in ("rdchat.files.foreign_files", "rdchat.chat.attachments.kinds"):
            patch.setattr(f"{module}.opened", read)
        patch.setattr(FileReader, "download", end_download)
        yield
