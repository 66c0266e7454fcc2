"""Commands to the engine, the requests that carry them to its thread, and the events that come back.

All of it is plain data that crosses threads; `EngineClient` and `EngineWorker` are the two ends.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from rdchat.inference.api import (
    BenchEvent,
    BenchPlan,
    DraftOptions,
    DraftSettings,
    Dtype,
    GenerationRequest,
    LoadProgress,
    ModelInfo,
    PrefillProgress,
    PrefixCacheFacts,
    ReplyEnd,
    Statistics,
    StoppedError,
    TokenEvent,
)


class EngineState(StrEnum):
    """What the app does now, by the name that is shown.

    Attributes:
        LOADING: It loads a model, or what the replies are drafted with.
        NO_MODEL: None is loaded, or it failed.
        STARTING: A reply waits for its chat's servers of tools.
        SHORTENING: The open chat is shortened; that has names of its own (`chat_context.Doing`).
        ASKING: The open chat, or a reply, waits for the person's decision.
        ASLEEP: The model was unloaded because nobody used it.
    """

    LOADING = "Getting ready…"
    IDLE = "Ready"
    ASLEEP = "Asleep"
    STARTING = "Starting tools…"
    PREFILL = "Reading the prompt…"
    WRITING = "Writing…"
    MEASURING = "Measuring…"
    RUNNING = "Running a tool…"
    SHORTENING = "Shortening the chat…"
    ASKING = "Waits for you"
    NO_MODEL = "No model loaded"


@dataclass(frozen=True, slots=True)
class ReplyProgress:
    """The tokens that a reply gained since the last event of its kind.

    Attributes:
        statistics: The reply's counters, up to a tenth of a second old.
        tokens: The new tokens.
        written_at: When the first of them was written, by `time.monotonic`.
    """

    statistics: Statistics
    tokens: tuple[TokenEvent, ...] = ()
    written_at: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that failed.

    Attributes:
        message: What failed, for the person.
        hint: What to do about it; may be empty.
        can_load_anyway: The model seems too large for the memory, but the person may load it anyway.
        refused: The request itself is wrong: another one may succeed.
        too_long: The prompt does not fit into the model's context.
    """

    message: str
    hint: str
    can_load_anyway: bool = False
    refused: bool = False
    too_long: bool = False

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


@dataclass(frozen=True, slots=True)
class Unloaded:
    """No model is loaded any more; `freed_bytes` of memory were freed."""

    freed_bytes: int


@dataclass(frozen=True, slots=True)
class BenchEnd:
    """The last event of a benchmark that ran; `stopped` where the person ended it."""

    stopped: bool


EngineEvent = (
    LoadProgress | ModelInfo | Unloaded | PrefillProgress | ReplyProgress | ReplyEnd
    | DraftOptions | PrefixCacheFacts | BenchEvent | BenchEnd | Failure
)  # fmt: skip
FINAL = (ModelInfo, Unloaded, ReplyEnd, DraftOptions, PrefixCacheFacts, BenchEnd, Failure)
"""The kinds of events that end a request."""


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Load a model in place of the present one.

    Attributes:
        model: A folder or hub id; None is the default model.
        dtype: Its precision.
        anyway: Whether to load it even if it seems too large for the memory.
    """

    model: str | None
    dtype: Dtype
    anyway: bool = False


@dataclass(frozen=True, slots=True)
class UnloadModel:
    """Free the model."""


@dataclass(frozen=True, slots=True)
class FindDraftOptions:
    """Find out how the loaded model can be drafted, and which of some drafters fit it.

    Attributes:
        settings: The draft settings.
        drafters: Folders of the drafters to check.
        load: Load the drafter of the mode first.
    """

    settings: DraftSettings
    drafters: tuple[str, ...] = ()
    load: bool = False


@dataclass(frozen=True, slots=True)
class LimitPrefixCaches:
    """Limit the memory of the kept KV caches; see `Engine.prefix_caches`. None only asks for their facts."""

    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class WriteReply:
    """Write a reply to a prompt that is read from the disk first.

    Attributes:
        read: Returns the request; called on the engine thread. It calls its argument between two messages, and passes
            on any exception of it.
        request_id: As in `GenerationRequest`.
    """

    read: Callable[[Callable[[], None]], GenerationRequest]
    request_id: int = 0


Writing = WriteReply | GenerationRequest | BenchPlan
Command = LoadModel | UnloadModel | WriteReply | GenerationRequest | BenchPlan | FindDraftOptions | LimitPrefixCaches


@dataclass(slots=True, eq=False)
class EngineRequest:
    """A submitted command. The main thread may cancel it at any time; the engine thread carries it out.

    Attributes:
        command: What to do.
        on_event: Called on the main thread, or on the engine thread if the request is direct.
        background: Whether it may be cancelled by a reply or a benchmark for the person, as nobody waits for it.
        direct: Whether it is the server's; see `EngineClient.submit_direct`.
        cancelled: Whether it should end early.
        begun: Whether the messages of a reply's prompt were read, and the engine has the reply now.
        reason: Why it was cancelled by something other than its sender; empty if the sender did.
        ended: Whether a direct one has had its last event.
        draft: New settings of a running reply, from its next round on.
    """

    command: Command
    on_event: Callable[[EngineEvent], object]
    background: bool = False
    direct: bool = False
    cancelled: bool = False
    begun: bool = False
    reason: str = ""
    ended: bool = False
    draft: DraftSettings | None = None
    # Ends the reply or benchmark that runs; None until `attach` sets it.
    _end_early: Callable[[], None] | None = None

    def cancel(self, reason: str = "") -> None:
        """End early, within a token. A reply or a benchmark still has its last event; others have no more events.

        A direct request always has its last event: a `Failure` with the reason, where there is one.
        """
        self.reason = self.reason or reason
        # This comes before `_end_early` is read. `attach` does both in the opposite order, so one of the two sees the
        # other.
        self.cancelled = True
        if self._end_early is not None:
            self._end_early()

    @property
    def is_urgent(self) -> bool:
        """Whether a direct reply that runs pauses for this request.

        Not for background work, nor for the load of a model: that is changed only after the reply has ended.
        """
        return not (self.background or isinstance(self.command, LoadModel | UnloadModel))

    def check_cancelled(self) -> None:
        """Raise StoppedError once it is cancelled."""
        if self.cancelled:
            raise StoppedError

    def attach(self, end_early: Callable[[], None]) -> None:
        """Set what ends the running reply or benchmark, and call it if the request was cancelled before.

        It is called on any thread, perhaps twice.
        """
        self._end_early = end_early
        if self.cancelled:
            end_early()


Outbox = deque[tuple[EngineRequest, EngineEvent]]
"""Events on their way to the main thread."""
