"""What it costs that the host waits for the device in the middle of a round, instead of queueing what follows.

While the host waits, and then builds the next graph, the device has nothing to do. On a CPU that is next to nothing,
since both share its cores; on a GPU it is the wait itself and the time of the build.
"""

from dataclasses import dataclass
from enum import IntEnum

from rdchat.inference.auto.costs.cost_curve import Costs

STEPS = 4  # of a draft model, that are timed together


class Wait(IntEnum):
    """Where the host waits."""

    BEFORE_CALL = 0  # for a head's draft, before the target's call for it is queued
    BETWEEN_STEPS = 1  # for each step of a draft model, before the next one is queued


@dataclass(frozen=True, slots=True)
class WaitCosts:
    """What one wait costs, in milliseconds; 0 where it was not measured.

    Attributes:
        before_call_ms: See `Wait`.
        between_steps_ms: Likewise.
    """

    before_call_ms: float = 0.0
    between_steps_ms: float = 0.0

    @classmethod
    def of(cls, costs: Costs) -> "WaitCosts":
        """Take the time of the same work without waits and with them, by `Wait` and 0 or 1."""
        before_call, between_steps = (
            max(costs.get((wait, 1), 0.0) - costs.get((wait, 0), 0.0), 0.0) if (wait, 0) in costs else 0.0
            for wait in Wait
        )
        return cls(before_call, between_steps / STEPS)
