"""Ends the processes of servers, also those that their children started, when this process ends for any reason.

Reads PATH as a login shell sets it: apps that the Finder starts have a bare one, without `npx` and `uvx`.
"""

import asyncio
import os
import pwd
import signal
from collections.abc import Iterable
from contextlib import suppress

import psutil

_MARK = b"rdchat-path:"


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
        """Kill this process and its group at the end; or no more, as it has ended."""
        with suppress(BrokenPipeError):
            os.write(self._pipe, b"%d\n" % (pid if on else -pid))


def _wait_and_kill(pipe: int, other_end: int) -> None:
    """Read process ids until the pipe is closed, then kill those processes; never returns."""
    try:
        os.setsid()
        os.close(other_end)
        # The app waits for the end of this process's pipes.
        for descriptor in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
        watched: set[int] = set()
        with os.fdopen(pipe) as numbers:
            for number in map(int, numbers):
                (watched.add if number > 0 else watched.discard)(abs(number))
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
        earlier: Descendants that were seen before; some may have left the group, and lost their parent.
    """
    processes = {*tree_of(pid), *earlier}
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for process in processes:
        with suppress(psutil.Error):
            process.kill()


async def read_login_path(timeout_s: float = 5.0) -> str:
    """Return PATH of the login shell with that of this process behind it; only the latter if the shell fails.

    Args:
        timeout_s: Seconds until the shell is killed. Its start-up files are the person's own, and may wait.
    """
    path = b""
    own = os.environ.get("PATH", os.defpath)
    shell = os.environ.get("SHELL") or pwd.getpwuid(os.getuid()).pw_shell
    # As a terminal starts it: some tools add to PATH only for interactive shells.
    command = (shell, "-ilc", f'printf "\\n%s%s\\n" {_MARK.decode()} "$(printenv PATH)"')
    nowhere = asyncio.subprocess.DEVNULL
    pipe = asyncio.subprocess.PIPE
    with suppress(OSError, TimeoutError, ValueError):
        process = await asyncio.create_subprocess_exec(
            *command, stdin=nowhere, stdout=pipe, stderr=nowhere, start_new_session=True
        )
        try:
            async with asyncio.timeout(timeout_s):
                while not path and process.stdout is not None and (line := await process.stdout.readline()):
                    path = line.strip().removeprefix(_MARK) if line.startswith(_MARK) else b""
        finally:
            kill_tree(process.pid)
            # What a start-up file started may hold the pipe.
            async with asyncio.timeout(1.0):
                await process.communicate()
    folders = [folder for folder in f"{os.fsdecode(path)}:{own}".split(":") if folder.startswith("/")]
    return ":".join(dict.fromkeys(folders))
