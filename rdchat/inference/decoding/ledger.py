"""The time ledger: where a reply's time went, as a tree of named stages."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns

import mlx.core as mx

from rdchat.inference.api.reply_statistics import PATH_SEPARATOR, LedgerEntry


class Ledger:
    """Counts calls and nanoseconds per stage, each under the stages that were open when it began.

    MLX is lazy, so a stage holds host time, building graphs and waiting for others' results, unless stages
    `synchronize` what they made before they end.

    Attributes:
        exact: Whether `synchronize` waits: the setting `profile`. It may change at any time.
    """

    def __init__(self) -> None:
        self.exact = False
        self._totals: dict[str, list[int]] = {}  # path -> [calls, nanoseconds]
        self._path = ""  # of the stage that is open
        self._waits = 0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what happens inside as one call of `name` below the stage that is open."""
        outer = self._path
        self._path = f"{outer}{PATH_SEPARATOR}{name}" if outer else name
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

    def wait(self, *arrays: mx.array | None) -> None:
        """Evaluate arrays within the open stage, and count one wait of the host."""
        mx.eval(*arrays)
        self._waits += 1

    def take_waits(self) -> int:
        """Return the number of waits since the last call."""
        waits, self._waits = self._waits, 0
        return waits

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all stages, parents first."""
        return tuple(
            LedgerEntry(name, parent, calls, nanoseconds / 1e6)
            for path, (calls, nanoseconds) in self._totals.items()
            for parent, _, name in [path.rpartition(PATH_SEPARATOR)]
        )
