"""What target calls and drafts cost on this machine: measured while idle, kept true by the calls of real replies.

A lookup costs microseconds and is made in every mode, so it is no part of this.
"""

from enum import StrEnum
from math import exp, log

import numpy as np

from rdchat.inference.auto.curve import ROWS, CallCurve, Costs, Floats, line
from rdchat.inference.auto.plan import LENGTHS, WIDTHS, Plan
from rdchat.inference.requests import Mode

_MEASURED = 8  # calls that a measured cost counts for, beside those of real replies
_WEIGHT = 0.06  # of a call among those before it, so that old ones fade
_MOST_WEIGHT = 0.5  # of a call like which there was none for long
_PACE = 0.15  # of a surprise that tells of the machine's pace: heat, and what else it does, slow everything
_SHARED = 0.3  # of a surprise that tells of other rounds, where nothing was measured
_LARGEST_SURPRISE = 0.4  # in log: a single call that was held up says little
_DEAR_STEP = 0.25  # of a plain step: a recurrent draft's step where that was not measured
_DEAR_MODEL = 0.5  # of a plain step: a draft model's, likewise


class Part(StrEnum):
    """What is measured together, and what its costs go by."""

    CALLS = "calls"  # rows, or `PLAIN_STEP`, and tokens in the cache
    BEAMS = "beams"  # width and length of a recurrent draft
    DRAFT_MODEL = "draft model"  # rows that it is fed, and 0


class CostModel:
    """Predicts times in milliseconds, and learns from real ones."""

    def __init__(self) -> None:
        self._curve: CallCurve | None = None
        self._learnt_plain = 0.0  # where nothing was measured
        self._beams: Floats | None = None
        self._draft_model: dict[int, float] = {}
        self._pace = 0.0  # log of real over predicted of all that was measured
        self._corrections: dict[Mode, Floats] = {mode: np.zeros(len(ROWS)) for mode in Mode}  # beyond that, by rows
        self._seen: dict[tuple[Mode, int], tuple[int, int]] = {}  # how many calls, and when the last one was
        self._now = 0  # counts calls

    def use(self, part: Part, costs: Costs) -> None:
        """Take what was measured of a part, in place of what was known of it; empty forgets it."""
        match part:
            case Part.CALLS:
                self._curve = CallCurve(costs) if costs else None
                self._pace, self._now = 0.0, 0
                self._corrections = {mode: np.zeros(len(ROWS)) for mode in Mode}
                self._seen.clear()
            case Part.BEAMS:
                self._beams = _beam_table(costs) if costs else None
            case Part.DRAFT_MODEL:
                self._draft_model = {rows: ms for (rows, _), ms in costs.items()}

    @property
    def measured(self) -> bool:
        """Whether it was measured what calls cost."""
        return self._curve is not None

    @property
    def known(self) -> bool:
        """Whether it is known what a plain step costs."""
        return self._curve is not None or self._learnt_plain > 0

    def plain_ms(self, depth: int) -> float:
        """Return what a plain step costs with `depth` tokens in the cache; 0 where that is not known."""
        return self._plain(depth) * exp(self._pace + float(self._corrections[Mode.OFF][1]))

    def calls_ms(self, mode: Mode, depth: int) -> Floats:
        """Return what a round's call costs by rows, host time included; entry 0 means nothing."""
        correction: Floats = np.exp(self._pace + self._corrections[mode])
        if self._curve is None:  # the dearest curve there is: every row costs a plain step
            return np.maximum(ROWS, 1) * self._learnt_plain * correction
        return self._curve.calls_ms(depth) * correction

    def beams_ms(self) -> Floats:
        """Return what recurrent drafts cost, (widths, lengths)."""
        if self._beams is None:
            return np.outer(np.ones(len(WIDTHS)), np.array(LENGTHS) - 1) * _DEAR_STEP * self._plain(0)
        return self._beams

    def draft_model_ms(self, steps: int, late: int) -> float:
        """Return what a draft model's draft costs.

        Args:
            steps: Tokens it drafts.
            late: Tokens of the conversation that it has not read yet, the root excluded.
        """
        step = _DEAR_MODEL * self._plain(0)
        costs = self._draft_model or {1: step, 2: 1.5 * step}
        return line(1 + late, costs) + (steps - 1) * costs[1]

    def learn_plain(self, depth: int, ms: float) -> None:
        """Take the time of a real plain step."""
        if not self.known:
            self._learnt_plain = ms
        self._learn(Mode.OFF, 1, ms / self.plain_ms(depth))

    def learn(self, plan: Plan, ratio: float) -> None:
        """Take the time of a real round, over the one that was predicted."""
        self._learn(plan.mode, plan.rows, ratio)

    def _learn(self, mode: Mode, rows: int, ratio: float) -> None:
        calls, last = self._seen.get((mode, rows), (_MEASURED if self.measured else 0, self._now))
        surprise = log(ratio)
        if calls >= _MEASURED:
            surprise = min(max(surprise, -_LARGEST_SURPRISE), _LARGEST_SURPRISE)
        self._now += 1
        newest = min(1 - (1 - _WEIGHT) ** (self._now - last), _MOST_WEIGHT)
        moved = surprise * max(newest, 1 / (1 + calls))
        if self.measured:
            self._pace += _PACE * surprise
            moved *= 1 - _PACE
        elif mode is not Mode.OFF:
            for correction in self._corrections.values():
                correction[2:] += _SHARED * moved
            moved *= 1 - _SHARED
        self._corrections[mode][rows] += moved
        self._seen[mode, rows] = calls + 1, self._now

    def _plain(self, depth: int) -> float:
        return self._curve.plain_ms(depth) if self._curve else self._learnt_plain


def _beam_table(costs: Costs) -> Floats:
    """Return (widths, lengths): on the lines through what was measured of each width, and between widths."""
    measured = sorted({width for width, _ in costs})
    points = [{length: ms for (w, length), ms in costs.items() if w == width} for width in measured]
    columns = [[line(length, known) for known in points] for length in LENGTHS]
    return np.array([np.interp(WIDTHS, measured, column) for column in columns]).T
