"""A stand-in for a GPU: MLX whose work takes some milliseconds, and a record of all that happens.

MLX computes at once, on the CPU, and that time is taken out of the clock. On this clock each piece of queued work
starts when it was queued and the work before it is done, and takes the assumed time of a GPU; a read waits until then.
So host time is real, because the real code builds the graphs, and device time is assumed. The clock shows what the host
does while the device is idle. Host time is the processor time of this thread, so other programs do not matter.

If `DeviceTimes.buffer` is set, `async_eval` holds the host up as MLX does on Metal: it returns once at most ten command
buffers are in flight (`eval_impl` in mlx/transforms.cpp).
"""

import io
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass, field
from time import thread_time
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import numpy as np

from rdchat.inference.api import GenerationEvent, ReplyEnd, TokenEvent
from rdchat.inference.drafting import head_drafter
from rdchat.inference.drafting.beam_search import search

MAX_BUFFERS = 10  # command buffers that MLX keeps in flight


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """What work takes a device, in milliseconds."""

    call: float = 10.0  # a call of the target with one row
    row: float = 0.3  # each further row of it
    draft_call: float = 3.0  # a call of the draft model
    beam_step: float = 0.4  # a step of a recurrent draft
    wait: float = 0.2  # from the end of the work until the host knows
    other: float = 0.05  # anything else that is asked for by itself
    # The work in one full command buffer. An 8B model at 4 bits fills some 90 of 50 MB each: a call of 10 ms has 0.11.
    # 0: nothing holds the host up.
    buffer: float = 0.0

    def scaled(self, factor: float) -> "DeviceTimes":
        """Return those of a device that is so many times slower, as for a host that is."""
        return DeviceTimes(*(factor * ms for ms in astuple(self)))


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""

    what: str  # `build` of a graph, `queue`, `held` up by command buffers in flight, or `wait`
    # `target`, `draft model`, `beams` or `other`: of a build, its graph; of a queue, all that the work holds.
    of: tuple[str, ...]
    began: float  # milliseconds on the clock; of a queue, when the device begins with it
    ended: float  # likewise, when it is done


@dataclass(slots=True)
class _Built:
    """Graphs that were built and not queued yet."""

    names: list[str] = field(default_factory=list)
    ms: float = 0.0


