"""Memory, power and load of the machine, whatever a system leaves out; what keeps it awake never costs a reply."""

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import psutil
import pytest

from rdchat import host, machine
from rdchat.machine import OtherPrograms, on_battery, others_seconds
from tests.vm_stat import AT_WORK, CACHED_FILES, FULL, INTEL, MINI, Kernel

MIB = 2**20
GIB = 2**30
GROUPS = Path("/sys/fs/cgroup")
CORES = 4


@pytest.mark.parametrize(("plugged", "on_it"), [(True, False), (False, True), (None, False)])
def test_it_is_on_battery_only_where_that_is_known(
    plugged: bool | None, on_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "sensors_battery", lambda: SimpleNamespace(power_plugged=plugged))
    assert on_battery() is on_it


def test_a_machine_without_a_battery_or_with_one_that_cannot_be_read_is_not_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(psutil, "sensors_battery", lambda: None)
    assert not on_battery()

    def fails() -> None:
        raise RuntimeError("IOPSCopyPowerSourcesInfo")

    monkeypatch.setattr(psutil, "sensors_battery", fails)
    assert not on_battery()


def test_other_programs_have_had_what_this_one_and_idling_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    own = SimpleNamespace(cpu_times=lambda: SimpleNamespace(user=30.0, system=10.0))
    monkeypatch.setattr(psutil, "Process", lambda: own)
    mac = SimpleNamespace(user=50.0, nice=5.0, system=20.0, idle=900.0)
    linux = SimpleNamespace(**vars(mac), iowait=7.0, irq=1.0, softirq=1.0, steal=3.0, guest=40.0)
    for times, others in ((mac, 35.0), (linux, 40.0)):
        monkeypatch.setattr(psutil, "cpu_times", lambda times=times: times)
        assert others_seconds() == others


def test_a_system_that_tells_nothing_counts_as_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise PermissionError("/proc/stat")

    monkeypatch.setattr(psutil, "cpu_times", fails)
    assert others_seconds() == 0.0


@pytest.mark.skipif(host.MACOS, reason="for where those frameworks are missing")
def test_a_reply_is_written_where_sleep_cannot_be_held_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a Mac whose frameworks are elsewhere: here they are nowhere."""
    monkeypatch.setattr(host, "MACOS", True)
    written = False
    with machine.keep_awake():
        written = True
    assert written
    assert "could not be held off" in caplog.text


class ProcessInfo:
    """NSProcessInfo, which fails to end an activity."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def processInfo(self) -> Self:
        return self

    def beginActivityWithOptions_reason_(self, options: int, reason: str) -> str:
        self.reasons.append(reason)
        return "activity"

    def endActivity_(self, activity: str) -> None:
        assert activity == "activity"
        raise OSError("no such selector")

    def isLowPowerModeEnabled(self) -> bool:
        return True

    def thermalState(self) -> int:
        return 3


@pytest.fixture
def process_info(monkeypatch: pytest.MonkeyPatch) -> ProcessInfo:
    """The NSProcessInfo of PyObjC's Foundation."""
    info = ProcessInfo()
    monkeypatch.setattr(host, "MACOS", True)
    monkeypatch.setitem(sys.modules, "Foundation", SimpleNamespace(NSProcessInfo=info, NSActivityUserInitiated=1))
    return info


def test_a_failure_at_the_end_is_logged_and_hides_no_error_of_the_reply(
    process_info: ProcessInfo, caplog: pytest.LogCaptureFixture
) -> None:
    with machine.keep_awake():
        assert process_info.reasons == ["rdchat is working"]
        assert not caplog.records
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    with pytest.raises(ZeroDivisionError), machine.keep_awake():
        raise ZeroDivisionError


def test_the_state_of_the_machine_is_read(process_info: ProcessInfo) -> None:
    assert machine.low_power_mode()
    assert machine.is_hot()


def write_group(folder: Path, limit: str, version: int) -> None:
    """Write the files of a group that uses 100 MiB, of which 30 MiB are cached files."""
    folder.mkdir(parents=True, exist_ok=True)
    limit_name, used_name, prefix = machine._LAYOUTS[0 if version == 2 else 1]
    (folder / limit_name).write_text(f"{limit}\n")
    (folder / used_name).write_text(f"{100 * MIB}\n")
    (folder / "memory.stat").write_text(f"{prefix}active_file {10 * MIB}\n{prefix}inactive_file {20 * MIB}\n")


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


