"""The process that imports, exports and backs up for a window: `rdchat --child transfer`.

Parsing a hundred megabytes would hold the window's interpreter, and a hostile file its memory.
"""

import time
from collections.abc import Callable
from typing import Any

from rdchat.chat.transfer.importing import CancelledError
from rdchat.chat.transfer.reports import Progress
from rdchat.chat.transfer.tasks import Task, run_task
from rdchat.errors import RdchatError, StorageError
from rdchat.work.child_limits import ChildError, ChildLimitError, Limits
from rdchat.work.child_process import ChildProcess
from rdchat.work.job import Job, StopWork
from rdchat.work.served import serve

TAKE_BACK_S = 5.0
"""In which a task that is cancelled takes back what it wrote."""
_CANCEL_S = 60.0  # a busy machine; the window goes on meanwhile
_TELL_S = 0.05
_MEMORY_BYTES = 1 << 30
_READ_STRANGERS_FILES = {"import", "prepare"}  # the other tasks read chats that are here already, of any size


def submit(
    child: ChildProcess,
    task: Task,
    on_progress: Callable[[Progress], object],
    on_end: Callable[[Any], object] | None = None,
) -> Job[dict[str, Any]]:
    """Have the child do a task; the job's result is that of `run_task`."""
    memory_bytes = _MEMORY_BYTES if task["do"] in _READ_STRANGERS_FILES else None
    return child.submit(
        "run",
        {"task": task},
        Limits(memory_bytes=memory_bytes, cancel_s=_CANCEL_S),
        read=_result,
        on_progress=lambda told: on_progress(Progress(str(told["words"]), told["fraction"])),
        on_end=on_end,
    )


def _result(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict) or not answer:
        raise TypeError("no result")
    return answer


def failure(error: RdchatError) -> RdchatError:
    """Return what a task ended with, in words about what the person asked for."""
    match error:
        case ChildLimitError():
            hint = "Import files one at a time to find the one that is too large. Chats of files before it are kept."
            return StorageError(f"Reading the file {error.words}.", hint)
        case ChildError():
            return StorageError("The process that did this ended unexpectedly.", "Nothing of it was kept. Try again.")
        case _:
            return error


def result_of(job: Job[dict[str, Any]]) -> dict[str, Any]:
    """Wait for a task and return its result; raises its `failure`."""
    try:
        return job.result(lambda: None)  # which Ctrl-C interrupts
    except RdchatError as error:
        raise failure(error) from error


def main() -> int:
    """Answer requests until the parent has gone."""
    return serve({"run": _run}, grace_s=TAKE_BACK_S, logs=True)


def _run(job: Job[Any], task: Task) -> dict[str, Any]:
    """Do a task (`tasks.run_task`)."""
    told = 0.0

    def tell(progress: Progress) -> None:
        nonlocal told
        if time.monotonic() - told >= _TELL_S and not job.cancelled:
            told = time.monotonic()
            job.tell({"words": progress.words, "fraction": progress.fraction})

    def check() -> None:
        if job.cancelled:
            raise CancelledError

    try:
        return run_task(task, tell, check)
    except CancelledError:
        raise StopWork from None
