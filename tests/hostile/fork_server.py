"""Forks a process for each case of the corpus, and for each child that rdchat starts in one: all is imported once.

`python -m tests.hostile.fork_server REQUESTS CLIENTS [models]`, the two ends of a pair of sockets; with `models`, what
models need is imported too, which takes 3 seconds. A request is one message with
descriptors: a file with the order as JSON, a pipe for the answers, and the standard files of the new process. The
answers are its process id and, at its end, its exit status, each on a line. The server ends with its standard input.

Before a fork, no thread has begun and MLX has computed nothing. Each process runs `rdchat.__main__.main`.
"""

import atexit
import contextlib
import faulthandler
import gc
import importlib
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_PRELOADED = """
rdchat.__main__ rdchat.cli rdchat.commands.chats rdchat.hub.downloads.download_process rdchat.hub.hub_api
rdchat.hub.verifying_and_deleting rdchat.chat.transfer.transfer_process rdchat.chat.attachments.file_reader
tests.hostile.store_reading
"""  # what the cases and rdchat's children in them need
_FOR_MODELS = """
rdchat.commands.ask rdchat.inference.local_engine rdchat.inference.session rdchat.inference.prompts.tokenizers_child
rdchat.inference.mlx_lm_fixes.config_fixes rdchat.inference.library.model_library mlx_lm.models.llama numpy.ma
numpy.random transformers.models.auto.tokenization_auto transformers.video_utils
transformers.models.auto.configuration_auto
"""


class Forked:
    """A process of the server's, for those who know a `subprocess.Popen`.

    Args:
        clients: The socket that takes requests.
        files: Its standard files.
        order: Its arguments, environment, folder and the like; see `_become`.
    """

    def __init__(self, clients: socket.socket, files: Sequence[int], **order: Any) -> None:
        answers, theirs = os.pipe()
        told = os.memfd_create("order")
        Path(f"/proc/self/fd/{told}").write_text(json.dumps(order))
        socket.send_fds(clients, [b"."], [told, theirs, *files])
        os.close(told)
        os.close(theirs)
        self._answers = os.fdopen(answers, "rb", buffering=0)
        self._guard = threading.Lock()
        self.returncode: int | None = None
        self.pid = int(self._answers.readline() or b"0")

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status; a signal's is negative."""
        with self._guard:
            if self.returncode is None:
                if not select.select([self._answers], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired("rdchat", timeout or 0.0)
                self.returncode = int(self._answers.readline() or -signal.SIGKILL)
                self._answers.close()
            return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal while it runs."""
        if self.returncode is None and self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class _ForkedChild(Forked):
    """Stands in for the `subprocess.Popen` of a child of rdchat's."""

    clients: socket.socket

    def __init__(self, command: Sequence[str], env: Mapping[str, str], **_more: Any) -> None:
        (stdin, ours), (theirs, stdout), (last, stderr) = os.pipe(), os.pipe(), os.pipe()
        self.stdin = os.fdopen(ours, "wb")
        self.stdout = os.fdopen(theirs, "rb")
        self.stderr = os.fdopen(last, "rb")
        arguments = command[command.index("rdchat") + 1 :]
        files = (stdin, stdout, stderr)
        order = {"words": ["rdchat", *arguments], "environment": dict(env), "folder": str(Path.cwd())}
        super().__init__(self.clients, files, **order)
        for file in files:
            os.close(file)


def main() -> None:
    """Serve until standard input ends."""
    requests, _ForkedChild.clients = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    _import()
    faulthandler.enable()
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    answers: dict[int, int] = {}
    while True:
        ready = select.select([0, ended, requests.fileno()], [], [])[0]
        if 0 in ready:
            return
        if ended in ready:
            os.read(ended, 4096)
            _tell_ends(answers)
        if requests.fileno() in ready:
            _, (told, answer, *files), _, _ = socket.recv_fds(requests, 1, 5)
            if not (pid := os.fork()):
                status = _become(told, files)
                # end as Python does, but leave what is in memory: to take it apart would copy all that is shared
                threading._shutdown()  # type: ignore[attr-defined]
                atexit._run_exitfuncs()
                os._exit(status)
            answers[pid] = answer
            os.write(answer, b"%d\n" % pid)
            for file in (told, *files):
                os.close(file)


def _import() -> None:
    from rdchat.inference import blas  # it picks the fast BLAS, so it goes before MLX
    from rdchat.work import child_process
    from tests.kernels import prepared_marker

    for module in (_PRELOADED + (_FOR_MODELS if "models" in sys.argv else "")).split():
        importlib.import_module(module)
    stand_in = SimpleNamespace(PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired, Popen=_ForkedChild)
    child_process.subprocess = stand_in  # type: ignore[assignment,attr-defined]
    blas.compiled_marker = prepared_marker
    gc.collect()
    gc.freeze()


def _tell_ends(answers: dict[int, int]) -> None:
    while answers:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        answer = answers.pop(pid)
        with contextlib.suppress(BrokenPipeError):
            os.write(answer, b"%d\n" % os.waitstatus_to_exitcode(status))
        os.close(answer)


def _become(told: int, files: Sequence[int]) -> int:
    """Be the process of an order, and return its exit status."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    order = json.loads(Path(f"/proc/self/fd/{told}").read_text())
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(os.fdopen(number, mode, size, closefd=False), "utf-8", errors, write_through=not size)
        for number, mode, size, errors in ((0, "rb", -1, None), (1, "wb", 0, None), (2, "wb", 0, "backslashreplace"))
    )
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    sys.argv = order["words"]
    if sys.argv[0] != "rdchat":
        from tests.hostile.store_reading import read_store

        return read_store(Path(sys.argv[1]))
    from rdchat.__main__ import main as run
    from rdchat.inference.prompts import tokenizer_process

    tokenizer_process._ENCODE_S, tokenizer_process._TRY_S = order.get("patience_s", (2.0, 1.0))
    return run()


if __name__ == "__main__":
    main()
