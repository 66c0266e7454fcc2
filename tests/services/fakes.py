"""A scripted engine: it says what a table tells it to, one event per permit of its gate."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from rdchat.errors import DoesNotFitError, ModelError
from rdchat.inference.api import (
    BenchEvent,
    BenchPlan,
    ChatMessage,
    DrafterFit,
    DraftOptions,
    DraftSettings,
    Dtype,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    LoadProgress,
    Mode,
    ModelInfo,
    ModeOption,
    PartsReader,
    PrefillProgress,
    PrefixCacheFacts,
    ReplyEnd,
    SamplingDefaults,
    Statistics,
    ThinkingChoice,
    TokenEvent,
    ToolCall,
    remote_model,
)
from rdchat.inference.prompts.template_fitting import CALL_MARKERS
from tests.split_replies import told

MODEL = ModelInfo("tiny", Path("tiny"), "llama", "float32", "CPU", 2048, 49_152, 1000, 4000, 12.0)
_TIMEOUT_S = 120.0  # a busy machine takes long to come to the opening


class Gate:
    """Lets the engine thread through, freely or a counted number of times."""

    def __init__(self, *, open_: bool = True) -> None:
        self._condition = threading.Condition()
        self._open = open_
        self._permits = 0
        self._waiting = 0

    def open(self) -> None:
        with self._condition:
            self._open = True
            self._condition.notify_all()

    def shut(self) -> None:
        with self._condition:
            self._open = False

    def allow(self, permits: int) -> None:
        with self._condition:
            self._permits += permits
            self._condition.notify_all()

    @property
    def is_waiting(self) -> bool:
        """Whether it holds somebody, who has no permit either."""
        with self._condition:
            return self._waiting > 0 and not (self._open or self._permits)

    @property
    def holds(self) -> int:
        """How many it holds."""
        with self._condition:
            return self._waiting

    def notify(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def wait(self, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        with self._condition:
            self._waiting += 1
            ready = lambda: self._open or self._permits > 0 or is_cancelled()  # noqa: E731
            assert self._condition.wait_for(ready, _TIMEOUT_S), "the test never opened the gate"
            self._waiting -= 1
            if not self._open and self._permits > 0:
                self._permits -= 1


@dataclass(frozen=True)
class Reply:
    """What the engine does with one request."""

    tokens: tuple[str, ...] = ("Hello", ",", " you", "!")
    prompt_tokens: int = 8
    refusal: Exception | None = None  # raised by `generate`
    error: Exception | None = None  # raised after the tokens
    finish_reason: FinishReason = FinishReason.EOS
    trailing_text: str = ""
    mode_reason: str | None = None
    control_offsets: tuple[int, ...] = ()
    in_thought: bool = False
    calls: tuple[ToolCall, ...] = ()  # parsed from `tokens`, which end with them
    content: str = ""  # of a reply with calls
    mode: Mode | None = Mode.OFF


@dataclass
class ScriptedEngine:
    """Answers with `replies` in order, the last one again and again."""

    replies: list[Reply] = field(default_factory=lambda: [Reply()])
    load_errors: dict[str | None, Exception] = field(default_factory=dict)
    gate: Gate = field(default_factory=Gate)
    load_gate: Gate = field(default_factory=Gate)
    unload_gate: Gate = field(default_factory=Gate)
    requests: list[GenerationRequest] = field(default_factory=list)
    loads: list[tuple[str | None, Dtype]] = field(default_factory=list)
    loaded_anyway: list[str | None] = field(default_factory=list)
    closings: int = 0
    options: DraftOptions = field(
        default_factory=lambda: DraftOptions(Path(), tuple(ModeOption(m, True) for m in Mode))
    )
    fits: dict[str, DrafterFit] = field(default_factory=dict)
    fits_at_once: int = 1000
    fits_told: int = 0
    options_asked: list[DraftSettings] = field(default_factory=list)
    drafters_loaded: list[DraftSettings] = field(default_factory=list)
    updates: list[DraftSettings] = field(default_factory=list)  # of replies under way
    cache_bytes: int = 10**9
    idle_slices: int = 0
    rests: int = 0
    naps: int = 0
    wakings: int = 0
    plans: list[BenchPlan] = field(default_factory=list)
    bench_events: tuple[BenchEvent, ...] = ()
    threads: set[int] = field(default_factory=set)
    loaded: ModelInfo | None = None
    warning: str = ""
    may_differ: bool = False
    thinking: tuple[ThinkingChoice, ...] = ()
    thinking_default: ThinkingChoice | None = None
    token_markers: frozenset[str] = frozenset()
    context_length: int = MODEL.context_length
    parameters: int = MODEL.parameters
    sampling: SamplingDefaults = MODEL.sampling
    count_error: Exception | None = None
    count_gate: Gate = field(default_factory=Gate)
    counting_threads: set[int] = field(default_factory=set)

    @property
    def chosen(self) -> "ScriptedEngine":
        """It runs every model."""
        return self

    @property
    def last_request(self) -> GenerationRequest:
        return self.requests[-1]

    @property
    def last_contents(self) -> list[str]:
        """The texts of the messages of the last request."""
        return [message.content for message in self.last_request.messages]

    def load(
        self, model: str | None, dtype: Dtype, on_progress: Callable[[LoadProgress], None], anyway: bool = False
    ) -> ModelInfo:
        self._note_thread()
        self.loads.append((model, dtype))
        self.loaded = None
        on_progress(LoadProgress("Reading weights", 0.0))
        self.load_gate.wait()
        on_progress(LoadProgress("Reading weights", 1.0))
        error = self.load_errors.get(model)
        if error and not (anyway and isinstance(error, DoesNotFitError)):
            raise error
        if anyway:
            self.loaded_anyway.append(model)
        self.loaded = replace(
            MODEL,
            name=model or "tiny",
            path=Path(model or "tiny"),
            warning=self.warning,
            may_differ=self.may_differ,
            thinking=self.thinking,
            thinking_default=self.thinking_default,
            token_markers=self.token_markers,
            context_length=self.context_length,
            parameters=self.parameters,
            sampling=self.sampling,
            tool_markers=("<tool_call>", "</tool_call>"),
        )
        if remote := remote_model(model):
            address = f"https://{remote[0]}.local"
            self.loaded = replace(self.loaded, name=remote[1], server=remote[0], device=address, parameters=0)
        return self.loaded

    def unload(self) -> int:
        self._note_thread()
        self.unload_gate.wait()
        freed = self.loaded.weights_bytes if self.loaded else 0
        self.loaded = None
        return freed

    def generate(self, request: GenerationRequest, stopped: Callable[[], bool]) -> "ScriptedReply":
        self._note_thread()
        self.requests.append(request)
        script = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if script.refusal:
            raise script.refusal
        if self.loaded is not None and self.loaded.server:
            script = replace(script, mode=None)
        return ScriptedReply(request, script, self.gate, self.updates)

    def draft_options(self, settings: DraftSettings, drafters: Sequence[str] = ()) -> DraftOptions:
        self._note_thread()
        if self.loaded is None:
            raise ModelError("No model is loaded.")
        self.options_asked.append(settings)
        self.fits_told += self.fits_at_once
        asked = drafters[: self.fits_told]
        fits = tuple(self.fits.get(drafter, DrafterFit(drafter, problem="It is for another.")) for drafter in asked)
        return replace(self.options, model=self.loaded.path, drafters=fits)

    def load_drafters(self, settings: DraftSettings, on_progress: Callable[[LoadProgress], None]) -> None:
        self.drafters_loaded.append(settings)
        if settings.draft_model:
            on_progress(LoadProgress(f"Loading the draft model {settings.draft_model}", 0.5))

    def prefix_caches(self, limit_bytes: int | None = None) -> PrefixCacheFacts:
        self._note_thread()
        self.cache_bytes = self.cache_bytes if limit_bytes is None else limit_bytes
        return PrefixCacheFacts(1, 1000, self.cache_bytes)

    def count_tokens(self, prompt: Sequence[ChatMessage] | GenerationRequest) -> int:
        """Count words, and one token more for each message."""
        self.counting_threads.add(threading.get_ident())
        self.count_gate.wait()
        if self.count_error:
            raise self.count_error
        messages = prompt.messages if isinstance(prompt, GenerationRequest) else prompt
        return sum(len(message.content.split()) + 1 for message in messages)

    def idle(self, *, hidden: bool = False) -> bool:
        self._note_thread()
        self.idle_slices -= not hidden
        return self.idle_slices > 0 and not hidden

    def rest(self) -> None:
        self._note_thread()
        self.rests += 1

    def sleep(self) -> None:
        self._note_thread()
        self.naps += 1

    def wake(self) -> None:
        self._note_thread()
        self.wakings += 1

    def benchmark(self, plan: BenchPlan) -> "ScriptedBench":
        self._note_thread()
        self.plans.append(plan)
        return ScriptedBench(self.bench_events, self.gate)

    def close(self) -> None:
        self._note_thread()
        self.closings += 1

    def _note_thread(self) -> None:
        self.threads.add(threading.get_ident())


class ScriptedBench:
    """A `BenchRunner` that tells what it is told to, one event per permit of the gate."""

    def __init__(self, events: tuple[BenchEvent, ...], gate: Gate) -> None:
        self._events = iter(events)
        self._gate = gate
        self._cancelled = threading.Event()

    def __iter__(self) -> "ScriptedBench":
        return self

    def __next__(self) -> BenchEvent:
        self._gate.wait(self._cancelled.is_set)
        if self._cancelled.is_set():
            raise StopIteration
        return next(self._events)

    def cancel(self) -> None:
        self._cancelled.set()
        self._gate.notify()

    def close(self) -> None:
        self.cancel()


class ScriptedReply:
    """A `TokenIterator` over a `Reply`."""

    def __init__(self, request: GenerationRequest, script: Reply, gate: Gate, updates: list[DraftSettings]) -> None:
        self._updates = updates
        self._cancelled = threading.Event()
        self._gate = gate
        self._script = script
        self._written = 0
        self._events = self._make(request, script)

    def __iter__(self) -> Iterator[GenerationEvent]:
        return self

    def __next__(self) -> GenerationEvent:
        return next(self._events)

    def _make(self, request: GenerationRequest, script: Reply) -> Iterator[GenerationEvent]:
        request_id = request.request_id
        reason = script.finish_reason
        calls = CALL_MARKERS[:1] if request.tools else ()
        reader = PartsReader(script.in_thought, call_marks=calls)
        for processed in range(4, script.prompt_tokens + 1, 4):
            self._gate.wait(self._cancelled.is_set)
            if self._cancelled.is_set():
                break
            yield PrefillProgress(request_id, processed, script.prompt_tokens, 0, script.in_thought)
        for index, token in enumerate(script.tokens):
            if not self._cancelled.is_set():
                self._gate.wait(self._cancelled.is_set)
            if self._cancelled.is_set():
                reason = FinishReason.CANCELLED
                break
            self._written = index + 1
            yield TokenEvent(request_id, index, index, token, pieces=reader.add_text(token))
        if script.error and reason is not FinishReason.CANCELLED:
            raise script.error
        trailing = "" if reason is FinishReason.CANCELLED else script.trailing_text
        text = "".join(script.tokens[: self._written]) + trailing
        yield ReplyEnd(
            request_id,
            text,
            tuple(range(self._written)),
            trailing,
            reason,
            self.statistics,
            script.mode,
            script.mode_reason,
            tool_calls=script.calls if reason is script.finish_reason else (),
            told=told(
                script.content if script.calls else text,
                begun=script.in_thought,
                ended=reason is FinishReason.EOS,
                control=script.control_offsets,
            ),
        )

    def paused(self) -> AbstractContextManager[None]:
        return nullcontext()

    def update(self, settings: DraftSettings) -> None:
        self._updates.append(settings)

    def cancel(self) -> None:
        self._cancelled.set()
        self._gate.notify()

    def close(self) -> None:
        self._events.close()  # type: ignore[attr-defined]

    @property
    def statistics(self) -> Statistics:
        return Statistics(prompt_tokens=self._script.prompt_tokens, generated_tokens=self._written)
