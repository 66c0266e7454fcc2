"""Measures whether the engine thread leaves the main thread its turn: both run Python, and only one can at a time.

An engine that keeps Python as busy as a real model writes 150 tokens a second through the real client, while a timer on
the main thread records its delays. Prints the 99.9th percentile, best of three runs.
"""

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import nullcontext

from PySide6.QtCore import QCoreApplication, QEventLoop, Qt, QTimer
from stand_in_engine import StandInEngine, StandInReply

from rdchat.inference.api.events import FinishReason, GenerationEvent, ReplyEnd, TokenEvent
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import ChatMessage, GenerationRequest, Role
from rdchat.services.engine.engine_client import EngineClient

TOKENS_PER_SECOND, TOKENS = 150, 300
PYTHON_S = 0.004  # what building the graph of a 30-layer model takes for each token
TICK_S = 0.002
RUNS = 3


class BusyReply(StandInReply):
    """Keeps Python busy as a real model does, and waits for its device without it."""

    def _make(self, request_id: int) -> Iterator[GenerationEvent]:
        due = time.perf_counter()
        for index in range(TOKENS):
            busy_until = time.perf_counter() + PYTHON_S
            while time.perf_counter() < busy_until:
                pass
            due += 1 / TOKENS_PER_SECOND
            self._device.wait(max(0.0, due - time.perf_counter()))
            yield TokenEvent(request_id, index, index, "word ")
        yield ReplyEnd(request_id, "", (), "", FinishReason.EOS, Statistics())


def late_ms(client: EngineClient, request_id: int) -> float:
    """Write one reply; return the 99.9th percentile of how late a timer of the main thread was, in milliseconds."""
    ticks: list[float] = []
    timer = QTimer(interval=round(TICK_S * 1000), timerType=Qt.TimerType.PreciseTimer)
    timer.timeout.connect(lambda: ticks.append(time.perf_counter()))
    loop = QEventLoop()
    timer.start()
    request = GenerationRequest((ChatMessage(Role.USER, "Hi"),), request_id=request_id)
    client.submit(request, lambda event: loop.quit() if isinstance(event, ReplyEnd) else None)
    loop.exec()
    timer.stop()
    delays = sorted(after - before - TICK_S for before, after in itertools.pairwise(ticks))
    return delays[int(len(delays) * 0.999)] * 1000


def main() -> None:
    qt = QCoreApplication([])
    client = EngineClient(lambda: StandInEngine(BusyReply), nullcontext)
    runs = [late_ms(client, run) for run in range(1, RUNS + 1)]
    client.shutdown()
    print(json.dumps({"event_loop_delay_p999_ms": {"best": min(runs), "runs": runs}}))
    qt.quit()


if __name__ == "__main__":
    main()
