"""Models are compared with the hub's checksums; deleted ones can be restored."""

from pathlib import Path

import pytest

from rdchat.errors import ModelError, StorageLockedError
from rdchat.hub.downloads.download_record import records_of
from rdchat.hub.verifying_and_deleting import (
    DeletionPlan,
    NoTrashError,
    TrashedFolder,
    Verdict,
    delete,
    plan_deletion,
    put_back,
    remove_folder,
    verify_cached,
    verify_folder,
)
from tests.hub.downloads.downloading import (
    NAME,
    WEIGHTS,
    cached,
    check_nothing_installed,
    check_whole,
    cut_off,
    download,
    hub_api,
    random_bytes,
    small_files,
    uncounted,
)
from tests.hub.hub_server import HubServer

NEWER = "f" * 40


def verify(commit: str) -> Verdict:
    return verify_cached(cached(), commit, hub_api(), uncounted)


@pytest.fixture
def folder(hub: HubServer) -> Path:
    """A downloaded model."""
    hub.add(NAME, small_files())
    return download()[0]


def test_whole_damaged_missing_and_astray_are_told_apart(hub: HubServer, folder: Path, tmp_path: Path) -> None:
    verdict = verify(folder.name)
    assert verdict.is_intact
    assert verdict.intact == tuple(sorted(small_files()))
    (folder / WEIGHTS).write_bytes(b"x" * len(small_files()[WEIGHTS]))
    (folder / "tokenizer.json").unlink()
    (tmp_path / "other.json").write_bytes(small_files()["config.json"])
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(tmp_path / "other.json")
    (folder / "notes.txt").write_text("mine")
    verdict = verify(folder.name)
    assert not verdict.is_intact
    assert (verdict.damaged, verdict.missing, verdict.astray, verdict.unknown) == (
        (WEIGHTS,),
        ("tokenizer.json",),
        ("config.json",),
        ("notes.txt",),
    )
    (folder / "notes.txt").unlink()
    check_whole(download()[0], small_files())
    assert verify(folder.name).is_intact


def test_documents_that_are_not_here_or_were_edited_are_no_damage(hub: HubServer, folder: Path) -> None:
    (folder / "README.md").write_text("mine")
    assert verify(folder.name).is_intact
    (folder / "README.md").unlink()
    assert verify(folder.name).is_intact


