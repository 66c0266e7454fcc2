"""Runs a process under limits: time, and the memory of all processes below it."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from tests.hostile.fork_server import Forked

MEMORY_LIMIT_BYTES = 8 * 10**9
TIME_LIMIT_S = 60.0
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Watched:
    """What was seen while something ran.

    Attributes:
        trouble: Why it was killed, or how it died; empty where it came to its end.
        seconds: Wall-clock time.
        memory_bytes: The most that the tree of processes held at one look, in resident pages.
        late_s: The most that this process, which only waits, was woken too late: how busy the machine was meanwhile.
    """

    trouble: str
    seconds: float
    memory_bytes: int
    late_s: float = 0.0


def watch(
    process: subprocess.Popen[bytes],
    is_done: Callable[[float], bool],
    time_limit_s: float = TIME_LIMIT_S,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    shared_bytes: int = 0,
) -> Watched:
    """Look at a process twenty times a second until `is_done(wait_s)`, which waits so long, tells that it is done.

    Past a limit the whole tree is killed. `shared_bytes` is what each process below it had when it was forked.
    """
    began = time.monotonic()
    most = 0
    trouble = ""
    late_s = 0.0
    while True:
        looked = time.monotonic()
        if is_done(_LOOK_EVERY_S):
            break
        late_s = max(late_s, time.monotonic() - looked - _LOOK_EVERY_S)
        most = max(most, tree_bytes(process.pid, shared_bytes))
        if most > memory_limit_bytes:
            trouble = f"killed at {most / 1e9:.1f} GB"
        elif time.monotonic() - began > time_limit_s:
            trouble = f"killed after {time_limit_s:.1f} s"
        elif process.poll() is not None and not is_done(0.0):
            trouble = f"died: {ending(process.returncode)}"
        if trouble:
            kill_tree(process)
            break
    return Watched(trouble, time.monotonic() - began, most, late_s)


def is_readable(descriptor: int) -> Callable[[float], bool]:
    """Return a test that waits for something to be read."""
    return lambda wait_s: bool(select.select([descriptor], [], [], wait_s)[0])


def has_ended(process: subprocess.Popen[bytes] | Forked) -> Callable[[float], bool]:
    """Return a test that waits for the end of a process."""

    def ended(wait_s: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
        return process.returncode is not None

    return ended


def tree_bytes(pid: int, shared_bytes: int = 0) -> int:
    """Return the resident memory of a process and all below it, and what they share once."""
    total = shared_bytes
    for each in _tree(pid):
        with contextlib.suppress(psutil.Error):
            total += max(each.memory_info().rss - shared_bytes, 0)
    return total


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """End a process and all below it at once."""
    for each in _tree(process.pid):
        with contextlib.suppress(psutil.Error):
            each.kill()
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.wait()


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []


def ending(returncode: int) -> str:
    """Return how a process ended, in words."""
    return signal.Signals(-returncode).name if returncode < 0 else f"exit {returncode}"
