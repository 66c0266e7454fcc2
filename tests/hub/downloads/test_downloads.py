"""A model is downloaded completely, resumes at the last byte, or is not there at all."""

import errno
import random
from pathlib import Path
from typing import NoReturn

import pytest

from rdchat.errors import NetworkError
from rdchat.hub import CachedRepository, HubError, HubFile, RepositoryFiles
from rdchat.hub.downloads.download import Download, RunningDownload
from rdchat.hub.downloads.download_record import (
    discard,
    files_here,
    records_of,
    remove_unused_files,
    write_record,
)
from tests.hub.downloads.downloading import (
    NAME,
    QUICKLY_STALLED,
    WEIGHTS,
    cached,
    check_nothing_installed,
    check_whole,
    cut_off,
    download,
    random_bytes,
    small_files,
)
from tests.hub.hub_server import Fault, HubServer, sha256

NEWER = "b" * 40


def test_a_model_comes_whole_and_the_hubs_own_library_finds_it(hub: HubServer, tmp_path: Path) -> None:
    files = small_files()
    commit = hub.add(NAME, files)
    folder, running = download()
    check_whole(folder, files)
    assert running.fetched_bytes == sum(map(len, files.values()))

    from huggingface_hub import scan_cache_dir, try_to_load_from_cache

    assert try_to_load_from_cache(NAME, WEIGHTS, cache_dir=tmp_path / "hub") == str(folder / WEIGHTS)
    scanned = scan_cache_dir(tmp_path / "hub")
    assert [repository.repo_id for repository in scanned.repos] == [NAME]
    assert scanned.warnings == []
    (revision,) = next(iter(scanned.repos)).revisions
    assert (revision.commit_hash, revision.refs) == (commit, frozenset({"main"}))


def test_what_is_here_is_not_fetched_again(hub: HubServer, files: dict[str, bytes]) -> None:
    download()
    sent = hub.sent.total()
    folder, running = download()
    assert (hub.sent.total(), running.fetched_bytes) == (sent, 0)
    check_whole(folder, files)


def test_another_revision_fetches_only_what_differs(hub: HubServer, files: dict[str, bytes]) -> None:
    first, _ = download()
    newer = files | {"config.json": b'{"model_type": "llama", "newer": 1}'}
    hub.add_commit(NAME, "a" * 40, newer, "newer")
    second, running = download(revision="newer")
    assert running.fetched_bytes == len(newer["config.json"])
    check_whole(first, files)
    check_whole(second, newer)
    assert cached().references() == {first.name: ["main"], "a" * 40: ["newer"]}


def test_only_data_that_is_known_is_fetched(hub: HubServer) -> None:
    files = small_files()
    others = {"pytorch_model.bin": b"pickle", "modeling.py": b"code", "onnx/model.onnx": b"?", ".gitattributes": b""}
    others |= {"consolidated.safetensors": b"again", "model.Q4_0.gguf": b"GGUF"}
    hub.add(NAME, files | others | {"additional_chat_templates/tool.jinja": b"{}"})
    folder, _ = download()
    check_whole(folder, files | {"additional_chat_templates/tool.jinja": b"{}"})
    assert not any(name in request.path for request in hub.requests for name in others)


EVIL = ("../../evil.json", "/etc/evil.json", "a/../../evil.json", "sub/evil.json", "..", "evil\n.json", "~evil.json")


def test_names_that_lead_elsewhere_are_never_fetched(hub: HubServer, tmp_path: Path) -> None:
    files = small_files()
    hub.add(NAME, files | dict.fromkeys(EVIL, b"{}"))
    folder, _ = download()
    check_whole(folder, files)
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize("name", ["nothing", "../x", "a/b/c", "a--b/c", "a/..", "a/b.git", ""])
def test_names_that_are_no_hub_ids_are_refused(hub: HubServer, name: str) -> None:
    from rdchat.hub import check_names

    with pytest.raises(HubError, match="is not the name of a model"):
        check_names(name, "main")
    with pytest.raises(HubError, match="is not a revision"):
        check_names(NAME, f"../{name}")
    assert hub.requests == []


def test_a_file_without_a_checksum_is_refused(hub: HubServer) -> None:
    hub.add(NAME, small_files())
    hub.repositories[NAME].told[WEIGHTS] = {"lfs": None, "blobId": "../x"}
    with pytest.raises(HubError, match=f"no size or checksum for {WEIGHTS}"):
        download()
    check_nothing_installed()


