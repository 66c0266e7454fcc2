"""Runs downloads in this process, with short waits between tries."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from rdchat.hub import CachedRepository, HubError, Tokens, find_endpoint, repository_of
from rdchat.hub.downloads.download import Download, DownloadLimits, RunningDownload
from rdchat.hub.downloads.repository_download import RepositoryDownload
from rdchat.hub.hub_api import HubApi
from rdchat.inference.library.original_source import make_part
from tests.hub.hub_server import Fault, HubServer

NAME = "some-org/small-4bit"
LIMITS = DownloadLimits(first_wait_s=0.01, longest_wait_s=0.05, tries=4, reserve_bytes=0, tick_s=0.02)
QUICKLY_STALLED = replace(LIMITS, stall_s=1.5)  # where that is not the point, a busy machine would be stalled too


@lru_cache(16)
def random_bytes(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def small_files() -> dict[str, bytes]:
    """Return files as a model has them, which nothing could load."""
    return {
        "config.json": b'{"model_type": "llama"}',
        "tokenizer.json": random_bytes(3_000, 1),
        "model.safetensors": random_bytes(400_000, 2),
        "README.md": b"# Small",
    }


class HeldVerification:
    """Holds verifications at their first file until `let_go` is set; one that was stopped must notice it then.

    Attributes:
        ended: Set when the file was left.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.let_go = Event()
        self.ended = Event()
        monkeypatch.setattr("rdchat.hub.verifying_and_deleting.checksum", self._read)

    def _read(self, _path: Path, _letters: int, on_bytes: Callable[[int], None]) -> str:
        on_bytes(20)
        self.let_go.wait(60)
        try:
            on_bytes(20)  # It raises.
        finally:
            self.ended.set()
        return ""


WEIGHTS = "model.safetensors"
"""The large one of the small files, which comes in pieces."""


def put_model(hub: HubServer, folder: Path) -> dict[str, bytes]:
    """Have the hub offer a model that can be loaded; return its files."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "made_from.json"}
    hub.add(NAME, files)
    return files


def hub_api() -> HubApi:
    """Return the hub of the environment, with the token for it."""
    return HubApi(Tokens().access(find_endpoint()))


def cut_off(hub: HubServer, at: int = 150_000, **wanted: Any) -> HubError:
    """Download until the weights are cut off, and the hub answers no more for so many tries; return the error."""
    hub.fault(WEIGHTS, Fault(cut=at), *[Fault(status=503)] * 4)
    with pytest.raises(HubError) as caught:
        download(**wanted)
    return caught.value


class NotedDownload(RunningDownload):
    """Remembers all that was said of connections."""

    def __init__(self, download: Download) -> None:
        super().__init__(download)
        self.said: list[str] = []

    def note(self, name: str, words: str) -> None:
        super().note(name, words)
        if words:
            self.said.append(words)


def download(
    name: str = NAME, revision: str = "main", limits: DownloadLimits = LIMITS, **changed: Any
) -> tuple[Path, NotedDownload]:
    """Download a model here; return its snapshot and what was said."""
    wanted = Download(name, revision)
    running = NotedDownload(wanted)
    access = Tokens().access(find_endpoint())
    limits = replace(limits, **changed)
    folder = asyncio.run(
        RepositoryDownload(repository_of(name), wanted, access, limits, running, make_part).fetch_repository()
    )
    return folder, running


def cached(name: str = NAME) -> CachedRepository:
    return repository_of(name)


def largest_part() -> Path:
    """Return the partial file of the weights: small files may be under way beside them."""
    return max(cached().work.glob("*.part"), key=lambda path: path.stat().st_size)


def check_whole(folder: Path, files: dict[str, bytes]) -> None:
    """Check that a snapshot holds these files, as links into its own repository's blobs."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
    assert {name: path.read_bytes() for name, path in found.items()} == files
    blobs = folder.parent.parent / "blobs"
    assert all(path.is_symlink() and path.resolve().parent == blobs.resolve() for path in found.values())


def check_not_half_installed(files: dict[str, bytes], name: str = NAME) -> None:
    """Check that nobody finds half a model: a process that was killed last of all left it whole, or none."""
    repository = cached(name)
    assert {repository.commit_of("main"), ""} <= {*repository.commits(), ""}
    for commit in repository.commits():
        check_whole(repository.snapshots / commit, files)


def check_nothing_installed(name: str = NAME) -> None:
    """Check that nobody could take what is here of a model for one."""
    repository = cached(name)
    assert not (repository.folder / "refs").exists()
    assert not repository.snapshots.exists() or list(repository.snapshots.iterdir()) == []


def uncounted(_bytes: int) -> None:
    """Take the bytes that a check has read."""
