"""The engine thread must leave the main thread its turn: both run Python, and only one can at a time."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import QCoreApplication, Qt, QTimer
from pytestqt.qtbot import QtBot

from rdchat.inference.protocol import (
    ChatMessage,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    ReplyEnd,
    Role,
    Statistics,
    TokenEvent,
)
from rdchat.services.engine_client import EngineClient
from tests.services.fakes import ScriptedEngine

TOKENS_PER_SECOND, TOKENS = 150, 300
PYTHON_S = 0.004  # what building the graph of a 30-layer model takes for each token
TICK_S = 0.002
RUNS = 3


class BusyEngine(ScriptedEngine):
    """Keeps Python busy as a real model does, and waits for its device without it."""

    def generate(self, request: GenerationRequest) -> "BusyReply":  # type: ignore[override]
        return BusyReply(request.request_id)


class BusyReply:
    def __init__(self, request_id: int) -> None:
        self._device = threading.Event()
        self._events = self._make(request_id)

    def __iter__(self) -> Iterator[GenerationEvent]:
        return self._events

    def __next__(self) -> GenerationEvent:
        return next(self._events)

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

    def cancel(self) -> None: ...

    def close(self) -> None: ...

    @property
    def statistics(self) -> Statistics:
        return Statistics()


def longest_delays(qtbot: QtBot, client: EngineClient, request_id: int) -> float:
    """Write one reply; return the 99.9th percentile of how late a timer of the main thread was, in milliseconds."""
    ticks: list[float] = []
    timer = QTimer(interval=round(TICK_S * 1000), timerType=Qt.TimerType.PreciseTimer)
    timer.timeout.connect(lambda: ticks.append(time.perf_counter()))
    request = GenerationRequest((ChatMessage(Role.USER, "Hi"),), request_id=request_id)
    with qtbot.waitSignal(client.reply_finished, timeout=30_000):
        timer.start()
        client.generate(request)
    timer.stop()
    delays = sorted(after - before - TICK_S for before, after in itertools.pairwise(ticks))
    return delays[int(len(delays) * 0.999)] * 1000


@pytest.mark.slow
def test_the_main_thread_is_never_kept_waiting_while_text_streams(
    qapp: QCoreApplication, qtbot: QtBot, make_client: Callable[..., EngineClient]
) -> None:
    client = make_client(BusyEngine)
    assert min(longest_delays(qtbot, client, run) for run in range(1, RUNS + 1)) < 50
