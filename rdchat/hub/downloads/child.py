"""The process that downloads: `rdchat --child downloads`. It pauses all and ends when the app has gone."""

import asyncio
import logging
from contextlib import ExitStack, suppress
from typing import Any

from rdchat.host import keep_awake
from rdchat.hub.downloads.download import Download, DownloadLimits
from rdchat.hub.downloads.download_queue import DownloadQueue
from rdchat.hub.tokens import Token
from rdchat.work.job import Job, StopWork
from rdchat.work.served import serve_together

_AWAKE_LOOK_S = 1.0
_GRACE_S = 2.5  # in which paused downloads give back what they hold


def main() -> None:
    """Download as asked until the app has gone."""
    for library in ("httpx2", "httpcore2"):  # which name addresses, and some of these are signed
        logging.getLogger(library).setLevel(logging.ERROR)
    asyncio.run(_serve())


async def _serve() -> None:
    queue = DownloadQueue()

    async def download(
        job: Job[Any], *, record: dict[str, Any], limits: dict[str, Any], token: str | None
    ) -> dict[str, Any]:
        def tell(now: Download) -> None:
            with suppress(StopWork):  # this task is cancelled in a moment
                job.tell(now.to_dict())

        own = DownloadLimits(**limits)
        queue.set_at_once(own.at_once)
        wanted = Download.from_dict(record)
        return (await queue.download(wanted, Token(token) if token else None, own, tell)).to_dict()

    async def discard(_job: Job[Any], *, record: dict[str, Any]) -> dict[str, Any]:
        return (await queue.discard(Download.from_dict(record))).to_dict()

    async def limit(_job: Job[Any], *, at_once: int) -> None:
        queue.set_at_once(at_once)

    awake = asyncio.create_task(_stay_awake(queue))
    await serve_together({"download": download, "discard": discard, "limit": limit}, grace_s=_GRACE_S, logs=True)
    awake.cancel()


async def _stay_awake(queue: DownloadQueue) -> None:
    """Hold off sleep and App Nap while something is downloaded. Not yet tried on a Mac."""
    with ExitStack() as held:
        holds = False
        while True:
            if queue.is_transferring and not holds:
                held.enter_context(keep_awake())
            elif holds and not queue.is_transferring:
                held.close()
            holds = queue.is_transferring
            await asyncio.sleep(_AWAKE_LOOK_S)
