"""Calls to macOS that ask nobody and leave nothing, which nobody has seen on a Mac: `rdchat report` makes each once.

A function whose docstring says that it was not tried on a Mac either stands here, under its name, or is named in
`docs/on-a-mac.md`; a test checks that.
"""

import logging
import os
import re
import socket
import subprocess
from collections.abc import Callable, Mapping
from logging.handlers import BufferingHandler
from typing import Any

from rdchat import host, mac_desktop, machine
from rdchat.files import cache_folders, temporary_folder

_LONGEST_S = 15
# A PNG of 8 x 8 black pixels.
_PICTURE = (
    "89504e470d0a1a0a0000000d4948445200000008000000080800000000e164e157"
    "0000000c4944415478da6360a00e0000004800011045efd20000000049454e44ae426082"
)
# The name and version of the system, the model of the Mac, and the most megabytes that may be wired, 0 for the default.
_SETTINGS = ("kern.osversion", "hw.model", "iogpu.wired_limit_mb")


def _output(*command: str) -> str:
    """Return what a program of the system prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_S, check=False)  # noqa: S603
    return done.stdout


def _is_awake() -> bool:
    """Return whether the system names rdchat among those that keep it awake, while it does."""
    with machine.keep_awake():
        return "rdchat" in _output("/usr/bin/pmset", "-g", "assertions")


def _is_excluded() -> bool:
    """Return whether Time Machine knows the mark of a folder."""
    with temporary_folder() as folder:
        cache_folders.exclude_from_backups(folder)
        return "[Excluded]" in _output("/usr/bin/tmutil", "isexcluded", str(folder))


def _peer_is_known() -> bool:
    """Return whether the other end of a socket of ours is ours."""
    one, other = socket.socketpair()
    with one, other:
        return host.peer_user(one.fileno()) == os.getuid()


def _is_converted() -> bool:
    """Return whether a picture becomes TIFF."""
    with temporary_folder() as folder:
        picture = folder / "picture.png"
        picture.write_bytes(bytes.fromhex(_PICTURE))
        return mac_desktop.convert_to_tiff(picture, folder / "picture.tiff")


def _tf32_is_off() -> bool:
    host.switch_tf32_off()
    return host.tf32_is_off()


CALLS: Mapping[str, Callable[[], object]] = {
    "_begin_activity": _is_awake,
    "_free_on_macos": machine.available_bytes,
    "convert_to_tiff": _is_converted,
    "exclude_from_backups": _is_excluded,
    "peer_user": _peer_is_known,
    "physical_footprint": lambda: machine.physical_footprint(os.getpid()),
    "switch_tf32_off": _tf32_is_off,
    # Any answer of these may be right.
    "is_hot": lambda: machine.is_hot() is not None,
    "low_power_mode": lambda: machine.low_power_mode() is not None,
}
"""By the name of the function; the result is true if it works."""


def call_each(facts: dict[str, Any], _show: object) -> None:
    """Add facts of this Mac, and for each call `works`, `does not work`, or the types of its errors."""
    if not host.MACOS:
        facts["left_out"] = ["this is no Mac"]
        return
    lines = [line.partition(": ") for line in _output("/usr/sbin/sysctl", *_SETTINGS).splitlines()]
    facts |= {name: value for name, _, value in lines}
    cores = re.search(r'"gpu-core-count" = (\d+)', _output("/usr/sbin/ioreg", "-rd1", "-c", "AGXAccelerator"))
    facts |= {"gpu_cores": cores and cores[1], "calls": {}}
    log = logging.getLogger("rdchat")
    for name, call in CALLS.items():
        # `host.ask_macos` logs the errors of macOS.
        errors = BufferingHandler(100)
        log.addHandler(errors)
        outcome = "does not work"
        try:
            if call():
                outcome = "works"
        # Foreign code may raise anything.
        except Exception:
            log.warning("%s failed", name, exc_info=True)
        log.removeHandler(errors)
        types = [type(record.exc_info[1]).__name__ for record in errors.buffer if record.exc_info]
        facts["calls"][name] = " ".join(types) or outcome
