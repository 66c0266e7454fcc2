"""Free memory within the limits of a container: control groups of both versions."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rdchat import machine

MIB = 2**20
GROUPS = Path("/sys/fs/cgroup")


def write_group(folder: Path, limit: str, version: int, used: int = 100 * MIB, cached: int = 30 * MIB) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    limit_name, used_name, prefix = machine._LAYOUTS[0 if version == 2 else 1]
    (folder / limit_name).write_text(f"{limit}\n")
    (folder / used_name).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"{prefix}active_file {cached // 3}\n{prefix}inactive_file {cached * 2 // 3}\n")


@pytest.mark.parametrize(("version", "mount"), [(2, ""), (1, "memory")])
def test_the_tightest_group_decides(tmp_path: Path, version: int, mount: str) -> None:
    own = tmp_path / "own"
    own.write_text(f"7:cpu:/apps/chat\n{'0::' if version == 2 else '4:memory:'}/apps/chat\n")
    root = tmp_path / "groups"
    write_group(root / mount / "apps" / "chat", str(900 * MIB), version)
    write_group(root / mount / "apps", str(500 * MIB), version)
    rooms = machine.room_in_control_groups(own, root)
    assert min(rooms) == 430 * MIB
    assert len(rooms) == 2


def test_in_a_container_the_group_is_at_the_root(tmp_path: Path) -> None:
    """The kernel names the path outside, of which the container sees only the last folder."""
    own = tmp_path / "own"
    own.write_text("0::/system/docker-123\n")
    write_group(tmp_path / "groups", str(500 * MIB), 2)
    assert machine.room_in_control_groups(own, tmp_path / "groups") == [430 * MIB]


def test_no_limit_is_none(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/\n")
    write_group(tmp_path / "groups", "max", 2)
    assert machine.room_in_control_groups(own, tmp_path / "groups") == []
    assert machine.room_in_control_groups(tmp_path / "no such file", tmp_path / "groups") == []


def test_an_overfull_group_has_no_room(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/\n")
    write_group(tmp_path / "groups", str(50 * MIB), 2)
    assert machine.room_in_control_groups(own, tmp_path / "groups") == [0]


def test_a_real_group_limits_what_is_free() -> None:
    """Makes a group of half a gigabyte where this machine lets us, and looks from inside."""
    version_1 = (GROUPS / "memory").is_dir()
    group = GROUPS / ("memory" if version_1 else "") / f"rdchat-test-{psutil.Process().pid}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if version_1 else "memory.max")).write_text(str(512 * MIB))
    except OSError as error:
        if group.exists():
            group.rmdir()
        pytest.skip(f"this machine lets us make no control group: {error}")
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "Path(sys.argv[1], 'cgroup.procs').write_text(str(os.getpid()))\n"
        "from rdchat import machine\n"
        "print(machine.available_bytes())\n"
    )
    try:
        done = subprocess.run([sys.executable, "-c", code, str(group)], capture_output=True, text=True, check=True)
    finally:
        group.rmdir()
    assert 300 * MIB < int(done.stdout) <= 512 * MIB
