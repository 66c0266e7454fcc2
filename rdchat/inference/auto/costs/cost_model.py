"""What target calls and drafts cost on this machine: measured while idle, kept true by the calls of real replies.

Until something is measured, plain steps are timed as they come, and all else is guessed from them and set right by the
first rounds that are made. A lookup costs microseconds and is made in every mode, so it is no part of this.
"""

from enum import StrEnum
from math import exp, log

import numpy as np

from rdchat.inference.api.requests import BeamShape, Mode
from rdchat.inference.auto.costs.cost_curve import FAR, NEAR, PLAIN_STEP, ROWS, CallCurve, Costs, Floats, line
from rdchat.inference.auto.costs.wait_costs import Wait, WaitCosts
from rdchat.inference.auto.plan import LENGTHS, MOST_ROWS, WIDTHS, Plan

_MEASURED = 8  # calls that a measured cost counts for, beside those of real replies
_WEIGHT = 0.06  # of a call among those before it, so that old ones fade
_MOST_WEIGHT = 0.5  # of a call like which there was none for long
_PACE = 0.15  # of a surprise that tells of the machine's pace: heat, and what else it does, slow everything
_SHARED = 0.8  # of a surprise that tells of other rounds, where nothing was measured
_LARGEST_SURPRISE = 0.4  # in log: a single call that was held up says little
_LARGEST_GUESS = 1.1  # in log: how far a call may lie from what is only guessed
_DOUBTED = 0.05  # in log: how far plain steps are thought to lie from predictions before any did
_SURE = 2.0  # mean deviations within which nearly all plain steps lie
_PLEASANT = 0.2  # in log: a surprise after which larger calls may be tried

# In plain steps: dearer than most of Apple's GPUs, cheaper than 4-bit weights on a CPU.
_GUESSED_CALLS = np.interp(ROWS, [1, 2, 4, 8, 16, 32], [1.05, 1.3, 1.65, 2.0, 2.2, 3.0])
_GUESSED_BEAMS = 0.1  # a token of a head's draft; 0.04 to 0.06 was measured
_GUESSED_DRAFT_MODEL = 0.5


class Part(StrEnum):
    """What is measured together, in this order, and what its costs go by."""

    CALLS = "calls"  # near the beginning of a text; see `Call`
    BEAMS = "beams"  # width and length of a head's draft, near the beginning of a text
    DRAFT_MODEL = "draft model"  # rows that it is fed, and 0
    WAITS = "waits"  # see `Wait`, and 1 for the work with them, 0 for the same without
    DEEP_CALLS = "deep calls"  # further on in a text; see `Call`
    DEEP_BEAMS = "deep beams"  # likewise, of a head that remembers the text


def usable(part: Part, costs: Costs) -> bool:
    """Tell whether costs hold what predictions begin with, which those of a damaged file may not."""
    match part:
        case Part.CALLS | Part.DEEP_CALLS:
            return bool(costs) and all(
                (PLAIN_STEP, depth) in costs and 0 <= rows <= MOST_ROWS and depth > 0 for rows, depth in costs
            )
        case Part.BEAMS | Part.DEEP_BEAMS:
            return bool(costs)
        case Part.DRAFT_MODEL:
            return (1, 0) in costs
        case Part.WAITS:
            return any((wait, 0) in costs and (wait, 1) in costs for wait in Wait)


