"""The app's side of the child process that downloads."""

import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files.plain_data import plain
from rdchat.files.privacy import persons_umask
from rdchat.hub.downloads.download import Download, DownloadLimits, DownloadState
from rdchat.hub.endpoint import Tokens, find_endpoint
from rdchat.work.child_process import ChildEndedError, ChildProcess, Limits
from rdchat.work.job import CancelledError, Job, SerialThread

# After its input is closed, the process has this time to end by itself.
_END_S = 3.0
# The process takes this many requests, as it queues downloads above its limit itself.
_AT_ONCE = 10_000
_NO_LIMITS = Limits(cancel_s=None)
_READ = partial(plain, Download)
OnRecord = Callable[[Download], object]


class DownloadProcess:
    """Downloads models in a child process. Neither its crash nor its interpreter lock affects the app.

    All methods except `close` return at once: slow work, such as a keychain that asks the person, runs on threads.

    Args:
        tokens: The person's tokens.
        limits: Limits of downloads.
        resumes: Whether the app resumes downloads that have not ended when this process ends.
    """

    def __init__(
        self,
        tokens: Tokens,
        limits: DownloadLimits = DownloadLimits(),  # noqa: B008  frozen
        *,
        resumes: bool = False,
    ) -> None:
        self._tokens = tokens
        self._limits = limits
        self._resumes = resumes
        # other programs use the hub's cache too
        self._child = ChildProcess("downloads", at_once=_AT_ONCE, umask=persons_umask())
        self._starts = SerialThread("download")
        self._guard = threading.Lock()
        self._closed = False

    def start_download(self, download: Download, on_record: OnRecord) -> Job[Any]:
        """Start a download, or resume it at the last byte.

        Args:
            download: Its present record.
            on_record: Called on any thread with each new record, up to the last one.

        Returns:
            The job; cancelling it pauses the download.
        """
        records = [download]

        def take(fields: dict[str, Any]) -> None:
            records[:] = [plain(Download, fields)]
            on_record(records[0])

        job: Job[Any] = Job(take, lambda outcome: on_record(_ended(records[0], outcome)))
        job.when_cancelled(lambda: job.set_outcome(CancelledError()))
        self._starts.do(lambda _job: self._start(download, job))
        return job

    def pause(self, download: Download) -> None:
        """Note on disk that a download waits for the person."""
        self._submit("pause", {"record": asdict(download)})

    def discard(self, download: Download, on_record: OnRecord) -> None:
        """Stop a download and remove its files; call `on_record` with the last record."""
        end = lambda outcome: on_record(_ended(download, outcome))  # noqa: E731
        self._submit("discard", {"record": asdict(download)}, read=_READ, on_end=end)

    def set_at_once(self, number: int) -> None:
        """Set how many downloads run at once."""
        self._limits = replace(self._limits, at_once=number)
        if self._child.pid is not None:
            self._submit("limit", {"at_once": number})

    def close(self) -> None:
        """Pause all downloads and end the process, without waiting for a keychain that asks the person."""
        with self._guard:
            self._closed = True
        self._child.close(_END_S)
        self._starts.wait_for_jobs(0.0)

    def _start(self, download: Download, job: Job[Any]) -> None:
        """Find the token and submit a download to the process, unless it was paused meanwhile."""
        try:
            token = self._tokens.access(find_endpoint()).token
        except RdchatError as error:
            job.set_outcome(error)
            return
        arguments = {
            "record": asdict(download),
            "limits": asdict(self._limits),
            "token": token.reveal() if token else None,
            "paused": not self._resumes,
        }
        if not job.ended:
            progress = job.report_progress
            end = job.set_outcome
            request = self._submit("download", arguments, read=_READ, on_progress=progress, on_end=end)
            if request is not None:
                job.when_cancelled(request.cancel)

    def _submit(self, do: str, arguments: dict[str, Any], **callbacks: Callable[[Any], Any]) -> Job[Any] | None:
        with self._guard:
            return None if self._closed else self._child.submit(do, arguments, _NO_LIMITS, **callbacks)


def _ended(download: Download, outcome: Any) -> Download:
    """Return the last record for the outcome of a request."""
    if isinstance(outcome, CancelledError):
        return download.at(DownloadState.PAUSED)
    if isinstance(outcome, Download):
        return outcome
    if isinstance(outcome, ChildEndedError):
        hint = "Resume the download to continue where it stopped."
        outcome = RdchatError(f"The downloading process {outcome.what}.", hint)
    return download.failed(outcome)
