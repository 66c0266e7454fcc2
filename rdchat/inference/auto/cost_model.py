"""What target calls and drafts cost on this machine: measured while idle, corrected by the calls of real replies.

Until calls are measured, plain steps are timed as they come, and all else is guessed from them.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from math import exp, log

import numpy as np

from rdchat.inference.api.requests import BeamShape, Mode
from rdchat.inference.auto.plan import LENGTHS, MOST_ROWS, ROWS, WIDTHS, Floats

Costs = Mapping[tuple[int, int], float]  # milliseconds by two numbers, see `Part`

NEAR = 128  # tokens in the cache, where drafts are measured; calls are measured further on too
PLAIN_STEP = 0  # in place of a number of rows: a step of plain decoding, the next one queued meanwhile

_MEASURED = 8  # calls that a measured cost counts for, beside those of real replies
_WEIGHT = 0.06  # of a call among those before it, so that old ones fade
_LARGEST_SURPRISE = 0.4  # in log: a single call that was held up says little
_LARGEST_GUESS = 0.9  # in log: how far a call may lie from what is only guessed
_DOUBTED = 0.05  # in log: how far plain steps are thought to lie from predictions before any did
_SURE = 2.0  # mean deviations within which nearly all plain steps lie

# In plain steps: dearer than most of Apple's GPUs, cheaper than 4-bit weights on a CPU. Some chips' calls leap behind 6
# rows, so beyond a row is taken to cost a plain step.
_GUESSED_CALLS = np.where(ROWS > 6, ROWS, np.interp(ROWS, [1, 2, 4, 8], [1.05, 1.3, 1.65, 2.0]))
_GUESSED_BEAMS = 0.1  # a token of a head's draft; 0.04 to 0.06 was measured
_GUESSED_DRAFT_MODEL = 0.5


class Part(StrEnum):
    """What is measured together, in this order, and the two numbers of its costs."""

    CALLS = "calls"  # rows or `PLAIN_STEP`, and tokens in the cache; near the beginning of a text
    BEAMS = "beams"  # width and length of a head's draft
    DRAFT_MODEL = "draft model"  # rows that it is fed, and 0
    DEEP_CALLS = "deep calls"  # as for calls, further on in a text


def usable(part: Part, costs: Costs) -> bool:
    """Tell whether costs hold what predictions begin with, which those of a damaged file may not."""
    match part:
        case Part.CALLS | Part.DEEP_CALLS:
            return bool(costs) and all(
                (PLAIN_STEP, depth) in costs and 0 <= rows <= MOST_ROWS and depth > 0 for rows, depth in costs
            )
        case Part.BEAMS:
            return bool(costs)
        case Part.DRAFT_MODEL:
            return (1, 0) in costs


class CallCurve:
    """What the target's calls cost by rows: measured at some depths, on straight lines between them and beyond.

    Nothing is assumed of the shape over rows: on a CPU 16 rows may be cheaper than 5; on Apple's GPUs a call is flat up
    to a limit that depends on the chip, and leaps behind it. MLX's attention takes another kernel from 1,024 keys on
    Apple's Max and Ultra chips, and from 4,096 on the others, so costs beyond follow from the two greatest depths.

    Args:
        costs: See `Part.CALLS`. At all depths but the least fewer rows will do.
    """

    def __init__(self, costs: Costs) -> None:
        self._depths = sorted({depth for _, depth in costs})
        self._verifies = any(rows != PLAIN_STEP for rows, _ in costs)
        table: list[Floats] = []  # of each depth, by rows; entry 0 is the plain step
        for depth in self._depths:
            rows, ms = zip(*sorted((rows, ms) for (rows, d), ms in costs.items() if d == depth), strict=True)
            before = table[-1] if table else np.zeros(len(ROWS))
            more = np.maximum(np.array(ms) - before[list(rows)], 0.0)
            growth = np.interp(ROWS, rows[1:] or rows, more[1:] if rows[1:] else more)
            growth[PLAIN_STEP] = more[0]
            table.append(before + growth)
        self._table = np.array(table)

    def plain_ms(self, depth: int) -> float:
        """Return what a plain step costs."""
        return float(self._at(depth)[PLAIN_STEP])

    def calls_ms(self, depth: int) -> Floats:
        """Return what a call costs by rows, (`MOST_ROWS` + 1,); entry 0 means nothing."""
        return self._at(depth) if self._verifies else np.full_like(self._table[0], np.inf)

    def _at(self, depth: int) -> Floats:
        depths, table = self._depths, self._table
        if depth <= depths[0] or len(depths) == 1:
            near: Floats = table[0].copy()
            return near
        above = min(int(np.searchsorted(depths, depth)), len(depths) - 1)
        share = (depth - depths[above - 1]) / (depths[above] - depths[above - 1])
        costs: Floats = table[above - 1] + share * (table[above] - table[above - 1])
        return costs


class CostModel:
    """Predicts times in milliseconds, and learns from real ones.

    Attributes:
        draft_model_share: What a draft model's step is guessed to cost, in plain steps.
    """

    def __init__(self) -> None:
        self.draft_model_share = _GUESSED_DRAFT_MODEL
        self._calls: dict[Part, Costs] = {}  # near and deep ones
        self._curve: CallCurve | None = None
        self._met_plain = 0.0  # geometric mean of the plain steps that were met, where nothing was measured
        self._beams: Floats | None = None  # (widths, lengths)
        self._draft_model: Costs = {}
        self._deviation = _DOUBTED  # mean distance in log of plain steps from what was predicted, fading
        self._scale = dict.fromkeys(Mode, 0.0)  # log of real over predicted calls
        self._seen = Counter[Mode]()  # calls

    def use(self, part: Part, costs: Costs) -> None:
        """Take what was measured of a part, in place of what was known of it; empty forgets it."""
        match part:
            case Part.CALLS | Part.DEEP_CALLS:
                self._calls[part] = costs
                near, deep = self._calls.get(Part.CALLS), self._calls.get(Part.DEEP_CALLS)
                self._curve = CallCurve({**near, **(deep or {})}) if near else None
                self._scale = dict.fromkeys(Mode, 0.0)
                self._seen = Counter(dict.fromkeys(Mode, _MEASURED if near else 0))
            case Part.BEAMS:
                self._beams = _beam_table(costs) if costs else None
            case Part.DRAFT_MODEL:
                self._draft_model = costs

    @property
    def measured(self) -> bool:
        """Whether it was measured what calls cost."""
        return self._curve is not None

    def plain_ms(self, depth: int) -> float:
        """Return what a plain step costs with `depth` tokens in the cache; 0 where that is not known."""
        return self._plain(depth) * exp(self._scale[Mode.OFF])

    @property
    def plain_error(self) -> float:
        """How far plain steps may lie from `plain_ms`, as a share of it."""
        return round(exp(_SURE * self._deviation) - 1, 4)

    def calls_ms(self, mode: Mode, depth: int) -> Floats:
        """Return what a round's call costs by rows, host time included; entry 0 means nothing."""
        calls = self._curve.calls_ms(depth) if self._curve else _GUESSED_CALLS * self._met_plain
        return calls * exp(self._scale[mode])

    def beams_ms(self) -> Floats:
        """Return what heads' drafts cost, (widths, lengths)."""
        if self._beams is not None:
            return self._beams
        return np.outer(np.ones(len(WIDTHS)), np.array(LENGTHS) - 1) * _GUESSED_BEAMS * self._plain(0)

    def beam_ms(self, shape: BeamShape) -> float:
        """Return what one draft of a head costs, of a width in `WIDTHS`; a length between those costs as the next."""
        return float(self.beams_ms()[WIDTHS.index(shape.width), np.searchsorted(LENGTHS, shape.length)])

    def draft_model_ms(self, steps: int, late: int) -> float:
        """Return what a draft model's draft costs.

        Args:
            steps: Tokens it drafts.
            late: Tokens of the conversation that it has not read yet, the root excluded.
        """
        step = self.draft_model_step_ms
        fed = {rows: ms for (rows, _), ms in self._draft_model.items()} or {1: step, 16: 2.5 * step}
        return line(1 + late, fed) + (steps - 1) * step

    @property
    def draft_model_step_ms(self) -> float:
        """What a draft model takes for one more token."""
        return self._draft_model.get((1, 0), self.draft_model_share * self._plain(0))

    def learn_plain(self, depth: int, ms: float) -> None:
        """Take the time of a real plain step."""
        if predicted := self.plain_ms(depth):
            off = min(abs(log(ms / predicted)), _LARGEST_SURPRISE)
            self._deviation += _WEIGHT * (off - self._deviation)
        if self.measured:
            self.learn(Mode.OFF, ms / predicted)
            return
        self._seen[Mode.OFF] += 1
        known = self._met_plain or ms
        self._met_plain = known * (ms / known) ** max(_WEIGHT, 1 / self._seen[Mode.OFF])

    def learn(self, mode: Mode, ratio: float) -> None:
        """Take the time of a real call with its draft, over the one that was predicted."""
        largest = _LARGEST_SURPRISE if self._seen[mode] >= _MEASURED else _LARGEST_GUESS
        surprise = min(max(log(ratio), -largest), largest)
        self._scale[mode] += surprise * max(_WEIGHT, 1 / (1 + self._seen[mode]))
        self._seen[mode] += 1

    def _plain(self, depth: int) -> float:
        return self._curve.plain_ms(depth) if self._curve else self._met_plain


def line(x: float, points: Mapping[int, float]) -> float:
    """Return the value at x between measured points; beyond them, on the line through the two that are nearest."""
    known = sorted(points.items())
    if known[0][0] <= x <= known[-1][0] or len(known) == 1:
        return float(np.interp(x, [p for p, _ in known], [y for _, y in known]))
    (x0, y0), (x1, y1) = known[-2:] if x > known[-1][0] else known[:2]
    return max(y0 + (y1 - y0) / (x1 - x0) * (x - x0), 0.0)


def _beam_table(costs: Costs) -> Floats:
    """Return (widths, lengths): on the lines through what was measured of each width, and between widths."""
    measured = sorted({width for width, _ in costs})
    points = [{length: ms for (w, length), ms in costs.items() if w == width} for width in measured]
    columns = [[line(length, known) for known in points] for length in LENGTHS]
    return np.array([np.interp(WIDTHS, measured, column) for column in columns]).T
