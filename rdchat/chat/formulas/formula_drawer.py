"""Draws formulas in a child process with limits of time and memory."""

from collections.abc import Callable
from typing import Any

from rdchat.chat.formulas.formula import Formula
from rdchat.errors import RdchatError
from rdchat.work.child_limits import ChildEndedError, Limits
from rdchat.work.child_process import ChildProcess

_SECONDS = 2.0  # a page-long matrix takes a tenth of a second
_MEMORY_BYTES = 512 << 20
_IDLE_S = 60.0
_TRIES = 2  # of a formula that the child ended at
_MOST_ENDS = 4  # of the child without one answer between them


class FormulaDrawer:
    """Draws one formula at a time, on the thread that asks; the child is begun with the first one.

    Args:
        seconds: Limit of time a formula.
        memory_bytes: Limit of the memory that the child takes for one.
        idle_s: Time without a formula after which the child is ended.
    """

    def __init__(self, seconds: float = _SECONDS, memory_bytes: int = _MEMORY_BYTES, idle_s: float = _IDLE_S) -> None:
        self._child = ChildProcess("formulas", idle_s=idle_s)
        self._limits = Limits(seconds, memory_bytes)
        self._ends = 0

    @property
    def pid(self) -> int | None:
        """The child's; None where there is none."""
        return self._child.pid

    def draw(self, tex: str, display: bool, waiting: Callable[[], None] = lambda: None) -> Formula | None:
        """Return a formula's picture; None for one that cannot be drawn, or not within the limits.

        Where the child ended by itself, another one tries once more.

        Args:
            tex: The formula.
            display: Whether it stands on its own.
            waiting: Called every 20 ms; what it raises ends the child and goes on to the caller.
        """
        for _ in range(_TRIES):
            if self._ends >= _MOST_ENDS:
                return None
            try:
                asked = {"tex": tex, "display": display}
                formula: Formula | None = self._child.submit("draw", asked, self._limits, read=_formula_of).result(
                    waiting
                )
            except ChildEndedError:
                self._ends += 1
                continue
            except RdchatError:
                return None
            self._ends = 0
            return formula
        return None

    def close(self) -> None:
        """End the child. Idempotent; the next formula starts another."""
        self._child.close()
        self._ends = 0


def _formula_of(drawn: Any) -> Formula | None:
    if not drawn:
        return None
    return Formula(str(drawn["svg"]), float(drawn["width"]), float(drawn["ascent"]), float(drawn["depth"]))