@pytest.mark.parametrize("etags", [True, False])
def test_cuts_at_random_bytes_cost_no_byte_twice(hub: HubServer, files: dict[str, bytes], etags: bool) -> None:
    hub.etags = etags
    cuts = [random.Random(seed).randrange(1, 60_000) for seed in range(8)]
    hub.fault(WEIGHTS, *(Fault(cut=cut) for cut in cuts))
    folder, _ = download()
    check_whole(folder, files)
    assert hub.sent[sha256(files[WEIGHTS])] == len(files[WEIGHTS])
    assert hub.starts(files[WEIGHTS]) == [sum(cuts[:number]) for number in range(len(cuts) + 1)]


def test_a_download_that_failed_goes_on_in_another_process(hub: HubServer, files: dict[str, bytes]) -> None:
    """Nothing but the disk knows where it was."""
    assert cut_off(hub).hint.startswith("The downloaded part is kept.")
    check_nothing_installed()
    (record,) = records_of(cached())
    assert {path.name for path in cached().blobs.iterdir()} == record.digests - {sha256(files[WEIGHTS])}
    here = files_here(cached(), record)
    assert sum(file.done_bytes for file in here) == sum(map(len, files.values())) - 250_000
    folder, running = download()
    check_whole(folder, files)
    assert running.fetched_bytes == 250_000
    assert records_of(cached()) == []
    assert hub.sent.total() == sum(map(len, files.values()))


def cut_off_and_squashed(hub: HubServer, newer: dict[str, bytes]) -> str:
    """Leave an unfinished download of a commit that the hub then drops for a newer one; return the newer one."""
    commit = hub.add(NAME, small_files())
    cut_off(hub)
    hub.faults.clear()
    del hub.repositories[NAME].commits[commit]
    hub.add_commit(NAME, NEWER, newer, "main")
    return commit


def test_a_commit_that_the_hub_dropped_is_said_and_what_is_here_stays(hub: HubServer) -> None:
    newer = small_files() | {"config.json": b'{"model_type": "llama", "newer": 1}', "tokenizer.json": b"{}"}
    cut_off_and_squashed(hub, newer)
    with pytest.raises(HubError, match="has no revision") as caught:
        download()
    assert caught.value.hint.endswith("discard the download and start a new one.")
    check_nothing_installed()
    assert records_of(cached()), "nobody decided yet that it is given up"
    discard(cached(), Download(NAME))
    folder, _ = download()
    assert folder.name == NEWER
    check_whole(folder, newer)


def test_one_file_that_is_not_found_for_now_costs_nothing_of_the_others(hub: HubServer) -> None:
    """The hub still has the commit, so this is no reason to begin with another one."""
    cut_off_and_squashed(hub, small_files() | {WEIGHTS: random_bytes(200_000, 9)})
    commit = records_of(cached())[0].commit
    hub.add_commit(NAME, commit, small_files())
    hub.fault("config.json", Fault(status=404))
    hub.fault(WEIGHTS, *[Fault(status=503)] * 4)
    with pytest.raises(HubError):
        download()
    hub.faults.clear()
    folder, _ = download()
    assert folder.name == commit
    check_whole(folder, small_files())
    assert hub.sent[sha256(small_files()[WEIGHTS])] == len(small_files()[WEIGHTS])


