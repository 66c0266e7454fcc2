"""Measures the cost of the transcript to the main thread while a reply streams in, and how fast long chats open.

A reply of about 2,000 tokens is fed to the real `TranscriptView`, in a real event loop, at 150 tokens a second through
batches at 30 Hz, as the engine client delivers them.
"""

import argparse
import re
import sys
import threading
import time
from dataclasses import dataclass, replace

from PySide6.QtCore import QEvent, QEventLoop, QObject, QTimer
from PySide6.QtWidgets import QApplication

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.inference.api import FinishReason, Role
from rdchat.ui.style import Theme
from rdchat.ui.transcript.view import TranscriptView

TOKENS = 2000
TOKENS_PER_SECOND = 150
BATCHES_PER_SECOND = 30
_PIECES = (
    """## Part {n}: how a hash table works

A **hash table** stores *key-value* pairs so that looking one up takes roughly constant time, written `O(1)`. It turns
the key into a number with a hash function and uses that number to choose a bucket; see [the article](https://example.org).

1. Compute `hash(key)`.
2. Take it modulo the number of buckets, so that it falls inside the array.
3. Look in that bucket:
   - empty: the key is not there
   - one entry: compare the keys
   - several entries: compare one after the other

""",
    '''```python
class Table{n}:
    """A fixed number of buckets."""

    def __init__(self, size: int = 8) -> None:
        self.buckets: list[list[tuple[str, int]]] = [[] for _ in range(size)]

    def get(self, key: str) -> int | None:
        for name, value in self.buckets[hash(key) % len(self.buckets)]:
            if name == key:  # found it
                return value
        return None
```

''',
    """| Operation | Average | Worst case |
|:----------|:-------:|-----------:|
| Insert    | O(1)    | O(n)       |
| Look up   | O(1)    | O(n)       |
| Delete    | O(1)    | O(n)       |

> The trick is to keep the buckets short: when there are more entries than buckets, double the number of buckets and
> move every entry to its new place. Each entry then moves only a few times in all.

""",
)


@dataclass(frozen=True, slots=True)
class Smoothness:
    """What the main thread did while something was measured.

    Attributes:
        busy_share: Share of the time that it worked on events, in processor time.
        longest_handler_ms: The longest of them.
        longest_handler_cpu_ms: Processor time of the longest handler.
        delay_p999_ms: Time that a click would have waited, 99.9th percentile.
        longest_delay_ms: The longest of these times.
    """

    busy_share: float
    longest_handler_ms: float
    longest_handler_cpu_ms: float
    delay_p999_ms: float
    longest_delay_ms: float


class Meter(QApplication):
    """Times every event that reaches the transcript or anything in it: its timers, layout and painting.

    The share of the main thread is processor time; how long a handler takes is time that passed.
    """

    def __init__(self, arguments: list[str]) -> None:
        super().__init__(arguments)
        self._home = threading.get_ident()  # Qt asks it for the events of all threads
        self._depth = 0
        self.busy = 0.0
        self.longest = 0.0
        self.longest_cpu = 0.0

    def notify(self, receiver: QObject, event: QEvent) -> bool:
        if self._depth or threading.get_ident() != self._home or receiver.objectName() == "bench":
            return super().notify(receiver, event)
        self._depth += 1
        mark = Mark()
        try:
            return super().notify(receiver, event)
        finally:
            self._depth -= 1
            self.add(mark)

    def add(self, mark: "Mark") -> None:
        cpu = time.thread_time() - mark.cpu
        self.busy += cpu
        self.longest_cpu = max(self.longest_cpu, cpu)
        self.longest = max(self.longest, time.perf_counter() - mark.wall)

    def reset(self) -> None:
        self.busy = 0.0
        self.longest = 0.0
        self.longest_cpu = 0.0

    def measure(self, loop: QEventLoop) -> Smoothness:
        """Run a loop until something quits it."""
        self.reset()
        meter = DelayMeter()
        began = time.perf_counter()
        loop.exec()
        meter.stop()
        delays = sorted(meter.delays)
        seconds = time.perf_counter() - began
        return Smoothness(
            busy_share=round(self.busy / seconds, 4),
            longest_handler_ms=round(self.longest * 1000, 2),
            longest_handler_cpu_ms=round(self.longest_cpu * 1000, 2),
            delay_p999_ms=round(delays[int(len(delays) * 0.999)], 2),
            longest_delay_ms=round(delays[-1], 2),
        )


