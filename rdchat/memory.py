"""How much memory there is, and how much of it this process may still take."""

from collections.abc import Iterator
from pathlib import Path

import psutil

_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
# Names of limit and use, and the prefix of the counters in memory.stat: version 2 of control groups, then version 1.
_LAYOUTS = (("memory.max", "memory.current", ""), ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"))


def available_bytes() -> int:
    """Return the memory that is free, within the limits that a container or a service sets.

    On macOS that is what is free or inactive: the system would give back more, of caches and of other apps' memory.
    """
    return min(int(psutil.virtual_memory().available), *room_in_control_groups(_OWN_GROUPS, _CONTROL_GROUPS))


def total_bytes() -> int:
    """Return the machine's memory."""
    return int(psutil.virtual_memory().total)


def room_in_control_groups(own_groups: Path, root: Path) -> list[int]:
    """Return the bytes that each limited control group of this process (Linux) leaves it; cached files count as room.

    Args:
        own_groups: The kernel's list of the process's groups.
        root: Where control groups are mounted.
    """
    rooms = (_room(folder, *layout) for folder in _group_folders(own_groups, root) for layout in _LAYOUTS)
    return [room for room in rooms if room is not None]


def _group_folders(own_groups: Path, root: Path) -> Iterator[Path]:
    """Yield the process's memory groups and their parents: the limit of each of them holds."""
    try:
        lines = own_groups.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in {"", "memory"}:
            mount = root / controllers
            folder = mount / path.lstrip("/")
            yield from (place for place in (folder, *folder.parents) if place.is_relative_to(mount))


def _room(folder: Path, limit: str, used: str, prefix: str) -> int | None:
    """Return what is left below a group's limit; None where it has none."""
    try:
        allowed = int((folder / limit).read_text())  # "max" is no limit
        taken = int((folder / used).read_text())
        counters = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    cached = sum(int(counters.get(f"{prefix}{kind}_file", 0)) for kind in ("active", "inactive"))
    return max(allowed - taken + cached, 0)
