"""Reads PATH as a login shell sets it: apps that the Finder starts have a bare one, without `npx` and `uvx`."""

import asyncio
import os
import pwd
from contextlib import suppress

from rdchat.tools.process_guard import kill_tree

_MARK = b"rdchat-path:"


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
