"""Measures the cost of target calls by their number of rows, at several depths."""

from collections.abc import Callable
from typing import Any

from rdchat.inference.auto.costs.cost_curve import PLAIN_STEP
from rdchat.inference.auto.costs.measuring import Measured, Measurement, measure_rows
from rdchat.inference.auto.costs.other_programs import OtherPrograms
from rdchat.inference.target.target import LoadedModel

DEPTHS = 128, 1024, 4096, 16384  # tokens in the cache
ROWS = (*range(1, 17), 32)


def cost_by_rows(model: LoadedModel, depth: int, out_of_time: Callable[[], bool]) -> dict[str, Any]:
    """Measure calls of 1 to 16 and 32 rows, each alone, and plain steps that are queued one behind the other.

    Args:
        model: The target.
        depth: Tokens in the cache, within the model's context.
        out_of_time: Called between calls.

    Returns:
        Milliseconds by rows and of a plain step, and whether other programs left the machine alone; empty if the time
        was too short for all of them.
    """
    measured = _finish(measure_rows(model, depth, ROWS, OtherPrograms()), out_of_time)
    costs = measured.costs
    if not costs:
        return {}
    plain = costs[PLAIN_STEP, depth]
    ms = {rows: costs[rows, depth] for rows in ROWS if (rows, depth) in costs}
    return {
        "plain_step_ms": plain,
        "call_ms": ms,
        "in_plain_steps": {rows: cost / plain for rows, cost in ms.items()},
        "quiet": measured.quiet,
    }


def _finish(measurement: Measurement, out_of_time: Callable[[], bool]) -> Measured:
    """Run a measurement to its end; return no costs if the time is up before."""
    while not out_of_time():
        try:
            next(measurement)
        except StopIteration as end:
            found: Measured = end.value
            return found
    measurement.close()
    return Measured({}, quiet=True)
