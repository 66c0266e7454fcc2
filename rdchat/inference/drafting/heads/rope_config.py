"""Rotary positions of a drafter, as its configuration has them: plain data, without MLX."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary positions, as `mlx_lm.models.rope_utils.initialize_rope` takes them.

    Attributes:
        theta: Base of the frequencies.
        scaling: Its kind and numbers; None for none.
        traditional: Whether neighbouring numbers make a pair, not those half a head apart.
        max_positions: Positions that the drafter was made for.
    """

    theta: float
    scaling: dict[str, Any] | None = None
    traditional: bool = False
    max_positions: int = 0