def test_without_a_hub_the_blobs_names_are_held_against_their_bytes(
    hub: HubServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    verdict = verify(folder.name)
    assert verdict.is_intact
    assert "HF_HUB_OFFLINE" in verdict.hub_problem
    (folder / WEIGHTS).write_bytes(b"x" * len(small_files()[WEIGHTS]))
    assert verify(folder.name).damaged == (WEIGHTS,)


def test_another_programs_folder_is_verified_by_its_name(hub: HubServer, folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", WEIGHTS):
        (tmp_path / "theirs").mkdir(exist_ok=True)
        (tmp_path / "theirs" / name).write_bytes(small_files()[name])
    api = hub_api()
    assert verify_folder(NAME, tmp_path / "theirs", api, uncounted).is_intact
    (tmp_path / "theirs" / WEIGHTS).write_bytes(b"")
    assert verify_folder(NAME, tmp_path / "theirs", api, uncounted).damaged == (WEIGHTS,)
    (tmp_path / "theirs" / WEIGHTS).unlink()
    verdict = verify_folder(NAME, tmp_path / "theirs", api, uncounted)
    assert (verdict.missing, verdict.is_intact) == ((WEIGHTS,), False), "a configuration alone is no model"


def test_another_programs_folder_may_be_an_older_version(hub: HubServer, tmp_path: Path) -> None:
    hub.add(NAME, small_files())
    for name, data in {**small_files(), "of-mine.txt": b"mine"}.items():
        (tmp_path / name).write_bytes(data)
    api = hub_api()
    verdict = verify_folder(NAME, tmp_path, api, uncounted)
    assert (verdict.is_intact, verdict.unknown, verdict.version_text) == (True, ("of-mine.txt",), "")
    hub.add_commit(NAME, NEWER, small_files() | {WEIGHTS: random_bytes(400_000, 9)}, "main")
    verdict = verify_folder(NAME, tmp_path, api, uncounted)
    assert (verdict.commit, verdict.damaged) == (NEWER, (WEIGHTS,))
    assert verdict.version_text == "It was compared with the newest version. An older version differs too."


class Trash:
    """Stands for the system's Trash: takes folders by a rename."""

    def __init__(self, folder: Path) -> None:
        self.files = folder / "Trash" / "files"
        self.files.mkdir(parents=True)
        (self.files.parent / "info").mkdir()

    def __call__(self, folder: Path) -> Path:
        (self.files.parent / "info" / f"{folder.name}.trashinfo").write_text("")
        return folder.rename(self.files / folder.name)


@pytest.fixture
def trash(tmp_path: Path) -> Trash:
    return Trash(tmp_path / "home")


def no_trash(folder: Path) -> None:
    raise OSError(f"{folder} stays")


def moved(plan: DeletionPlan, trash: Trash) -> TrashedFolder:
    path = delete(plan, trash)
    assert path is not None
    return TrashedFolder(plan.name, plan.repository.folder, path)


def test_a_deleted_model_is_gone_and_comes_back(hub: HubServer, folder: Path, trash: Trash) -> None:
    plan = plan_deletion(cached())
    assert (plan.freed_bytes, plan.sharing) == (sum(map(len, small_files().values())), ())
    trashed = moved(plan, trash)
    assert not cached().folder.exists()
    put_back(trashed)
    check_whole(folder, small_files())
    assert list(trash.files.iterdir()) == list((trash.files.parent / "info").iterdir()) == []
    assert download()[1].fetched_bytes == 0


def test_without_a_trash_a_model_stays_until_it_is_deleted_for_good(hub: HubServer, folder: Path) -> None:
    plan = plan_deletion(cached())
    with pytest.raises(NoTrashError, match="cannot be moved to the Trash"):
        delete(plan, no_trash)
    check_whole(folder, small_files())
    assert delete(plan, None) is None
    assert not cached().folder.exists()


def test_a_folder_that_is_there_is_not_overwritten_by_one_from_the_trash(tmp_path: Path, trash: Trash) -> None:
    own = tmp_path / "own"
    own.mkdir()
    path = remove_folder("own", own, trash)
    assert path is not None
    own.mkdir()
    with pytest.raises(ModelError, match="already exists"):
        put_back(TrashedFolder("own", own, path))
    own.rmdir()
    path.rmdir()
    with pytest.raises(ModelError, match="no longer in the Trash"):
        put_back(TrashedFolder("own", own, path))


def test_a_deletion_that_was_killed_can_be_done_again(
    hub: HubServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add_commit(NAME, NEWER, small_files() | {WEIGHTS: random_bytes(300_000, 8)})
    other, _ = download(revision=NEWER)
    with monkeypatch.context() as killed:

        def die(_path: Path) -> None:
            raise KeyboardInterrupt

        killed.setattr("shutil.rmtree", die)  # once the blobs are gone
        with pytest.raises(KeyboardInterrupt):
            delete(plan_deletion(cached()), no_trash)
    delete(plan_deletion(cached()), no_trash)
    assert not folder.exists()
    assert cached().commit_of("main") == NEWER, "the snapshot that is left has no name"
    check_whole(other, small_files() | {WEIGHTS: random_bytes(300_000, 8)})


def test_what_other_revisions_use_stays(hub: HubServer, folder: Path) -> None:
    newer = small_files() | {WEIGHTS: random_bytes(300_000, 8)}
    hub.add_commit(NAME, NEWER, newer, "newer")
    other, _ = download(revision="newer")
    plan = plan_deletion(cached())
    assert (plan.sharing, plan.freed_bytes) == (("newer",), len(small_files()[WEIGHTS]))
    assert not plan.is_complete
    assert delete(plan, no_trash) is None
    check_whole(other, newer)
    assert cached().commit_of("main") == ""
    assert not folder.exists()


def test_an_unfinished_download_is_deleted_for_good(hub: HubServer) -> None:
    hub.add(NAME, small_files())
    cut_off(hub, 9)
    assert delete(plan_deletion(cached()), no_trash) is None
    assert not cached().folder.exists()


def test_a_deletion_takes_what_no_record_names(hub: HubServer, folder: Path, trash: Trash) -> None:
    """A record was damaged, say, before or after another model of the repository was downloaded."""
    hub.add_commit(NAME, NEWER, small_files() | {"config.json": b"{}"})
    other, _ = download(revision=NEWER)
    stray = cached().work / f"{'c' * 64}.part"
    stray.write_text("part")
    delete(plan_deletion(cached(), NEWER), no_trash)
    assert (other.exists(), stray.exists()) == (False, False)
    check_whole(folder, small_files())
    stray.write_text("part")
    assert delete(plan_deletion(cached()), trash) is not None
    assert not cached().folder.exists()
    stray.parent.mkdir(parents=True)
    stray.write_text("part")
    assert delete(plan_deletion(cached()), no_trash) is None
    assert not cached().folder.exists()


def test_an_unfinished_download_goes_with_its_model(hub: HubServer, folder: Path, trash: Trash) -> None:
    hub.add_commit(NAME, NEWER, small_files() | {WEIGHTS: random_bytes(300_000, 8)}, "main")
    cut_off(hub, 9)
    check_whole(folder, small_files())
    trashed = moved(plan_deletion(cached()), trash)
    assert records_of(cached()) == []
    check_nothing_installed()
    put_back(trashed)
    check_whole(folder, small_files())
    assert len(records_of(cached())) == 1


def test_a_model_that_is_being_downloaded_is_not_deleted(
    hub: HubServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdchat.hub.verifying_and_deleting._LOCK_WAIT_S", 0.1)
    plan = plan_deletion(cached())
    with cached().locked(), pytest.raises(StorageLockedError):
        delete(plan, no_trash)
    check_whole(folder, small_files())


def test_what_came_after_the_question_is_not_deleted(hub: HubServer, folder: Path) -> None:
    plan = plan_deletion(cached())
    newer = small_files() | {"README.md": b"# Newer"}
    hub.add_commit(NAME, NEWER, newer, "main")
    other, _ = download()
    with pytest.raises(ModelError, match="has changed since you were asked"):
        delete(plan, no_trash)
    check_whole(folder, small_files())
    check_whole(other, newer)
