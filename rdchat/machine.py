"""Memory, power and load of this machine, as the engine and the commands ask for them.

Power and load are not yet tried on a Mac.
"""

import ctypes
import logging
import mmap
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from time import perf_counter

import psutil

from rdchat import host

MAX_OTHERS = 0.15
"""Share of all processors that other programs may use on a quiet computer; a desktop at rest uses some 5 %."""
CPU_SHARE = 0.8
"""Share of the memory for a model on a CPU: the rest is for the system and a browser."""
METAL_SHARE = 2 / 3
"""The least share of a Mac's memory that Metal recommends for its work."""
_LOG = logging.getLogger(__name__)
# Shortest interval between two measurements: processor times are counted in steps of 10 ms.
_LOOK_S = 0.5
# Kinds of processor time, in psutil's names; macOS has the first three; `steal` is time of other virtual machines.
_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_THERMAL_STATE_SERIOUS = 2
# This is rusage_info_v0 in macOS's <sys/resource.h>; the eighth number is ri_phys_footprint.
_RUSAGE = struct.Struct("16x10Q")
# This is vm_statistics64 in macOS's <mach/vm_statistics.h>, and its number in <mach/host_info.h>.
_VM_STATISTICS = struct.Struct("4I9Q2I4Q4IQ")
_HOST_VM_INFO64 = 4
# Names of limit and use, and the prefix of the counters in memory.stat: version 2 of control groups, then version 1.
_LAYOUTS = (("memory.max", "memory.current", ""), ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"))


def available_bytes() -> int:
    """Return the free memory, within the limits of a container or a service.

    On macOS it is what Activity Monitor does not count as used, which psutil cannot tell: caches of files are free.
    """
    free = host.ask_macos(_free_on_macos, "The free memory cannot be read") or psutil.virtual_memory().available
    return min([int(free), *room_in_control_groups(_OWN_GROUPS, _CONTROL_GROUPS)])


def _free_on_macos() -> int:
    """Return the memory that apps, the kernel and compressed pages leave. Not yet tried on a Mac.

    Raises:
        OSError: If macOS does not say.
    """
    statistics = ctypes.create_string_buffer(_VM_STATISTICS.size)
    # In units of 32 bits.
    size = ctypes.c_uint(_VM_STATISTICS.size // 4)
    failure = ctypes.CDLL(None).host_statistics64(_host_port(), _HOST_VM_INFO64, statistics, ctypes.byref(size))
    if failure:
        raise OSError(f"host_statistics64 returned {failure}")
    pages = _VM_STATISTICS.unpack(statistics.raw)
    # Anonymous ones that are not purgeable, wired ones, and those of the compressor.
    used = pages[22] - pages[13] + pages[3] + pages[19]
    return total_bytes() - int(used) * mmap.PAGESIZE


@cache
def _host_port() -> int:
    """Return the right to ask the kernel about this machine: each `mach_host_self` adds a reference to it."""
    return int(ctypes.CDLL(None).mach_host_self())


def total_bytes() -> int:
    """Return the machine's memory."""
    return int(psutil.virtual_memory().total)


def room_in_control_groups(own_groups: Path, root: Path) -> list[int]:
    """Return the bytes that each limited control group of this process (Linux) has left; cached files count as free.

    Args:
        own_groups: The kernel's list of the process's groups.
        root: Where control groups are mounted.
    """
    rooms = (_room(folder, *layout) for folder in _group_folders(own_groups, root) for layout in _LAYOUTS)
    return [room for room in rooms if room is not None]


def _group_folders(own_groups: Path, root: Path) -> Iterator[Path]:
    """Yield the process's memory groups and their parents, since the limit of each applies."""
    try:
        lines = own_groups.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in {"", "memory"}:
            mount = root / controllers
            folder = mount / path.lstrip("/")
            yield from (each for each in (folder, *folder.parents) if each.is_relative_to(mount))


def _room(group: Path, limit: str, used: str, prefix: str) -> int | None:
    """Return what is left below a group's limit; None if it has none."""
    try:
        # The text "max" is no limit.
        allowed = int((group / limit).read_text())
        taken = int((group / used).read_text())
        counters = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    cached = sum(int(counters.get(f"{prefix}{kind}_file", 0)) for kind in ("active", "inactive"))
    return max(allowed - taken + cached, 0)


def on_battery() -> bool:
    """Return whether the machine runs on its battery; False if it has none, or that is unknown."""
    try:
        battery = psutil.sensors_battery()
    # psutil may not understand the kernel's answer.
    except (OSError, RuntimeError, NotImplementedError):
        _LOG.debug("The battery cannot be read", exc_info=True)
        return False
    return battery is not None and battery.power_plugged is False


def others_seconds() -> float:
    """Return the seconds of processor time used by other programs; only differences matter.

    psutil does not count a GPU's own work, so a program that uses only the GPU is not seen.
    """
    try:
        everything = psutil.cpu_times()
        own = psutil.Process().cpu_times()
    except (psutil.Error, OSError):
        return 0.0
    return sum(getattr(everything, kind, 0.0) for kind in _BUSY) - own.user - own.system


def processors() -> int:
    """Return the number of processors that `others_seconds` counts."""
    return psutil.cpu_count() or 1


def low_power_mode() -> bool:
    """Return whether macOS saves energy, with slower processors and GPU; False elsewhere. Not yet tried on a Mac."""
    return bool(_process_info("isLowPowerModeEnabled"))


def is_hot() -> bool:
    """Return whether macOS slows the machine down because of heat; False elsewhere. Not yet tried on a Mac."""
    return _process_info("thermalState") >= _THERMAL_STATE_SERIOUS


def slowed_by() -> list[str]:
    """Return why the machine may be slower now than at other times."""
    reasons = {"on battery": on_battery(), "in Low Power Mode": low_power_mode(), "hot": is_hot()}
    return [reason for reason, holds in reasons.items() if holds]


def _process_info(selector: str) -> int:
    """Return an answer of NSProcessInfo; 0 where there is none."""

    def read() -> int:
        return int(getattr(host.foundation().NSProcessInfo.processInfo(), selector)())

    return host.ask_macos(read, f"{selector} cannot be read") or 0


def physical_footprint(pid: int) -> int:
    """Return what macOS counts as a process's memory, compressed pages included, in bytes; 0 where unknown.

    Not yet tried on a Mac.
    """
    return host.ask_macos(lambda: _read_footprint(pid), "A process's memory cannot be read") or 0


def _read_footprint(pid: int) -> int:
    usage = ctypes.create_string_buffer(_RUSAGE.size)
    if ctypes.CDLL(None).proc_pid_rusage(ctypes.c_int(pid), ctypes.c_int(0), usage):
        return 0
    return int(_RUSAGE.unpack(usage.raw)[7])


def give_freed_memory_back() -> None:
    """Return freed memory to the system; macOS needs no call, as weights are in Metal's buffers.

    glibc keeps freed blocks of up to 32 MB, which are nearly all weights of a small model.
    """
    if host.MACOS:
        return
    try:
        ctypes.CDLL(None).malloc_trim(0)
    # Another C library lacks it.
    except (OSError, AttributeError):
        _LOG.debug("Freed memory is kept by the C library", exc_info=True)


@contextmanager
def keep_awake() -> Iterator[None]:
    """Prevent idle sleep and App Nap during replies and other long work; macOS only.

    Errors are logged only: the work matters more than staying awake.
    """
    trouble = "Sleep could not be held off, or not be allowed again"
    end_activity = host.ask_macos(_begin_activity, trouble)
    try:
        yield
    finally:
        if end_activity is not None:
            host.ask_macos(end_activity, trouble)


def _begin_activity() -> Callable[[], None]:
    """Begin an activity of NSProcessInfo; return the function that ends it. Not yet tried on a Mac."""
    foundation = host.foundation()
    info = foundation.NSProcessInfo.processInfo()
    options = foundation.NSActivityUserInitiated  # It includes NSActivityIdleSystemSleepDisabled.
    activity = info.beginActivityWithOptions_reason_(options, "rdchat is working")
    return lambda: info.endActivity_(activity)


class OtherPrograms:
    """Measures which share of all processors other programs use. What rdchat computes itself does not count.

    A measurement begins when this is made. Use either `share`, for the time since then, or `are_busy`, which begins
    another measurement with each answer.
    """

    def __init__(self) -> None:
        self._share = 0.0
        self._busy = False
        self._begin()

    def _begin(self) -> None:
        # The beginning of the measurement, the last time that `share` looked, and `others_seconds` at the beginning.
        self._began = perf_counter()
        self._measured = self._began
        self._seconds_before = others_seconds()

    def share(self, *, now: bool = False) -> float:
        """Return their share from 0 to 1 since the beginning; without `now` it may be half a second old."""
        moment = perf_counter()
        took_s = moment - self._began
        is_due = now or moment - self._measured >= _LOOK_S
        if is_due and took_s > 0:
            share = (others_seconds() - self._seconds_before) / (took_s * processors())
            self._share = min(max(share, 0.0), 1.0)
            self._measured = moment
        return self._share

    @property
    def are_busy(self) -> bool:
        """Whether other programs were busy since the last look; a look soon after it repeats the last answer."""
        if perf_counter() - self._began >= _LOOK_S:
            self._busy = self.share(now=True) > MAX_OTHERS
            self._begin()
        return self._busy
