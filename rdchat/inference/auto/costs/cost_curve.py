"""Curves through measured times. Nothing is assumed of their shape.

On a CPU 16 rows may be cheaper than 5; on Apple's GPUs a call is flat up to a limit that depends on the chip, and leaps
behind it.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rdchat.inference.auto.plan import MOST_ROWS

Floats = npt.NDArray[np.float64]
Costs = Mapping[tuple[int, int], float]  # milliseconds, by two numbers: what they are, `Part` says

NEAR, FAR = 128, 1024  # tokens in the cache, where drafts are measured; calls are measured further on too
PLAIN_STEP = 0  # in place of a number of rows: a step of plain decoding, the next one queued meanwhile
ROWS = np.arange(MOST_ROWS + 1)


class Call(NamedTuple):
    """What a target call costs by: its rows, or `PLAIN_STEP`, and the tokens in the cache."""

    rows: int
    depth: int


class CallCurve:
    """What the target's calls cost: measured at some depths, on straight lines between them and beyond.

    MLX's attention takes another kernel from 1,024 keys on Apple's Max and Ultra chips, and from 4,096 on the others
    where queries share keys. So what lies beyond is told by the two greatest depths, not by all.

    Args:
        costs: By `Call`. At all depths but the least fewer rows will do.
    """

    def __init__(self, costs: Costs) -> None:
        calls = {Call(*key): ms for key, ms in sorted(costs.items())}
        self._plain = {call.depth: ms for call, ms in calls.items() if call.rows == PLAIN_STEP}
        rounds = {
            depth: {call.rows: ms for call, ms in calls.items() if call.depth == depth and call.rows != PLAIN_STEP}
            for depth in sorted({call.depth for call in calls})
        }
        self._near = min(rounds)
        self._base: Floats = np.full(len(ROWS), np.inf)  # at the least depth, of a model that verifies nothing
        self._grown: dict[int, Floats] = {self._near: np.zeros(len(ROWS))}  # by depth, what is added
        if first := rounds.pop(self._near):
            self._base = np.interp(ROWS, list(first), list(first.values()))
            for depth, at_depth in rounds.items():
                if at_depth:
                    before = self._grown[max(self._grown)]
                    more = [max(ms - self._base[rows] - before[rows], 0.0) for rows, ms in at_depth.items()]
                    self._grown[depth] = before + np.interp(ROWS, list(at_depth), more)

    def plain_ms(self, depth: int) -> float:
        """Return what a plain step costs."""
        return line(max(depth, self._near), self._plain, least_slope=0.0)

    def calls_ms(self, depth: int) -> Floats:
        """Return what a call costs by rows, (`MOST_ROWS` + 1,); entry 0 means nothing."""
        depths = list(self._grown)
        if depth <= self._near or len(depths) == 1:
            return self._base.copy()
        above = next((i for i, measured in enumerate(depths) if measured >= depth), len(depths) - 1)
        low, high = depths[above - 1], depths[above]
        share = (depth - low) / (high - low)
        costs: Floats = self._base + self._grown[low] + share * (self._grown[high] - self._grown[low])
        return costs


def line(x: float, points: Mapping[int, float], least_slope: float = -np.inf) -> float:
    """Return the value at x between measured points; beyond them, on the line through the two that are nearest."""
    known = sorted(points.items())
    if known[0][0] <= x <= known[-1][0]:
        return float(np.interp(x, [p for p, _ in known], [y for _, y in known]))
    if len(known) == 1:
        return known[0][1]
    beyond = x > known[-1][0]
    (x0, y0), (x1, y1) = known[-2:] if beyond else known[:2]
    slope = max((y1 - y0) / (x1 - x0), least_slope)
    return max(y1 + slope * (x - x1) if beyond else y0 + slope * (x - x0), 0.0)
