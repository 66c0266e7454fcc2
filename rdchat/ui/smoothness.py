"""How smoothly a window draws a reply that streams in: a part of `rdchat report`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtWidgets import QApplication

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.inference.api.requests import Role
from rdchat.ui.look.theme import Theme
from rdchat.ui.transcript.view import TranscriptView

_SECONDS, _TOKENS_A_SECOND, _BATCHES_A_SECOND, _BEAT_MS = 10, 150, 30, 10
_PARAGRAPH = (
    "A **paragraph** with `code`, a [link](https://example.org) and some more words, so that lines break.\n\n"
    "```python\ndef area(radius: float) -> float:\n    return 3.14159 * radius**2\n```\n\n"
    "- one item\n- another\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
)


@contextmanager
def streaming_view(app: QApplication) -> Iterator[TranscriptView]:
    """Show a transcript with an empty reply, message 2, to which text may be added; close it at the end."""
    view = TranscriptView(Theme(app))
    view.resize(900, 700)
    reply = Message(2, 1, 1, Role.ASSISTANT, "", MessageStatus.STREAMING, 0.0)
    view.set_messages([Message(1, 1, None, Role.USER, "Hello", MessageStatus.COMPLETE, 0.0), reply])
    view.show()
    try:
        yield view
    finally:
        view.close()
        view.deleteLater()
        app.processEvents()


def measure_smoothness(app: QApplication) -> dict[str, Any]:
    """Show a transcript for ten seconds while 150 tokens a second come in.

    Returns:
        How late a timer of the main thread was, in milliseconds: the median, the 99th percentile and the longest.
    """
    late_ms: list[float] = []
    step = _TOKENS_A_SECOND * 4 // _BATCHES_A_SECOND  # characters: some four a token
    written, last = 0, time.perf_counter()

    def write() -> None:
        nonlocal written
        text = _PARAGRAPH * 2
        start = written % len(_PARAGRAPH)
        view.append_text(2, text[start : start + step])
        written += step

    def beat() -> None:
        nonlocal last
        now = time.perf_counter()
        late_ms.append(max(0.0, (now - last) * 1000 - _BEAT_MS))
        last = now

    with streaming_view(app) as view:
        loop = QEventLoop()
        writer, heart = QTimer(interval=1000 // _BATCHES_A_SECOND), QTimer(interval=_BEAT_MS)
        writer.timeout.connect(write)
        heart.timeout.connect(beat)
        QTimer.singleShot(1000, writer.start)
        QTimer.singleShot(1000, heart.start)
        QTimer.singleShot(1000 * (1 + _SECONDS), loop.quit)
        loop.exec()
        writer.stop()
        heart.stop()
    late_ms = sorted(late_ms[1:])
    return {
        "beats": len(late_ms),
        "late_ms_median": late_ms[len(late_ms) // 2],
        "late_ms_p99": late_ms[int(len(late_ms) * 0.99)],
        "late_ms_longest": late_ms[-1],
        "characters": written,
    }
