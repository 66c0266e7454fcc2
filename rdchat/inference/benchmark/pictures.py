"""What the pictures of a benchmark show: plain frozen data. No MLX and no Qt here."""

from collections.abc import Mapping
from dataclasses import dataclass

from rdchat.inference.api.bench_results import Figure


@dataclass(frozen=True, slots=True)
class SpeedBars:
    """Speed-up over plain decoding as bars.

    Attributes:
        groups: For each precision, such as `float16`, its bars: what was measured, in a few words, and its speed-up (1
            is plain decoding).
    """

    groups: tuple[tuple[str, tuple[tuple[str, Figure], ...]], ...]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Speed-up of the drafter head over beam width x beam length, for one precision.

    Attributes:
        dtype: The precision.
        widths: Beam widths that were measured, ascending.
        lengths: Beam lengths that were measured, ascending.
        values: Median speed-up at (beam width, beam length); pairs that were not measured are missing.
        reference: What 1 is.
    """

    dtype: str
    widths: tuple[int, ...]
    lengths: tuple[int, ...]
    values: Mapping[tuple[int, int], float]
    reference: str = "Plain decoding"

    @property
    def best(self) -> tuple[int, int] | None:
        """The fastest pair, of equals the smallest; None where nothing was measured."""
        return max(sorted(self.values), key=lambda pair: self.values[pair], default=None)


@dataclass(frozen=True, slots=True)
class Pictures:
    """Everything that a benchmark has to draw: bars for all precisions, and a heat map for each with several beams."""

    bars: SpeedBars
    maps: tuple[HeatMap, ...] = ()
