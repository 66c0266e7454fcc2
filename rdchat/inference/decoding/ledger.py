"""The time ledger: how a reply spent its time, as a tree of named stages."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns

import mlx.core as mx

from rdchat.inference.api.reply_statistics import PATH_SEPARATOR, AutoChoice, LedgerEntry, Stage
from rdchat.inference.decoding.loop import CallResult, Policy

# Stages that queue draft work on the device.
_DRAFTS = {Stage.BEAM_SEARCH, Stage.FEED, Stage.RANK}


class Ledger:
    """Counts calls and nanoseconds per stage, nested as the stages are.

    MLX is lazy: what one stage builds is computed when a later one waits. So a stage holds the host's time, and its
    waits are stages inside it: `Stage.QUEUE` where work is handed to the device, `Stage.WAIT` where the host waits for
    results, and `Stage.WAIT_WITH_DRAFT` where these include a draft that nobody has waited for yet.

    Attributes:
        exact: Whether `synchronize` waits: the setting `profile`. It may change at any time.
    """

    def __init__(self) -> None:
        self.exact = False
        self._began = perf_counter_ns()
        # Calls and nanoseconds of each path.
        self._totals: dict[str, list[int]] = {}
        # Path of the open stage.
        self._path = ""
        # Whether a draft is queued that nobody has waited for.
        self._draft_queued = False
        # When the reader of the reply got the last event; 0 while the next one is made.
        self._handed_over = 0
        self._waits = 0

    @contextmanager
    def stage(self, stage: Stage) -> Iterator[None]:
        """Time the block as one call of a stage, inside the open stage."""
        outer = self._path
        self._path = f"{outer}{PATH_SEPARATOR}{stage}" if outer else stage
        total = self._totals.setdefault(self._path, [0, 0])
        start = perf_counter_ns()
        try:
            yield
        finally:
            total[0] += 1
            total[1] += perf_counter_ns() - start
            self._path = outer

    def synchronize(self, *arrays: mx.array | None) -> None:
        """Evaluate the open stage's results where `exact` is set, so that their time counts for it."""
        if self.exact:
            self.wait(*arrays)
        elif self._path.rpartition(PATH_SEPARATOR)[2] in _DRAFTS:
            self._draft_queued = True

    def wait(self, *arrays: mx.array | None) -> None:
        """Evaluate arrays within the open stage, and count one wait of the host."""
        with self.waiting():
            mx.eval(*arrays)
        self._waits += 1

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time the block as the open stage's wait for the device."""
        within_draft = Stage.DRAFT in self._path.split(PATH_SEPARATOR)
        with self.stage(Stage.WAIT_WITH_DRAFT if self._draft_queued and not within_draft else Stage.WAIT):
            yield
        self._draft_queued = False

    def queue(self, *arrays: mx.array | None) -> None:
        """Start computing arrays on the device; where its queue is full, this waits for room."""
        with self.stage(Stage.QUEUE):
            mx.async_eval(*arrays)

    def add_waits(self, waits: int) -> None:
        """Count waits that were made outside of this ledger's stages."""
        self._waits += waits

    def take_waits(self) -> int:
        """Return the number of waits since the last call."""
        waits, self._waits = self._waits, 0
        return waits

    def hand_over(self) -> None:
        """Charge the time from now until `take_back` to `HAND_OVER`, while the reader has an event."""
        self._handed_over = perf_counter_ns()

    def take_back(self) -> None:
        if self._handed_over:
            total = self._totals.setdefault(Stage.HAND_OVER, [0, 0])
            total[0] += 1
            total[1] += perf_counter_ns() - self._handed_over
            self._handed_over = 0

    def leave_out(self, nanoseconds: int) -> None:
        """Leave out a pause that ends now, while the reader has an event."""
        self._began += nanoseconds
        if self._handed_over:
            self._handed_over += nanoseconds

    def entries(self, until: int = 0) -> tuple[LedgerEntry, ...]:
        """Return all stages, parents first.

        Args:
            until: A moment of `perf_counter_ns` at which no stage is open. Adds `NOT_MEASURED`, so that the top stages
                add up to the time from the ledger's creation to that moment. 0 adds nothing.
        """
        totals = dict(self._totals)
        if until:
            if 0 < self._handed_over < until:
                calls, nanoseconds = totals.get(Stage.HAND_OVER, (0, 0))
                totals[Stage.HAND_OVER] = [calls + 1, nanoseconds + until - self._handed_over]
            known = sum(nanoseconds for path, (_, nanoseconds) in totals.items() if PATH_SEPARATOR not in path)
            totals[Stage.NOT_MEASURED] = [1, max(until - self._began - known, 0)]
        return tuple(
            LedgerEntry(name, parent, calls, nanoseconds / 1e6)
            for path, (calls, nanoseconds) in totals.items()
            for parent, _, name in [str(path).rpartition(PATH_SEPARATOR)]
        )


class TimedPolicy:
    """Times the decisions of another policy."""

    def __init__(self, policy: Policy, ledger: Ledger) -> None:
        self._policy, self._ledger = policy, ledger

    @property
    def status(self) -> AutoChoice | None:
        return self._policy.status

    def wants_round(self, room: int) -> bool:
        with self._ledger.stage(Stage.PLAN):
            return self._policy.wants_round(room)

    def wants_queue(self, room: int) -> bool:
        with self._ledger.stage(Stage.PLAN):
            return self._policy.wants_queue(room)

    def saw(self, done: CallResult[object]) -> None:
        with self._ledger.stage(Stage.FOLLOW):
            self._policy.saw(done)
