"""Cost curves of real machines, in plain steps, for simulations: published figures, and what was measured here.

Apple's GPUs verify a few rows with kernels that depend on the chip and the kind of weights; beyond them they compute
whole tiles. Plain decoding hides the host's work behind the queued call; a round cannot, so
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


# Weights of 16 bits: from M3 on `gemv_wide` (mlx#3888) reads them once for 2 to 15 rows. Beyond, and on M1 and M2 from
# 2 rows on, come tiles of 64 rows. On one chip a tile read weights at 56 GB/s where a row alone read them at 161
# (mlx#3661). On an M1 Pro it was flat from 2 to 8 rows (mlx#3967), on an M3 Ultra 2.0 plain steps (mlx#4265).
M1_MAX = Chip("M1 Max, 16 bit", {1: 1.02, 2: 2.9, MAX_ROWS: 2.9}, bubble=BUBBLE)
M2 = Chip("M2, 16 bit", {1: 1.02, 2: 2.9, MAX_ROWS: 2.95}, bubble=BUBBLE)
# Estimated: its tile as on the M3 Ultra.
M2_ULTRA = Chip("M2 Ultra, 16 bit", {1: 1.02, 2: 2.0, MAX_ROWS: 2.0}, bubble=BUBBLE)
# The gain of `gemv_wide` over a tile was measured at 2, 4 and 8 rows; the tile is estimated.
M4_PRO = Chip("M4 Pro, 16 bit", {1: 1.02, 2: 1.04, 8: 1.15, 15: 1.4, 16: 2.4, MAX_ROWS: 2.4}, bubble=BUBBLE)
# Quantised weights: from M3 on `qmv_wide` (mlx#3764) reads them once for up to 5 rows, twice for up to 10. Then come
# tiles of 32 rows. All of these figures were measured on one matrix (mlx#3863).
M3_MAX = Chip(
    "M3 Max, 4 bit",
    {1: 1.02, 2: 1.03, 4: 1.28, 6: 2.04, 8: 2.5, 9: 3.14, 10: 3.94, MAX_ROWS: 3.98},
    bubble=BUBBLE,
)
# M1 and M2 read affine weights again for each row (mlx#3661: 2, 4 and 8 rows), those of large matrices up to 5 rows.
# Estimated: tiles of 32 rows, bound by arithmetic (8 billion weights and 32 rows: 0.5 * 10**12 operations, at some
# 8 * 10**12 a second, beside plain steps of 14.5 ms).
M1_MAX_4_BIT = Chip("M1 Max, 4 bit", {1: 1.02, 2: 1.7, 4: 3.1, 6: 4.3, MAX_ROWS: 4.5}, bubble=BUBBLE)
# `qmv_wide` reads MXFP4 once for a few rows on M1 and M2, too: at 2 rows it takes 1 / 1.3 of the time of the other
# kernel on an M2 Pro, at 4 rows 1 / 1.4 (mlx#3764).
M2_PRO_MXFP4 = Chip("M2 Pro, MXFP4", {1: 1.02, 2: 1.3, 4: 2.2, 5: 2.7, 6: 4.3, MAX_ROWS: 4.5}, bubble=BUBBLE)
CLIFF = Chip("cliff from 15 to 16", {1: 1.02, 15: 1.4, 16: 3.0, MAX_ROWS: 3.2}, bubble=BUBBLE)
# each row 24 % of a plain step more, on a 4-bit hybrid as on mxfp8 with attention alone (rMLX, issue 516)
STEEP = Chip("24 % a row", {1: 1.02, 9: 2.94, MAX_ROWS: 3.1}, bubble=BUBBLE)
# measured as calls are: what the host does is in it
CPU = Chip("2-core CPU", {1: 1.1, 2: 1.26, 4: 1.64, 8: 1.87, 12: 2.4, 16: 1.87, MAX_ROWS: 2.87}, 0.06)
CHIPS = (M1_MAX, M1_MAX_4_BIT, M2_PRO_MXFP4, M2_ULTRA, M3_MAX, M4_PRO, M2, CLIFF, STEEP, CPU)


def finished(measurement: Measurement) -> Measured:
    try:
        while True:
            next(measurement)
    except StopIteration as end:
        return end.value
