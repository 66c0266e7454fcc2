"""How much memory models could take on this machine. Plain data, no MLX."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelRoom:
    """The memory that one model could take if nothing else ran.

    Attributes:
        limit_bytes: More than this is refused, unless the person wants it all the same.
        keeps_quantised: Whether quantised weights stay as they are, as on a GPU; on a CPU they become float32.
        total_bytes: Of the machine.
    """

    limit_bytes: int
    keeps_quantised: bool
    total_bytes: int
