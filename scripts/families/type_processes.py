"""Runs model types in processes of their own."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def in_processes(
    names: list[str], work: Callable[[Path, str], Any], out: Path, ending: str, *, failed: str, limit_s: int = 0
) -> Iterator[tuple[str, dict[str, str]]]:
    """Run every type in a process of its own, write what it returns as JSON, and yield it.

    Args:
        names: The types.
        work: Called with `out` and a type.
        out: The folder.
        ending: End of the names of the files.
        failed: The key under which a file says why its type failed.
        limit_s: Seconds after which a type is ended; 0 for no limit.
    """
    for name in names:
        target = out / f"{name}{ending}"
        if not (child := os.fork()):
            signal.alarm(limit_s)
            try:
                result = work(out, name)
            except BaseException as error:
                result = {failed: f"not run: {type(error).__name__}: {error}"[:300]}
            target.write_text(json.dumps(result, indent=1))
            os._exit(0)
        if status := os.waitpid(child, 0)[1]:
            target.write_text(json.dumps({failed: f"not run: ended by signal {status & 127}"}))
        yield name, json.loads(target.read_text())
