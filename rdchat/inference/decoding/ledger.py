"""The time ledger of a reply: how it spent its time, as a tree of named stages (`Stage`), in nanoseconds.

Each step of decoding stands in a block `with ledger.stage(...)`. Waits for the device go through `wait`, `waiting` or
`queue`, so that they are stages of their own. The ledger belongs to the engine thread.
"""

from contextlib import AbstractContextManager, nullcontext
from time import perf_counter_ns

import mlx.core as mx

from rdchat.inference.api import PATH_SEPARATOR, AutoChoice, LedgerEntry, Spent, Stage
from rdchat.inference.decoding.loop import CallResult, Policy, RoundPlan

# Stages whose results the device computes for a draft. With exact times, the wait for one is that stage's own time.
_DRAFT_WORK = {Stage.BEAM_SEARCH, Stage.SELECT_NODES, Stage.FEED, Stage.RANK}
# The stage of a wait, by the stage in which the host waits. Inside others it waits for the target's call and choice.
_WAITS: dict[str, Stage] = {
    **{stage: Stage.DRAFT_WAIT for stage in Stage if stage.spent is Spent.DRAFTING},
    **dict.fromkeys((Stage.FORWARD, Stage.VERIFY), Stage.FORWARD_WAIT),
}


class StageTime:
    """The calls and nanoseconds of a stage inside the stages around it; as a context, times the block as a call.

    Args:
        ledger: Keeps it.
        name: Of the stage; empty for the whole reply.
        outer: The stage around it; None for the whole reply.
    """

    def __init__(self, ledger: "Ledger", name: str, outer: "StageTime | None" = None) -> None:
        self.name = name
        self.path: str = f"{outer.path}{PATH_SEPARATOR}{name}" if outer and outer.path else name
        self.calls = 0
        self.nanoseconds = 0
        self.inner: dict[str, StageTime] = {}
        self.is_draft_work = name in _DRAFT_WORK
        self._ledger = ledger
        self._outer = outer or self
        self._start = 0

    def __enter__(self) -> None:
        self._ledger.open = self
        self._start = perf_counter_ns()

    def __exit__(self, *_error: object) -> None:
        self.nanoseconds += perf_counter_ns() - self._start
        self.calls += 1
        self._ledger.open = self._outer


