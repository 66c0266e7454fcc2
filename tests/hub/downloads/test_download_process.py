"""Downloads in a child process, as the window uses it; the machine is kept awake."""

import asyncio
import json
import queue
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from rdchat.hub import Tokens
from rdchat.hub.downloads.download import Download, DownloadLimits, DownloadState
from rdchat.hub.downloads.download_process import DownloadProcess, DownloadQueue
from rdchat.inference.library.original_source import make_part
from rdchat.work.job import Job
from tests.hub.downloads.downloading import (
    LIMITS,
    NAME,
    QUICKLY_STALLED,
    WEIGHTS,
    cached,
    check_nothing_installed,
    check_whole,
    largest_part,
    random_bytes,
    small_files,
)
from tests.hub.hub_server import Fault, HubServer, sha256
from tests.users import modes

OTHER = "other-org/large"
TIMEOUT_S = 60


class Downloads:
    """A downloading process, and what it tells."""

    def __init__(self, limits: DownloadLimits = LIMITS) -> None:
        self.told: queue.SimpleQueue[Download] = queue.SimpleQueue()
        self.process = DownloadProcess(Tokens(), limits)
        self.jobs: dict[str, Job[object]] = {}

    def start(self, name: str, revision: str = "main") -> str:
        """Begin a download, or go on with it; return its id."""
        download = Download(name, revision)
        self.jobs[download.id] = self.process.start_download(download, self.told.put)
        return download.id

    def start_in_part(self, hub: HubServer) -> str:
        """Begin the usual model's download, which the hub holds when a part has come; return its id."""
        hub.holds_at = 100_000
        download = self.start(NAME)
        self.wait(download, lambda progress: progress.done_bytes > 50_000)
        return download

    def wait(self, download: str, wanted: Callable[[Download], bool]) -> Download:
        """Return the first progress of a download that is as wanted."""
        end = time.monotonic() + TIMEOUT_S
        while True:
            progress = self.told.get(timeout=max(0.01, end - time.monotonic()))
            if progress.id == download and wanted(progress):
                return progress

    def wait_for(self, download: str, state: DownloadState) -> Download:
        return self.wait(download, lambda progress: progress.state is state)

    def child(self) -> psutil.Process:
        """Return the process that downloads."""
        (child,) = [child for child in psutil.Process().children() if "downloads" in child.cmdline()]
        return child


@pytest.fixture
def downloads(hub: HubServer, request: pytest.FixtureRequest) -> Iterator[Downloads]:
    downloads = Downloads(getattr(request, "param", LIMITS))
    yield downloads
    downloads.process.close()


@pytest.mark.slow
def test_what_is_downloaded_has_the_modes_of_the_hubs_other_programs(hub: HubServer, tmp_path: Path) -> None:
    """They may run as another user of a shared cache."""
    hub.add(NAME, small_files())
    code = (
        "import os\n"
        "from rdchat.files.privacy import write_privately\n"
        "write_privately()\n"
        "from tests.hub.downloads.test_download_process import Downloads\n"
        "from rdchat.hub.downloads.download import DownloadState\n"
        "downloads = Downloads()\n"
        f"downloads.wait_for(downloads.start({NAME!r}), DownloadState.FINISHED)\n"
        "downloads.process.close()\n"
    )
    subprocess.run([sys.executable, "-c", code], umask=0o022, check=True)
    found = {path: mode for path, mode in modes(cached().folder).items() if not (cached().folder / path).is_symlink()}
    others = {path for path, mode in found.items() if mode not in ("755", "644")}
    assert others == {".rdchat/lock"}  # rdchat's own


@pytest.mark.slow
def test_a_download_tells_how_it_goes_and_ends_whole(hub: HubServer, downloads: Downloads) -> None:
    files = small_files()
    commit = hub.add(NAME, files)
    hub.bytes_per_second = 300_000
    download = downloads.start(NAME)
    going = downloads.wait(download, lambda progress: bool(progress.seconds_left))
    assert (going.total_bytes, going.commit) == (sum(map(len, files.values())), commit)
    assert [file.name for file in going.files] == sorted(files)
    ended = downloads.wait_for(download, DownloadState.FINISHED)
    assert (ended.done_bytes, ended.fetched_bytes) == (going.total_bytes, going.total_bytes)
    check_whole(Path(ended.folder), files)


@pytest.mark.slow
def test_a_paused_download_stops_and_goes_on_from_where_it_was(
    hub: HubServer, downloads: Downloads, files: dict[str, bytes]
) -> None:
    download = downloads.start_in_part(hub)
    downloads.jobs[download].cancel()
    paused = downloads.wait_for(download, DownloadState.PAUSED)
    check_nothing_installed()
    here = largest_part().stat().st_size
    assert 0 < here < len(files[WEIGHTS])
    assert paused.done_bytes <= here + sum(map(len, files.values())) - len(files[WEIGHTS])
    hub.holds_at = None
    assert downloads.start(NAME) == download
    ended = downloads.wait_for(download, DownloadState.FINISHED)
    check_whole(Path(ended.folder), files)
    assert hub.starts(files[WEIGHTS]) == [0, here]


