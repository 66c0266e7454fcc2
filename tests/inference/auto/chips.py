"""Cost curves of real machines, in plain steps, for simulations: published figures, and what was measured here.

Apple's GPUs verify with a vector kernel that is nearly flat up to a number of rows, which depends on the chip; beyond
it they compute whole tiles of 32 rows. Plain decoding hides the host's work behind the queued call; a round cannot, so
each of its calls costs that in addition. A single call of one row was measured at 1.3 plain steps (rMLX, issue 496). On
an M3 Max, building a 4-bit 4B model's graph and one wait take 2.1 ms beside plain steps of 7.8 ms; for larger models
the share is smaller. A step of a recurrent draft is taken as 4 % of a plain step, as in Apple's own benchmark and as
measured on the CPU.
"""

from dataclasses import dataclass

import numpy as np

from rdchat.inference.auto.cost_model import LENGTHS, MAX_ROWS, PLAIN_STEP, CostModel, Part
from rdchat.inference.auto.measuring import Measured, Measurement

# Time of a plain step; only ratios matter.
STEP_MS = 20.0
# Plain steps that a GPU idles in each call that nothing is queued behind: 1.3 in all with one row.
BUBBLE = 0.28


@dataclass(frozen=True, slots=True)
class Chip:
    """A machine, its times over that of a plain step.

    Attributes:
        name: Name of the machine.
        calls: Time of the kernels of a call, by rows.
        beam_step: Time of a step of a recurrent draft.
        bubble: Time of a call besides its kernels, where none is queued behind it.
    """

    name: str
    calls: dict[int, float]
    beam_step: float = 0.04
    bubble: float = 0.0

    def calls_of(self) -> np.ndarray:
        """Return (`MAX_ROWS` + 1,) what a round's call costs by rows."""
        rows = np.arange(MAX_ROWS + 1)
        return self.bubble + np.interp(rows, list(self.calls), list(self.calls.values()))

    def beams(self, width: int, length: int) -> float:
        """Return what a recurrent draft costs: wider beams cost a little more a step."""
        return self.beam_step * (length - 1) * (1 + 0.05 * (width - 1))

    def costs(self) -> CostModel:
        """Return the cost model that measuring the machine would give."""
        model = CostModel()
        calls = {(rows, 128): float(cost) * STEP_MS for rows, cost in enumerate(self.calls_of()) if rows}
        model.use(Part.CALLS, {(PLAIN_STEP, 128): STEP_MS, **calls})
        beams = {(w, n): self.beams(w, n) * STEP_MS for w in (1, 2, 4, 8) for n in LENGTHS}
        model.use(Part.BEAMS, beams)
        return model


def tiled(name: str, limit: int, at_limit: float, tile: float) -> Chip:
    """Return a GPU that is nearly flat up to `limit` rows, and computes a tile of 32 rows beyond."""
    return Chip(name, {1: 1.02, limit: at_limit, limit + 1: tile, MAX_ROWS: tile * 1.05}, bubble=BUBBLE)


# From fp16 figures, which were published. Quantised weights M1 and M2 read again for each row, up to a limit.
M1_MAX = tiled("M1 Max, fp16", 12, 1.35, 2.2)
M2_ULTRA = tiled("M2 Ultra, fp16", 12, 1.3, 2.0)
M3_MAX = Chip(
    "M3 Max, 4 bit", {1: 1.02, 2: 1.03, 4: 1.28, 6: 2.04, 8: 2.5, 13: 3.4, 14: 2.9, MAX_ROWS: 3.0}, bubble=BUBBLE
)
M4_PRO = tiled("M4 Pro", 13, 1.4, 2.4)
M2 = tiled("M2, fp16", 6, 1.2, 2.4)
# Estimated: a row costs 85 % of a plain step up to 14 rows, where MLX takes tiles of 32; those are bound by arithmetic
# (8 billion weights and 32 rows: 0.5 * 10**12 operations, at some 8 * 10**12 a second, beside plain steps of 14.5 ms).
M1_MAX_4_BIT = Chip("M1 Max, 4 bit", {1: 1.02, 14: 12.1, 15: 4.3, MAX_ROWS: 4.5}, bubble=BUBBLE)
CLIFF = Chip("cliff from 15 to 16", {1: 1.02, 15: 1.4, 16: 3.0, MAX_ROWS: 3.2}, bubble=BUBBLE)
# each row 24 % of a plain step more, on a 4-bit hybrid as on mxfp8 with attention alone (rMLX, issue 516)
STEEP = Chip("24 % a row", {1: 1.02, 9: 2.94, MAX_ROWS: 3.1}, bubble=BUBBLE)
# measured as calls are: what the host does is in it
CPU = Chip("2-core CPU", {1: 1.1, 2: 1.26, 4: 1.64, 8: 1.87, 12: 2.4, 16: 1.87, MAX_ROWS: 2.87}, 0.06)
CHIPS = (M1_MAX, M1_MAX_4_BIT, M2_ULTRA, M3_MAX, M4_PRO, M2, CLIFF, STEEP, CPU)


def finished(measurement: Measurement) -> Measured:
    try:
        while True:
            next(measurement)
    except StopIteration as end:
        return end.value
