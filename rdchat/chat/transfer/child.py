"""Imports, exports and backups in a process of their own, `rdchat --child transfer`: both sides of its pipe.

Parsing a hundred megabytes would hold the window's interpreter, and a hostile file could take its memory. The process
only reads the store; the chats of an import are stored by the process that has the store.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rdchat.chat.plain_data import from_plain
from rdchat.chat.storage.database import Database
from rdchat.chat.transfer.backup_file import back_up
from rdchat.chat.transfer.chat_import import ImportWriter
from rdchat.chat.transfer.exporting import export_chats
from rdchat.chat.transfer.importing import read_files
from rdchat.chat.transfer.reports import ImportReport, Progress, TaskProgress
from rdchat.chat.transfer.restore import prepare
from rdchat.errors import StorageError
from rdchat.work.child_limits import ChildError, ChildLimitError, Limits
from rdchat.work.child_process import ChildProcess
from rdchat.work.job import Job
from rdchat.work.served import serve

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

type OnProgress = Callable[[Progress], object]
type OnEnd = Callable[[Any], object]

STOP_S = 5.0
"""In which a task that is cancelled stops in good order."""
_CANCEL_S = 60.0  # a busy machine; the window goes on meanwhile
_MEMORY_BYTES = 1 << 30  # for strangers' files; the other tasks read chats that are here already, of any size


class TransferProcess:
    """The parent's side. Callbacks are called on a thread of their own: `on_end` with the result or a StorageError.

    Args:
        idle_s: Time without a task after which the process is ended; None keeps it.
    """

    def __init__(self, idle_s: float | None = None) -> None:
        self._child = ChildProcess("transfer", idle_s=idle_s)

    @property
    def pid(self) -> int | None:
        """The process's; None where there is none."""
        return self._child.pid

    def run[T: "DataclassInstance"](
        self, do: str, result: T, on_progress: OnProgress, on_end: OnEnd | None = None, **arguments: Any
    ) -> Job[T]:
        """Do a task: `export_chats`, `back_up` or `prepare`.

        Args:
            do: Its name.
            result: A result with the fields of the task's.
            on_progress: Called while it runs.
            on_end: Called at its end.
            arguments: Of the task. Paths are made absolute here, as the process may be in another folder.
        """
        job: Job[T] = Job(on_progress, on_end)

        def end(outcome: Any) -> None:
            job.end(_in_words(outcome))

        def read(answer: Any) -> T:
            return from_plain(result, _checked(answer))[0]

        return self._start(job, do, arguments, read=read, on_progress=partial(_tell, job), on_end=end)

    def import_files(
        self, database: Database, paths: Sequence[Path], on_progress: OnProgress, on_end: OnEnd | None = None
    ) -> Job[ImportReport]:
        """Import files, and those of chats in folders; those read before it was cancelled, or failed, are kept."""
        job: Job[ImportReport] = Job(on_progress, on_end)
        writer = ImportWriter(database)

        def take(frame: Any) -> None:
            if "words" in frame:
                _tell(job, frame)
            else:
                writer.take(frame)

        def end(outcome: Any) -> None:
            writer.end(_in_words(outcome), job.end)

        arguments = {"database": database.path, "paths": [str(path.absolute()) for path in paths]}
        return self._start(job, "import_files", arguments, read=_checked, on_progress=take, on_end=end)

    def _start[T](self, job: Job[T], do: str, arguments: dict[str, Any], **callbacks: Callable[[Any], Any]) -> Job[T]:
        asked = {name: str(each.absolute()) if isinstance(each, Path) else each for name, each in arguments.items()}
        is_strangers = do in (import_files.__name__, prepare.__name__)
        limits = Limits(memory_bytes=_MEMORY_BYTES if is_strangers else None, cancel_s=_CANCEL_S)
        child_job = self._child.submit(do, asked, limits, **callbacks)
        job.when_cancelled(child_job.cancel)
        return job

    def close(self) -> None:
        """Have the process stop what it does. Idempotent."""
        self._child.close(STOP_S)


def _tell(job: Job[Any], told: Any) -> None:
    if not job.cancelled:
        job.tell(Progress(str(told["words"]), told["fraction"]))


def _checked(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict) or not answer:
        raise TypeError("no result")
    return answer


def _in_words(outcome: Any) -> Any:
    """Return a result as it is, and an error of the process in words about what the person asked for."""
    match outcome:
        case ChildLimitError():
            hint = "Import files one at a time to find the one that is too large. Chats of files before it are kept."
            return StorageError(f"Reading the file {outcome.words}.", hint)
        case ChildError():
            return StorageError("The process that did this ended unexpectedly.", "Nothing of it was kept. Try again.")
    return outcome


# The process's own side


def main() -> int:
    """Answer requests until the parent has gone."""
    calls = (import_files, export_chats, back_up, prepare)
    return serve({call.__name__: call for call in calls}, grace_s=STOP_S, logs=True)


def import_files(job: Job[Any], database: str, paths: list[str]) -> dict[str, Any]:
    """Tell the parent the chats in files (`importing.read_files`)."""
    read_files(Path(database), [Path(path) for path in paths], job.tell, TaskProgress(job))
    return {"ended": True}