class DeviceStandIn:
    """Replaces what the host asks of MLX, within `working`.

    Args:
        target: The target's network.
        draft: The draft model's, where there is one.
        times: What the device takes.

    Attributes:
        events: All that happened, in order.
    """

    def __init__(self, target: Any, draft: Any = None, times: DeviceTimes | None = None) -> None:
        self.events: list[Event] = []
        self._networks = {id(network): name for network, name in ((target, "target"), (draft, "draft model"))}
        self._classes = {type(network) for network in (target, draft) if network is not None}
        self._times = times or DeviceTimes()
        self._built = _Built()
        self._done: dict[int, tuple[mx.array, float]] = {}  # by id: what was queued, and when it is done
        self._free = 0.0  # when the device has done all
        self._in_flight: list[float] = []  # when each command buffer is done, in order
        self._shift = 0.0  # milliseconds waited for the device, less those really spent computing
        self._inside = False  # whether this asks MLX itself

    def now(self) -> float:
        """Return the clock in seconds, as `perf_counter` does."""
        return thread_time() + self._shift / 1000

    @contextmanager
    def working(self, *clocks: str) -> Iterator[None]:
        """Stand in for the device within; `clocks` are the places of `perf_counter` that are to read this clock."""
        real = mx.eval, mx.async_eval, np.array, np.asarray, mx.array.item, mx.array.tolist
        self._eval = mx.eval
        with ExitStack() as stack:
            for place in clocks:
                stack.enter_context(patch(place, self.now))
            for network in self._classes:
                stack.enter_context(patch.object(network, "__call__", self._noted(network.__call__)))
            stack.enter_context(patch.object(head_drafter, "search", self._noted_search(search)))
            stack.enter_context(patch.object(mx, "eval", self._wait_for_all))
            stack.enter_context(patch.object(mx, "async_eval", self._queue_all))
            for name, plain in (("array", real[2]), ("asarray", real[3])):
                stack.enter_context(patch.object(np, name, self._reading(plain)))
            try:
                mx.array.item = self._reading(real[4])  # type: ignore[method-assign]
                mx.array.tolist = self._reading(real[5])  # type: ignore[method-assign]
                yield
            finally:
                mx.array.item = real[4]  # type: ignore[method-assign]
                mx.array.tolist = real[5]

    # Building

    def _noted(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(network: Any, tokens: mx.array, *arguments: Any, **options: Any) -> Any:
            name = self._networks.get(id(network), "other")
            times = self._times
            began = self._ms()
            rows = int(tokens.shape[-1])
            result = plain(network, tokens, *arguments, **options)
            self._note(name, times.draft_call if name != "target" else times.call + times.row * (rows - 1), began)
            return result

        return call

    def _noted_search(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*what: Any, shape: Any, level_size: int) -> Any:
            began = self._ms()
            result = plain(*what, shape=shape, level_size=level_size)
            self._note("beams", self._times.beam_step * (shape.length - 1), began)
            return result

        return noted

    def _note(self, name: str, ms: float, began: float) -> None:
        self._built.names.append(name)
        self._built.ms += ms
        self.events.append(Event("build", (name,), began, self._ms()))

    # Queueing and waiting

    def _queue_all(self, *wanted: Any) -> None:
        self._queue([array for array in _arrays(wanted) if id(array) not in self._done])

    def _wait_for_all(self, *wanted: Any) -> None:
        arrays = list(_arrays(wanted))
        self._queue([array for array in arrays if id(array) not in self._done])
        self._wait(max((self._done[id(array)][1] for array in arrays if id(array) in self._done), default=0.0))

    def _reading(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Return a way to bring an array to the host that waits for it first, and queues it where nobody did."""

        def read(value: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(value, mx.array) and not self._inside:
                self._wait_for_all(value)
            return plain(value, *arguments, **options)

        return read

    def _queue(self, arrays: list[mx.array]) -> None:
        began = thread_time()
        lazy = [array for array in arrays if _is_lazy(array)]
        if lazy:
            self._inside = True
            self._eval(*lazy)
            self._inside = False
        self._shift -= (thread_time() - began) * 1000
        if not lazy:
            return
        built = self._built
        self._built = _Built()
        start = max(self._ms(), self._free)
        self._free = start + (built.ms or self._times.other)
        self._done |= {id(array): (array, self._free) for array in lazy}
        self.events.append(Event("queue", tuple(built.names) or ("other",), start, self._free))
        if self._times.buffer:
            self._hold_up(start)

    def _hold_up(self, start: float) -> None:
        """Wait until few enough command buffers are in flight, after work that begins at `start` was queued."""
        ms = self._free - start
        began = self._ms()
        count = math.ceil(ms / self._times.buffer)
        self._in_flight += [start + ms * (number + 1) / count for number in range(count)]
        self._in_flight = [done for done in self._in_flight if done > began]
        if len(self._in_flight) > MAX_BUFFERS:
            self._shift += self._in_flight[-MAX_BUFFERS - 1] - began
            self.events.append(Event("held", (), began, self._ms()))

    def _wait(self, until: float) -> None:
        began = self._ms()
        if until + self._times.wait > began and until:
            self._shift += max(until + self._times.wait - began, 0.0)
            self.events.append(Event("wait", (), began, self._ms()))
            for key in [key for key, (_, done) in self._done.items() if done <= until]:
                array, _ = self._done[key]
                self._done[key] = array, 0.0  # read again, it costs nothing
        if len(self._done) > 10_000:
            self._done = {key: kept for key, kept in self._done.items() if kept[1] > began}

    def _ms(self) -> float:
        return self.now() * 1000


def _arrays(wanted: Any) -> Iterator[mx.array]:
    if isinstance(wanted, mx.array):
        yield wanted
    elif isinstance(wanted, dict):
        yield from _arrays(list(wanted.values()))
    elif isinstance(wanted, Iterable) and not isinstance(wanted, str):
        for part in wanted:
            yield from _arrays(part)


def _is_lazy(array: mx.array) -> bool:
    """Tell whether an array is still to be computed: MLX's graph of it has a primitive."""
    text = io.StringIO()
    mx.export_to_dot(text, array)
    return "shape=rectangle" in text.getvalue()


def decoding(device: DeviceStandIn, iterator: Iterator[GenerationEvent]) -> tuple[ReplyEnd, list[Event]]:
    """Return the end of a reply, and what happened behind its first token."""
    begun: int | None = None
    with device.working():
        for event in iterator:
            if isinstance(event, TokenEvent) and begun is None:
                begun = len(device.events)
            last = event
    assert isinstance(last, ReplyEnd)
    return last, device.events[begun:]


def waits(events: list[Event]) -> int:
    """Return how often the host waited."""
    return sum(event.what == "wait" for event in events)


def order(events: list[Event]) -> list[str]:
    """Return what was built, queued and waited for: `build beams`, `queue target`, `wait`."""
    return [f"{event.what} {'+'.join(event.of)}".strip() for event in events if event.of != ("other",)]
