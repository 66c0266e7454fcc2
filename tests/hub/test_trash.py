"""Deleted models go to the system's Trash or rdchat's own and can be restored, even after crashes."""

import json
from pathlib import Path

import pytest

from rdchat.errors import ModelError, StorageError
from rdchat.hub import trash
from tests.processes import python_process

DIE = """
import os, pathlib, sys
from rdchat.hub import trash
base, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
rename = pathlib.Path.rename
def dying(path, target):
    global number
    if number == 0:
        os._exit(1)
    number -= 1
    return rename(path, target)
pathlib.Path.rename = dying
trash.move_to_trash("model", base, [base / "a", base / "b", base / "c"])
"""


@pytest.mark.parametrize("moves", [1, 2])
def test_a_crash_while_deleting_leaves_what_can_be_restored(tmp_path: Path, moves: int) -> None:
    for name in "abc":
        (tmp_path / name).write_text(name)
    with python_process(DIE, tmp_path, moves) as process:
        assert process.wait(60) == 1
    (trashed,) = trash.trashed_models(tmp_path)
    assert [(tmp_path / name).exists() for name in "abc"] == [number >= moves for number in range(3)]
    trash.restore(trashed)
    assert [(tmp_path / name).read_text() for name in "abc"] == list("abc")
    assert trash.trashed_models(tmp_path) == []


def test_a_crash_before_the_first_move_deletes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    with python_process(DIE, tmp_path, 0) as process:
        assert process.wait(60) == 1
    assert trash.trashed_models(tmp_path) == []
    assert (tmp_path / "a").read_text() == "a"


def test_nothing_that_is_there_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    trashed = moved(tmp_path, ["a"])
    (tmp_path / "a").write_text("new")
    with pytest.raises(ModelError, match="cannot be restored"):
        trash.restore(trashed)
    assert (tmp_path / "a").read_text() == "new"
    assert trash.empty(tmp_path) > 0
    assert trash.trashed_models(tmp_path) == []


def test_a_journal_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    trashed = moved(tmp_path, ["a"])
    journal = trashed.entry / "moved.json"
    journal.write_text(journal.read_text().replace('"a"', '"../evil"'))
    with pytest.raises(StorageError, match="damaged"):
        trash.restore(trashed)


class SystemTrash:
    """Stands for the system's: takes folders by a rename, and says where they lie."""

    def __init__(self, folder: Path) -> None:
        self.files = folder / "Trash" / "files"
        self.files.mkdir(parents=True)

    def __call__(self, folder: Path) -> Path | None:
        return folder.rename(self.files / folder.name)


