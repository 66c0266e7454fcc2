"""Downloads from a hub with wrong answers, with a jumping clock, a full disk, or a child that answers garbage."""

import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from rdchat import host
from rdchat.errors import RdchatError, StorageFullError
from rdchat.hub import HubError, Tokens
from rdchat.hub.downloads import download_record
from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.hub.downloads.download_process import DownloadProcess
from tests.disks import SmallDisk, small_disk
from tests.grids import share
from tests.hub.downloads.downloading import (
    LIMITS,
    NAME,
    WEIGHTS,
    cached,
    check_nothing_installed,
    check_whole,
    download,
    random_bytes,
    small_files,
)
from tests.hub.hostile_answers import HEAD, raw
from tests.hub.hub_server import Fault, HubServer, sha256


def tell_size(hub: HubServer, size: object) -> None:
    """Have the API tell another size of the weights."""
    digest = sha256(small_files()[WEIGHTS])
    hub.repositories[NAME].told[WEIGHTS] = {"size": size, "lfs": {"size": size, "sha256": digest}}


@pytest.mark.parametrize("size", [0, 399_999, 400_001])
def test_a_size_that_is_not_the_files_is_said_where_the_server_tells_none(hub: HubServer, size: int) -> None:
    hub.add(NAME, small_files())
    tell_size(hub, size)
    hub.fault(WEIGHTS, *[raw(lambda: [HEAD, b"\r\n", small_files()[WEIGHTS]])] * 10)
    with pytest.raises(HubError, match=r"sends more of model|The connection was lost"):
        download()
    check_nothing_installed()
    assert not (cached().blobs / sha256(small_files()[WEIGHTS])).exists()


WRONG_SIZES: dict[str, list[Any]] = {
    "The hub says": [0, 1, 399_999, 400_001, 10**6],
    "GB more|no size or checksum|The hub says": [2**49, 2**50 + 1, -1, 10**400, True, None, "400000", [1]],
}


@pytest.mark.parametrize(("words", "size"), [(words, size) for words, sizes in WRONG_SIZES.items() for size in sizes])
def test_a_size_that_is_not_the_files_is_said(hub: HubServer, words: str, size: Any) -> None:
    hub.add(NAME, small_files())
    tell_size(hub, size)
    with pytest.raises(RdchatError, match=words):
        download()
    check_nothing_installed()


def test_a_file_that_would_be_refused_when_it_is_read_is_not_fetched(hub: HubServer) -> None:
    hub.add(NAME, small_files() | {"model.safetensors.index.json": b"{}"})
    hub.repositories[NAME].told["model.safetensors.index.json"] = {"size": 3 * 10**9}
    with pytest.raises(HubError, match=r"model\.safetensors\.index\.json is too large"):
        download()
    assert not [request for request in hub.requests if "/resolve/" in request.path]


def test_a_card_that_nobody_could_read_is_left_out(hub: HubServer, files: dict[str, bytes]) -> None:
    hub.repositories[NAME].told["README.md"] = {"size": 3 * 10**9}
    del files["README.md"]
    check_whole(download()[0], files)


def test_content_that_changed_between_two_runs_is_fetched_anew(hub: HubServer) -> None:
    """The first bytes are of another content of the same length; the checksum tells."""
    files = small_files()
    commit = hub.add(NAME, files)
    other = files | {WEIGHTS: random_bytes(len(files[WEIGHTS]), 9)}
    for _ in range(4):
        hub.fault(WEIGHTS, raw(lambda: [HEAD, b"\r\n", other[WEIGHTS][:50_000]]))
    with pytest.raises(HubError):
        download()
    folder, running = download()
    check_whole(folder, files)
    assert f"{WEIGHTS} does not match its checksum. It is downloaded again." in running.said
    assert folder.name == commit


