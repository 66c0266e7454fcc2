"""The hub's cache: foreign files block nothing and are not touched, and a model is a snapshot with weights."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from rdchat.errors import RdchatError
from rdchat.files import make_folder
from rdchat.hub import HubFile, cache_layout, cached_repositories, checksum, downloaded_repositories, is_safe_name
from rdchat.hub.downloads.download_record import records_of, unfinished_downloads
from rdchat.hub.verifying_and_deleting import NoTrashError, delete, plan_deletion, verify_cached, verify_folder
from tests.grids import share
from tests.hub.downloads.downloading import (
    NAME,
    WEIGHTS,
    cached,
    check_whole,
    download,
    hub_api,
    random_bytes,
    small_files,
    uncounted,
)
from tests.hub.hub_server import HubServer, git_sha1, sha256

COMMIT = "c" * 40

Odd = Callable[[Path], object]
ODD_PLACES: dict[str, Odd] = {
    "a named pipe": os.mkfifo,
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a folder": lambda path: path.mkdir(),
    "a link nowhere": lambda path: path.symlink_to("/nowhere/at/all"),
}
each_odd = pytest.mark.parametrize("odd", ODD_PLACES.values(), ids=ODD_PLACES)


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file of the person's, outside the cache."""
    path = tmp_path / "precious"
    path.write_text("precious")
    return path


def file(name: str = "a.json", size: object = 3, digest: str = "a" * 40) -> dict[str, object]:
    return {"name": name, "size": size, "digest": digest}


def write_record(**changes: object) -> Path:
    fields = {
        "repository": NAME,
        "revision": "main",
        "commit": COMMIT,
        "files": [file()],
        "left_out": [],
        "is_model": True,
        "paused": True,
    }
    path = cached().work / f"download-{COMMIT}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(fields | changes).replace("Infinity", "1e999"))
    return path


# Records


@pytest.mark.parametrize(
    "changes",
    share(
        [
            {"files": [file(size=float("inf"))]},
            {"files": [file(size=-1)]},
            {"files": [file(size=10**30)]},
            {"files": [file(size="many")]},
            {"files": [file(digest="../../x")]},
            {"files": [file("../evil")]},
            {"files": [], "drafter": "mine"},
            {"commit": "main"},
            {"config": None},
            {"files": [file(), file("A.JSON", digest="b" * 40)]},
            {"files": [file("a\ud800.json")]},
            {"files": [file("a" * 190 + "\u20ac" * 10 + ".json")]},
            {"drafter": "../evil"},
            {"drafter": 1},
            {"card": None},
            {"files": 1},
            {"files": [[]]},
            {"left_out": 5},
            {"commit": "../evil"},
            {"revision": "../../evil"},
        ],
        4,
    ),
)
def test_a_record_that_cannot_be_is_none(hub: HubServer, changes: dict[str, object], files: dict[str, bytes]) -> None:
    write_record()
    assert len(records_of(cached())) == 1
    write_record(**changes)
    assert records_of(cached()) == []
    assert list(unfinished_downloads()) == []
    check_whole(download()[0], files)


@each_odd
def test_odd_things_in_the_place_of_records_are_none(hub: HubServer, odd: Odd) -> None:
    files = small_files()
    commit = hub.add(NAME, files)
    cached().work.mkdir(parents=True)
    for name in (f"download-{commit}.json", f"download-{'d' * 40}.json"):
        odd(cached().work / name)
    assert records_of(cached()) == []
    with suppress(RdchatError):  # where the record's place cannot be taken, in words
        check_whole(download()[0], files)


# Bytes on their way


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_partial_file_that_leads_elsewhere_is_not_written(
    hub: HubServer, precious: Path, link: Callable[[Path, Path], None], files: dict[str, bytes]
) -> None:
    digest = sha256(files[WEIGHTS])
    cached().work.mkdir(parents=True)
    link(cached().work / f"{digest}.part", precious)
    facts = {"etag": f'"store-{digest}"', "size": len(files[WEIGHTS])}
    (cached().work / f"{digest}.json").write_text(json.dumps(facts))
    check_whole(download()[0], files)
    assert precious.read_text() == "precious"


def test_a_lock_that_leads_elsewhere_is_not_written(hub: HubServer, precious: Path) -> None:
    hub.add(NAME, small_files())
    cached().work.mkdir(parents=True)
    (cached().work / "lock").symlink_to(precious)
    with pytest.raises(RdchatError, match="cannot write to its folder"):
        download()
    assert precious.read_text() == "precious"


@pytest.mark.parametrize(
    "said",
    ["[" * 100_000, '{"pid": 1e999, "started": 0}', '{"pid": 1, "started": 1' + "0" * 400 + "}", '{"pid": -1}', None],
)
def test_a_lock_may_say_anything_or_be_a_pipe(hub: HubServer, said: str | None) -> None:
    cached().work.mkdir(parents=True)
    lock = cached().work / "lock"
    if said is None:
        os.mkfifo(lock)
    else:
        lock.write_text(said)
    with cached().locked():
        pass


