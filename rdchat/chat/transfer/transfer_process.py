"""Imports, exports and backups in a child process, `rdchat --child transfer`: both sides of its pipe.

Parsing a hundred megabytes would block the window's interpreter, and a hostile file could fill its memory. The process
only reads the store; the app stores the chats of an import.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rdchat.chat.storage.database import Database
from rdchat.chat.transfer.backups import back_up, prepare
from rdchat.chat.transfer.chat_import import ImportReport, ImportWriter, Progress, TaskProgress
from rdchat.chat.transfer.exporting import export_chats
from rdchat.chat.transfer.importing import read_files
from rdchat.errors import StorageError
from rdchat.files.plain_data import from_plain
from rdchat.work.child_process import ChildProcess
from rdchat.work.child_run import ChildError, ChildLimitError, Limits
from rdchat.work.job import Job
from rdchat.work.served import serve

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

type OnProgress = Callable[[Progress], object]
type OnEnd = Callable[[Any], object]

STOP_S = 5.0
"""Time for a cancelled task to stop in good order."""
# A busy machine takes long; the window stays usable meanwhile.
_CANCEL_S = 60.0
# The limit is for foreign files; the other tasks read stored chats of any size.
_MEMORY_BYTES = 1 << 30


class TransferProcess:
    """The app's side. Callbacks run on another thread: `on_end` with the result or a StorageError.

    Args:
        idle_s: The process ends after this time without a task; None keeps it.
    """

    def __init__(self, idle_s: float | None = None) -> None:
        self.child = ChildProcess("transfer", idle_s=idle_s)

    def run_task[T: "DataclassInstance"](
        self, do: str, result: T, on_progress: OnProgress, on_end: OnEnd | None = None, **arguments: Any
    ) -> Job[T]:
        """Run a task: `export_chats`, `back_up` or `prepare`.

        Args:
            do: Its name.
            result: An instance of the result type, whose fields are replaced.
            on_progress: Called while it runs.
            on_end: Called at its end.
            arguments: Arguments of the task. Paths become absolute, because the process may run in another folder.
        """
        job: Job[T] = Job(on_progress, on_end)

        def end(outcome: Any) -> None:
            job.set_outcome(from_plain(result, outcome)[0] if isinstance(outcome, dict) else outcome)

        return self._start(job, do, arguments, end)

    def import_files(
        self, database: Database, paths: Sequence[Path], on_progress: OnProgress, on_end: OnEnd | None = None
    ) -> Job[ImportReport]:
        """Import files and folders; the chats of files read before a failure or cancellation are kept."""
        job: Job[ImportReport] = Job(on_progress, on_end)
        writer = ImportWriter(database)
        arguments = {"database": database.path, "paths": [str(path.absolute()) for path in paths]}
        return self._start(
            job, "import_files", arguments, partial(writer.end_import, on_end=job.set_outcome), writer.store_frame
        )

    def _start[T](
        self, job: Job[T], do: str, arguments: dict[str, Any], end: OnEnd, take: OnEnd | None = None
    ) -> Job[T]:
        """Run a task. `take` gets the frames besides progress, `end` the answer or an error."""

        def on_progress(frame: Any) -> None:
            if "text" not in frame and take is not None:
                take(frame)
            elif not job.cancelled:
                job.report_progress(Progress(str(frame["text"]), frame["fraction"]))

        request = {name: str(each.absolute()) if isinstance(each, Path) else each for name, each in arguments.items()}
        is_foreign = do in (import_files.__name__, prepare.__name__)
        limits = Limits(memory_bytes=_MEMORY_BYTES if is_foreign else None, cancel_s=_CANCEL_S)
        on_end = lambda outcome: end(_as_text(outcome))  # noqa: E731
        child_job = self.child.submit(do, request, limits, read=_checked, on_progress=on_progress, on_end=on_end)
        job.when_cancelled(child_job.cancel)
        return job

    def close(self) -> None:
        """Stop what the process does. Idempotent."""
        self.child.close(STOP_S)


def _checked(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict) or not answer:
        raise TypeError("no result")
    return answer


def _as_text(outcome: Any) -> Any:
    """Return a result unchanged, and an error of the process as one about what the person did."""
    match outcome:
        case ChildLimitError():
            hint = (
                "Import the files one at a time to find the one that is too large. The chats of earlier files are kept."
            )
            return StorageError(f"Reading the file {outcome.reason}.", hint)
        case ChildError():
            return StorageError("The task ended unexpectedly.", "Nothing was kept. Try again.")
    return outcome


# The process's own side


def main() -> int:
    """Answer requests until the parent ends."""
    calls = (import_files, export_chats, back_up, prepare)
    return serve({call.__name__: call for call in calls}, grace_s=STOP_S, logs=True)


def import_files(job: Job[Any], database: str, paths: list[str]) -> dict[str, Any]:
    """Send the chats in files to the parent (`importing.read_files`)."""
    read_files(Path(database), [Path(path) for path in paths], job.report_progress, TaskProgress(job))
    return {"ended": True}
