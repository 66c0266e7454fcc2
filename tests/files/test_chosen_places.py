"""What a killed process left where the person chose to write goes at the next start, and nothing else does."""

import ast
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from rdchat import paths
from rdchat.errors import StorageError
from rdchat.files import chosen_file, folder_beside, remove_unfinished
from tests.project.scripts import module_tree

WRITE = """
import sys
from pathlib import Path
from rdchat.files import chosen_file
with chosen_file(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    temporary.with_name("copy").write_text("all chats")
    print("begun", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the person's, with files of theirs whose names look like ours."""
    monkeypatch.setenv("RDCHAT_DATA_DIR", str(tmp_path / "data"))
    folder = tmp_path / "chosen"
    (folder / "part-0123456789abcdef").mkdir(parents=True)
    for name in ("part-0123456789abcdef/new", "part-all.zip", "all.zip"):
        (folder / name).write_text("mine")
    return folder


def content(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def notes() -> list[Path]:
    return list((paths.data_dir() / "unfinished").iterdir())


def test_what_a_kill_leaves_goes_and_what_runs_stays(chosen: Path) -> None:
    before = content(chosen)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", WRITE, str(chosen / "all.zip")], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with chosen_file(chosen / "other.zip") as temporary:
            temporary.write_text("whole")
            remove_unfinished()
        assert len(content(chosen)) == len(before) + 3, "both are at work"
        process.kill()
        process.wait()
        assert "all chats" in content(chosen).values()
        remove_unfinished()
    assert content(chosen) == before | {"other.zip": "whole"}
    assert notes() == []


def test_a_disk_that_is_not_there_is_looked_at_later(chosen: Path) -> None:
    before = content(chosen)
    arguments = [sys.executable, "-c", WRITE, str(chosen / "all.zip")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    away = chosen.rename(chosen.with_name("away"))
    remove_unfinished()
    away.rename(chosen)
    assert content(chosen) != before
    remove_unfinished()
    assert content(chosen) == before
    assert notes() == []


@pytest.mark.parametrize("named", ["part-all.zip", "part-0123456789abcdef", ""])
def test_a_note_that_names_something_else_removes_nothing(chosen: Path, named: str) -> None:
    before = content(chosen)
    folder = paths.data_dir() / "unfinished"
    folder.mkdir(parents=True)
    (folder / "part-ffff").write_bytes(os.fsencode(chosen / named))
    remove_unfinished()
    assert content(chosen) == before


def test_a_link_is_not_followed(chosen: Path, tmp_path: Path) -> None:
    folder = paths.data_dir() / "unfinished"
    folder.mkdir(parents=True)
    (chosen / "part-ffff").symlink_to(chosen / "part-0123456789abcdef")
    (folder / "part-ffff").write_bytes(os.fsencode(chosen / "part-ffff"))
    remove_unfinished()
    assert (chosen / "part-0123456789abcdef/new").exists()


def test_a_full_or_damaged_data_folder_keeps_nobody_from_writing_elsewhere(chosen: Path) -> None:
    paths.data_dir().mkdir(parents=True)
    (paths.data_dir() / "unfinished").touch()
    with chosen_file(chosen / "all.zip") as temporary:
        temporary.write_text("whole")
    assert content(chosen)["all.zip"] == "whole"


def test_a_failure_leaves_nothing_and_says_why(chosen: Path) -> None:
    before = content(chosen)
    with pytest.raises(StorageError, match="cannot be written"), chosen_file(chosen / "none" / "all.zip"):
        pytest.fail("there is no such folder")
    with suppress(ZeroDivisionError), folder_beside(chosen / "all") as folder:
        assert folder.stat().st_mode & 0o077 == 0
        (folder / "half").touch()
        raise ZeroDivisionError
    assert content(chosen) == before
    assert notes() == []


def test_what_is_written_where_the_person_chose_is_noted() -> None:
    """`atomic_file` would leave a part there that no start finds."""
    root = Path(paths.__file__).parent
    for name in ("chat/transfer/backups.py", "chat/transfer/exporting.py", "ui/plots/drawing.py"):
        names = {getattr(node, "id", "") for node in ast.walk(module_tree(root / name))}
        assert names & {"chosen_file", "folder_beside"}
        assert not names & {"atomic_file", "TemporaryDirectory", "mkdtemp"}, name
