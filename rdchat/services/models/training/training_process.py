"""The training process as the app sees it."""

import logging
import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress

from rdchat import host
from rdchat.files.json_lines import json_lines
from rdchat.inference.api.training import TrainingNews, TrainingTask
from rdchat.log import log_lines

_END_S = 3.0  # in which it saves and ends once its input does
_LOG = logging.getLogger(__name__)


class TrainingProcess:
    """One process with one task. All methods return at once, but `close`.

    Args:
        task: What it is to do.
        tell: Called with what it tells, on a thread of this object's; lastly, in any case, with its exit status.
    """

    def __init__(self, task: TrainingTask, tell: Callable[[TrainingNews | int], None]) -> None:
        self._tell = tell
        self._process = subprocess.Popen(  # noqa: S603  a fixed command
            host.child_command("training"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ,
        )
        self._send(task.to_json())
        self._reader = threading.Thread(target=self._read, name="training", daemon=True)
        self._reader.start()
        log = (_LOG, self._process.stderr)
        threading.Thread(target=log_lines, args=log, name="training's log", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def pause(self) -> None:
        """Have it save what it has and end."""
        self._send("pause")

    def kill(self) -> None:
        """End it at once; what it had saved before stays."""
        self._process.kill()

    def close(self) -> None:
        """Have it save and end, and see to it that it does."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._reader is not threading.current_thread():
            self._reader.join()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # it has ended, of which the reader tells
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            try:
                for data in json_lines(self._process.stdout):
                    self._tell(TrainingNews.from_dict(data))
            except (LookupError, TypeError, ValueError):
                _LOG.exception("The process said what cannot be read")
                with suppress(subprocess.TimeoutExpired):  # where it fails by itself, its own status says more
                    self._process.wait(_END_S)
                self._process.kill()
        status = self._process.wait()
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        self._tell(status)
