"""Ends the processes of servers, also those that their children started, when this process ends for any reason."""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress

import psutil


class ProcessGuard:
    """A small process that kills what it was told to watch once this process has ended, even by SIGKILL.

    It is a fork, so make it before there are threads. Servers lead process groups of their own.
    """

    def __init__(self) -> None:
        pipe, self._pipe = os.pipe()
        if os.fork() == 0:
            _wait_and_kill(pipe, self._pipe)
        os.close(pipe)

    def watch(self, pid: int, *, on: bool = True) -> None:
        """Kill this process and its group at the end; with `on` false no longer, because it has ended."""
        with suppress(BrokenPipeError):
            # A negative number ends the watching.
            os.write(self._pipe, b"%d\n" % (pid if on else -pid))


def _wait_and_kill(pipe: int, other_end: int) -> None:
    """Read process ids until the pipe is closed, then kill those processes; never returns."""
    try:
        # In a session of its own, it gets no signals that are meant for its parent's group.
        os.setsid()
        # Its own copy of the end that is written to: the pipe is closed only once all copies are.
        os.close(other_end)
        # A fork has its parent's pipes to the app, which waits until all copies of them are closed.
        for descriptor in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
        watched: set[int] = set()
        with os.fdopen(pipe) as numbers:
            for number in map(int, numbers):
                if number > 0:
                    watched.add(number)
                else:
                    watched.discard(-number)
        for pid in watched:
            kill_tree(pid)
    finally:
        os._exit(0)


def tree_of(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants; empty if it has ended."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def kill_tree(pid: int, earlier: Iterable[psutil.Process] = ()) -> None:
    """Kill a process, its group, and its descendants.

    Args:
        pid: The process, which led a group.
        earlier: Descendants that were seen before; some may have left the group and lost their parent, so that neither
            the group nor the tree has them now.
    """
    processes = {*tree_of(pid), *earlier}
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