@pytest.mark.parametrize("what", ["unreadable", "newer", "another case"])
def test_nothing_is_a_stray_while_a_record_is_not_understood(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    hub.add(NAME, small_files())
    cut_off(hub)
    (record,) = cached().work.glob("download-*.json")
    before = sorted(cached().work.iterdir())
    repository = cached()
    with monkeypatch.context() as now:
        if what == "unreadable":
            now.setattr("rdchat.files.foreign_files.opened", _too_many_files)
        elif what == "newer":
            record.write_text(record.read_text().replace('"files": [[', '"files": [["more", '))
        else:
            repository = CachedRepository(NAME.upper(), cached().folder)
        remove_unused_files(repository)
    assert sorted(cached().work.iterdir()) == before


def test_bytes_that_a_record_of_a_newer_rdchat_may_need_stay_when_another_is_given_up(hub: HubServer) -> None:
    digest = sha256(b"shared")
    files = (HubFile(WEIGHTS, len(b"shared"), digest),)
    mine, newer = (
        RepositoryFiles(NAME, branch, commit * 40, files) for branch, commit in (("main", "a"), ("next", "b"))
    )
    write_record(cached(), mine)
    write_record(cached(), newer)
    (path,) = (path for path in cached().work.glob("download-*.json") if "b" * 40 in path.read_text())
    path.write_text(path.read_text().replace('"files": [[', '"files": [["more", '))
    cached().blobs.mkdir()
    (cached().blobs / digest).write_bytes(b"shared")
    discard(cached(), Download(NAME))
    assert (cached().blobs / digest).exists()
    path.unlink()
    write_record(cached(), mine)
    discard(cached(), Download(NAME))
    assert not (cached().blobs / digest).exists()


def _too_many_files(*_arguments: object, **_options: object) -> NoReturn:
    raise OSError(errno.EMFILE, "Too many open files")


def test_what_the_hub_said_is_shown_while_all_connections_are_well() -> None:
    running = RunningDownload(Download(NAME))
    running.note("", "It has changed.")
    assert running.record.notes == ("It has changed.",)
    running.note(WEIGHTS, "No data.")
    assert running.record.notes == ("No data.",)
    running.note(WEIGHTS, "")
    assert running.record.notes == ("It has changed.",)


def test_what_no_record_names_goes_and_what_recurs_is_used(hub: HubServer) -> None:
    hub.add(NAME, small_files())
    cut_off(hub)
    hub.faults.clear()
    (record,) = cached().work.glob("download-*.json")
    record.write_text("{")
    for name in (f"{'c' * 64}.part", f"{'c' * 64}.json", f"download-{NEWER}.json"):
        (cached().work / name).write_text("{}")
    (cached().work / f"snapshot-{NEWER}").mkdir()
    left: set[str] = set()
    hub.before_bytes[WEIGHTS] = lambda: left.update(path.name for path in cached().work.iterdir())
    check_whole(download()[0], small_files())
    sha = sha256(small_files()[WEIGHTS])
    assert left == {"lock", record.name, f"{sha}.part"}
    assert hub.sent[sha] == len(small_files()[WEIGHTS])


def test_a_server_that_knows_no_ranges_begins_again_and_that_is_said(hub: HubServer, files: dict[str, bytes]) -> None:
    hub.fault(WEIGHTS, Fault(cut=100_000), Fault(ignore_range=True))
    folder, running = download()
    check_whole(folder, files)
    assert f"The server cannot resume {WEIGHTS}. It starts again." in running.said
    assert hub.sent[sha256(files[WEIGHTS])] == len(files[WEIGHTS]) + 100_000


def test_a_server_that_knows_no_ranges_and_always_cuts_is_given_up(hub: HubServer) -> None:
    hub.add(NAME, small_files())
    hub.fault(WEIGHTS, *[Fault(cut=100_000, ignore_range=True)] * 20)
    with pytest.raises(HubError, match="The connection was lost"):
        download()
    assert len(hub.starts(small_files()[WEIGHTS])) <= 6


def test_a_server_with_another_etag_goes_on_with_what_another_sent(hub: HubServer, files: dict[str, bytes]) -> None:
    """As after a switch of mirrors: the digest says which content it is, and is checked."""
    hub.fault(WEIGHTS, Fault(cut=100_000, headers={"ETag": '"older"'}))
    folder, running = download()
    check_whole(folder, files)
    assert running.fetched_bytes == sum(map(len, files.values()))


def test_a_stalled_connection_is_said_and_made_anew(hub: HubServer, files: dict[str, bytes]) -> None:
    hub.fault(WEIGHTS, Fault(stall=50_000))
    folder, running = download(limits=QUICKLY_STALLED)
    check_whole(folder, files)
    assert any(words.startswith("No data for") and "Trying again in" in words for words in running.said)
    assert hub.starts(files[WEIGHTS]) == [0, 50_000]


@pytest.mark.parametrize("again", [0, 1])
def test_a_wrong_checksum_is_never_installed(hub: HubServer, again: int, files: dict[str, bytes]) -> None:
    hub.fault(WEIGHTS, *[Fault(damage=True)] * (1 + again))
    if not again:
        folder, running = download()
        assert f"{WEIGHTS} does not match its checksum. It is downloaded again." in running.said
        check_whole(folder, files)
        return
    with pytest.raises(HubError, match="never matched"):
        download()
    check_nothing_installed()
    assert not (cached().blobs / sha256(files[WEIGHTS])).exists()
    assert not list(cached().work.glob(f"{sha256(files[WEIGHTS])}*")), "parts of other files may be kept"


def test_a_repository_without_weights_is_refused(hub: HubServer) -> None:
    hub.add(NAME, {"config.json": b"{}", "pytorch_model.bin": b"pickle", "small.Q8_0.gguf": b"GGUF"})
    with pytest.raises(HubError, match="no weights that rdchat can read"):
        download()
    check_nothing_installed()


def test_offline_nothing_is_asked(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(NetworkError, match="HF_HUB_OFFLINE is set"):
        download()
    assert hub.requests == []


def test_same_content_under_two_names_is_fetched_once(hub: HubServer) -> None:
    files = small_files() | {"model-copy.safetensors": random_bytes(400_000, 2)}
    hub.add(NAME, files)
    folder, running = download()
    check_whole(folder, files)
    assert running.fetched_bytes == sum(map(len, small_files().values()))
    assert sum(file.size for file in running.record.files) == running.fetched_bytes
