"""How fast the engine thread writes while a window draws: a part of `rdchat report`."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtWidgets import QApplication

from rdchat import host
from rdchat.inference.api.events import ModelInfo, ReplyEnd
from rdchat.inference.api.protocol import Engine
from rdchat.inference.api.requests import Dtype, GenerationRequest
from rdchat.services.engine.engine_client import SWITCH_INTERVAL_S, EngineClient
from rdchat.services.engine.engine_events import FINAL, EngineEvent, ReplyProgress
from rdchat.services.engine.engine_request import Command, LoadModel
from rdchat.ui.smoothness import streaming_view

_PYTHONS_INTERVAL_S = 0.005
_TURNS = 3
_LOOK_MS = 50  # between two looks at the time


def measure_window_speed(
    app: QApplication,
    engine_factory: Callable[[], Engine],
    model: str | None,
    request: GenerationRequest,
    out_of_time: Callable[[], bool],
) -> list[dict[str, Any]]:
    """Write replies through the window's engine thread and draw them, with settings for threads in turns.

    Args:
        app: Qt's application.
        engine_factory: Makes an engine; called on the engine thread.
        model: A name or a folder; None is the default model.
        request: The reply.
        out_of_time: Called meanwhile; True ends the measurement.

    Returns:
        For each setting its name and tokens per second; only those for which there was time.
    """
    measurement = _Measurement(app, model, request, out_of_time)
    intervals = {"threads switch after 5 ms": _PYTHONS_INTERVAL_S, "after 1 ms, as in the app": SWITCH_INTERVAL_S}
    found = measurement.in_turns(engine_factory, intervals)
    if host.MACOS:

        def preferred() -> Engine:
            host.prefer_this_thread()
            return engine_factory()

        found += measurement.in_turns(preferred, {"as in the app, the engine's thread preferred": SWITCH_INTERVAL_S})
    return found


@dataclass(frozen=True, slots=True)
class _Measurement:
    """The arguments of `measure_window_speed`."""

    app: QApplication
    model: str | None
    request: GenerationRequest
    out_of_time: Callable[[], bool]

    def in_turns(self, engine_factory: Callable[[], Engine], intervals: dict[str, float]) -> list[dict[str, Any]]:
        """Measure with each switch interval, in seconds by name, in turns; see `measure_window_speed`."""
        speeds: dict[str, list[float]] = {name: [] for name in intervals}
        client, usual = EngineClient(engine_factory, host.keep_awake), sys.getswitchinterval()
        try:
            if not isinstance(self._last_event(client, LoadModel(self.model, Dtype.AUTO)), ModelInfo):
                return []
            self._draw_reply(client)  # warms up
            for turn in range(_TURNS):
                for name in sorted(intervals, reverse=bool(turn % 2)):
                    sys.setswitchinterval(intervals[name])
                    if (speed := self._draw_reply(client)) is not None:
                        speeds[name].append(speed)
        finally:
            sys.setswitchinterval(usual)
            client.shutdown()
        return [{"with": name, "decode_tps": median(known)} for name, known in speeds.items() if known]

    def _draw_reply(self, client: EngineClient) -> float | None:
        """Write a reply into a transcript; return tokens per second of decoding, or None without time for it."""
        with streaming_view(self.app) as view:

            def draw(event: EngineEvent) -> None:
                if isinstance(event, ReplyProgress):
                    view.append_text(2, event.text)

            end = self._last_event(client, self.request, draw)
        return end.statistics.decode_tps if isinstance(end, ReplyEnd) and not self.out_of_time() else None

    def _last_event(
        self, client: EngineClient, command: Command, on_event: Callable[[EngineEvent], object] = lambda _: None
    ) -> EngineEvent | None:
        """Carry out a command; return its last event, or None if the time ran out before."""
        if self.out_of_time():
            return None
        loop, last, clock = QEventLoop(), list[EngineEvent](), QTimer(interval=_LOOK_MS)

        def take(event: EngineEvent) -> None:
            on_event(event)
            if isinstance(event, FINAL):
                last.append(event)
                loop.quit()

        def look() -> None:
            if self.out_of_time():
                request.cancel()
                loop.quit()

        clock.timeout.connect(look)
        clock.start()
        request = client.submit(command, take)
        loop.exec()
        clock.stop()
        return last[0] if last else None
