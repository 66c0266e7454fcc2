"""A scripted engine of the server, on a thread of its own."""

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError
from rdchat.inference.api import (
    DraftSettings,
    FinishReason,
    GenerationRequest,
    LikelyToken,
    ModelCard,
    ModelInfo,
    PartsReader,
    PrefillProgress,
    ReplyEnd,
    ReplyPart,
    RoundStatistics,
    Statistics,
    Thoughts,
    TokenEvent,
    ToolCall,
)
from rdchat.server.interfaces.fields import ApiError
from rdchat.server.served_models import Stop
from tests.services.fakes import Gate
from tests.split_replies import told

KEY = "a-key-for-tests"
MODEL = ModelInfo(
    "tiny/model",
    Path("tiny"),
    "llama",
    "float32",
    "CPU",
    2048,
    100,
    1000,
    4000,
    12.0,
    tool_markers=("<call>", "</call>"),
)
OTHER = ModelCard("other/model", "other", "tests", Path("other"), changed=1_700_000_000.0)


@dataclass(frozen=True)
class Script:
    """What the engine says to one request."""

    tokens: tuple[str, ...] = ("Hello", ",", " you", "!")
    finish: FinishReason = FinishReason.EOS
    stop: str = ""  # the stop string that ended it
    in_thought: bool = False
    calls: tuple[ToolCall, ...] = ()
    content: str | None = None  # None is the whole text
    control: tuple[int, ...] = ()  # indices of the tokens that are control tokens
    refusal: ApiError | None = None  # instead of a reply
    failure: ApiError | None = None  # after the tokens

    @property
    def text(self) -> str:
        return "".join(self.tokens)

    def offsets(self, indices: Sequence[int]) -> tuple[int, ...]:
        """Return where those of some tokens stand that are control tokens."""
        return tuple(len("".join(self.tokens[:index])) for index in indices if index in self.control)


class Running:
    """A reply that may be cancelled."""

    def __init__(self, gate: Gate) -> None:
        self.cancelled = threading.Event()
        self._gate = gate

    def cancel(self) -> None:
        self.cancelled.set()
        self._gate.notify()


@dataclass
class ScriptedGate:
    """An `ServerEngine` that answers with `scripts` in order, the last one again and again."""

    scripts: list[Script] = field(default_factory=lambda: [Script()])
    model: ModelInfo | None = MODEL
    draft: DraftSettings = field(default_factory=DraftSettings)
    cards: tuple[ModelCard, ...] = (OTHER,)
    load_failure: ApiError | None = None
    count_error: RdchatError | None = None
    gate: Gate = field(default_factory=Gate)  # one permit for each token
    requests: list[GenerationRequest] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    cancelled: int = 0

    def __post_init__(self) -> None:
        self._work: queue.Queue[Callable[[], object] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self.gate.open()
        self._work.put(None)
        self._thread.join()

    def installed(self) -> Sequence[ModelCard]:
        return self.cards

    def count_tokens(self, request: GenerationRequest) -> int:
        if self.count_error:
            raise self.count_error
        return sum(len(message.content.split()) for message in request.messages) + len(request.tools)

    def generate(self, request: GenerationRequest, on_event: Callable[[Any], object]) -> Stop:
        running = Running(self.gate)
        self._work.put(lambda: self._reply(request, on_event, running))
        return running.cancel

    def load(self, model: ModelCard, on_end: Callable[[Any], object]) -> Stop:
        self._work.put(lambda: on_end(self._loaded(model)))
        return lambda: None

    def _loaded(self, card: ModelCard) -> ModelInfo | ApiError:
        self.loads.append(card.model)
        self.model = None
        if self.load_failure:
            return self.load_failure
        self.model = replace(MODEL, name=card.name, path=card.path)
        return self.model

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _reply(self, request: GenerationRequest, on_event: Callable[[Any], object], running: Running) -> None:
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        self.requests.append(request)  # by now, so that who sees it may change the scripts
        if script.refusal:
            on_event(script.refusal)
            return
        on_event(PrefillProgress(0, 8, 8, 2, script.in_thought))
        written = 0
        finish = script.finish
        markers = (self.model or MODEL).token_markers
        marks = self.model.tool_markers[:1] if request.tools and self.model and self.model.tool_markers else ()
        reader = PartsReader(
            script.in_thought, shaped=request.shape is not None, plain=request.text is not None,
            markers=markers, call_marks=marks,
        )  # fmt: skip
        for index, text in enumerate(script.tokens):
            self.gate.wait(running.cancelled.is_set)
            if running.cancelled.is_set():
                finish = FinishReason.CANCELLED
                self.cancelled += 1
                break
            places = script.offsets((index,))
            pieces = reader.add_text(text, places)
            on_event(replace(_token(index, text, request.top_log_probs), pieces=pieces))
            written += 1
        if script.failure and finish is not FinishReason.CANCELLED:
            on_event(script.failure)
            return
        text = "".join(script.tokens[:written])
        ids = tuple(range(written)) + ((99,) if finish is FinishReason.EOS else ())
        if finish is FinishReason.EOS:
            on_event(TokenEvent(0, written, 99, "", log_prob=-0.5))
        counters = Statistics(8, 2, len(ids), 1.0, 1.0, 500.0, 2, 4, 3, target_calls=2)
        content = text if script.content is None else script.content
        places = script.offsets(range(written))
        whole = told(content, begun=script.in_thought, ended=finish is FinishReason.EOS, control=places,
                     markers=markers)  # fmt: skip
        whole = Thoughts(content, (ReplyPart(0, len(content)),)) if request.shape or request.text else whole
        on_event(
            ReplyEnd(0, text, ids, "", finish, counters, tool_calls=script.calls,
                     told=whole, stop=script.stop)
        )  # fmt: skip


def _token(index: int, text: str, top: int | None) -> TokenEvent:
    round_ = RoundStatistics(1, 2, 1, 2, 3) if index == 1 else None
    if top is None:
        return TokenEvent(0, index, index, text, round=round_)
    likely = tuple(LikelyToken(n, f"t{n}".encode(), -1.0 - n) for n in range(top))
    return TokenEvent(0, index, index, text, round=round_, log_prob=-0.25, alternatives=likely, data=text.encode())
