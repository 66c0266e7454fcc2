"""Predicts the milliseconds of target calls and drafts: measured while idle, kept on disk, corrected by real calls.

A row is a token of a call, a depth the number of tokens in the cache. Until calls are measured, plain steps are timed
as they come, and all other costs are guessed from them. Errors and corrections are logarithms of a ratio of times, so
that twice and half as long count alike.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from math import exp, log
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rdchat import paths
from rdchat.errors import ModelError
from rdchat.files import read_json, write_cache_file
from rdchat.inference.api import Mode

Floats = npt.NDArray[np.float64]
# Milliseconds by two numbers; see `Part`.
Costs = Mapping[tuple[int, int], float]

# Maximum rows of a verified tree: on nearly all machines, further nodes cost more than they bring. On the cost curves
# of `tests/inference/auto/chips.py`, 48 gain nothing on seven. On three, M1 and M2 with 16 bits, whose tiles have 64
# rows, they gain 2 to 6 % where drafts pay at all; those curves are estimated.
MAX_ROWS = 32
ROWS = np.arange(MAX_ROWS + 1)
# Tokens of a beam, the root included.
LENGTHS = (2, 3, 4, 5, 6, 8)
# Tokens in the cache where drafts are measured; calls are measured at more depths.
NEAR = 128
# Stands for a number of rows: a step of plain decoding, with the next one already queued.
PLAIN_STEP = 0
# Costs are measured at so many starts of the app that nothing disturbs, so that one with a hot machine does not count
# for ever.
MEASUREMENTS = 3
_MAX_BYTES = 2**20
# Version of the file and of the method of measuring.
_FORMAT = 4

# A measured cost counts as this many real calls.
_MEASURED_WEIGHT = 8
# Weight of a new call in a fading mean.
_NEW_WEIGHT = 0.06
# Limit of what a single call, which may have been delayed, counts for, as a logarithm.
_LARGEST_SURPRISE = 0.4
# The same where the cost was only guessed.
_LARGEST_GUESS = 0.9
# Expected deviation of plain steps before the first one, as a logarithm.
_START_DEVIATION = 0.05
# From this error on, as a share, plain steps are measured again. From an error of a third on
# (`reply_statistics._UNKNOWN`), replies are no longer compared with them.
_MAX_PLAIN_ERROR = 0.2
# Nearly all plain steps lie within this many mean deviations of their prediction.
_SURE_DEVIATIONS = 2.0


class WeightReads(StrEnum):
    """How a call with a few rows reads the weights.

    Attributes:
        SHARED: Once for several rows.
        BY_ROW: Again for each row.
        TILED: In tiles of many rows, as slowly for two as for all.
    """

    SHARED = "shared"
    BY_ROW = "by row"
    TILED = "tiled"


# Guessed cost of a call by rows, in plain steps. Shared: more than on most of Apple's GPUs, less than with 4-bit
# weights on a CPU. On some chips the cost jumps after 6 rows, so from there a row is guessed to cost a plain step. By
# row, a row costs nearly a plain step: two or three rows are worth trying.
_GUESSED_CALLS = {
    WeightReads.SHARED: np.where(ROWS > 6, ROWS, np.interp(ROWS, [1, 2, 4, 8], [1.05, 1.3, 1.65, 2.0])),
    WeightReads.BY_ROW: np.where(ROWS > 3, ROWS, np.interp(ROWS, [1, 2, 3], [1.05, 1.5, 1.95])),
    WeightReads.TILED: np.where(ROWS > 1, 3.0, 1.05),
}
# A token of a head's draft, in plain steps; 0.04 to 0.06 was measured.
_GUESSED_BEAMS = 0.1
# A step of a draft model, in plain steps.
_GUESSED_DRAFT_MODEL = 0.5


class Part(StrEnum):
    """Costs that are measured together, in this order; each is keyed by two numbers.

    Attributes:
        PLAIN: `PLAIN_STEP`, and tokens in the cache. It is not kept on disk.
        CALLS: Rows or `PLAIN_STEP`, and tokens in the cache, near the beginning of a text.
        READINGS: The two flags of a `Reading` of MTP layers; wrong tokens in a hundred, not milliseconds.
        BEAMS: Width and length of a head's draft.
        DRAFT_MODEL: Rows that the draft model is fed, and 0.
        DEEP_CALLS: As `CALLS`, further into a text.
    """

    PLAIN = "plain steps"
    CALLS = "calls"
    READINGS = "readings"
    BEAMS = "beams"
    DRAFT_MODEL = "draft model"
    DEEP_CALLS = "deep calls"


def usable(part: Part, costs: Costs) -> bool:
    """Return whether costs contain what predictions need; those of a damaged file may not."""
    match part:
        case Part.CALLS | Part.DEEP_CALLS:
            return bool(costs) and all(
                (PLAIN_STEP, depth) in costs and 0 <= rows <= MAX_ROWS and depth > 0 for rows, depth in costs
            )
        case Part.PLAIN | Part.BEAMS | Part.READINGS:
            return bool(costs)
        case Part.DRAFT_MODEL:
            return (1, 0) in costs


class CallCurve:
    """Cost of the target's calls by rows: measured at some depths, linear between and beyond them.

    Nothing is assumed about the shape over rows: on a CPU 16 rows may be cheaper than 5; on Apple's GPUs the cost is
    flat up to a limit that depends on the chip, and jumps after it. MLX's attention uses another kernel from 1,024 keys
    on Apple's Max and Ultra chips, and from 4,096 on the others, so costs beyond follow from the two greatest depths.

    Args:
        costs: See `Part.CALLS`. At all depths but the smallest, some rows may be missing.
    """

    def __init__(self, costs: Costs) -> None:
        self._depths = sorted({depth for _, depth in costs})
        # Whether calls of rounds were measured; a model that verifies no drafts has plain steps alone.
        self._verifies = any(rows != PLAIN_STEP for rows, _ in costs)
        # Milliseconds for each depth, by rows; entry 0 is the plain step.
        table = [np.zeros(len(ROWS))]
        for depth in self._depths:
            measured = {rows: ms for (rows, at), ms in sorted(costs.items()) if at == depth}
            table.append(table[-1] + _growth(measured, table[-1]))
        self._table = np.array(table[1:])

    def plain_ms(self, depth: int) -> float:
        """Return the cost of a plain step."""
        return float(self._at(depth)[PLAIN_STEP])

    def calls_ms(self, depth: int) -> Floats:
        """Return the cost of a call by rows, (`MAX_ROWS` + 1,); entry 0 has no meaning."""
        return self._at(depth) if self._verifies else np.full_like(self._table[0], np.inf)

    def _at(self, depth: int) -> Floats:
        depths = self._depths
        table = self._table
        if depth <= depths[0] or len(depths) == 1:
            near: Floats = table[0]
            return near
        above = min(int(np.searchsorted(depths, depth)), len(depths) - 1)
        share = (depth - depths[above - 1]) / (depths[above] - depths[above - 1])
        costs: Floats = table[above - 1] + share * (table[above] - table[above - 1])
        return costs


def _growth(measured: Mapping[int, float], shallower: Floats) -> Floats:
    """Return what calls cost more than at the depth before, by rows, (`MAX_ROWS` + 1,); never less than nothing.

    It lies on lines between the measured rows. If 8 rows cost 2 ms more and 16 rows 4 ms more, 12 cost 3 ms more.

    Args:
        measured: Milliseconds by rows, ascending, with those of `PLAIN_STEP`; without others they stand for all rows.
        shallower: Milliseconds at the depth before, by rows.
    """
    more = {rows: max(ms - shallower[rows], 0.0) for rows, ms in measured.items()}
    plain = more.pop(PLAIN_STEP)
    growth: Floats = np.interp(ROWS, [*more] or [PLAIN_STEP], [*more.values()] or [plain])
    growth[PLAIN_STEP] = plain
    return growth


class CostModel:
    """Predicts times in milliseconds, and learns from real ones.

    Args:
        reads: How the device reads the weights.

    Attributes:
        reads: The same.
        draft_model_share: Guessed cost of a draft model's step, in plain steps.
    """

    def __init__(self, reads: WeightReads = WeightReads.SHARED) -> None:
        self.reads = reads
        self.draft_model_share = _GUESSED_DRAFT_MODEL
        self._calls: dict[Part, Costs] = {}
        self._curve: CallCurve | None = None
        # Geometric mean of the plain steps of replies, in milliseconds, where nothing was measured.
        self._timed_plain_ms = 0.0
        self._beams: Costs = {}
        self._draft_model: Costs = {}
        # Fading mean of the distance between plain steps and their predictions, as a logarithm.
        self._deviation = _START_DEVIATION
        # Logarithm of real over predicted time, by mode; `off` stands for plain steps.
        self._scale = dict.fromkeys(Mode, 0.0)
        # Calls from which it was learnt.
        self._seen = Counter[Mode]()

    def use(self, part: Part, costs: Costs) -> None:
        """Use measured costs of a part, instead of what was known before; empty costs remove it.

        Plain steps measured again correct the curve of calls where there is one; empty ones change nothing. Another
        curve begins without corrections. Readings are no costs of this model.
        """
        match part:
            case Part.PLAIN if costs:
                ms = costs[PLAIN_STEP, NEAR]
                if self._curve:
                    self._scale[Mode.OFF] = log(ms / self._curve.plain_ms(NEAR))
                else:
                    self._timed_plain_ms = ms
                self._seen[Mode.OFF] = _MEASURED_WEIGHT
                self._deviation = _START_DEVIATION
            case Part.CALLS | Part.DEEP_CALLS:
                self._calls[part] = costs
                near = self._calls.get(Part.CALLS)
                deep = self._calls.get(Part.DEEP_CALLS) or {}
                self._curve = CallCurve({**near, **deep}) if near else None
                self._scale = dict.fromkeys(Mode, 0.0)
                self._seen = Counter(dict.fromkeys(Mode, _MEASURED_WEIGHT if near else 0))
            case Part.BEAMS:
                self._beams = costs
            case Part.DRAFT_MODEL:
                self._draft_model = costs

    @property
    def measured(self) -> bool:
        """Whether the costs of calls are measured."""
        return self._curve is not None

    def plain_ms(self, depth: int) -> float:
        """Return the cost of a plain step with `depth` tokens in the cache; 0 where unknown."""
        return self._plain(depth) * exp(self._scale[Mode.OFF])

    @property
    def plain_is_doubtful(self) -> bool:
        """Whether plain steps are unknown, or their times vary so much that a reply can hardly be compared with them.

        `AutoState.measure` then times them again: where the replies have no plain steps, nothing else would end a doubt
        that other programs caused.
        """
        return not self.plain_ms(NEAR) or self.plain_error > _MAX_PLAIN_ERROR

    @property
    def plain_error(self) -> float:
        """How far plain steps may be off from `plain_ms`, as a share of it."""
        return round(exp(_SURE_DEVIATIONS * self._deviation) - 1, 4)

    def calls_ms(self, mode: Mode, depth: int) -> Floats:
        """Return the cost of a round's call by rows, host time included; entry 0 has no meaning."""
        calls = self._curve.calls_ms(depth) if self._curve else _GUESSED_CALLS[self.reads] * self._timed_plain_ms
        return calls * exp(self._scale[mode])

    def beams_ms(self, width: int) -> Floats:
        """Return the cost of a head's drafts of a width, (lengths,)."""
        measured = {length: ms for (beams, length), ms in self._beams.items() if beams == width}
        if not measured:
            return (np.array(LENGTHS) - 1) * _GUESSED_BEAMS * self._plain(0)
        return np.array([line(length, measured) for length in LENGTHS])

    def draft_model_ms(self, steps: int, unread: int) -> float:
        """Return the cost of a draft model's draft.

        Args:
            steps: Tokens it drafts.
            unread: Tokens of the conversation that it has not read yet, the root excluded.
        """
        step = self.draft_model_step_ms
        # Where nothing was measured, 16 rows are guessed to cost as much as 2.5 steps.
        fed = {rows: ms for (rows, _), ms in self._draft_model.items()} or {1: step, 16: 2.5 * step}
        return line(1 + unread, fed) + (steps - 1) * step

    @property
    def draft_model_step_ms(self) -> float:
        """Cost of one more token from the draft model."""
        return self._draft_model.get((1, 0), self.draft_model_share * self._plain(0))

    def learn_plain(self, depth: int, ms: float) -> None:
        """Learn from the time of a real plain step: a correction of the measured curve, or without one a mean time."""
        if predicted := self.plain_ms(depth):
            off = min(abs(log(ms / predicted)), _LARGEST_SURPRISE)
            self._deviation += _NEW_WEIGHT * (off - self._deviation)
        # A measured curve always predicts a time.
        if self.measured:
            self.learn(Mode.OFF, ms / predicted)
            return
        self._seen[Mode.OFF] += 1
        known = self._timed_plain_ms or ms
        self._timed_plain_ms = known * (ms / known) ** max(_NEW_WEIGHT, 1 / self._seen[Mode.OFF])

    def learn(self, mode: Mode, ratio: float) -> None:
        """Learn from a real call with its draft: `ratio` is its time over the predicted time.

        The first calls count for more than later ones, and may be further off if the cost was only guessed.
        """
        largest = _LARGEST_SURPRISE if self._seen[mode] >= _MEASURED_WEIGHT else _LARGEST_GUESS
        surprise = min(max(log(ratio), -largest), largest)
        self._scale[mode] += surprise * max(_NEW_WEIGHT, 1 / (1 + self._seen[mode]))
        self._seen[mode] += 1

    def _plain(self, depth: int) -> float:
        return self._curve.plain_ms(depth) if self._curve else self._timed_plain_ms


