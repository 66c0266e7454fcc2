"""Prepares drafting with a model in the background after a command: the child process `rdchat --child preparation`.

It tries out what the model can verify, and compiles kernels. It begins when the command has ended, so that the model is
not in memory twice. If it is killed, only the present trial or kernel is lost: the next command starts it again.
"""

import json
import os
import subprocess
import sys

from rdchat import host, paths
from rdchat.errors import RdchatError
from rdchat.files import FileLock, make_folder
from rdchat.inference.api import DraftSettings, Dtype

LOCK = "preparation.lock"
"""In the cache folder, held while a process prepares."""
_LOWEST_PRIORITY = 19


def prepare_later(model: str | None, dtype: str, draft: DraftSettings) -> "subprocess.Popen[bytes]":
    """Start the child for a model and the drafters of the automatic mode; it begins when this process ends.

    It waits for the end of its input: the caller keeps what is returned, or the child would begin at once.
    """
    child = subprocess.Popen(  # noqa: S603  our own program
        host.child_command("preparation"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=os.environ, start_new_session=True,
    )  # fmt: skip
    assert child.stdin is not None
    child.stdin.write(json.dumps([model, dtype, draft.draft_model, draft.drafter]).encode())
    child.stdin.flush()
    return child


def main() -> int:
    """Prepare what standard input asks for, once its other end is closed, unless another process prepares."""
    model, dtype, draft_model, drafter = json.load(sys.stdin)
    os.nice(_LOWEST_PRIORITY)
    try:
        make_folder(paths.cache_dir())
        with FileLock(paths.cache_dir() / LOCK, "the preparation"):
            prepare(model, Dtype(dtype), DraftSettings(draft_model=draft_model, drafter=drafter))
    except RdchatError:
        # The next command reports what is wrong with the model.
        return 1
    return 0


def prepare(model: str | None, dtype: Dtype, draft: DraftSettings) -> None:
    """Try out a model, and compile what replies with these settings need."""
    from rdchat.inference.device import memory_room  # noqa: PLC0415
    from rdchat.inference.loading import load_model  # noqa: PLC0415  MLX: only once the command has ended
    from rdchat.inference.session import ChatSession  # noqa: PLC0415

    session = ChatSession(load_model(model, dtype))
    # Another command may load the same model meanwhile.
    if memory_room().free_bytes > session.model.info.weights_bytes:
        session.load_for_mode(draft, lambda _: None)
        session.prepare(draft, lambda _: None)
