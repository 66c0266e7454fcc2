"""The downloading process as the app sees it: begun when something is to be downloaded, and anew after it crashed."""

import json
import logging
import secrets
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from typing import IO, Any

from rdchat import host
from rdchat.hub.downloads.download_progress import DownloadLimits, DownloadProgress, DownloadState
from rdchat.hub.endpoint import find_endpoint
from rdchat.hub.known_files import check_names
from rdchat.hub.tokens import Tokens

_END_S = 3.0  # in which it ends by itself once its input does
_LOG = logging.getLogger(__name__)


class DownloadProcess:
    """Downloads models in a process of its own; neither its crash nor its interpreter's lock is felt here.

    Each download has an id, by which it is paused, resumed and discarded. All methods return at once.

    Args:
        tell: Called with progress, on a thread of this object's; a few times a second and at each change of state.
        tokens: Where the person's tokens are found.
        limits: Of downloads at once, times and the disk.
    """

    def __init__(
        self,
        tell: Callable[[DownloadProgress], None],
        tokens: Tokens,
        limits: DownloadLimits = DownloadLimits(),  # noqa: B008  frozen
    ) -> None:
        self._tell = tell
        self._tokens = tokens
        self._limits = limits
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._last: dict[str, DownloadProgress] = {}
        self._requests: dict[str, dict[str, str]] = {}

    def start(self, repository: str, revision: str = "main", gguf: str = "") -> str:
        """Begin a download, or go on with one that was left unfinished; return its id.

        Raises:
            HubError: If that is no hub id, or no revision.
            InvalidSettingError: If `HF_ENDPOINT` is no address.
        """
        check_names(repository, revision)
        find_endpoint()
        download = secrets.token_hex(8)
        self._requests[download] = {"id": download, "repository": repository, "revision": revision, "gguf": gguf}
        self.resume(download)
        return download

    def resume(self, download: str) -> None:
        """Go on with a download that was paused or failed, from the byte where it was."""
        request = self._requests[download]
        token = self._tokens.find(find_endpoint())
        secret = {"token": token.reveal()} if token else {}
        state = DownloadProgress(download, request["repository"], request["revision"], DownloadState.WAITING)
        with self._guard:
            before = self._last.get(download, state)
            self._last[download] = replace(before, state=DownloadState.WAITING, problem="", hint="")
            self._send({"do": "start", **request, **secret})

    def pause(self, download: str) -> None:
        """Stop a download; its bytes stay. `PAUSED` follows."""
        with self._guard:
            self._send({"do": "pause", **self._requests[download]})

    def discard(self, download: str) -> None:
        """Stop a download and remove all that it left; `REMOVED` follows."""
        with self._guard:
            self._send({"do": "discard", **self._requests[download]})

    def progress(self) -> tuple[DownloadProgress, ...]:
        """Return where each download stands."""
        with self._guard:
            return tuple(self._last.values())

    def close(self) -> None:
        """Pause all and end the process; nothing is told after this."""
        with self._guard:
            process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._reader is not None and self._reader is not threading.current_thread():
            self._reader.join()

    def _send(self, command: dict[str, Any]) -> None:
        """Write a command, to a new process where there is none; one that dies meanwhile is told of by `_end`."""
        if self._process is None:
            self._begin()
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()

    def _begin(self) -> None:
        process = subprocess.Popen(  # noqa: S603  a fixed command
            host.child_command("downloads"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(asdict(self._limits)).encode() + b"\n")
        self._process = process
        self._reader = threading.Thread(target=self._read, args=(process,), name="downloads", daemon=True)
        self._reader.start()
        threading.Thread(target=_log_lines, args=(process.stderr,), name="downloads' log", daemon=True).start()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._take(process, DownloadProgress.from_dict(json.loads(line)))
        process.wait()
        with self._guard, suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        self._end(process)

    def _take(self, process: subprocess.Popen[bytes], progress: DownloadProgress) -> None:
        with self._guard:
            if self._process is not process:
                return
            self._last[progress.id] = progress
        self._tell(progress)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Tell of the downloads that went on in a process that ended unasked."""
        with self._guard:
            if self._process is not process:
                return
            self._process = None
            ended = [progress for progress in self._last.values() if not progress.state.has_ended]
            words = f"The downloading process ended unexpectedly (status {process.returncode})."
            for progress in ended:
                self._last[progress.id] = replace(
                    progress,
                    state=DownloadState.FAILED,
                    bytes_per_second=None,
                    notes=(),
                    problem=words,
                    hint="Resume the download: it goes on from where it was.",
                )
        for progress in ended:
            self._tell(self._last[progress.id])


def _log_lines(stream: IO[bytes] | None) -> None:
    if stream is not None:
        with stream:
            for line in stream:
                _LOG.warning("%s", line.decode(errors="replace").rstrip()[:1000])
