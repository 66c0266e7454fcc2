"""Imports, exports and backups in a process of their own, `rdchat --child transfer`: both sides of its pipe.

Parsing a hundred megabytes would hold the window's interpreter, and a hostile file could take its memory. The process
only reads the store; the chats of an import are stored by the process that has the store.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rdchat.chat.plain_data import from_plain
from rdchat.chat.storage.database import Database
from rdchat.chat.transfer.backup_file import BackupFacts, back_up
from rdchat.chat.transfer.chat_import import ImportWriter
from rdchat.chat.transfer.exporting import export_chats
from rdchat.chat.transfer.importing import read_files
from rdchat.chat.transfer.reports import ExportReport, ImportReport, Progress, TaskProgress
from rdchat.chat.transfer.restore import prepare
from rdchat.errors import StorageError
from rdchat.inference.api.requests import SamplingParams
from rdchat.work.child_process import ChildError, ChildLimitError, ChildProcess, Limits
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

    def import_files(
        self, database: Database, paths: Sequence[Path], on_progress: OnProgress, on_end: OnEnd | None = None
    ) -> Job[ImportReport]:
        """Import files, and those of chats in folders; those read before it was cancelled, or failed, are kept."""
        job: Job[ImportReport] = Job(on_progress, on_end)
        writer = ImportWriter(database)

        def take(told: Any) -> None:
            if "words" in told:
                _tell(job, told)
            else:
                writer.take(told)

        asked = {"database": str(database.path), "paths": [str(path.absolute()) for path in paths]}
        child_job = self._child.submit(
            "import",
            asked,
            Limits(memory_bytes=_MEMORY_BYTES, cancel_s=_CANCEL_S),
            read=_checked,
            on_progress=take,
            on_end=lambda outcome: writer.end(_in_words(outcome), job.end),
        )
        job.when_cancelled(child_job.cancel)
        return job

    def export(
        self,
        database: Path,
        path: Path,
        kind: str,
        chats: list[int] | None,
        *,
        details: bool,
        system_prompt: str,
        sampling: SamplingParams,
        on_progress: OnProgress,
        on_end: OnEnd,
    ) -> Job[ExportReport]:
        """Export chats (`exporting.export_chats`)."""
        asked = {"database": str(database), "path": str(path.absolute()), "kind": kind, "chats": chats,
                 "details": details, "system_prompt": system_prompt, "sampling": asdict(sampling)}  # fmt: skip
        return self._submit("export", asked, ExportReport(), Job(on_progress, on_end))

    def back_up(
        self, database: Path, settings: Path, path: Path, on_progress: OnProgress, on_end: OnEnd
    ) -> Job[BackupFacts]:
        """Write the whole store into a file."""
        asked = {"database": str(database), "settings": str(settings), "path": str(path.absolute())}
        return self._submit("backup", asked, BackupFacts(), Job(on_progress, on_end))

    def prepare_restore(
        self, source: Path, data: Path, settings: Path | None, on_progress: OnProgress, on_end: OnEnd | None = None
    ) -> Job[BackupFacts]:
        """Prepare a restore (`restore.prepare`)."""
        beside = None if settings is None else str(settings)
        asked = {"source": str(source.absolute()), "data": str(data), "settings": beside}
        return self._submit("prepare", asked, BackupFacts(), Job(on_progress, on_end), _MEMORY_BYTES)

    def close(self) -> None:
        """Have the process stop what it does. Idempotent."""
        self._child.close(STOP_S)

    def _submit[T: "DataclassInstance"](
        self,
        do: str,
        asked: dict[str, Any],
        result: T,
        job: Job[T],
        memory_bytes: int | None = None,
    ) -> Job[T]:
        """Have the child do a job whose result has the fields of `result`."""
        child_job = self._child.submit(
            do,
            asked,
            Limits(memory_bytes=memory_bytes, cancel_s=_CANCEL_S),
            read=lambda answer: from_plain(result, _checked(answer))[0],
            on_progress=partial(_tell, job),
            on_end=lambda outcome: job.end(_in_words(outcome)),
        )
        job.when_cancelled(child_job.cancel)
        return job


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
    calls: dict[str, Callable[..., Any]] = {
        "import": _import,
        "export": export_chats,
        "backup": back_up,
        "prepare": prepare,
    }
    return serve(calls, grace_s=STOP_S, logs=True)


def _import(job: Job[Any], database: str, paths: list[str]) -> dict[str, Any]:
    read_files(Path(database), [Path(path) for path in paths], job.tell, TaskProgress(job))
    return {"ended": True}
