"""A full disk is reported before and during a download, and data on disk is kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rdchat.errors import StorageFullError
from tests.disks import SmallDisk, small_disk
from tests.hub.downloads.downloading import NAME, cached, check_nothing_installed, check_whole, download, small_files
from tests.hub.hub_server import HubServer


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