@pytest.mark.slow
def test_finishing_a_file_writes_no_record_of_all_files(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of 9,000 small files took minutes."""
    files = small_files() | {f"part-{number}.json": b"%d" % number for number in range(300)}
    hub.add(NAME, files)
    written: list[Path] = []
    write = download_record.write_json
    monkeypatch.setattr(download_record, "write_json", lambda path, data: (written.append(path), write(path, data)))
    check_whole(download()[0], files)
    assert len(written) <= 3
    assert [path.name for path in cached().work.iterdir()] == ["lock"]


def test_a_clock_that_jumps_by_years_changes_nothing(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]
) -> None:
    hub.fault(WEIGHTS, Fault(cut=50_000), Fault(status=429, headers={"Retry-After": "0"}), Fault(cut=90_000))
    clock = time.time
    odd = random.Random(1)
    monkeypatch.setattr(time, "time", lambda: clock() + odd.choice([-1, 1]) * 10 * 365 * 86_400)
    began = time.monotonic()
    folder, running = download()
    check_whole(folder, files)
    assert time.monotonic() - began < 60
    waits = [words for words in running.said if "Trying again in" in words]
    assert all("again in 1 s" in words for words in waits)


# The downloading process


class Told:
    """What a `DownloadProcess` says."""

    def __init__(self) -> None:
        self.all: list[Download] = []
        self.ended = threading.Event()

    def __call__(self, progress: Download) -> None:
        self.all.append(progress)
        if progress.state.has_ended:
            self.ended.set()


@pytest.fixture
def told() -> Told:
    return Told()


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


READY = framed(b'{"ready": true}')


@pytest.mark.parametrize(
    "said",
    share(
        [
            b"nonsense\n",
            framed(b"[" * 100_000),
            framed(b"{}"),
            framed(b"[]"),
            framed(b"\xff"),
            framed(b'{"id": 1, "progress": 3}'),
            framed(b'{"id": 1, "progress": {"id": "x", "files": 1, "notes": [], "state": "waiting"}}'),
            framed(
                b'{"id": 1, "progress": {"files": [{"name": 1, "done_bytes": "x", "size": null}], "notes": [], '
                b'"state": "waiting"}}'
            ),
            framed(b'{"id": 1, "result": {"repository": "x"}}'),
            framed(b"{" * 40_000_000),
            framed(json.dumps({"id": 2, "result": asdict(Download(NAME))}).encode()),
        ],
        4,
    ),
)
def test_a_process_that_says_what_is_no_progress_is_ended_and_that_is_said(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, told: Told, tmp_path: Path, said: bytes
) -> None:
    """Nor may it answer what nobody asked."""
    (tmp_path / "said").write_bytes(said)
    code = (
        f"import sys; out = sys.stdout.buffer; out.write({READY!r}); out.flush(); sys.stdin.buffer.read(4); "
        f"out.write(open({str(tmp_path / 'said')!r}, 'rb').read()); out.flush(); sys.stdin.read()"
    )
    monkeypatch.setattr(host, "child_command", lambda _name: [sys.executable, "-c", code])
    process = DownloadProcess(Tokens(), LIMITS)
    try:
        process.start_download(Download(NAME), told)
        assert told.ended.wait(60)
        assert told.all[-1].state is DownloadState.FAILED
        assert told.all[-1].problem.startswith("The downloading process ")
        assert {progress.id for progress in told.all} == {Download(NAME).id}
    finally:
        process.close()


@pytest.fixture
def disk(tmp_path: Path, hub: HubServer) -> Iterator[SmallDisk]:
    (tmp_path / "hub").mkdir()
    with small_disk(tmp_path / "hub", kibibytes=640) as disk:
        yield disk


def test_what_does_not_fit_is_not_begun(hub: HubServer, disk: SmallDisk) -> None:
    hub.add(NAME, small_files() | {"model-2.safetensors": bytes(500_000)})
    with pytest.raises(StorageFullError, match=f"{NAME} needs .* KB more, and the disk has .* KB free"):
        download()
    assert hub.sent.total() == 0
    check_nothing_installed()


def test_a_disk_that_fills_up_keeps_what_is_there(hub: HubServer, disk: SmallDisk, files: dict[str, bytes]) -> None:
    filler = disk.folder / "other"

    def fill() -> None:
        filler.write_bytes(bytes(300_000))

    hub.before_bytes["model.safetensors"] = fill
    with pytest.raises(StorageFullError, match="the disk is full"):
        download()
    check_nothing_installed()
    partial = sum(path.stat().st_size for path in cached().work.glob("*.part"))
    assert 0 < partial < len(files["model.safetensors"])
    filler.unlink()
    folder, running = download()
    check_whole(folder, files)
    rest = len(files["model.safetensors"]) - partial
    others = sum(map(len, files.values())) - len(files["model.safetensors"])  # one of them may have been under way
    assert rest <= running.fetched_bytes <= rest + others


def test_so_much_stays_free(hub: HubServer, disk: SmallDisk) -> None:
    hub.add(NAME, small_files())
    with pytest.raises(StorageFullError):
        download(reserve_bytes=300_000)
    assert hub.sent.total() == 0
    check_whole(download(reserve_bytes=100_000)[0], small_files())
