"""SIGKILL leaves a complete model, or one that resumes; earlier files are used only if they are right."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from rdchat import paths
from rdchat.errors import StorageLockedError
from rdchat.hub import CachedRepository, find_endpoint, snapshot_of
from rdchat.hub.downloads.download_record import begin_drafter, unfinished_downloads
from rdchat.hub.hub_api import HubApi
from rdchat.inference.library.original_source import plan_part
from tests.hub.downloads.downloading import (
    NAME,
    WEIGHTS,
    cached,
    check_not_half_installed,
    check_whole,
    download,
    put_model,
    small_files,
)
from tests.hub.hub_server import HubServer, sha256
from tests.hub.mtp_samples import ORIGINAL, Original, check_layers, make_target, place, run, target_of
from tests.processes import python_process

ROUNDS = int(os.environ.get("KILLS", "6"))
KILLED = "The downloading process was killed. Perhaps memory is short."
_KILLED_S = 0.7  # after the first byte, at most


def is_here(name: str = NAME) -> bool:
    """Tell whether a model looks installed: who sees it so must find it whole."""
    return snapshot_of(name) is not None


def run_and_kill(
    moment: random.Random,
    hub: HubServer,
    who: str,
    words: Sequence[str] = (NAME,),
    place: CachedRepository | None = None,
) -> None:
    """Begin to download in an app of its own; kill it or its downloading process at a random moment.

    Args:
        moment: Gives the moment.
        hub: The hub.
        who: What to kill, "child" or "app".
        words: Arguments of `killed_download`.
        place: Where the download's files go; None for the usual model's place.
    """
    before = len(hub.requests)
    command = [sys.executable, "-m", "tests.hub.downloads.killed_download", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as app:
        assert app.stdout is not None
        assert app.stderr is not None
        child = int(app.stdout.readline())
        end = time.monotonic() + 120
        while len(hub.requests) == before and app.poll() is None and psutil.pid_exists(child):
            assert time.monotonic() < end
            time.sleep(0.005)
        time.sleep(moment.uniform(0, _KILLED_S))
        with suppress(ProcessLookupError):
            os.kill(child if who == "child" else app.pid, signal.SIGKILL)
        wait_for_lock(place or cached())
        app.kill()
        assert app.stderr.read() in {"", f"{KILLED}\n"}


def wait_for_lock(place: CachedRepository) -> None:
    """Wait until the downloading process has given its lock back, killed or because it sees its input end."""
    end = time.monotonic() + 120
    while place.work.exists():
        try:
            with place.locked():
                return
        except StorageLockedError:
            assert time.monotonic() < end
            time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("who", ["child", "app"])
def test_a_killed_download_is_whole_or_goes_on(hub: HubServer, small_model: Path, who: str) -> None:
    from rdchat.inference.loading import load_model
    from rdchat.inference.models.model_files import check_model_folder

    files = put_model(hub, small_model)
    size = sum(map(len, files.values()))
    hub.bytes_per_second = size / 2
    moment = random.Random(sum(who.encode()))
    finished = 0
    for number in range(20 * ROUNDS):
        if number >= ROUNDS // 2 and finished:  # on a busy machine it takes more rounds until one is quick enough
            break
        here = partial_sizes(cached())
        asked = len(hub.requests)
        run_and_kill(moment, hub, who)
        for request in hub.requests[asked:]:  # what is here is not asked for again
            if request.digest in here:
                assert request.start >= here[request.digest]
        if is_here():
            finished += 1
            check_whole(download()[0], files)
            assert check_model_folder(cached().snapshots / cached().commit_of("main")).architecture == "llama"
            shutil.rmtree(cached().folder)
        else:
            check_not_half_installed(files)
            assert all(record.repository == NAME for _, record in unfinished_downloads())
    hub.bytes_per_second = None
    check_whole(download()[0], files)
    assert load_model(NAME) is not None
    assert finished >= 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_mtp_layers_are_whole_or_go_on_at_the_byte(hub: HubServer, tmp_path: Path) -> None:
    target = target_of(make_target(tmp_path / "target"))
    original = Original()
    original.put(hub)
    plan = plan_part(HubApi(find_endpoint()), target, ORIGINAL)
    folder = paths.drafters_dir() / target.drafter
    hub.bytes_per_second = plan.size / 2
    moment = random.Random(38)
    finished = 0
    for number in range(10 * ROUNDS):
        if number >= ROUNDS and finished:  # as above
            break
        download = begin_drafter(plan)
        here = partial_sizes(place())
        asked = len(hub.requests)
        words = (download.repository, download.revision, download.drafter)
        run_and_kill(moment, hub, ("child", "app")[number % 2], words, place())
        for request in hub.requests[asked:]:
            assert request.start >= here.get(request.digest, 0)
        if (folder / "config.json").exists():
            finished += 1
            # It may have been killed before it dropped the files.
            check_layers(run(begin_drafter(plan)) if place().folder.exists() else folder, original)
            shutil.rmtree(folder)
    assert finished


def partial_sizes(repository: CachedRepository) -> dict[str, int]:
    """Return how many bytes of each file are here, by digest."""
    return {path.stem: path.stat().st_size for path in repository.work.glob("*.part")}


def test_a_damaged_blob_is_fetched_anew(hub: HubServer, files: dict[str, bytes]) -> None:
    folder, _ = download()
    (folder / WEIGHTS).write_bytes(b"x" * len(files[WEIGHTS]))
    again, running = download()
    assert running.fetched_bytes == len(files[WEIGHTS])
    check_whole(again, files)


@pytest.mark.parametrize("part", [b"", b"{", b'{"etag": 1, "size": 400000}', b'{"etag": "x", "size": 3}'])
def test_a_partial_file_of_other_content_begins_again(hub: HubServer, part: bytes, files: dict[str, bytes]) -> None:
    """Earlier versions kept notes beside it; the checksum tells."""
    cached().work.mkdir(parents=True)
    (cached().work / f"{sha256(files[WEIGHTS])}.part").write_bytes(b"y" * 1000)
    (cached().work / f"{sha256(files[WEIGHTS])}.json").write_bytes(part)
    folder, _ = download()
    check_whole(folder, files)
    assert hub.starts(files[WEIGHTS]) == [1000, 0]


def test_a_snapshot_that_another_tool_began_is_completed(hub: HubServer, tmp_path: Path) -> None:
    """Copies that are damaged and links that lead elsewhere are replaced, and what they led to stays."""
    files = small_files()
    commit = hub.add(NAME, files)
    snapshot = cached().snapshots / commit
    snapshot.mkdir(parents=True)
    (tmp_path / "other.json").write_text("other")
    (snapshot / "config.json").symlink_to(tmp_path / "other.json")
    (snapshot / WEIGHTS).write_bytes(bytes(len(files[WEIGHTS])))
    folder, _ = download()
    check_whole(folder, files)
    assert (tmp_path / "other.json").read_text() == "other"


def test_a_disk_without_links_gets_copies(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_target: Path, _source: object) -> None:
        raise OSError(95, "Operation not supported")

    files = small_files()
    hub.add(NAME, files)
    monkeypatch.setattr(Path, "symlink_to", refuse)
    folder, _ = download()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
    assert not any(path.is_symlink() for path in folder.iterdir())
    assert download()[1].fetched_bytes == 0


HOLD = """
import sys
from rdchat.hub.cache_layout import repository_of
with repository_of(sys.argv[1]).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_that_was_moved_aside_and_comes_back_holds_nobody_up(hub: HubServer, tmp_path: Path) -> None:
    """As the trash does with it, while the process that deleted lives on."""
    with cached().locked():
        cached().folder.rename(tmp_path / "aside")
    (tmp_path / "aside").rename(cached().folder)
    assert (cached().work / "lock").read_bytes() == b""


def test_one_process_writes_to_a_repository(hub: HubServer, files: dict[str, bytes]) -> None:
    with python_process(HOLD, NAME) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StorageLockedError):
            download()
        holder.kill()
        holder.wait()
    check_whole(download()[0], files)
