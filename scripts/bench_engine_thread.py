"""Measures how two threads share Python, of which one runs at a time: the engine's, and the main one with the window.

An engine that builds graphs as long as a real one writes replies through the real client. On the main thread one timer
draws, and another records its own delays. Prints the tokens per second and the 99.9th percentile of the delays for the
switch interval of Python and for that of the app, in turns: the best and the median of the runs, and the median of the
ratios within a turn, the app's to Python's own, with their quartiles.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from statistics import median, quantiles

from PySide6.QtCore import QCoreApplication, QEventLoop, Qt, QTimer
from stand_in_engine import StandInEngine, StandInReply

from rdchat.inference.api.events import FinishReason, GenerationEvent, ReplyEnd, TokenEvent
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import ChatMessage, GenerationRequest, Role
from rdchat.services.engine.engine_client import SWITCH_INTERVAL_S, EngineClient

TOKENS = 60
PYTHON_S = 0.004  # what building the graph of a 30-layer model takes for each token
DEVICE_S = 0.002  # for which it then waits
DRAW_S, DRAW_EVERY_S = 0.004, 1 / 30  # what a window with a growing reply does on the main thread
TICK_S = 0.002
INTERVALS_S = 0.005, SWITCH_INTERVAL_S  # Python's own, and that of the app


class BusyReply(StandInReply):
    """Computes in Python as a real model does, and waits for its device without it."""

    def _make(self, request_id: int) -> Iterator[GenerationEvent]:
        for index in range(TOKENS):
            compute(PYTHON_S)
            self._device.wait(DEVICE_S)
            yield TokenEvent(request_id, index, index, "word ")
        yield ReplyEnd(request_id, "", (), "", FinishReason.EOS, Statistics())


def compute(seconds: float) -> None:
    """Keep Python busy for so much of this thread's own time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def measure(client: EngineClient, request_id: int) -> tuple[float, float]:
    """Write one reply.

    Returns:
        Tokens per second, and the 99.9th percentile of how late a timer of the main thread was, in milliseconds.
    """
    ticks: list[float] = []
    timer = QTimer(interval=round(TICK_S * 1000), timerType=Qt.TimerType.PreciseTimer)
    timer.timeout.connect(lambda: ticks.append(time.perf_counter()))
    drawing = QTimer(interval=round(DRAW_EVERY_S * 1000), timerType=Qt.TimerType.PreciseTimer)
    drawing.timeout.connect(lambda: compute(DRAW_S))
    loop = QEventLoop()
    timer.start()
    drawing.start()
    began = time.perf_counter()
    request = GenerationRequest((ChatMessage(Role.USER, "Hi"),), request_id=request_id)
    client.submit(request, lambda event: loop.quit() if isinstance(event, ReplyEnd) else None)
    loop.exec()
    tokens_per_second = TOKENS / (time.perf_counter() - began)
    timer.stop()
    drawing.stop()
    delays = sorted(after - before - TICK_S for before, after in itertools.pairwise(ticks))
    return tokens_per_second, delays[int(len(delays) * 0.999)] * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    qt = QCoreApplication([])
    client = EngineClient(lambda: StandInEngine(BusyReply), nullcontext)
    turns: list[list[tuple[float, float]]] = []
    for turn in range(args.turns):
        found: dict[float, tuple[float, float]] = {}
        for seconds in sorted(INTERVALS_S, reverse=bool(turn % 2)):
            sys.setswitchinterval(seconds)
            found[seconds] = measure(client, 1 + turn * len(INTERVALS_S) + len(found))
        turns.append([found[seconds] for seconds in INTERVALS_S])
    client.shutdown()
    for number, seconds in enumerate(INTERVALS_S):
        speeds, delays = zip(*(turn[number] for turn in turns), strict=True)
        figures = {
            "tokens_per_second": {"best": max(speeds), "median": median(speeds)},
            "event_loop_delay_p999_ms": {"best": min(delays), "median": median(delays)},
        }
        print(json.dumps({"switch_interval_ms": seconds * 1000, **figures}))
    for place, name in enumerate(("tokens_per_second", "event_loop_delay_p999_ms")):
        print(json.dumps({f"ratio_of_{name}": quantiles([turn[1][place] / turn[0][place] for turn in turns], n=4)}))
    qt.quit()


if __name__ == "__main__":
    main()
