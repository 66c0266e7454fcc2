"""Other processes, for tests in which two programs use one file."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from rdchat.work.child_process import ChildProcess

_HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def python_process(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run Python code with arguments in a process of its own, connected by pipes; it is killed at the end."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def held_by_another_process(database: Path) -> Iterator[None]:
    """Let another program write to a database, so that nobody else can."""
    with python_process(_HOLD, database) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        holder.communicate("")


def kill_begun(process: subprocess.Popen[str], moment_s: float) -> None:
    """Wait until a process has printed "begun", kill it so long after that, and wait for its end."""
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(moment_s)  # the moment itself is what is tried, not something that is waited for
    process.send_signal(signal.SIGKILL)
    process.wait()


def moments(count: int, longest_s: float, seed: int) -> list[float]:
    """Return so many moments to kill a process at, in seconds: one in each equal part of a time, in any order."""
    draw = Random(seed)
    drawn = [(part + draw.random()) / count * longest_s for part in range(count)]
    draw.shuffle(drawn)
    return drawn


def kill_while_asked(child: ChildProcess, ask: Callable[[], object]) -> None:
    """Ask a child that runs for something, and kill it once it has the request; its answer is held back till then."""
    pid = child.pid
    running = child._running
    assert pid is not None
    assert running is not None
    while running._requests:  # an answer arrives a moment before its request is forgotten
        threading.Event().wait(0.01)
    os.kill(pid, signal.SIGSTOP)

    def kill() -> None:
        while not running._requests and running.error is None:
            threading.Event().wait(0.01)
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    ask()
    killer.join()