class CostModel:
    """Predicts times in milliseconds, and learns from real ones.

    Attributes:
        draft_model_share: What a draft model's step is guessed to cost, in plain steps.
        waits: What waits of the host cost.
    """

    def __init__(self) -> None:
        self.draft_model_share = _GUESSED_DRAFT_MODEL
        self._calls: dict[Part, Costs] = {}  # near and deep ones
        self.waits = WaitCosts()
        self._curve: CallCurve | None = None
        self._met_plain = 0.0  # geometric mean of the plain steps that were met, where nothing was measured
        self._met = 0  # how many those were
        self._most_rows = 2  # of calls that were met then, and hardly dearer than guessed
        self._beams: dict[Part, Floats] = {}  # near and deep ones
        self._draft_model: dict[int, float] = {}
        self._deviation = _DOUBTED  # mean distance in log of plain steps from what was predicted, fading
        self._pace = 0.0  # log of real over predicted of all that was measured
        self._corrections: dict[Mode, Floats] = {mode: np.zeros(len(ROWS)) for mode in Mode}  # beyond that, by rows
        self._seen: dict[tuple[Mode, int], tuple[int, int]] = {}  # how many calls, and when the last one was
        self._now = 0  # counts calls

    def use(self, part: Part, costs: Costs) -> None:
        """Take what was measured of a part, in place of what was known of it; empty forgets it."""
        match part:
            case Part.CALLS | Part.DEEP_CALLS:
                self._calls[part] = costs
                near, deep = self._calls.get(Part.CALLS), self._calls.get(Part.DEEP_CALLS)
                self._curve = CallCurve({**near, **(deep or {})}) if near else None
                self._pace, self._now = 0.0, 0
                self._corrections = {mode: np.zeros(len(ROWS)) for mode in Mode}
                self._seen.clear()
            case Part.BEAMS | Part.DEEP_BEAMS:
                self._beams.pop(part, None)
                if costs:
                    self._beams[part] = _beam_table(costs)
            case Part.DRAFT_MODEL:
                self._draft_model = {rows: ms for (rows, _), ms in costs.items()}
            case Part.WAITS:
                self.waits = WaitCosts.of(costs)

    @property
    def measured(self) -> bool:
        """Whether it was measured what calls cost."""
        return self._curve is not None

    def plain_ms(self, depth: int) -> float:
        """Return what a plain step costs with `depth` tokens in the cache; 0 where that is not known."""
        return self._plain(depth) * exp(self._pace + float(self._corrections[Mode.OFF][1]))

    @property
    def plain_error(self) -> float:
        """How far plain steps may lie from `plain_ms`, as a share of it."""
        return round(exp(_SURE * self._deviation) - 1, 4)

    def calls_ms(self, mode: Mode, depth: int) -> Floats:
        """Return what a round's call costs by rows, host time included; entry 0 means nothing."""
        correction: Floats = np.exp(self._pace + self._corrections[mode])
        if self._curve is not None:
            return self._curve.calls_ms(depth) * correction
        # beyond twice the rows that were met, as dear as can be: a row for a plain step
        guess = np.where(2 * self._most_rows >= ROWS, _GUESSED_CALLS, ROWS)
        return guess * self._met_plain * correction

    def beams_ms(self, depth: int = 0) -> Floats:
        """Return what heads' drafts cost, (widths, lengths), with `depth` tokens before them.

        That matters to heads that attend to the text; the others' cost the same anywhere.
        """
        near, deep = self._beams.get(Part.BEAMS), self._beams.get(Part.DEEP_BEAMS)
        if near is None:
            return np.outer(np.ones(len(WIDTHS)), np.array(LENGTHS) - 1) * _GUESSED_BEAMS * self._plain(0)
        if deep is None:
            return near
        growth: Floats = np.maximum(deep - near, 0.0) * max(depth - NEAR, 0) / (FAR - NEAR)
        return near + growth

    def beam_ms(self, shape: BeamShape, depth: int = 0) -> float:
        """Return what one draft of a head costs, of a width in `WIDTHS`; a length between those costs as the next."""
        return float(self.beams_ms(depth)[WIDTHS.index(shape.width), np.searchsorted(LENGTHS, shape.length)])

    def draft_model_ms(self, steps: int, late: int) -> float:
        """Return what a draft model's draft costs.

        Args:
            steps: Tokens it drafts.
            late: Tokens of the conversation that it has not read yet, the root excluded.
        """
        step = self.draft_model_step_ms
        return line(1 + late, self._draft_model or {1: step, 16: 2.5 * step}) + (steps - 1) * step

    @property
    def draft_model_step_ms(self) -> float:
        """What a draft model takes for one more token."""
        return self._draft_model.get(1, self.draft_model_share * self._plain(0))

    def learn_plain(self, depth: int, ms: float) -> None:
        """Take the time of a real plain step."""
        if predicted := self.plain_ms(depth):
            off = min(abs(log(ms / predicted)), _LARGEST_SURPRISE)
            self._deviation += _WEIGHT * (off - self._deviation)
        if self.measured:
            self._learn(Mode.OFF, 1, ms / predicted)
            return
        self._met += 1
        known = self._met_plain or ms
        self._met_plain = known * (ms / known) ** max(_WEIGHT, 1 / self._met)

    def learn(self, plan: Plan, ratio: float) -> None:
        """Take the time of a real round, over the one that was predicted."""
        self._learn(plan.mode, plan.rows, ratio)

    def _learn(self, mode: Mode, rows: int, ratio: float) -> None:
        calls, last = self._seen.get((mode, rows), (_MEASURED if self.measured else 0, self._now))
        largest = _LARGEST_SURPRISE if calls >= _MEASURED else _LARGEST_GUESS
        surprise = min(max(log(ratio), -largest), largest)
        self._now += 1
        newest = min(1 - (1 - _WEIGHT) ** (self._now - last), _MOST_WEIGHT)
        moved = surprise * max(newest, 1 / (1 + calls))
        if self.measured:
            self._pace += _PACE * surprise
            moved *= 1 - _PACE
        else:
            for correction in self._corrections.values():
                correction[2:] += _SHARED * moved
            moved *= 1 - _SHARED
            if surprise < _PLEASANT:
                self._most_rows = max(self._most_rows, rows)
        self._corrections[mode][rows] += moved
        self._seen[mode, rows] = calls + 1, self._now

    def _plain(self, depth: int) -> float:
        return self._curve.plain_ms(depth) if self._curve else self._met_plain


def _beam_table(costs: Costs) -> Floats:
    """Return (widths, lengths): on the lines through what was measured of each width, and between widths."""
    measured = sorted({width for width, _ in costs})
    points = [{length: ms for (w, length), ms in costs.items() if w == width} for width in measured]
    columns = [[line(length, known) for known in points] for length in LENGTHS]
    return np.array([np.interp(WIDTHS, measured, column) for column in columns]).T
