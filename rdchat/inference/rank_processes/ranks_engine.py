"""The engine in child processes, over one Mac or several: `RanksEngine` here passes each call on to rank 0's engine.

Arguments, results and events of `Engine` go there and back as JSON; the type annotations of its methods say how each is
written and read. No MLX and no Qt.
"""

import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache, partial
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter

from rdchat.errors import RdchatError
from rdchat.inference.api import (
    THIS_MAC,
    BenchEvent,
    BenchPlan,
    BenchRunner,
    ChatMessage,
    DraftOptions,
    DraftSettings,
    Dtype,
    Engine,
    GenerationEvent,
    GenerationRequest,
    Host,
    LoadProgress,
    ModelInfo,
    OnProgress,
    PrefixCacheFacts,
    Statistics,
    StoppedError,
    TokenIterator,
    no_model,
    ranked_model,
)
from rdchat.inference.rank_processes.processes import End, RankProcesses
from rdchat.inference.rank_processes.ring import ring_hosts
from rdchat.work import CancelledError

EVENTS: dict[str, Any] = {"generate": GenerationEvent, "benchmark": BenchEvent}
"""Types of the events, by the method of `Engine` that begins them."""
# Bytes as base64, since those of a token need not be text. Arbitrary types, since a request has fields that are never
# sent; see `_without_objects`.
_CONFIG = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", arbitrary_types_allowed=True)
# Numbers of replies and benchmarks.
_numbers = itertools.count()


def plain(kind: Any, value: Any) -> Any:
    """Return a value as JSON; `kind` is its type, and it may also be None."""
    return _adapter(kind).dump_python(value, mode="json")


def read(kind: Any, data: Any) -> Any:
    """Return the value that `plain` made into JSON; raise ValueError if it has another type."""
    return _adapter(kind).validate_python(data)


@cache
def kinds_of(method: str) -> dict[str, Any]:
    """Return the types of the arguments of a method of `Engine`, and of its result as `return`."""
    return get_type_hints(getattr(Engine, method))


