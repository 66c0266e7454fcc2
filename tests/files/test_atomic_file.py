"""Files that are whole or not there, and lists of lines that lose at most their last one."""

import json
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest

from rdchat.errors import StorageError, StorageFullError
from rdchat.files.atomic_file import JsonLines, atomic_file, build_folder, is_made, make_folder, write_json
from tests.disks import small_disk


def test_a_file_appears_only_after_the_block(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def write_half(path: Path) -> None:
    path.write_text("new")
    raise TypeError


def test_a_failure_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(TypeError), atomic_file(path) as temporary:
        write_half(temporary)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def save(path: Path) -> None:
    with atomic_file(path) as temporary:
        mx.save_safetensors(str(temporary), {"x": mx.zeros(1000)})


def test_mlx_errors_are_told_as_what_they_are(tmp_path: Path) -> None:
    """MLX raises RuntimeError for a full disk and for a missing folder alike."""
    with pytest.raises(StorageError, match="cannot be written"):
        save(tmp_path / "nowhere" / "x.safetensors")
    with small_disk(tmp_path) as disk:
        save(tmp_path / "x.safetensors")
        disk.fill()
        with pytest.raises(StorageFullError, match=r"x\.safetensors cannot be written: the disk is full"):
            save(tmp_path / "x.safetensors")
        disk.free()
        assert mx.load(str(tmp_path / "x.safetensors"))


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk:
        lines = JsonLines(tmp_path / "lines")
        disk.fill()
        for number in range(200):
            try:
                lines.append_line({"number": number, "filler": "x" * 100})
            except StorageFullError:
                break
        else:
            pytest.fail("nothing was said")
        lines.close()
        with pytest.raises(StorageFullError, match="the disk is full"):
            write_json(tmp_path / "facts.json", {"x": "x" * 5000})


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be created"):
        make_folder(tmp_path / "file" / "folder")


def test_lines_grow_and_a_line_that_was_cut_short_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    lines = JsonLines(path)
    lines.append_line({"a": 1})
    lines.close()
    with path.open("ab") as file:
        file.write(b'\0\0\0\n{"b": ')  # what a power loss may leave
    lines = JsonLines(path)
    lines.append_line({"c": 2})
    assert lines.read_objects() == [{"a": 1}, {"c": 2}]
    lines.append_line({"d": 3})
    lines.close()
    assert json.loads(path.read_bytes().splitlines()[-1]) == {"d": 3}


MAKE = """
import sys
from pathlib import Path
from rdchat.files.atomic_file import build_folder
def build(folder):
    (folder / "half").write_text("half")
    print("building", flush=True)
    sys.stdin.readline()
    (folder / "whole").write_text("whole")
build_folder(Path(sys.argv[1]), "v1", build, lambda: None, "1 MB")
"""


def make(folder: Path, made_from: str = "v1", text: str = "whole") -> Path:
    def build(empty: Path) -> None:
        (empty / "whole").write_text(text)

    return build_folder(folder, made_from, build, lambda: None, "1 MB")


def start(folder: Path) -> subprocess.Popen[str]:
    """Start a process that has written half of the folder and waits."""
    command = [sys.executable, "-c", MAKE, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "building\n"
    return process


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_a_folder_is_made_once(tmp_path: Path) -> None:
    folder = make(tmp_path / "models" / "m")
    assert is_made(folder, "v1")
    make(folder, text="never written")
    assert (folder / "whole").read_text() == "whole"
    assert visible(folder.parent) == ["m"]


@pytest.mark.parametrize("harm", ["truncated", "missing", "from something else", "no manifest"])
def test_a_damaged_or_old_folder_is_made_anew(tmp_path: Path, harm: str) -> None:
    folder = make(tmp_path / "m", made_from="v0" if harm == "from something else" else "v1", text="old")
    if harm == "truncated":
        (folder / "whole").write_text("ol")
    elif harm == "missing":
        (folder / "whole").unlink()
    elif harm == "no manifest":
        (folder / "made_from.json").unlink()
    assert not is_made(folder, "v1")
    make(folder, text="new")
    assert (folder / "whole").read_text() == "new"
    assert visible(tmp_path) == ["m"]


def test_an_error_while_building_leaves_nothing(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_folder(tmp_path / "m", "v1", build, lambda: None, "1 MB")
    assert visible(tmp_path) == []


def test_a_killed_process_leaves_no_folder_and_the_next_one_clears_up(tmp_path: Path) -> None:
    with start(tmp_path / "m") as process:
        process.kill()
    assert not (tmp_path / "m").exists()
    assert len(visible(tmp_path)) == 1  # the half that it had written
    make(tmp_path / "m")
    assert visible(tmp_path) == ["m"]


def test_a_second_process_waits_for_the_first(tmp_path: Path) -> None:
    waits = []
    with start(tmp_path / "m") as process:

        def on_wait() -> None:
            if not waits:
                process.communicate("\n")  # let the first one finish
            waits.append(1)

        def build(_folder: Path) -> None:
            raise AssertionError("both made it")

        build_folder(tmp_path / "m", "v1", build, on_wait, "1 MB")
    assert waits
    assert (tmp_path / "m" / "whole").read_text() == "whole"


def test_waiting_can_be_given_up(tmp_path: Path) -> None:
    def give_up() -> None:
        raise KeyboardInterrupt

    with start(tmp_path / "m") as process:
        with pytest.raises(KeyboardInterrupt):
            build_folder(tmp_path / "m", "v1", lambda _folder: None, give_up, "1 MB")
        process.kill()


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path, kibibytes=64) as disk:
        with pytest.raises(StorageFullError) as caught:
            make(tmp_path / "models" / "m", text="x" * 100_000)
        assert caught.value.message == f"{tmp_path / 'models'} cannot be written: the disk is full."
        assert caught.value.hint.startswith("Free 1 MB and try again, or set RDCHAT_CACHE_DIR")
        assert visible(tmp_path / "models") == []
        assert make(tmp_path / "models" / "m").is_dir()  # there is room for a small one
        disk.make_read_only()
        with pytest.raises(StorageError) as refused:
            make(tmp_path / "models" / "other")
        assert "cannot be written: Read-only file system." in refused.value.message


def test_a_place_that_cannot_be_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file")
    with pytest.raises(StorageError, match=r"models cannot be written: .*RDCHAT_CACHE_DIR"):
        make(tmp_path / "models" / "m")
