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
    """The tokens that a reply gained since the last event of its kind."""

    text: str  # the new characters; empty where a token finished no character
    statistics: Statistics  # the reply's counters, up to a tenth of a second old
    tokens: tuple[TokenEvent, ...] = ()
    written_at: float = field(default_factory=time.monotonic, compare=False)  # when the first of them was written


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that failed, in words for the person."""

    message: str
    hint: str  # what to do about it; may be empty
    can_load_anyway: bool = False  # the model seems too large for the memory, and can be loaded all the same
    refused: bool = False  # the request itself is wrong: another one may succeed
    too_long: bool = False  # the prompt does not fit into the model's context


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
FINAL = (
    ModelInfo,
    Unloaded,
    ReplyEnd,
    DraftOptions,
    PrefixCacheFacts,
    BenchEnd,
    Failure,
)  # the kinds that end a request
