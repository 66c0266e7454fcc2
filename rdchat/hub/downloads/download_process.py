"""The downloading process as the app sees it: begun when something is to be downloaded, and anew after it crashed."""

import json
import logging
import secrets
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from rdchat import host
from rdchat.errors import RdchatError
from rdchat.hub.downloads.download_progress import (
    DownloadLimits,
    DownloadProgress,
    DownloadRequest,
    DownloadState,
    FileProgress,
)
from rdchat.hub.endpoint import find_endpoint
from rdchat.hub.known_files import check_names
from rdchat.hub.tokens import Tokens
from rdchat.log import log_lines

_END_S = 3.0  # in which it ends by itself once its input does
_LOG = logging.getLogger(__name__)


class DownloadProcess:
    """Downloads models in a process of its own; neither its crash nor its interpreter's lock is felt here.

    Each download has an id, by which it is paused, resumed and discarded. All methods but `close` return at once: what
    takes time, such as a keychain that asks the person, is done on threads.

    Args:
        tell: Called with progress, on any thread; a few times a second and at each change of state.
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
        self._requests: dict[str, DownloadRequest] = {}
        self._preparing: dict[str, object] = {}  # whose token is being looked for
        self._discarding: set[str] = set()

    def start(self, repository: str, revision: str = "main", gguf: str = "") -> str:
        """Begin a download, or go on with one that was left unfinished; return its id.

        Raises:
            HubError: If that is no hub id, or no revision.
            InvalidSettingError: If `HF_ENDPOINT` is no address.
        """
        find_endpoint()
        download = self.add(repository, revision, gguf).id
        self.resume(download)
        return download

    def add(
        self, repository: str, revision: str = "main", gguf: str = "", files: tuple[FileProgress, ...] = ()
    ) -> DownloadProgress:
        """Take a download in as a paused one; nothing is begun.

        Args:
            repository: The hub id.
            revision: A branch, tag or commit.
            gguf: The GGUF file to take, where there are several.
            files: What is known to be here.

        Raises:
            HubError: If that is no hub id, or no revision.
        """
        check_names(repository, revision)
        request = DownloadRequest(secrets.token_hex(8), repository, revision, gguf)
        paused = DownloadProgress(request.id, repository, revision, DownloadState.PAUSED, files=files, gguf=gguf)
        with self._guard:
            self._requests[request.id], self._last[request.id] = request, paused
        return paused

    def resume(self, download: str) -> None:
        """Begin a download, or go on with one that has ended, from the byte where it was."""
        with self._guard:
            before = self._last[download]
            if not before.state.has_ended:
                return
            self._last[download] = before.resumed()
            self._preparing[download] = mark = object()
        threading.Thread(target=self._go_on, args=(download, mark), name="download", daemon=True).start()

    def pause(self, download: str) -> None:
        """Stop a download; its bytes stay. `PAUSED` follows."""
        with self._guard:
            if self._preparing.pop(download, None) is None:
                if not self._last[download].state.has_ended:
                    self._send({"do": "pause", **asdict(self._requests[download])})
                return
            paused = self._last[download] = replace(self._last[download], state=DownloadState.PAUSED)
        self._tell(paused)

    def discard(self, download: str) -> None:
        """Stop a download and remove all that it left; `REMOVED` follows."""
        with self._guard:
            self._preparing.pop(download, None)
            self._discarding.add(download)
        threading.Thread(target=self._order, args=("discard", download), name="discard", daemon=True).start()

    def set_at_once(self, number: int) -> None:
        """Let so many downloads go on at once."""
        with self._guard:
            self._limits = replace(self._limits, at_once=number)
            if self._process is not None:
                self._send({"do": "limit", "at_once": number})

    def progress(self) -> tuple[DownloadProgress, ...]:
        """Return where each download stands."""
        with self._guard:
            return tuple(self._last.values())

    def close(self) -> None:
        """Pause all and end the process; nothing is told after this."""
        with self._guard:
            self._preparing.clear()
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

    def _go_on(self, download: str, mark: object) -> None:
        """Find the token for a download and have the process go on with it, unless it was paused meanwhile."""
        self._tell(self._last[download])
        try:
            token = self._tokens.find(find_endpoint())
        except RdchatError as error:
            self._fail(download, error.message, error.hint)
            return
        secret = {"token": token.reveal()} if token else {}
        self._order("start", download, mark, secret)

    def _order(self, verb: str, download: str, mark: object = None, secret: dict[str, str] | None = None) -> None:
        """Send the command to do something about a download; one that waits for it goes by its mark."""
        try:
            with self._guard:
                if self._preparing.get(download) is mark:
                    self._preparing.pop(download, None)
                    self._send({"do": verb, **asdict(self._requests[download]), **(secret or {})})
        except OSError as error:
            _LOG.exception("The downloading process could not be begun")
            self._fail(download, f"The downloading process cannot be begun: {error.strerror}.", "Try again later.")

    def _fail(self, download: str, problem: str, hint: str) -> None:
        with self._guard:
            self._preparing.pop(download, None)
            self._discarding.discard(download)
            failed = self._last[download] = replace(
                self._last[download],
                state=DownloadState.FAILED,
                bytes_per_second=None,
                notes=(),
                problem=problem,
                hint=hint,
            )
        self._tell(failed)

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
        with suppress(OSError):
            process.stdin.write(json.dumps(asdict(self._limits)).encode() + b"\n")
        self._process = process
        self._reader = threading.Thread(target=self._read, args=(process,), name="downloads", daemon=True)
        self._reader.start()
        threading.Thread(target=log_lines, args=(_LOG, process.stderr), name="downloads' log", daemon=True).start()

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
            if progress.state.has_ended:
                self._discarding.discard(progress.id)
            self._last[progress.id] = progress
        self._tell(progress)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Tell of the downloads that went on, or were being removed, in a process that ended unasked."""
        with self._guard:
            if self._process is not process:
                return
            self._process = None
            ended = [
                progress.id
                for progress in self._last.values()
                if progress.id in self._discarding or not (progress.state.has_ended or progress.id in self._preparing)
            ]
        words = f"The downloading process ended unexpectedly (status {process.returncode})."
        for download in ended:
            self._fail(download, words, "Resume the download: it goes on from where it was.")
