"""The time ledger: where a reply's host time went, as a tree of named stages."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns

from rdchat.inference.statistics import LedgerEntry


class Ledger:
    """Counts calls and nanoseconds per stage. MLX is lazy, so a stage holds host time: building graphs and waiting."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], list[int]] = {}  # (parent, name) -> [calls, nanoseconds]
        self._open: list[str] = [""]

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what happens inside as one call of `name` below the stage that is open."""
        total = self._totals.setdefault((self._open[-1], name), [0, 0])
        self._open.append(name)
        start = perf_counter_ns()
        try:
            yield
        finally:
            total[0] += 1
            total[1] += perf_counter_ns() - start
            self._open.pop()

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all stages, parents first."""
        return tuple(
            LedgerEntry(name, parent, calls, nanoseconds / 1e6)
            for (parent, name), (calls, nanoseconds) in self._totals.items()
        )
