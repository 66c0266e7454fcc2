"""Other processes, for tests of what two programs do to one file."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