class Ledger:
    """Counts calls and nanoseconds per stage, nested as the stages are.

    MLX is lazy: what one stage builds is computed when a later one waits. So a stage holds the host's time, and its
    waits are stages inside it that say what the host waits for, such as `Stage.WAIT_WITH_DRAFT` where that includes a
    draft that nobody has waited for yet.

    Attributes:
        exact: Whether `synchronize` waits: the setting `profile`. It may change at any time.
        open: The open stage; set by the stages.
    """

    def __init__(self) -> None:
        self.exact = False
        self._began = perf_counter_ns()
        # All stages, in the order in which they were first opened.
        self._stages: list[StageTime] = []
        self.open = StageTime(self, "")
        self._hand_over = self._add(Stage.HAND_OVER)
        # Whether a draft is queued that nobody has waited for.
        self._draft_queued = False
        # When the reader of the reply got the last event; 0 while the next one is made.
        self._handed_over = 0
        # Waits of the host since `take_waits`.
        self._waits = 0

    def stage(self, name: str) -> StageTime:
        """Return a context that times the block as one call of a stage, inside the open stage."""
        return self.open.inner.get(name) or self._add(name)

    def _add(self, name: str) -> StageTime:
        stage = StageTime(self, name, self.open)
        self.open.inner[name] = stage
        self._stages.append(stage)
        return stage

    def synchronize(self, *arrays: mx.array | None) -> None:
        """Evaluate the open stage's results where `exact` is set, so that their time counts for it."""
        if self.exact:
            self.wait(*arrays)
        elif self.open.is_draft_work:
            self._draft_queued = True

    def wait(self, *arrays: mx.array | None) -> None:
        """Evaluate arrays within the open stage, and count one wait of the host."""
        with self.waiting():
            mx.eval(*arrays)
        self._waits += 1

    def waiting(self) -> AbstractContextManager[None]:
        """Return a context that times the block as a wait for the device.

        The open stage says what is waited for (`_WAITS`). Elsewhere it is the choice of tokens: alone with exact times,
        otherwise with the target's call, and with a draft that is queued. In draft work the wait is no stage by itself.
        """
        usual = Stage.CHOICE_WAIT if self.exact else Stage.WAIT_WITH_DRAFT if self._draft_queued else Stage.WAIT
        self._draft_queued = False
        if self.open.is_draft_work:
            return nullcontext()
        return self.stage(_WAITS.get(self.open.name, usual))

    def queue(self, *arrays: mx.array | None) -> None:
        """Start computing the open stage's results on the device, or wait for them where `exact` is set.

        Where the device's queue is full, this waits for room.
        """
        if self.exact:
            self.wait(*arrays)
            return
        with self.stage(_WAITS.get(self.open.name, Stage.QUEUE)):
            mx.async_eval(*arrays)
        self._draft_queued |= self.open.is_draft_work

    def add_waits(self, waits: int) -> None:
        """Count waits that were made outside of this ledger's stages."""
        self._waits += waits

    def take_waits(self) -> int:
        """Return the number of waits since the last call."""
        waits = self._waits
        self._waits = 0
        return waits

    def hand_over(self) -> None:
        """Charge the time from now until `take_back` to `HAND_OVER`, while the reader has an event."""
        self._handed_over = perf_counter_ns()

    def take_back(self) -> None:
        """End what `hand_over` began; does nothing before the first event."""
        if self._handed_over:
            self._hand_over.calls += 1
            self._hand_over.nanoseconds += perf_counter_ns() - self._handed_over
            self._handed_over = 0

    def leave_out(self, nanoseconds: int) -> None:
        """Leave out a pause that ends now, while the reader has an event."""
        self._began += nanoseconds
        if self._handed_over:
            self._handed_over += nanoseconds

    def entries(self, until: int) -> tuple[LedgerEntry, ...]:
        """Return all stages, parents first.

        `NOT_MEASURED` is the rest, so that the top stages add up to the time from the ledger's creation until then.

        Args:
            until: A moment of `perf_counter_ns` at which no stage is open.
        """
        totals = {stage.path: (stage.calls, stage.nanoseconds) for stage in self._stages}
        # The reader still has the last event.
        if 0 < self._handed_over < until:
            calls, nanoseconds = totals[Stage.HAND_OVER]
            totals[Stage.HAND_OVER] = (calls + 1, nanoseconds + until - self._handed_over)
        known = sum(nanoseconds for path, (_, nanoseconds) in totals.items() if PATH_SEPARATOR not in path)
        totals[Stage.NOT_MEASURED] = (1, max(until - self._began - known, 0))
        return tuple(
            LedgerEntry(name, parent, calls, nanoseconds / 1e6)
            for path, (calls, nanoseconds) in totals.items()
            for parent, _, name in [str(path).rpartition(PATH_SEPARATOR)]
            if calls
        )


class TimedPolicy:
    """Times the decisions of another policy."""

    def __init__(self, policy: Policy, ledger: Ledger) -> None:
        self._policy = policy
        self._ledger = ledger

    @property
    def status(self) -> AutoChoice | None:
        return self._policy.status

    def plan_round(self, room: int) -> RoundPlan | None:
        with self._ledger.stage(Stage.PLAN):
            return self._policy.plan_round(room)

    def wants_queue(self, room: int) -> bool:
        with self._ledger.stage(Stage.PLAN):
            return self._policy.wants_queue(room)

    def saw(self, done: CallResult[object]) -> None:
        with self._ledger.stage(Stage.FOLLOW):
            self._policy.saw(done)
