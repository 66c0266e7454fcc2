"""Files that are whole or not there, and lists of lines that lose at most their last one."""

import json
from pathlib import Path

import mlx.core as mx
import pytest

from rdchat.errors import StorageError, StorageFullError
from rdchat.files.atomic_file import JsonLines, atomic_file, make_folder, write_json
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
