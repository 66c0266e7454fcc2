"""rdchat's folders and files are private, and nothing else is changed."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdchat import paths
from rdchat.errors import StorageError
from rdchat.files import privacy
from rdchat.files.privacy import (
    close_to_others,
    is_private,
    persons_umask,
    private_folder,
    with_persons_umask,
    write_privately,
)
from tests.users import BECOME_ANOTHER, OTHER_USER, folder_for_all, modes, needs_root

LOOK = f"""
import sys
{BECOME_ANOTHER}
for path in sys.argv[1:]:
    try:
        open(path).close()
        print("open")
    except PermissionError:
        print("closed")
"""


@pytest.fixture(autouse=True)
def usual_umask(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = os.umask(0o022)
    monkeypatch.setattr(privacy, "_before", -1)
    yield
    os.umask(before)


def open_folder(place: Path) -> Path:
    """Return a data folder that other users can read."""
    (place / "data" / "logs").mkdir(parents=True)
    for name in ("conversations.db", "conversations.db-wal", "settings.json", "logs/rdchat.log"):
        (place / "data" / name).write_text("said")
    (place / "data" / "own").write_text("")
    (place / "data" / "own").chmod(0o700)
    return place / "data"


@needs_root
def test_a_folder_that_was_open_is_closed_to_another_user() -> None:
    with folder_for_all() as place:
        data = open_folder(place)
        look = [sys.executable, "-c", LOOK, str(data / "conversations.db"), str(data / "logs" / "rdchat.log")]
        assert subprocess.run(look, capture_output=True, text=True, check=True).stdout == "open\nopen\n"
        close_to_others(data, default=True)
        assert subprocess.run(look, capture_output=True, text=True, check=True).stdout == "closed\nclosed\n"


def test_only_the_rights_of_others_are_taken(tmp_path: Path) -> None:
    data = open_folder(tmp_path)
    data.chmod(0o575)
    close_to_others(data, default=True)
    assert (modes(data)["."], modes(data)["settings.json"]) == ("500", "644")


def test_a_data_folder_that_is_a_link_is_closed_where_it_lies(tmp_path: Path) -> None:
    data = open_folder(tmp_path)
    (tmp_path / "link").symlink_to(data)
    close_to_others(tmp_path / "link", default=True)
    assert modes(data)["."] == "700"


@pytest.mark.parametrize("mode", [0o1777, 0o1755])
def test_a_folder_that_is_shared_by_all_is_left_alone(tmp_path: Path, mode: int) -> None:
    data = open_folder(tmp_path)
    data.chmod(mode)
    before = modes(data)
    close_to_others(data, default=True)
    assert modes(data) == before


@pytest.mark.parametrize("home", ["data", "data/logs"])
def test_the_home_of_a_person_is_left_alone(tmp_path: Path, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = open_folder(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / home))
    before = modes(data)
    close_to_others(data, default=True)
    assert modes(data) == before


@needs_root
def test_what_is_anothers_is_left_alone(tmp_path: Path) -> None:
    data = open_folder(tmp_path)
    os.chown(data, OTHER_USER, OTHER_USER)
    data.chmod(0o755)
    close_to_others(data, default=True)
    assert modes(data)["."] == "755"


def test_a_folder_that_a_person_named_is_closed_if_it_is_for_rdchat_alone(tmp_path: Path) -> None:
    data = open_folder(tmp_path)
    before = modes(data)
    close_to_others(data, default=False)
    assert modes(data) == before  # there is a file of the person's: others may need it
    (data / "own").unlink()
    (data / ".DS_Store").touch()
    close_to_others(data, default=False)
    assert modes(data)["."] == "700"


def test_what_is_no_folder_is_left_alone(tmp_path: Path) -> None:
    """As with RDCHAT_CACHE_DIR=/dev/null, by root."""
    (tmp_path / "device").touch()
    close_to_others(tmp_path / "device", default=True)
    assert modes(tmp_path)["device"] == "644"


def test_nothing_there_is_nothing_to_mend(tmp_path: Path) -> None:
    close_to_others(tmp_path / "missing", default=True)
    (tmp_path / "file").write_text("")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    close_to_others(tmp_path / "circle", default=True)


def test_what_is_written_is_private_but_for_what_is_the_persons(tmp_path: Path) -> None:
    assert persons_umask() == -1
    with with_persons_umask():
        (tmp_path / "before").touch()
    write_privately()
    write_privately()  # as a command that a child's entry point runs
    (tmp_path / "ours").touch()
    with with_persons_umask():
        (tmp_path / "theirs").touch()
    (tmp_path / "ours too").touch()
    assert persons_umask() == 0o022
    found = modes(tmp_path)
    del found["."]
    assert found == {"before": "644", "ours": "600", "theirs": "644", "ours too": "600"}


def test_a_private_folder_is_made_once_and_closed_where_others_could_only_read(tmp_path: Path) -> None:
    (tmp_path / "copied").mkdir()
    for name in ("above/folder", "above/folder", "copied"):
        assert is_private(private_folder(tmp_path / name))


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o770)
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "private")
    (tmp_path / "file").touch(mode=0o600)
    for name in ("open", "link", "file"):
        with pytest.raises(StorageError, match="another user of this machine may have put something into it"):
            private_folder(tmp_path / name)


@needs_root
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "planted").mkdir(mode=0o700)
    os.chown(tmp_path / "planted", OTHER_USER, OTHER_USER)
    with pytest.raises(StorageError, match="another user"):
        private_folder(tmp_path / "planted")


def test_each_name_of_rdchats_is_known() -> None:
    """Marks of wired memory, towers and the certificate were not, so a chosen folder stayed open to others."""
    places = [getattr(paths, name)() for name in dir(paths) if name.endswith(("_path", "_dir"))]
    tops = {paths.data_dir(), paths.cache_dir()}
    names = {(each.relative_to(top)).parts[0] for each in places for top in tops if top in each.parents}
    text = "\n".join(path.read_text() for path in Path(paths.__file__).parent.rglob("*.py"))
    names |= set(re.findall(r'(?:data|cache)_dir\(\) / "([^"]+)"', text))
    assert names >= {"conversations.db", "settings.json", "towers", "training", "instance.lock"}
    others = {"conversations.db-wal", "conversations-before-restore-2026.db", "part-0", "preparation.lock", "wired.7"}
    assert [name for name in names | others if not privacy._OUR_NAMES.fullmatch(name)] == []
    persons = ["notes.txt", "settings of my camera.txt", "modelship", "chats with Ada", ".ssh", "parts"]
    assert [name for name in persons if privacy._OUR_NAMES.fullmatch(name)] == []