@pytest.fixture
def system(tmp_path: Path) -> SystemTrash:
    return SystemTrash(tmp_path / "home")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder with one model."""
    (tmp_path / "base" / "model").mkdir(parents=True)
    (tmp_path / "base" / "model" / "weights").write_text("weights")
    return tmp_path / "base"


def moved(base: Path, names: list[str], system: trash.SystemTrash | None = None) -> trash.TrashedModel:
    trashed = trash.move_to_trash("model", base, [base / name for name in names], system)
    assert trashed is not None
    return trashed


def test_one_folder_goes_to_the_systems_trash_and_comes_back(system: SystemTrash, base: Path) -> None:
    trashed = moved(base, ["model"], system)
    assert trashed.place == system.files / "model"
    assert not (base / "model").exists()
    assert trash.trashed_models(base) == [trashed]
    assert trashed.size == len("weights")
    trash.restore(trashed)
    assert (base / "model" / "weights").read_text() == "weights"
    assert trash.trashed_models(base) == []


def test_a_file_and_several_folders_go_to_rdchats_own(system: SystemTrash, base: Path) -> None:
    (base / "file").write_text("file")
    (base / "other").mkdir()
    for names in (["file"], ["model", "other"]):
        assert moved(base, names, system).place is None
    assert list(system.files.iterdir()) == []


def test_where_the_system_has_no_trash_rdchats_own_takes_the_folder(base: Path) -> None:
    trashed = moved(base, ["model"], lambda _: None)
    assert trashed.place is None
    trash.restore(trashed)
    assert (base / "model" / "weights").read_text() == "weights"


def test_what_left_the_systems_trash_is_not_listed(system: SystemTrash, base: Path) -> None:
    trashed = moved(base, ["model"], system)
    (system.files / "model" / "weights").unlink()
    (system.files / "model").rmdir()
    assert trash.trashed_models(base) == []
    with pytest.raises(ModelError, match="no longer in the Trash"):
        trash.restore(trashed)


def test_another_folder_that_took_its_place_in_the_trash_is_left_there(system: SystemTrash, base: Path) -> None:
    trashed = moved(base, ["model"], system)
    kept = (system.files / "model").rename(system.files / "emptied")  # keeps its inode from being used again
    (system.files / "model").mkdir()
    (system.files / "model" / "holiday.jpg").write_text("mine")
    assert trash.trashed_models(base) == []
    with pytest.raises(ModelError, match="no longer in the Trash"):
        trash.restore(trashed)
    assert not (base / "model").exists()
    assert (kept / "weights").exists()


def test_where_nobody_says_where_it_lies_the_systems_trash_alone_puts_it_back(system: SystemTrash, base: Path) -> None:
    assert trash.move_to_trash("model", base, [base / "model"], lambda folder: system(folder) and None) is None
    assert (system.files / "model" / "weights").exists()
    assert trash.trashed_models(base) == []


def test_what_cannot_be_put_back_while_deleting_can_be_restored(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (base / "other").mkdir()
    moves = 0

    def rename(path: Path, target: Path) -> Path:
        nonlocal moves
        moves += 1
        if moves > 1:
            raise PermissionError(13, "Permission denied")
        return real(path, target)

    real = Path.rename
    with monkeypatch.context() as denied:
        denied.setattr(Path, "rename", rename)
        with pytest.raises(StorageError, match="cannot be deleted"):
            trash.move_to_trash("model", base, [base / "model", base / "other"])
    (trashed,) = trash.trashed_models(base)
    trash.restore(trashed)
    assert (base / "model" / "weights").exists()


def test_a_file_that_was_fetched_again_does_not_keep_a_version_from_coming_back(base: Path) -> None:
    for name in ("blobs/digest", "snapshots/commit/weights"):
        (base / "repository" / name).parent.mkdir(parents=True)
        (base / "repository" / name).write_text(name)
    trashed = moved(base, ["repository/snapshots/commit", "repository/blobs/digest"])
    (base / "repository" / "blobs" / "digest").write_text("blobs/digest")
    trash.restore(trashed)
    assert (base / "repository" / "snapshots" / "commit" / "weights").exists()
    assert trash.trashed_models(base) == []


def test_what_a_person_put_back_is_there_already(system: SystemTrash, base: Path) -> None:
    trashed = moved(base, ["model"], system)
    (system.files / "model").rename(base / "model")
    assert trash.trashed_models(base) == []
    trash.restore(trashed)
    assert (base / "model" / "weights").read_text() == "weights"
    assert not trashed.entry.exists()


def test_an_entry_whose_place_another_one_took_is_forgotten(system: SystemTrash, base: Path) -> None:
    trash.move_to_trash("model", base, [base / "model"], system)
    (system.files / "model").rename(base / "model")
    later = trash.move_to_trash("model", base, [base / "model"], system)
    assert trash.trashed_models(base) == [later]


def test_emptying_rdchats_own_leaves_what_the_system_has(system: SystemTrash, base: Path) -> None:
    (base / "own").mkdir()
    (base / "own" / "file").write_text("file")
    trash.move_to_trash("own", base, [base / "own"])
    trashed = moved(base, ["model"], system)
    assert trash.empty(base) > 0
    assert trash.trashed_models(base) == [trashed]
    trash.restore(trashed)
    assert (base / "model" / "weights").read_text() == "weights"


def test_a_journal_takes_nothing_out_of_other_places(system: SystemTrash, base: Path, tmp_path: Path) -> None:
    trashed = moved(base, ["model"], system)
    (tmp_path / "mine").mkdir()
    journal = trashed.entry / "moved.json"
    journal.write_text(journal.read_text().replace(str(trashed.place), str(tmp_path / "mine")))
    assert trash.trashed_models(base) == []


def test_what_a_trash_does_not_let_us_see_is_listed_for_a_month(system: SystemTrash, base: Path) -> None:
    trashed = moved(base, ["model"], system)
    system.files.rename(system.files.with_name("hidden"))
    system.files.symlink_to(system.files)  # which no system follows
    assert trash.trashed_models(base) == [trashed]
    with pytest.raises(StorageError) as caught:
        trash.restore(trashed)
    assert caught.value.hint == "Put it back from the Trash."
    journal = trashed.entry / "moved.json"
    journal.write_text(json.dumps(json.loads(journal.read_text()) | {"deleted": trashed.deleted - 31 * 86400}))
    assert trash.trashed_models(base) == []
    assert not trashed.entry.exists()


DIE_AT = """
import os, pathlib, sys
from rdchat.hub import trash
base, place, last = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
def die(step):
    if step == last:
        os._exit(1)
def moved(folder):
    die("journal")
    folder.rename(place)
    die("move")
    return place
trash.move_to_trash("model", base, [base / "model"], moved)
die("second journal")
"""


@pytest.mark.parametrize("step", ["journal", "move", "second journal"])
def test_a_crash_on_the_way_to_the_systems_trash_loses_nothing(system: SystemTrash, base: Path, step: str) -> None:
    place = system.files / "model"
    with python_process(DIE_AT, base, place, step) as process:
        assert process.wait(60) == 1
    listed = trash.trashed_models(base)
    assert len(listed) == (step == "second journal"), "only what rdchat can put back is listed"
    lies = base / "model" if step == "journal" else place
    assert (lies / "weights").read_text() == "weights"
    for trashed in listed:
        trash.restore(trashed)
        assert (base / "model" / "weights").read_text() == "weights"
