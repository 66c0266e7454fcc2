"""The child process that reads the headers of model folders, so that hundreds of them do not stall the window."""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
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


@contextmanager
def facts_reader(
    limits: Limits = _LIMITS, child: ChildProcess | None = None
) -> Iterator[Callable[[Path], FolderFacts]]:
    """Give a function that has a child run `read_facts`.

    Args:
        limits: Of one folder or file.
        child: It starts with the first call and ends with the block; None is one of its own.
    """
    child = child or ChildProcess("facts")

    def read(path: Path) -> FolderFacts:
        try:
            facts: FolderFacts = child.submit("read", {"path": str(path)}, limits, read=parsed_facts).result()
        except ChildLimitError as error:
            return FolderFacts(problem=f"Reading {path} {error.words}.")
        except RdchatError as error:
            _LOG.warning("Nothing was found out about %s: %s", path, error)
            return FolderFacts(problem=f"{path} could not be looked at.")
        return facts

    with closing(child):
        yield read


def main() -> int:
    """Answer requests until the app has gone."""
    return serve({"read": _read})


def _read(_job: Job[Any], path: str) -> dict[str, Any]:
    return asdict(read_facts(Path(path)))
