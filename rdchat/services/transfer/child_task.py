"""One long task in a process of its own, told of on the main thread."""

import json
import logging
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal, Slot

from rdchat import host
from rdchat.chat.transfer.reports import Progress
from rdchat.chat.transfer.tasks import Task
from rdchat.log import log_lines

_LOG = logging.getLogger(__name__)
_END_S = 5.0  # in which a task that is cancelled takes back what it wrote
_DIED = {"message": "The process that did this ended unexpectedly.", "hint": "Nothing of it was kept. Try again."}


class ChildTask(QObject):
    """Does a task (`chat.transfer.tasks`) in a child process. Lives on the main thread; ends with `ended`.

    Args:
        task: What is to be done.
        parent: The Qt parent.
    """

    progressed = Signal(Progress)
    ended = Signal(object)  # {"done": result}, {"failed": {"message": ..., "hint": ...}} or {"cancelled": True}
    _told = Signal(object)  # from the reading thread

    def __init__(self, task: Task, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = False
        self._over = False
        self._told.connect(self._take, Qt.ConnectionType.QueuedConnection)
        self._thread = threading.Thread(target=self._run, args=(task,), name="transfer", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Stop the task; what it wrote is taken back, and `ended` follows."""
        with self._guard:
            self._cancelled = True
            if self._process is not None and self._process.stdin is not None:
                with suppress(OSError):
                    self._process.stdin.close()

    def close(self) -> None:
        """Stop the task, for the app ends; nothing is told after this."""
        self._over = True
        self.cancel()
        self._thread.join(_END_S)
        with self._guard:
            if self._process is not None and self._process.poll() is None:
                self._process.kill()  # what it wrote is hidden, and thrown away at the next start
        self._thread.join()

    def _run(self, task: Task) -> None:
        outcome: Mapping[str, Any] = {"failed": _DIED}
        try:
            with self._guard:
                self._process = process = subprocess.Popen(  # noqa: S603  a fixed command
                    host.child_command("transfer"),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
                assert process.stdin is not None
                with suppress(OSError):
                    process.stdin.write(json.dumps(task).encode() + b"\n")
                    process.stdin.flush()
                    if self._cancelled:
                        process.stdin.close()
            threading.Thread(target=log_lines, args=(_LOG, process.stderr), name="transfer's log", daemon=True).start()
            outcome = self._read(process) or outcome
        except OSError as error:
            outcome = {"failed": {"message": f"The task cannot be begun: {error.strerror}.", "hint": "Try again."}}
        except Exception:
            _LOG.exception("Following the task failed")
        with suppress(RuntimeError):  # the app has ended meanwhile
            self._told.emit(outcome)

    def _read(self, process: subprocess.Popen[bytes]) -> Mapping[str, Any] | None:
        """Tell what the process says, and return its last word; None where it had none."""
        last: Mapping[str, Any] | None = None
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                said = json.loads(line)
                if "progress" in said:
                    self._told.emit(said)
                else:
                    last = said
        process.wait()
        with self._guard, suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        return last

    @Slot(object)
    def _take(self, said: Mapping[str, Any]) -> None:
        if self._over:
            return
        if "progress" in said:
            self.progressed.emit(Progress(said["progress"]["words"], said["progress"]["fraction"]))
        else:
            self._over = True
            self._thread.join()  # it has told all, and ends
            self.ended.emit(said)
