"""Reads headers in a process of its own: hundreds of them would take the window's turns at Python for seconds.

The child gets a path a line, as JSON, and answers each with its facts; it ends where its input ends.
"""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from rdchat import host
from rdchat.inference.library.folder_facts import FolderFacts, parsed_facts, read_facts

_END_S = 5.0
_LOG = logging.getLogger(__name__)


class FactsReader:
    """Asks a child, which is begun with the first question and ended by `close`."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None

    def read(self, path: Path) -> FolderFacts:
        """Return what `read_facts` says of a folder or a file."""
        child = self._child = self._child or subprocess.Popen(  # noqa: S603  a fixed command
            host.child_command("facts"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="ascii",  # which JSON makes of any name
        )
        assert child.stdin is not None
        assert child.stdout is not None
        line = ""
        with suppress(OSError):  # it has ended: there is no answer
            child.stdin.write(json.dumps(str(path)) + "\n")
            child.stdin.flush()
            line = child.stdout.readline()
        if (facts := parsed_facts(line)) is not None:
            return facts
        _LOG.warning("Nothing was found out about %s: status %s", path, child.poll())
        self.close()
        return FolderFacts(problem=f"{path} could not be looked at.")

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is None:
            return
        with suppress(OSError, subprocess.TimeoutExpired):
            child.communicate("", timeout=_END_S)
        child.kill()
        child.wait()


@contextmanager
def facts_reader() -> Iterator[FactsReader]:
    """Give a reader that is closed afterwards."""
    reader = FactsReader()
    try:
        yield reader
    finally:
        reader.close()


def main() -> None:
    """Be the child."""
    for line in sys.stdin:
        facts = read_facts(Path(json.loads(line)))
        print(json.dumps(asdict(facts)), flush=True)  # noqa: T201  the answer
