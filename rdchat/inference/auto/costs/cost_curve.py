"""Curves through measured times. Nothing is assumed of their shape.

On a CPU 16 rows may be cheaper than 5; on Apple's GPUs a call is flat up to a limit that depends on the chip, and leaps
behind it.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from rdchat.inference.auto.plan import MOST_ROWS

Floats = npt.NDArray[np.float64]
Costs = Mapping[tuple[int, int], float]  # milliseconds, by two numbers

PLAIN_STEP = 0  # in place of a number of rows: a step of plain decoding, the next one queued meanwhile
ROWS = np.arange(MOST_ROWS + 1)


class CallCurve:
    """What the target's calls cost: measured at one depth, or at two with a straight line through both.

    Args:
        costs: By rows, or `PLAIN_STEP`, and depth: tokens in the cache. At the greater depth fewer rows will do.
    """

    def __init__(self, costs: Costs) -> None:
        depths = sorted({depth for _, depth in costs})
        self._near, far = depths[0], depths[-1]
        self._plain = {depth: ms for (rows, depth), ms in costs.items() if rows == PLAIN_STEP}
        first, last = (
            {rows: ms for (rows, d), ms in sorted(costs.items()) if d == depth and rows != PLAIN_STEP}
            for depth in (self._near, far)
        )
        self._base: Floats = np.full(len(ROWS), np.inf)  # of a model that verifies nothing
        self._per_token: Floats = np.zeros(len(ROWS))
        if first and last:
            self._base = np.interp(ROWS, list(first), list(first.values()))
            grown = [max(last[rows] - self._base[rows], 0.0) / max(far - self._near, 1) for rows in last]
            self._per_token = np.interp(ROWS, list(last), grown)

    def plain_ms(self, depth: int) -> float:
        """Return what a plain step costs."""
        return line(max(depth, self._near), self._plain, least_slope=0.0)

    def calls_ms(self, depth: int) -> Floats:
        """Return what a call costs by rows, (`MOST_ROWS` + 1,); entry 0 means nothing."""
        costs: Floats = self._base + self._per_token * max(depth - self._near, 0)
        return costs


def line(x: float, points: Mapping[int, float], least_slope: float = -np.inf) -> float:
    """Return the value at x between measured points; beyond them, on the line through the outer two."""
    known = sorted(points.items())
    (x0, y0), (x1, y1) = known[0], known[-1]
    if x0 <= x <= x1:
        return float(np.interp(x, [p for p, _ in known], [y for _, y in known]))
    slope = max((y1 - y0) / (x1 - x0), least_slope) if x1 > x0 else 0.0
    return max(y1 + slope * (x - x1) if x > x1 else y0 + slope * (x - x0), 0.0)
