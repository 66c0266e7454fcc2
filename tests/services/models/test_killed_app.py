"""SIGKILL of the app or of its downloading process at random moments: the next start goes on by itself, no byte twice.

Afterwards the model is whole and loads, or is known as incomplete.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from rdchat.hub import snapshot_of
from rdchat.hub.downloads.download import DownloadState
from rdchat.hub.downloads.download_record import has_unfinished, unfinished_downloads
from tests.hub.downloads.downloading import (
    NAME,
    cached,
    check_not_half_installed,
    check_whole,
    download,
    random_bytes,
    small_files,
)
from tests.hub.hub_server import HubServer
from tests.processes import moments
from tests.services.models.followed_downloads import FollowedDownloads

WEIGHTS = "model.safetensors"
KILLS = int(os.environ.get("KILLS", "3"))  # KILLS=50 make test-slow takes a quarter of an hour for these
_KILLED_S = 0.8  # after the first request, at most


def partial_sizes() -> dict[str, int]:
    """Return how many bytes of each file are here, by digest."""
    return {path.stem: path.stat().st_size for path in cached().work.glob("*.part")}


def check_asked_no_more(hub: HubServer, before: int, here: dict[str, int]) -> None:
    """Check that no request asked for bytes that were here."""
    for request in hub.requests[before:]:
        if request.digest in here:
            assert request.start >= here[request.digest]


def run_app(moment: float | None, hub: HubServer, kind: str) -> list[str]:
    """Start the service or the whole app in a program of its own; return what it said.

    Args:
        moment: Seconds after its first request to the hub when it is killed; None lets it end by itself.
        hub: The hub.
        kind: `service` or `window`.
    """
    before = len(hub.requests)
    command = [sys.executable, "-m", "tests.services.models.killed_app", NAME, kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as app:
        end = time.monotonic() + 120
        while moment is not None and len(hub.requests) == before and app.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.005)
        if moment is not None:
            time.sleep(moment)
            with suppress(ProcessLookupError):
                os.kill(app.pid, signal.SIGKILL)
        said, complaints = app.communicate(timeout=120)
    assert [line for line in complaints.splitlines() if "This plugin does not support" not in line] == []
    return said.split("\n")[:-1]


def kill_the_app(hub: HubServer, small_model: Path, kills: int, kind: str = "service") -> None:
    files = {path.name: path.read_bytes() for path in small_model.iterdir() if path.name != "made_from.json"}
    hub.add(NAME, files)
    hub.bytes_per_second = sum(map(len, files.values())) / 4
    here: dict[str, int] = {}
    remembered = False
    for moment in moments(kills, _KILLED_S, kills):
        before = len(hub.requests)
        said = run_app(moment, hub, kind)
        wait_for_children()
        check_asked_no_more(hub, before, here)
        if remembered:
            assert said[0] == "went on", "what went on when the app was killed goes on by itself"
        if snapshot_of(NAME) is not None:
            check_whole(download()[0], files)
            shutil.rmtree(cached().folder)
        else:
            check_not_half_installed(files)
            assert {record.repository for _, record in unfinished_downloads()} <= {NAME}
        remembered = has_unfinished()
        here = partial_sizes()
    hub.bytes_per_second = None
    assert run_app(None, hub, kind)[-1] == "finished"
    check_whole(download()[0], files)
    assert not has_unfinished()


def wait_for_children() -> None:
    """Wait until no downloading process is left of an app that was killed: each ends once its input does."""
    end = time.monotonic() + 120
    while any("downloads" in cmdline(process) for process in psutil.process_iter()):
        assert time.monotonic() < end
        time.sleep(0.02)


def cmdline(process: psutil.Process) -> list[str]:
    """Return the command of one of this test's own processes; empty for others."""
    with suppress(psutil.Error):
        if process.environ().get("RDCHAT_DATA_DIR") == os.environ["RDCHAT_DATA_DIR"]:
            return process.cmdline()
    return []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_app_killed_again_and_again_goes_on(hub: HubServer, small_model: Path) -> None:
    from rdchat.inference.loading import load_model

    kill_the_app(hub, small_model, KILLS)
    assert load_model(NAME) is not None


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_whole_app_killed_again_and_again_goes_on(hub: HubServer, small_model: Path) -> None:
    kill_the_app(hub, small_model, 2, "window")


def kill_the_process(hub: HubServer, downloads: FollowedDownloads, kills: int) -> None:
    files = small_files() | {WEIGHTS: random_bytes(2_000_000, 5)}
    hub.add(NAME, files)
    hub.bytes_per_second = 1_000_000
    one = downloads.start(NAME)
    for moment in moments(kills, _KILLED_S, kills):
        downloads.go_on_for(moment)
        progress = downloads.now(one)
        assert progress is not None
        if not progress.state.has_ended:
            with suppress(ValueError, psutil.Error):  # it has not begun yet
                os.kill(downloads.child().pid, signal.SIGKILL)
            progress = downloads.wait(one, lambda progress: progress.state.has_ended)
        if progress.state is DownloadState.FINISHED:
            check_whole(Path(progress.folder), files)
            shutil.rmtree(cached().folder)
        else:
            assert progress.problem == "The downloading process was killed. Perhaps memory is short."
            check_not_half_installed(files)
        here = partial_sizes()
        before = len(hub.requests)
        downloads.service.resume(one)
        # Bytes have come since it was resumed, or all were here.
        downloads.wait(one, lambda progress: progress.fetched_bytes or progress.state is DownloadState.FINISHED)
        check_asked_no_more(hub, before, here)
    hub.bytes_per_second = None
    downloads.check_end(one, files)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_process_killed_again_and_again_goes_on(hub: HubServer, downloads: FollowedDownloads) -> None:
    kill_the_process(hub, downloads, KILLS)
