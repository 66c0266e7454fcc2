"""The child process that reads the headers of model folders: hundreds would stall the window for seconds."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError
from rdchat.inference.library.folder_facts import FolderFacts, parsed_facts, read_facts
from rdchat.work.child_limits import ChildLimitError, Limits
from rdchat.work.child_process import ChildProcess
from rdchat.work.job import Job
from rdchat.work.served import serve

_LIMITS = Limits(seconds=60.0, memory_bytes=1 << 30)  # of one folder; headers may have 100 MB, on a slow disk
_LOG = logging.getLogger(__name__)


class FactsReader:
    """Asks the child, which starts with the first question."""

    def __init__(self, limits: Limits = _LIMITS) -> None:
        self.child = ChildProcess("facts")
        self._limits = limits

    def read(self, path: Path) -> FolderFacts:
        """Return `read_facts` of a folder or a file."""
        try:
            facts: FolderFacts = self.child.submit("read", {"path": str(path)}, self._limits, read=_facts_of).result()
        except ChildLimitError as error:
            return FolderFacts(problem=f"Reading {path} {error.words}.")
        except RdchatError as error:
            _LOG.warning("Nothing was found out about %s: %s", path, error)
            return FolderFacts(problem=f"{path} could not be looked at.")
        return facts


@contextmanager
def facts_reader() -> Iterator[FactsReader]:
    """Give a reader whose child is ended afterwards."""
    reader = FactsReader()
    try:
        yield reader
    finally:
        reader.child.close()


def _facts_of(answer: Any) -> FolderFacts:
    facts = parsed_facts(answer)
    if facts is None:
        raise ValueError("no facts")
    return facts


def main() -> int:
    """Be the child."""
    return serve({"read": _read})


def _read(_job: Job[Any], path: str) -> dict[str, Any]:
    return asdict(read_facts(Path(path)))