def _sent(method: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of a method of `Engine` as JSON."""
    return {name: plain(kinds_of(method)[name], value) for name, value in arguments.items()}


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    # The configuration applies to the fields of dataclasses only if these are a part of the type.
    return TypeAdapter(kind | None, config=_CONFIG)


class RanksEngine:
    """Implements `api.events.Engine` by one child process for each Mac, which end together.

    After a rank failed, the next call that needs the model starts them again. Earlier replies are not drafted from, and
    no KV cache is kept on disk.

    Args:
        hosts: Returns the Macs that the person added.
    """

    def __init__(self, hosts: Callable[[], Sequence[Host]] = tuple) -> None:
        self._hosts = hosts
        # The arguments of `load` for the chosen model, also while it sleeps or after a rank failed.
        self._chosen: tuple[str | None, Dtype, bool] | None = None
        # Read it once in a method: other threads may set it meanwhile.
        self._ranks: RankProcesses | None = None
        # The limit of the KV caches, for ranks that are started again.
        self._cache_bytes: int | None = None

    def load(self, model: str | None, dtype: Dtype, on_progress: OnProgress, anyway: bool = False) -> ModelInfo:
        self.unload()
        info = self._start(model, dtype, on_progress, anyway)
        self._chosen = model, dtype, anyway
        return info

    def unload(self) -> int:
        self._chosen = None
        self.sleep()
        # All memory of the processes is free now; how much that was is not known.
        return 0

    def generate(self, request: GenerationRequest, stopped: Callable[[], bool] = lambda: False) -> TokenIterator:  # noqa: ARG002  a reply that was stopped is cancelled at once
        return _Stream(self._awake(), "generate", request=_without_objects(request))

    def draft_options(self, settings: DraftSettings, drafters: Sequence[str] = ()) -> DraftOptions:
        options: DraftOptions = self._call("draft_options", settings=settings, drafters=tuple(drafters))
        return options

    def load_drafters(self, settings: DraftSettings, on_progress: OnProgress) -> None:
        self._call("load_drafters", on_progress, settings=settings)

    def prefix_caches(self, limit_bytes: int | None = None) -> PrefixCacheFacts:
        self._cache_bytes = self._cache_bytes if limit_bytes is None else limit_bytes
        if not self._runs:
            return PrefixCacheFacts(0, 0, self._cache_bytes or 0)
        facts: PrefixCacheFacts = self._call("prefix_caches", limit_bytes=limit_bytes)
        return facts

    def count_tokens(self, prompt: Sequence[ChatMessage] | GenerationRequest) -> int:
        sent = _without_objects(prompt) if isinstance(prompt, GenerationRequest) else prompt
        return int(self._call("count_tokens", prompt=sent))

    def idle(self, *, hidden: bool = False) -> bool:
        return self._runs and bool(self._call("idle", hidden=hidden))

    def rest(self) -> None:
        if self._runs:
            self._loaded().rest_ranks()

    def sleep(self) -> None:
        ranks = self._ranks
        self._ranks = None
        if ranks is not None:
            ranks.unload_ranks()

    close = sleep

    def wake(self) -> None:
        if self._chosen is not None:
            self._awake()

    def benchmark(self, plan: BenchPlan) -> BenchRunner:
        return _Stream(self._awake(), "benchmark", plan=plan)

    @property
    def _runs(self) -> bool:
        """Whether there are processes, and none has failed."""
        ranks = self._ranks
        return ranks is not None and ranks.error is None

    def _awake(self) -> RankProcesses:
        """Return the processes, which are started again if they ended."""
        if not self._runs and self._chosen is not None:
            model, dtype, anyway = self._chosen
            self._start(model, dtype, lambda _progress: None, anyway)
        return self._loaded()

    def _loaded(self) -> RankProcesses:
        """Return the processes; raise RdchatError if there are none, or they have failed."""
        ranks = self._ranks
        if ranks is None:
            raise no_model()
        if ranks.error is not None:
            raise ranks.error
        return ranks

    def _start(self, address: str | None, dtype: Dtype, on_progress: OnProgress, anyway: bool) -> ModelInfo:
        """Start the processes and load a model; its address may name the Macs that it runs on.

        First each process says its versions and a free port. Then each gets the model, if it lacks it, and joins the
        ring. At last rank 0 loads the model, and the others with it. Each step may fail; then all processes end.
        """
        self.sleep()
        names, model = ranked_model(address) or ((THIS_MAC,), address)
        ranks = RankProcesses(ring_hosts(names, self._hosts()))
        self._ranks = ranks
        try:
            on_progress(LoadProgress("Starting", None))
            ring = ranks.ring(ranks.hello())
            ranks.fetch(model, partial(read, LoadProgress), on_progress)
            ranks.join(model=model, **ring)
            info: ModelInfo = self._call("load", on_progress, model=model, dtype=dtype, anyway=anyway)
        except BaseException:
            self.sleep()
            raise
        self.prefix_caches(self._cache_bytes)
        return info

    def _call(self, method: str, on_progress: OnProgress = lambda _: None, **arguments: Any) -> Any:
        """Call a method of rank 0's engine."""
        ranks = self._loaded()
        read_result = partial(read, kinds_of(method)["return"])
        answers = ranks.ask_rank(method, _sent(method, arguments), 0, read_result, partial(read, LoadProgress))
        return ranks.result_of(answers, on_progress)


class _Stream:
    """A reply (`TokenIterator`) or a benchmark (`BenchRunner`) of rank 0, which goes on while nobody reads it here.

    Attributes:
        statistics: The counters of a tenth of a second ago.
    """

    def __init__(self, ranks: RankProcesses, method: str, **arguments: Any) -> None:
        self._ranks = ranks
        self._kind = EVENTS[method]
        self._number = next(_numbers)
        self.statistics = Statistics()
        # Whether the last answer, an `End`, was read.
        self._ended = False
        self._answers = ranks.ask_rank(method, {"number": self._number, **_sent(method, arguments)})

    def __iter__(self) -> "_Stream":
        return self

    def __next__(self) -> Any:
        while not self._ended:
            answer = self._answers.get()
            if isinstance(answer, End):
                self._ended = True
                if isinstance(answer.outcome, CancelledError):
                    raise StoppedError
                if isinstance(answer.outcome, RdchatError):
                    raise self._ranks.explained(answer.outcome)
            # A report without an event shows only that a paused reply is alive.
            elif answer:
                self.statistics = read(Statistics, answer.get("statistics")) or self.statistics
                return read(self._kind, answer["event"])
        raise StopIteration

    def update(self, settings: DraftSettings) -> None:
        """Do nothing: rank 0 writes on as it began, and the next reply has the settings."""

    def paused(self) -> AbstractContextManager[None]:
        """Return a context that does nothing: rank 0 pauses a reply by itself for a request that comes meanwhile."""
        return nullcontext()

    def cancel(self) -> None:
        self._ranks.ask_rank("stop", {"number": self._number})

    def close(self) -> None:
        if not self._ended:
            self.cancel()
            while not isinstance(self._answers.get(), End):
                pass
            self._ended = True


def _without_objects(request: GenerationRequest) -> GenerationRequest:
    """Return a request without what only this process has: an index of earlier replies, and folders."""
    return replace(request, earlier=None, keep=None)
