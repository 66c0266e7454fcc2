"""The picture of a formula, as it comes from the process that draws it."""

from dataclasses import dataclass

UNITS = 20.0  # the font size that pictures are made for, in their own pixels; rows stand 3 of them apart
INK = "#010203"  # what stands for the text's colour in a picture


@dataclass(frozen=True, slots=True)
class Formula:
    """A picture.

    Attributes:
        svg: Outlines only, drawn in `INK`.
        width: In its own pixels, as are the others.
        ascent: From the baseline up.
        depth: From the baseline down.
    """

    svg: str
    width: float
    ascent: float
    depth: float