def test_a_lock_whose_folder_vanishes_meanwhile_is_made_anew(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever held it last removes the folder when a download has ended, at any moment."""
    vanished = []

    def make(folder: Path) -> None:
        make_folder(folder)
        if not vanished:
            folder.rmdir()
            vanished.append(folder)

    monkeypatch.setattr(cache_layout, "make_folder", make)
    with cached().locked():
        assert vanished == [cached().work]
        assert (cached().work / "lock").exists()


def test_templates_are_not_put_into_a_folder_that_a_link_leads_to(hub: HubServer, tmp_path: Path) -> None:
    name = "additional_chat_templates/tools.jinja"
    commit = hub.add(NAME, small_files() | {name: b"new"})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "tools.jinja").write_text("precious")
    snapshot = cached().snapshots / commit
    snapshot.mkdir(parents=True)
    (snapshot / "additional_chat_templates").symlink_to(elsewhere)
    with pytest.raises(RdchatError, match="is a link, where a folder belongs"):
        download()
    assert (elsewhere / "tools.jinja").read_text() == "precious"


# References


@each_odd
def test_a_reference_that_is_no_file_is_none(hub: HubServer, odd: Odd) -> None:
    (cached().folder / "refs").mkdir(parents=True)
    odd(cached().reference("main"))
    assert cached().commit_of("main") == ""
    assert cached().references() == {}
    with pytest.raises(RdchatError, match="is not in the Hugging Face cache"):
        plan_deletion(cached())


@pytest.mark.parametrize("said", ["../../..", "/etc", ".", "x" * 10_000, "\n", "\x00", "é", ""])
def test_a_reference_that_says_something_else_leads_nowhere(hub: HubServer, precious: Path, said: str) -> None:
    cached().reference("main").parent.mkdir(parents=True)
    cached().reference("main").write_text(said)
    with pytest.raises(RdchatError, match="is not in the Hugging Face cache"):
        plan_deletion(cached())
    with pytest.raises(RdchatError, match="is not in the Hugging Face cache"):
        verify_cached(cached(), cached().commit_of("main"), hub_api(), uncounted)


# Verifying


@each_odd
def test_odd_blobs_are_damaged_and_are_not_waited_for(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, odd: Odd
) -> None:
    hub.add(NAME, small_files() | {"empty.json": b""})
    folder, _ = download()
    for data in (small_files()[WEIGHTS], b""):
        blob = cached().blobs / (sha256(data) if data else git_sha1(data))
        blob.unlink()
        odd(blob)
    for offline in ("0", "1"):
        monkeypatch.setenv("HF_HUB_OFFLINE", offline)
        verdict = verify_cached(cached(), folder.name, hub_api(), uncounted)
        assert {*verdict.damaged, *verdict.astray} == {WEIGHTS, "empty.json"}
        assert not verdict.is_intact


def test_odd_files_of_another_programs_folder_are_damaged(hub: HubServer, tmp_path: Path) -> None:
    hub.add(NAME, small_files() | {"empty.json": b""})
    folder = tmp_path / "studio"
    folder.mkdir()
    for name, data in small_files().items():
        (folder / name).write_bytes(data)
    (folder / "empty.json").symlink_to("/dev/zero")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    verdict = verify_folder(NAME, folder, hub_api(), uncounted)
    assert verdict.damaged == ("empty.json",)


@each_odd
def test_checksums_of_what_is_no_file_are_none(tmp_path: Path, odd: Odd) -> None:
    odd(tmp_path / "odd")
    assert checksum(tmp_path / "odd", 40) == ""
    assert not HubFile("odd", 0, git_sha1(b"")).is_at(tmp_path / "odd")


# Deleting and putting back


def test_deleting_what_is_a_link_takes_the_link_alone(hub: HubServer, tmp_path: Path) -> None:
    hub.add(NAME, small_files())
    download()
    elsewhere = tmp_path / "another disk"
    cached().folder.rename(elsewhere)
    cached().folder.symlink_to(elsewhere)
    plan = plan_deletion(cached())
    with pytest.raises(NoTrashError):
        delete(plan, lambda _folder: pytest.fail("a link was moved"))
    assert delete(plan, None) is None
    assert not os.path.lexists(cached().folder)
    assert list(cached_repositories()) == []
    assert len(list((elsewhere / "snapshots").iterdir())) == 1


# Names


@pytest.mark.parametrize("name", ["a\ud800.json", "\udfff", "\u20ac" * 100 + ".json", "../a.json", "a\x1b[31m.json"])
def test_names_that_no_disk_takes_are_left_out(hub: HubServer, name: str) -> None:
    assert not is_safe_name(name)
    files = small_files()
    commit = hub.add(NAME, files)
    hub.add_commit(NAME, commit, files | {"odd.json": random_bytes(10)})
    hub.repositories[NAME].told["odd.json"] = {"rfilename": name}
    check_whole(download()[0], files)


def test_a_configuration_alone_is_no_model(hub: HubServer) -> None:
    hub.add(NAME, small_files())
    download()
    half = cached("org/half")
    (half.snapshots / ("d" * 40)).mkdir(parents=True)
    (half.snapshots / ("d" * 40) / "config.json").write_text("{}")
    half.reference("main").parent.mkdir()
    half.reference("main").write_text("d" * 40)
    assert downloaded_repositories() == (NAME,)
