"""The process that downloads: `rdchat --child downloads`.

It takes commands as lines of JSON on its standard input, and writes the progress of each download as lines of JSON on
its standard output. It pauses all and ends where its input ends, so nobody downloads on after the app has gone.
"""

import asyncio
import json
import logging
import os
import signal
import sys
import threading
from contextlib import ExitStack
from typing import Any

from rdchat.host import keep_awake
from rdchat.hub.downloads.download_progress import DownloadLimits, DownloadProgress, DownloadRequest
from rdchat.hub.downloads.download_queue import DownloadQueue
from rdchat.hub.tokens import Token

_AWAKE_LOOK_S = 1.0


def main() -> None:
    """Download as told until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which pauses
    output = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what libraries print goes nowhere
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    for library in ("httpx2", "httpcore2"):  # which name addresses, and some of these are signed
        logging.getLogger(library).setLevel(logging.ERROR)
    try:
        asyncio.run(_serve(output))
    except BrokenPipeError:
        os._exit(0)  # the parent has gone


async def _serve(output: int) -> None:
    def tell(progress: DownloadProgress) -> None:
        _write_all(output, progress.to_json().encode() + b"\n")

    commands = _lines_of_input()
    first = await commands.get()
    if not first:
        return
    queue = DownloadQueue(tell, DownloadLimits(**json.loads(first)))
    awake = asyncio.create_task(_stay_awake(queue))
    try:
        while line := await commands.get():
            _obey(queue, json.loads(line))
    finally:
        awake.cancel()
        await queue.close()
        os._exit(0)  # threads that still wait for the hub, or read a file to check it, hold nothing


def _lines_of_input() -> "asyncio.Queue[bytes]":
    """Return what comes in on standard input, a line each; an empty one is its end.

    Read by a thread, since an event loop cannot wait for each kind of file.
    """
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        with os.fdopen(os.dup(0), "rb") as source:
            for line in source:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, b"")

    threading.Thread(target=read, name="commands", daemon=True).start()
    return lines


def _obey(queue: DownloadQueue, command: dict[str, Any]) -> None:
    verb, token = command.pop("do"), command.pop("token", None)
    if verb == "limit":
        queue.set_at_once(command["at_once"])
        return
    request = DownloadRequest(**command)
    if verb == "start":
        queue.start(request, Token(token) if token else None)
    elif verb == "pause":
        queue.pause(request.id)
    elif verb == "discard":
        queue.discard(request)


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


def _write_all(output: int, data: bytes) -> None:
    while data:
        data = data[os.write(output, data) :]