def newest_calls(target: str) -> dict[int, float]:
    """Return the newest stored time of a target's calls by rows, in plain steps, near the beginning of a text.

    Args:
        target: Its `target_hash`; the precision in which it was measured does not matter.

    Returns:
        Nothing where this machine has not measured it.
    """
    # When the newest file was written, and its costs.
    latest: tuple[float, Costs] = 0.0, {}
    for path in sorted((paths.cache_dir() / "costs").glob("*.json")):
        try:
            key = read_json(path, max_size=_MAX_BYTES)["key"]
            if key["format"] == str(_FORMAT) and key["part"] == Part.CALLS and key["target"].startswith(f"{target} "):
                measured = path.stat().st_mtime, CostFile(key).read_costs()[0]
                latest = max(latest, measured, key=lambda dated: dated[0])
        except (ModelError, OSError, AttributeError, TypeError, KeyError):
            continue
    costs = latest[1]
    plain_ms = costs.get((PLAIN_STEP, NEAR), 0.0)
    return {rows: ms / plain_ms for (rows, depth), ms in costs.items() if rows and depth == NEAR and plain_ms}


def line(x: float, points: Mapping[int, float]) -> float:
    """Return the value at x between measured points; beyond them, on the line through the nearest two."""
    known = sorted(points.items())
    if known[0][0] <= x <= known[-1][0] or len(known) == 1:
        return float(np.interp(x, [p for p, _ in known], [y for _, y in known]))
    (x0, y0), (x1, y1) = known[-2:] if x > known[-1][0] else known[:2]
    return max(y0 + (y1 - y0) / (x1 - x0) * (x - x0), 0.0)


