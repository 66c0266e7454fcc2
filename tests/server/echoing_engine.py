"""An engine of the server that writes the last message back, on a thread of its own."""

import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from rdchat.inference.api import (
    DraftSettings,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    ModelCard,
    ModelInfo,
    Piece,
    PrefillProgress,
    ReplyEnd,
    Statistics,
    TokenEvent,
)
from rdchat.server.interfaces.fields import ApiError
from rdchat.server.served_models import Stop
from tests.split_replies import told

_Take = Callable[[GenerationEvent | ApiError], object]
MODEL = ModelInfo("tiny/echo", Path("tiny"), "llama", "float32", "CPU", 2048, 100, 1000, 4000, 12.0)


class Running:
    """A reply, which may be cancelled."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def cancel(self) -> None:
        self.cancelled.set()


class EchoingEngine:
    """An `ServerEngine`. A reply has a token for each word of the last message.

    A message that begins with "forever" is written again and again until the reply is cancelled or has its most tokens.

    Attributes:
        begun: Number of replies that began.
        cancelled: Number of them that were cancelled.
        max_at_once: The most replies that were asked for at the same time.
    """

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0
        self.max_at_once = 0
        self._asked = 0
        self._lock = threading.Lock()
        self._work = queue.SimpleQueue[Callable[[], None] | None]()
        self._thread = threading.Thread(target=self._run, name="echoing engine")
        self._thread.start()

    @property
    def model(self) -> ModelInfo:
        return MODEL

    @property
    def draft(self) -> DraftSettings:
        return DraftSettings()

    def installed(self) -> Sequence[ModelCard]:
        return ()

    def count_tokens(self, request: GenerationRequest) -> int:
        """See `ServerEngine`."""
        raise AssertionError(f"nothing asks for {request}")

    def generate(self, request: GenerationRequest, on_event: _Take) -> Stop:
        """See `ServerEngine`."""
        running = Running()
        with self._lock:
            self._asked += 1
            self.max_at_once = max(self.max_at_once, self._asked)
        self._work.put(lambda: self._write(request, on_event, running))
        return running.cancel

    def load(self, model: ModelCard, on_end: Callable[[ModelInfo | ApiError], object]) -> Stop:
        """See `ServerEngine`."""
        raise AssertionError(f"nothing asks for {model.name}")

    def close(self) -> None:
        """End the thread."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _write(self, request: GenerationRequest, on_event: _Take, running: Running) -> None:
        self.begun += 1
        said = request.messages[-1].content if request.text is None else request.text
        words = said.split(" ")
        on_event(PrefillProgress(request.request_id, len(words), len(words), 0))
        most = request.sampling.max_tokens if words[0] == "forever" else min(len(words), request.sampling.max_tokens)
        text = ""
        finish = FinishReason.EOS if most >= len(words) else FinishReason.LENGTH
        ids: list[int] = []
        for index in range(most):
            if running.cancelled.is_set():
                finish = FinishReason.CANCELLED
                self.cancelled += 1
                break
            token = words[index % len(words)] if index == 0 else f" {words[index % len(words)]}"
            text += token
            ids.append(index)
            on_event(TokenEvent(request.request_id, index, index, token, pieces=(Piece(token),)))
        with self._lock:
            self._asked -= 1
        counters = Statistics(prompt_tokens=len(words), generated_tokens=len(ids), decode_ms=1.0)
        on_event(ReplyEnd(request.request_id, text, tuple(ids), "", finish, counters, told=told(text)))
