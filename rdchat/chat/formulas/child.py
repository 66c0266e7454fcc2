"""The process that draws formulas: `rdchat --child formulas`.

It answers one request after the other on its standard input, and ends at once where that ends, also in the midst of a
formula. `FormulaDrawer` ends it where a formula takes too long or too much memory.
"""

import json
import os
import queue
import signal
import threading
from dataclasses import asdict
from typing import Any, BinaryIO

from rdchat.chat.formulas.drawing import draw_formula
from rdchat.inference.prompts.frames import child_streams, read_frame, write_frame


def main() -> None:
    """Answer requests until standard input ends."""
    source, sink = child_streams()
    draw_formula("x", True)  # reads the font, which is no formula's time
    write_frame(sink, json.dumps({"ready": True}).encode())
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(source, requests), name="requests", daemon=True).start()
    while True:
        write_frame(sink, json.dumps(_answer(requests.get())).encode())


def _read(source: BinaryIO, requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    while (frame := read_frame(source)) is not None:
        requests.put(json.loads(frame))
    os._exit(0)  # nobody is left to draw for


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    signal.setitimer(signal.ITIMER_REAL, request["seconds"])  # ends this process where nobody else does
    try:
        formula = draw_formula(request["tex"], request["display"])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return {"formula": asdict(formula) if formula else None}
