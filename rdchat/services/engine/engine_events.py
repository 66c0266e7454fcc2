"""Events of the engine thread: plain frozen data, beside those of `rdchat.inference.api.events`."""

import time
from dataclasses import dataclass, field
from enum import StrEnum

from rdchat.inference.api.benchmark import BenchEvent
from rdchat.inference.api.events import (
    DraftOptions,
    LoadProgress,
    ModelInfo,
    PrefillProgress,
    PrefixCacheFacts,
    ReplyEnd,
    TokenEvent,
)
from rdchat.inference.api.reply_statistics import Statistics


class EngineState(StrEnum):
    """What the engine is busy with. `loading`: a model, or a draft model; `no_model`: none is loaded, or it failed."""

    LOADING = "loading"
    IDLE = "idle"
    PREFILL = "prefill"
    WRITING = "writing"
    NO_MODEL = "no_model"


@dataclass(frozen=True, slots=True)
class ReplyProgress:
    """The tokens that a reply gained since the last event of its kind.

    Attributes:
        text: The new characters; empty where a token finished no character.
        statistics: The reply's counters, up to a tenth of a second old.
        tokens: The new tokens.
        written_at: When the first of them was written, by `time.monotonic`.
    """

    text: str
    statistics: Statistics
    tokens: tuple[TokenEvent, ...] = ()
    written_at: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that failed.

    Attributes:
        message: What failed, for the person.
        hint: What to do about it; may be empty.
        can_load_anyway: The model seems too large for the memory, and can be loaded all the same.
        refused: The request itself is wrong: another one may succeed.
        too_long: The prompt does not fit into the model's context.
    """

    message: str
    hint: str
    can_load_anyway: bool = False
    refused: bool = False
    too_long: bool = False


@dataclass(frozen=True, slots=True)
class Unloaded:
    """No model is loaded any more; `freed_bytes` of memory were given back."""

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