class Mark:
    """A moment, in the thread's processor time and in time that passed."""

    def __init__(self) -> None:
        self.cpu = time.thread_time()
        self.wall = time.perf_counter()


class DelayMeter(QObject):
    """A timer due every millisecond: by how much it is late is what a click would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.delays: list[float] = []
        self._last = time.perf_counter()
        self._timer = QTimer(self, interval=1)
        self._timer.setObjectName("bench")
        self._timer.timeout.connect(self._tick)
        self._timer.start()

    def _tick(self) -> None:
        now = time.perf_counter()
        self.delays.append(max(0.0, now - self._last - 0.001) * 1000)
        self._last = now

    def stop(self) -> None:
        self._timer.stop()


def synthetic_reply() -> list[str]:
    """Return about 2,000 token-sized pieces of prose, lists, code, tables and quotes."""
    tokens: list[str] = []
    for number in range(1, 1000):
        piece = _PIECES[number % len(_PIECES)].replace("{n}", str(number))
        tokens += re.findall(r"\s*\S{1,5}|\s+", piece)
        if len(tokens) >= TOKENS:
            break
    return tokens[:TOKENS]


def run_streaming(app: Meter, theme: Theme, tokens: list[str]) -> Smoothness:
    view = TranscriptView(theme)
    view.resize(900, 800)
    view.show()
    prompt = Message(1, 1, None, Role.USER, "How does a hash table work?", MessageStatus.COMPLETE, 0)
    reply = Message(2, 1, 1, Role.ASSISTANT, "", MessageStatus.STREAMING, 0)
    view.set_messages([prompt, reply])
    wait(4.0)  # lexers are imported meanwhile
    loop = QEventLoop()
    feed = QTimer(interval=round(1000 / BATCHES_PER_SECOND))
    feed.setObjectName("bench")
    started = time.perf_counter()
    fed = 0

    def deliver() -> None:
        nonlocal fed
        due = min(len(tokens), round((time.perf_counter() - started) * TOKENS_PER_SECOND))
        mark = Mark()
        view.messages.update_message(replace(reply, text="".join(tokens[:due])))
        view.append_text(reply.id, "".join(tokens[fed:due]))
        fed = due
        if fed == len(tokens):
            feed.stop()
            end = replace(reply, text="".join(tokens), status=MessageStatus.COMPLETE, finish_reason=FinishReason.EOS)
            view.messages.update_message(end)
            view.update_message(end)
            QTimer.singleShot(300, loop.quit)
        app.add(mark)

    feed.timeout.connect(deliver)
    feed.start()
    measured = app.measure(loop)
    view.close()
    view.deleteLater()
    return measured


def run_opening(app: Meter, theme: Theme, count: int) -> dict[str, float]:
    """Time how long `set_messages` takes for a long conversation, and until all that is shown is drawn."""
    answer = "".join(synthetic_reply()[:300])
    messages = [
        Message(n, 1, n - 1 or None, Role.USER if n % 2 else Role.ASSISTANT,
                f"Question {n}?" if n % 2 else answer, MessageStatus.COMPLETE, 0)
        for n in range(1, count + 1)
    ]  # fmt: skip
    view = TranscriptView(theme)
    view.resize(900, 800)
    view.show()
    wait(1.0)
    app.reset()
    opening = Mark()
    view.set_messages(messages)
    opened = time.perf_counter() - opening.wall
    opened_cpu = time.thread_time() - opening.cpu
    wait(1.5)
    longest = app.longest_cpu
    view.close()
    view.deleteLater()
    return {
        "messages": count,
        "set_messages_ms": round(opened * 1000, 1),
        "set_messages_cpu_ms": round(opened_cpu * 1000, 1),
        "longest_handler_after_cpu_ms": round(longest * 1000, 1),
    }


def wait(seconds: float) -> None:
    loop = QEventLoop()
    QTimer.singleShot(round(seconds * 1000), loop.quit)
    loop.exec()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    app = Meter(sys.argv[:1])
    theme = Theme(app)
    runs = [run_streaming(app, theme, synthetic_reply()) for _ in range(options.runs)]
    best = min(runs, key=lambda run: run.delay_p999_ms)
    print(f"drawing takes {best.busy_share:.1%} of the main thread (wanted: under 10 %)")
    print(f"longest handler {best.longest_handler_ms} ms, {best.longest_handler_cpu_ms} of it processor time (50)")
    print(f"event-loop delay, 99.9th percentile: {best.delay_p999_ms} ms, longest {best.longest_delay_ms} ms")
    print(f"opening a long conversation: {run_opening(app, theme, 10_000)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
