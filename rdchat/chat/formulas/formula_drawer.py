"""Draws formulas in a child process with limits of time and memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rdchat.errors import RdchatError
from rdchat.work.child_process import ChildProcess, Limits

UNITS = 20.0
"""Font size of the pictures, in their own pixels; rows are 3 apart."""
INK = "#010203"
"""Stands for the text's colour in a picture."""
# Drawing a matrix as long as a page takes a tenth of a second.
_SECONDS = 2.0
_MEMORY_BYTES = 512 << 20
_IDLE_S = 60.0


@dataclass(frozen=True, slots=True)
class Formula:
    """The picture of a formula.

    Attributes:
        svg: The SVG, which has outlines only, in `INK`.
        width: Width, in the picture's own pixels.
        ascent: Height above the baseline, in the same pixels.
        depth: Height below the baseline, in the same pixels.
    """

    svg: str
    width: float
    ascent: float
    depth: float


class FormulaDrawer:
    """Draws one formula at a time, on the calling thread; the child starts with the first formula.

    Args:
        seconds: Time limit for a formula.
        memory_bytes: Memory limit of the child for a formula.
        idle_s: The child is ended after this time without a formula.
    """

    def __init__(self, seconds: float = _SECONDS, memory_bytes: int = _MEMORY_BYTES, idle_s: float = _IDLE_S) -> None:
        self.child = ChildProcess("formulas", idle_s=idle_s)
        self._limits = Limits(seconds, memory_bytes)

    def draw_formula(self, tex: str, display: bool, waiting: Callable[[], None] = lambda: None) -> Formula | None:
        """Return a formula's picture; None for one that cannot be drawn, or not within the limits.

        Args:
            tex: The formula.
            display: Whether it is on a line of its own.
            waiting: Called every 20 ms; an exception from it ends the child and is raised.
        """
        try:
            job = self.child.submit("draw", {"tex": tex, "display": display}, self._limits, read=_formula_of)
            formula: Formula | None = job.result(waiting)
        except RdchatError:
            return None
        return formula

    def end_child(self) -> None:
        """End the child. Idempotent; the next formula starts another."""
        self.child.close()


def _formula_of(drawn: Any) -> Formula | None:
    return Formula(**drawn) if drawn else None