@pytest.mark.slow
@pytest.mark.parametrize("downloads", [QUICKLY_STALLED], indirect=True, ids=[""])
def test_a_stalled_download_is_paused_at_once(hub: HubServer, downloads: Downloads) -> None:
    hub.add(NAME, small_files())
    hub.fault(WEIGHTS, Fault(stall=50_000), Fault(stall=0), Fault(stall=0))
    download = downloads.start(NAME)
    stalled = downloads.wait(download, lambda progress: bool(progress.notes))
    assert stalled.notes[0].startswith("No data for 1.5 s. Trying again")
    downloads.jobs[download].cancel()
    downloads.wait_for(download, DownloadState.PAUSED)


@pytest.mark.slow
def test_two_revisions_of_one_model_take_turns(hub: HubServer, downloads: Downloads, files: dict[str, bytes]) -> None:
    newer = files | {"config.json": b"{}"}
    hub.add_commit(NAME, "e" * 40, newer, "newer")
    ids = {downloads.start(NAME): files, downloads.start(NAME, "newer"): newer}
    for download, wanted in ids.items():
        check_whole(Path(downloads.wait_for(download, DownloadState.FINISHED).folder), wanted)
    assert hub.sent[sha256(files[WEIGHTS])] == len(files[WEIGHTS])


@pytest.mark.slow
def test_a_discarded_download_leaves_another_revision_alone(
    hub: HubServer, downloads: Downloads, files: dict[str, bytes]
) -> None:
    first = downloads.wait_for(downloads.start(NAME), DownloadState.FINISHED)
    hub.add_commit(NAME, "e" * 40, files | {WEIGHTS: random_bytes(400_000, 9)}, "newer")
    hub.holds_at = hub.sent.total() + 100_000
    download = downloads.start(NAME, "newer")
    downloads.wait(download, lambda progress: progress.fetched_bytes > 50_000)
    downloads.process.discard(Download(NAME, "newer"), downloads.told.put)
    downloads.wait_for(download, DownloadState.REMOVED)
    check_whole(Path(first.folder), files)
    assert not list(cached().work.glob("*.part"))


@pytest.mark.slow
def test_a_crash_of_the_process_is_told_and_resumed_from(
    hub: HubServer, downloads: Downloads, files: dict[str, bytes]
) -> None:
    download = downloads.start_in_part(hub)
    downloads.child().kill()
    failed = downloads.wait_for(download, DownloadState.FAILED)
    assert failed.problem == "The downloading process was killed. Perhaps memory is short."
    check_nothing_installed()
    hub.holds_at = None
    assert downloads.start(NAME) == download
    check_whole(Path(downloads.wait_for(download, DownloadState.FINISHED).folder), files)


@pytest.mark.slow
def test_the_process_ends_with_the_one_who_asked(hub: HubServer, downloads: Downloads) -> None:
    hub.add(NAME, small_files())
    downloads.start_in_part(hub)
    child = downloads.child()
    downloads.process.close()
    assert not child.is_running()
    check_nothing_installed()
    assert list(cached().work.glob("*.part"))


@pytest.mark.slow
def test_the_token_reaches_the_process_by_its_input_alone(
    hub: HubServer, downloads: Downloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its arguments nor its environment show one that the keychain or the person gave."""
    from rdchat.hub import Token, find_endpoint

    tokens = Tokens()
    tokens.remember(Token("hf_right"), find_endpoint())
    downloads.process.close()
    downloads.process = DownloadProcess(tokens, LIMITS)
    files = small_files()
    hub.add(NAME, files, gated=True)
    hub.holds_at = 100_000
    download = downloads.start(NAME)
    downloads.wait(download, lambda progress: progress.done_bytes > 20_000)
    child = downloads.child()
    assert "hf_right" not in " ".join(child.cmdline()) + str(child.environ())
    hub.holds_at = None
    ended = downloads.wait_for(download, DownloadState.FINISHED)
    check_whole(Path(ended.folder), files)
    assert hub.sent[sha256(files[WEIGHTS])] == len(files[WEIGHTS])


def test_the_machine_is_kept_awake_until_the_download_ends(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    awake: list[str] = []

    @contextmanager
    def kept_awake() -> Iterator[None]:
        awake.append("held")
        yield
        awake.append("let go")

    monkeypatch.setattr("rdchat.hub.downloads.download_process.keep_awake", kept_awake)
    hub.add(NAME, small_files())
    record = json.loads(json.dumps(asdict(Download(NAME))))  # as it crosses to the child
    call = DownloadQueue(make_part).download(Job(), record=record, limits=asdict(LIMITS), token=None, paused=False)
    asyncio.run(asyncio.wait_for(call, 30))
    assert awake == ["held", "let go"]
