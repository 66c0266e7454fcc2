"""Files of earlier downloads, other tools and other processes are used only if they are right."""

from pathlib import Path

import pytest

from rdchat.errors import StorageLockedError
from tests.hub.downloads.downloading import (
    NAME,
    WEIGHTS,
    cached,
    check_whole,
    download,
    small_files,
)
from tests.hub.hub_server import HubServer, sha256
from tests.processes import python_process


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
    """Links of it that lead elsewhere are replaced, and what they led to stays."""
    files = small_files()
    commit = hub.add(NAME, files)
    snapshot = cached().snapshots / commit
    snapshot.mkdir(parents=True)
    (tmp_path / "other.json").write_text("other")
    (snapshot / "config.json").symlink_to(tmp_path / "other.json")
    (snapshot / WEIGHTS).write_bytes(b"half")
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
