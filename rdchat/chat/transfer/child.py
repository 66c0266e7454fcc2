"""The process that imports, exports and backs up for a window: `rdchat --child transfer`.

Parsing a hundred megabytes would hold the window's interpreter, and a hostile file its memory. The process takes one
task as a line of JSON on its standard input, writes its progress and its result as lines on its standard output, and
stops in good order where its input ends: the person has cancelled, or the app is gone.
"""

import json
import logging
import os
import signal
import sys
import threading
import time
from typing import Any

from rdchat.chat.transfer.importing import CancelledError
from rdchat.chat.transfer.reports import Progress
from rdchat.chat.transfer.tasks import run_task
from rdchat.errors import RdchatError

_LOG = logging.getLogger(__name__)
_TELL_S = 0.05


def main() -> None:
    """Do the task that comes in on standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes our input
    output = os.dup(1)
    os.dup2(2, 1)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    source = os.fdopen(os.dup(0), "rb")
    line = source.readline()
    if not line:
        return
    ended = threading.Event()
    threading.Thread(target=_wait_for_end, args=(source.fileno(), ended), daemon=True).start()
    try:
        _write(output, _do(json.loads(line), output, ended))
    except BrokenPipeError:
        os._exit(0)  # the parent has gone
    os._exit(0)  # the thread still reads


def _wait_for_end(descriptor: int, ended: threading.Event) -> None:
    while os.read(descriptor, 1024):  # not by a buffered reader, which blocks the end of the interpreter
        pass
    ended.set()


def _do(task: dict[str, Any], output: int, ended: threading.Event) -> dict[str, Any]:
    told = 0.0

    def tell(progress: Progress) -> None:
        nonlocal told
        if time.monotonic() - told >= _TELL_S:
            told = time.monotonic()
            _write(output, {"progress": {"words": progress.words, "fraction": progress.fraction}})

    def check() -> None:
        if ended.is_set():
            raise CancelledError

    try:
        return {"done": run_task(task, tell, check)}
    except CancelledError:
        return {"cancelled": True}
    except RdchatError as error:
        return {"failed": {"message": error.message, "hint": error.hint}}
    except MemoryError:
        return {"failed": {"message": "There is not enough memory.", "hint": "Close other apps, then try again."}}
    except BrokenPipeError:
        raise
    except Exception:
        _LOG.exception("The task failed")
        return {"failed": {"message": "Something unexpected went wrong.", "hint": "The details are in the log."}}


def _write(output: int, data: dict[str, Any]) -> None:
    line = json.dumps(data).encode() + b"\n"
    while line:
        line = line[os.write(output, line) :]
