"""Prepares drafting with a model in the background after a command: the child process `rdchat --child preparation`.

It tries out what the model can verify, and compiles kernels. It begins half a minute after the command has ended, and
ends when another one begins, so that commands in a row do not compete with it. The last of them starts it again; only
the present trial or kernel is lost.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress

from rdchat import host, paths
from rdchat.errors import RdchatError
from rdchat.files import FileLock, make_folder
from rdchat.inference.api import DraftSettings, Dtype, LoadProgress, OnProgress

LOCK = "preparation.lock"
"""In the cache folder, held while a process prepares; its time is that of the last command."""
_LOWEST_PRIORITY = 19
_REST_S = 30.0


def command_begins() -> None:
    """Have any preparation end: a command begins that needs the machine."""
    # Without a cache folder nothing is prepared.
    with suppress(OSError):
        (paths.cache_dir() / LOCK).touch(0o600)


def prepare_later(
    model: str | None, dtype: str, draft: DraftSettings, rest_s: float = _REST_S
) -> "subprocess.Popen[bytes]":
    """Start the child for a model and the drafters of the automatic mode; it begins some time after this process ends.

    It waits for the end of its input: the caller keeps what is returned, or the child would begin at once.
    """
    child = subprocess.Popen(  # noqa: S603  our own program
        host.child_command("preparation"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=os.environ, start_new_session=True,
    )  # fmt: skip
    assert child.stdin is not None
    child.stdin.write(json.dumps([model, dtype, draft.draft_model, draft.drafter, rest_s]).encode())
    child.stdin.flush()
    return child


def main() -> int:
    """Prepare what standard input asks for, once its other end is closed, unless another process prepares.

    It ends with 0 where a command begins meanwhile.
    """
    model, dtype, draft_model, drafter, rest_s = json.load(sys.stdin)
    os.nice(_LOWEST_PRIORITY)
    path = paths.cache_dir() / LOCK
    try:
        make_folder(path.parent)
        command_begins()
        last_command = path.stat().st_mtime_ns

        def check(_progress: LoadProgress | None = None) -> None:
            if path.stat().st_mtime_ns != last_command:
                sys.exit(0)

        time.sleep(rest_s)
        check()
        with FileLock(path, "the preparation"):
            prepare(model, Dtype(dtype), DraftSettings(draft_model=draft_model, drafter=drafter), check)
    except RdchatError:
        # The next command reports what is wrong with the model.
        return 1
    return 0


def prepare(model: str | None, dtype: Dtype, draft: DraftSettings, show: OnProgress) -> None:
    """Try out a model, and compile what replies with these settings need; an exception from `show` ends it."""
    from rdchat.inference.device import memory_room  # noqa: PLC0415
    from rdchat.inference.session import ChatSession  # noqa: PLC0415  MLX: only once the command has ended

    session = ChatSession.of_model(model, dtype, show)
    # Another command may load the same model meanwhile.
    if memory_room().free_bytes > session.model.info.weights_bytes:
        session.drafters.load_drafters(draft, show)
        session.prepare(draft, show)
