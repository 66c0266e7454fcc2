"""Forks a process for each case of the corpus, and for each child that rdchat starts in one: all is imported once.

`python -m tests.hostile.fork_server REQUESTS CLIENTS`, the two ends of a pair of sockets. A request is one message with
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
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

_PRELOADED = (
    "rdchat.__main__", "rdchat.cli", "rdchat.commands.ask", "rdchat.commands.chats", "rdchat.inference.local_engine",
    "rdchat.inference.session", "rdchat.hub.hub_api", "rdchat.hub.verifying", "mlx_lm.models.llama",
    "transformers.models.auto.tokenization_auto", "transformers.models.auto.configuration_auto",
    "numpy.ma", "numpy.random", "rdchat.inference.prompts.class_settings", "transformers.video_utils",
    "tests.hostile.store_reading",
)  # fmt: skip
_NOT_PRELOADED = {"training", "rank"}  # no case starts these children


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
        with open(told, "w+b") as file:
            file.write(json.dumps(order).encode())
            file.flush()
            socket.send_fds(clients, [b"."], [told, theirs, *files])
        os.close(theirs)
        self._answers, self._guard = open(answers, "rb", buffering=0), threading.Lock()
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

    def kill(self) -> None:
        """End it at once."""
        if self.returncode is None and self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class _ForkedChild(Forked):
    """Stands in for the `subprocess.Popen` of a child of rdchat's."""

    clients: socket.socket

    def __init__(self, command: Sequence[str], env: Mapping[str, str], umask: int, **_pipes: Any) -> None:
        (stdin, ours), (theirs, stdout), (last, stderr) = os.pipe(), os.pipe(), os.pipe()
        self.stdin, self.stdout, self.stderr = open(ours, "wb"), open(theirs, "rb"), open(last, "rb")
        arguments = command[command.index("rdchat") + 1 :]
        files = (stdin, stdout, stderr)
        super().__init__(
            self.clients, files, arguments=arguments, environment=dict(env), folder=os.getcwd(), umask=umask
        )
        for file in files:
            os.close(file)


class _Subprocess:
    """What `rdchat.work.child_run` needs of the module."""

    PIPE, TimeoutExpired, Popen = subprocess.PIPE, subprocess.TimeoutExpired, _ForkedChild


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
        ready = select.select([0, ended, requests], [], [])[0]
        if 0 in ready:
            return
        if ended in ready:
            os.read(ended, 4096)
            _tell_ends(answers)
        if requests in ready:
            _, (told, answer, *files), _, _ = socket.recv_fds(requests, 1, 5)
            if not (pid := os.fork()):
                _end(_become(told, files))
            answers[pid] = answer
            os.write(answer, b"%d\n" % pid)
            for file in (told, *files):
                os.close(file)


def _import() -> None:
    import rdchat.inference.blas  # noqa: F401  it picks the fast BLAS, so it goes before MLX
    from rdchat.children import CHILDREN
    from rdchat.work import child_run

    for module in (*_PRELOADED, *(module for name, module in CHILDREN.items() if name not in _NOT_PRELOADED)):
        importlib.import_module(module)
    child_run.subprocess = _Subprocess  # type: ignore[attr-defined,assignment]
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
    with open(told, "rb") as file:
        file.seek(0)
        order = json.load(file)
    for number, file_of_it in enumerate(files):
        os.dup2(file_of_it, number)
        os.close(file_of_it)
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(open(number, mode, closefd=False), "utf-8", errors, write_through=number > 0)
        for number, mode, errors in ((0, "rb", "strict"), (1, "wb", "strict"), (2, "wb", "backslashreplace"))
    )
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    if order.get("umask", -1) >= 0:
        os.umask(order["umask"])
    sys.argv = ["rdchat", *order["arguments"]]
    if order.get("store"):
        from tests.hostile.store_reading import read_store

        return read_store(Path(order["store"]))
    from rdchat.__main__ import main as run
    from rdchat.inference.prompts import tokenizer_process

    # What does not end is ended by these: a case need not take as long as a person may wait.
    tokenizer_process._ENCODE_S, tokenizer_process._TRY_S = order.get("patience_s", (2.0, 1.0))
    try:
        return run()
    except SystemExit as ended:  # argparse's own way out
        return ended.code if isinstance(ended.code, int) else 0
    except BaseException:
        traceback.print_exc()
        return 1


def _end(status: int) -> NoReturn:
    """End as Python does, but leave what is in memory: to take it apart would copy all that is shared."""
    threading._shutdown()  # type: ignore[attr-defined]  waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
