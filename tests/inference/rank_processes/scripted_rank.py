"""A rank without MLX, for tests of its process: `python -m tests.inference.rank_processes.scripted_rank --child rank`.

Its ring passes a byte to each rank and back for every token, so a rank that hangs blocks rank 0, as MLX's does.
"""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from rdchat.errors import DeviceError, ModelError, PromptTooLongError, RanksError
from rdchat.inference.api import (
    BenchProgress,
    DraftOptions,
    FinishReason,
    LikelyToken,
    LoadProgress,
    Mode,
    ModelInfo,
    PrefillProgress,
    PrefixCacheFacts,
    ReplyEnd,
    Statistics,
    StoppedError,
    TokenEvent,
)
from rdchat.inference.rank_processes import rank_child

MODEL = ModelInfo("scripted", Path("/scripted"), "llama", "float32", "CPU", 100, 10, 10, 40, 1.0)
TOKEN_S = 0.01
# What rank 0 sends besides tokens.
REST = b"r"
END = b"e"


def note(what: str) -> None:
    """Write what this rank does into the file that a test named."""
    if place := os.environ.get("SCRIPTED_LOG"):
        with Path(place).open("a") as log:
            log.write(f"{os.environ.get('SCRIPTED_HOST', 'here')} {what}\n")


@contextmanager
def keep_awake() -> Iterator[None]:
    note("stays awake")
    yield
    note("may sleep")


def join(rank: int, addresses: Sequence[str], _key: str) -> list[socket.socket]:
    """Return connections from rank 0 to the others; for another rank, that from rank 0."""
    places = [address.split(":") for address in addresses]
    ends = [(ip, int(port)) for ip, port in places]
    if rank:
        return [socket.create_server(ends[rank]).accept()[0]]
    return [_connection(end) for end in ends[1:]]


def _connection(end: tuple[str, int]) -> socket.socket:
    while True:
        try:
            return socket.create_connection(end)
        except ConnectionRefusedError:
            time.sleep(0.01)


def follow(ring: list[socket.socket], _model: str | None, rest: Callable[[], object]) -> None:
    while data := ring[0].recv(1):
        if data == END:
            time.sleep(10 * TOKEN_S)  # to unload takes a while
            note("is unloaded")
            return
        if data == REST:
            note("rests")
            rest()
            note("goes on")
        else:
            ring[0].sendall(data)
    raise DeviceError("The ring is broken.")


def split_of(model: str | None, ranks: int) -> None:
    if model == "odd/absent":
        raise RanksError(f"It cannot be split over {ranks} Macs.", "Choose another model.")


def resolve_model(model: str | None, _on_progress: Any = None) -> str | None:
    if model and "absent" in model and "SCRIPTED_HOST" in os.environ:
        raise ModelError(f"There is no model {model}.")
    return model


class ScriptedEngine:
    """Writes the words of the last message, over and over, up to `max_tokens`."""

    def __init__(self, ring: list[socket.socket] | None = None) -> None:
        self.ring = ring or []

    def load(self, model: Any, dtype: Any, on_progress: Any, anyway: bool) -> ModelInfo:
        on_progress(LoadProgress("Reading", 0.5))
        return replace(MODEL, name=model or "default", dtype=dtype.value)

    def generate(self, request: Any, stopped: Any) -> "ScriptedReply":
        text = request.messages[-1].content
        if text == "too long":
            raise PromptTooLongError("The chat is too long.", "Make it shorter.")
        while text == "slow template":
            time.sleep(TOKEN_S)
            if stopped():
                raise StoppedError
        return ScriptedReply(request, self.ring)

    def benchmark(self, plan: Any) -> "ScriptedBench":
        return ScriptedBench(plan)

    def count_tokens(self, prompt: Any) -> int:
        return sum(len(message.content.split()) for message in getattr(prompt, "messages", prompt))

    def draft_options(self, settings: Any, drafters: Any) -> DraftOptions:
        return DraftOptions(Path(settings.drafter or "/"), (), ())

    def load_drafters(self, settings: Any, on_progress: Any) -> None:
        on_progress(LoadProgress("Drafter", None))

    def prefix_caches(self, limit_bytes: int | None) -> PrefixCacheFacts:
        return PrefixCacheFacts(1, 2, limit_bytes or 3)

    def idle(self, hidden: bool) -> bool:
        return hidden

    def rest(self) -> None:
        for end in self.ring:
            end.sendall(REST)

    def close(self) -> None:
        for end in self.ring:
            end.sendall(END)

    def wake(self) -> None: ...


class ScriptedReply:
    def __init__(self, request: Any, ring: list[socket.socket]) -> None:
        self._request = request
        self._ring = ring
        self._cancelled = False
        self._pauses = 0
        self.mode = Mode.OFF
        self._texts: list[str] = []
        self._events = self._run()

    def __iter__(self) -> "ScriptedReply":
        return self

    def __next__(self) -> Any:
        return next(self._events)

    def _run(self) -> Iterator[Any]:
        number = self._request.request_id
        words = self._request.messages[-1].content.split()
        yield PrefillProgress(number, 1, 1, 0)
        while len(self._texts) < self._request.sampling.max_tokens and not self._cancelled:
            for end in self._ring:
                end.sendall(b"x")
                if not end.recv(1):
                    raise DeviceError("The ring is broken.")
            time.sleep(TOKEN_S)
            index = len(self._texts)
            self._texts.append(f"{words[index % len(words)]} ")
            likely = (LikelyToken(7, b"\xff", -float("inf")),)
            yield TokenEvent(number, index, index, self._texts[-1], alternatives=likely, data=b"\x80")
        reason = FinishReason.CANCELLED if self._cancelled else FinishReason.LENGTH
        text = "".join(self._texts)
        ids = tuple(range(len(self._texts)))
        yield ReplyEnd(number, text, ids, f"{self._pauses} pauses", reason, self.statistics, self.mode)

    @property
    def statistics(self) -> Statistics:
        return Statistics(generated_tokens=len(self._texts))

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._pauses += 1
        yield

    def update(self, settings: Any) -> None:
        self.mode = settings.mode

    def cancel(self) -> None:
        self._cancelled = True

    def close(self) -> None: ...


class ScriptedBench:
    def __init__(self, plan: Any) -> None:
        self._left = [BenchProgress(done, plan.trials, "Off") for done in range(plan.trials)]

    def __iter__(self) -> "ScriptedBench":
        return self

    def __next__(self) -> BenchProgress:
        if not self._left:
            raise StopIteration
        return self._left.pop(0)

    def cancel(self) -> None:
        self._left = []

    def close(self) -> None: ...


def _stand_in(name: str, **members: Any) -> None:
    module = ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, module)


if __name__ == "__main__":
    _stand_in("rdchat.inference.local_engine", LocalEngine=ScriptedEngine)
    _stand_in("rdchat.inference.sharding.rank_messages", join=join, run=follow)
    memory = SimpleNamespace(total_room=SimpleNamespace(limit_bytes=10**10))
    _stand_in("rdchat.inference.device", machine_memory=lambda: memory)
    _stand_in("rdchat.inference.models.model_files", resolve_model=resolve_model)
    _stand_in("rdchat.inference.sharding.model_split", split_of=split_of)
    rank_child.keep_awake = keep_awake
    if version := os.environ.get("SCRIPTED_VERSION"):
        rank_child.__version__ = version
    sys.exit(rank_child.main())