class CostFile:
    """Keeps the costs of one part in the cache folder, so that they are measured only at a machine's first starts.

    Other work on the machine can only make a time longer, so the shortest of several measurements counts. A measurement
    that other programs disturbed is used until there is an undisturbed one, and is not counted. Each file format has
    its own file name, so costs in an older format are measured again.

    Args:
        key: What the costs depend on: the model's hash, its precision, the device, MLX's version, the drafter.
    """

    def __init__(self, key: Mapping[str, str]) -> None:
        self._key = {"format": str(_FORMAT), **key}
        name = hashlib.sha256(json.dumps(self._key, sort_keys=True).encode()).hexdigest()[:32]
        self._path: Path = paths.cache_dir() / "costs" / f"{name}.json"

    def read_costs(self) -> tuple[Costs, int]:
        """Return the costs, and how often they were measured undisturbed; nothing if the file is missing or damaged."""
        try:
            data = read_json(self._path, max_size=_MAX_BYTES)
            costs = {(int(a), int(b)): float(ms) for a, b, ms in data["costs"]}
            is_valid = data["key"] == self._key and all(0 < ms < 1e7 for ms in costs.values())
            return (costs, int(data["measurements"])) if is_valid else ({}, 0)
        except (ModelError, ValueError, TypeError, KeyError, IndexError, OverflowError):
            return {}, 0

    def add_measurement(self, costs: Costs, quiet: bool = True) -> Costs:
        """Add a measurement, undisturbed (`quiet`) or not; return the shortest times of all."""
        known, measurements = self.read_costs()
        shortest = {**known, **{key: min(ms, known.get(key, ms)) for key, ms in costs.items()}}
        rows = [[a, b, round(ms, 4)] for (a, b), ms in sorted(shortest.items())]
        write_cache_file(
            self._path, json.dumps({"key": self._key, "measurements": measurements + quiet, "costs": rows}) + "\n"
        )
        return shortest
