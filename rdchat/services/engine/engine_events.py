"""What the engine thread tells the rest of the app: plain frozen data, each event with the id of its request."""

import time
from dataclasses import dataclass, field
from enum import StrEnum

from rdchat.inference.api.bench_results import BenchEvent
from rdchat.inference.api.events import DraftOptions, LoadProgress, ModelInfo, PrefillProgress, ReplyEnd, TokenEvent
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import Dtype


class EngineState(StrEnum):
    """What the engine is busy with. `no_model`: nothing is loaded, because loading failed."""

    LOADING = "loading"
    IDLE = "idle"
    PREFILL = "prefill"
    WRITING = "writing"
    NO_MODEL = "no_model"


@dataclass(frozen=True, slots=True)
class ReplyProgress:
    """Characters that a reply gained since the last event of its kind, and its counters so far.

    Attributes:
        request_id: The request's.
        text: The new characters; empty where a token finished no character.
        statistics: Counters, up to a tenth of a second old.
        tokens: The tokens it gained.
        written_at: When the first of them was written, on `time.monotonic`'s clock.
    """

    request_id: int
    text: str
    statistics: Statistics
    tokens: tuple[TokenEvent, ...] = ()
    written_at: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that could not be carried out, in words for the person.

    Attributes:
        request_id: The reply's; None where it was a model that did not load.
        message: What happened.
        hint: What to do about it.
        can_load_anyway: It is a model that seems too large for the memory, and can be loaded all the same.
    """

    request_id: int | None
    message: str
    hint: str
    can_load_anyway: bool = False


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A model to load. A newer `load_id` supersedes an older one, wherever that one stands.

    Attributes:
        load_id: Counts the requests.
        model: A folder or hub id; None is the default model.
        dtype: Precision of its weights.
        anyway: Load it also where it seems too large for the memory.
    """

    load_id: int
    model: str | None
    dtype: Dtype
    anyway: bool = False


@dataclass(frozen=True, slots=True)
class Unloaded:
    """No model is loaded any more; `freed_bytes` of memory were given back."""

    freed_bytes: int


@dataclass(frozen=True, slots=True)
class LoadEvent:
    """Something that happened to one request to load or to unload."""

    load_id: int
    event: LoadProgress | ModelInfo | Unloaded | Failure


@dataclass(frozen=True, slots=True)
class BenchUpdate:
    """Something that a benchmark found out; `request_id` is the benchmark's."""

    request_id: int
    event: BenchEvent


@dataclass(frozen=True, slots=True)
class BenchEnd:
    """The last event of a benchmark that ran; `stopped` where the person ended it."""

    request_id: int
    stopped: bool


EngineEvent = LoadEvent | PrefillProgress | ReplyProgress | ReplyEnd | Failure | DraftOptions | BenchUpdate | BenchEnd