@pytest.mark.parametrize(
    ("group", "limit", "rooms"),
    [("/", "max", []), ("/", str(50 * MIB), [0]), ("/system/docker-123", str(500 * MIB), [430 * MIB])],
)
def test_the_group_at_the_root_of_a_container_counts(tmp_path: Path, group: str, limit: str, rooms: list[int]) -> None:
    """The kernel names the path outside, of which the container sees only the last folder."""
    own = tmp_path / "own"
    own.write_text(f"0::{group}\n")
    write_group(tmp_path / "groups", limit, 2)
    assert machine.room_in_control_groups(own, tmp_path / "groups") == rooms
    assert machine.room_in_control_groups(tmp_path / "no such file", tmp_path / "groups") == []


@pytest.fixture
def no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on every Mac, and on a Linux whose groups have no limits."""
    monkeypatch.setattr(machine, "_OWN_GROUPS", Path("/nowhere"))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=32 * GIB, available=7))


@pytest.mark.usefixtures("no_groups")
def test_without_control_groups_all_that_is_free_is_available() -> None:
    assert machine.available_bytes() == 7


@pytest.fixture
def kernel(no_groups: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Kernel]]:
    """Makes this machine a Mac whose `vm_stat` prints a text."""
    monkeypatch.setattr(host, "MACOS", True)
    machine._host_port.cache_clear()

    def make(text: str) -> Kernel:
        kernel = Kernel(text)
        monkeypatch.setattr(machine.mmap, "PAGESIZE", kernel.page_bytes)
        monkeypatch.setattr(machine.ctypes, "CDLL", lambda _: kernel)
        return kernel

    yield make
    machine._host_port.cache_clear()


@pytest.mark.parametrize(
    ("text", "total_gib", "free_gib"),
    [
        # App memory, wired and compressed, as Activity Monitor has them: 1.73, 2.73 and 0 of 32.
        (INTEL, 32, 27.54),
        # 5.13, 1.82 and 3.12 of 16.
        (AT_WORK, 16, 5.93),
        # 14.30, 6.39 and 1.76 of 32. psutil adds up 12.84: it counts what apps have not used for a while, too.
        (MINI, 32, 9.55),
        # 10.77, 7.57 and 7.86 of 48. psutil adds up 15.85: it counts no cached files that were used of late.
        (CACHED_FILES, 48, 21.79),
        # 7.78, 4.07 and 15.50 of 32.
        (FULL, 32, 4.66),
    ],
    ids=["intel", "at work", "mini", "cached files", "full"],
)
def test_on_a_mac_that_is_free_which_activity_monitor_does_not_count_as_used(
    kernel: Callable[[str], Kernel], monkeypatch: pytest.MonkeyPatch, text: str, total_gib: int, free_gib: float
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=total_gib * GIB, available=7))
    mac = kernel(text)
    assert round(machine.available_bytes() / GIB, 2) == free_gib
    assert machine.available_bytes() > 0
    assert mac.ports == 1


def test_where_the_kernel_does_not_say_it_is_what_psutil_says(kernel: Callable[[str], Kernel]) -> None:
    kernel(FULL).failure = 5
    assert machine.available_bytes() == 7


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


class FakeTime:
    """A clock that sleeping moves, and processor time that others take of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.others = 7000.0
        monkeypatch.setattr(machine, "perf_counter", lambda: self.now)
        monkeypatch.setattr(machine, "others_seconds", lambda: self.others)
        monkeypatch.setattr(machine, "processors", lambda: CORES)

    def go_on(self, seconds: float, share: float) -> None:
        self.now += seconds
        self.others += share * seconds * CORES


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    return FakeTime(monkeypatch)


@pytest.mark.parametrize(("share", "busy"), [(0.0, False), (0.1, False), (0.2, True), (1.0, True)])
def test_others_are_busy_where_they_take_much_of_all_processors(time: FakeTime, share: float, busy: bool) -> None:
    others = OtherPrograms()
    time.go_on(2.0, share)
    assert others.are_busy is busy
    time.go_on(2.0, 0.0)
    assert not others.are_busy, "only what came since counts"


def test_a_moment_is_too_short_to_judge_by(time: FakeTime) -> None:
    others = OtherPrograms()
    time.go_on(0.4, 1.0)
    assert not others.are_busy
    time.go_on(0.2, 1.0)
    assert others.are_busy, "together it is long enough"
    time.go_on(0.3, 0.0)
    assert others.are_busy, "as the last time"


def test_the_share_of_a_reply_is_that_of_all_its_time(time: FakeTime) -> None:
    others = OtherPrograms()
    assert others.share(now=True) == 0, "no time has passed"
    time.go_on(1.0, 0.8)
    assert others.share() == pytest.approx(0.8)
    time.go_on(0.3, 0.0)
    assert others.share() == pytest.approx(0.8), "as at the last look"
    time.go_on(0.7, 0.0)
    assert others.share(now=True) == pytest.approx(0.4)
    time.others -= 1000
    assert others.share(now=True) == 0, "counters of the system may go back"
