"""A picture as plain data: lines, areas and texts from the top down, in CSS pixels. No Qt here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2
from typing import NamedTuple, Protocol

_TITLE_HEIGHT, _LINE_HEIGHT = 22.0, 18.0
_GAP = 28.0  # between pictures
_LEAST_RANGE = 1.25  # so that noise around 1 does not get the strongest colours
DASHED = (4.0, 2.0)  # dash and gap, in widths of the line


class Box(NamedTuple):
    """A rectangle in a picture."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def middle(self) -> float:
        return self.y + self.height / 2

    def inset(self, by: float) -> "Box":
        return Box(self.x + by, self.y + by, self.width - 2 * by, self.height - 2 * by)


@dataclass(frozen=True, slots=True)
class Shape:
    """A line through points, or the area between them if it is filled or closed."""

    points: tuple[tuple[float, float], ...]
    color: str = ""  # of the line; empty for none
    width: float = 1.0  # of the line
    dashes: tuple[float, ...] = ()  # dash and gap, in widths of the line; empty for a solid line
    fill: str = ""  # empty for none
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text, centred vertically in its box."""

    box: Box
    text: str
    color: str
    size: int
    bold: bool = False
    align: str = "left"  # or center, or right


class Mark(NamedTuple):
    """A part of a picture with a tooltip."""

    box: Box
    words: str


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours as SVG writes them; colour-blind people can tell the colours of a speed-up apart."""

    surface: str = "#ffffff"
    text: str = "#1d1d1f"
    muted: str = "#65656b"
    border: str = "#dcdce0"
    slower: str = "#c65d00"
    neutral: str = "#f2f2f4"  # as fast as plain decoding
    faster: str = "#1667b7"

    def of_speed(self, speed_up: float, fastest: float) -> str:
        """Return the colour of a speed-up: neutral at 1, orange below, blue above, stronger the further it is from 1.

        Args:
            speed_up: Above 0.
            fastest: The speed-up, or slow-down as its inverse, that gets the strongest colour.
        """
        return self.between(log2(speed_up) / log2(max(fastest, _LEAST_RANGE)))

    def between(self, share: float) -> str:
        """Return the colour from -1, the slowest, to 1, the fastest."""
        end, share = (self.faster if share > 0 else self.slower), min(abs(share), 1.0)
        pairs = zip(_channels(self.neutral), _channels(end), strict=True)
        return "#" + "".join(f"{round(one + (other - one) * share):02x}" for one, other in pairs)


PAPER = Palette()


Measure = Callable[[str, int, bool], float]
"""Returns the width of a text in pixels, given its size and whether it is bold."""


def rough_width(text: str, size: int, bold: bool) -> float:
    """Return the approximate width of a text in a sans-serif font, for output without a font to measure."""
    return len(text) * size * (0.62 if bold else 0.57)


class Drawing:
    """A picture that plots add to.

    Attributes:
        width: Plots fill it.
        height: Height so far; the next plot begins here.
        palette: The colours.
        shapes: Lines, areas and texts in drawing order.
        marks: Parts with a tooltip.
        words: A description of each plot for screen readers.
    """

    SIZE = 13  # of values and labels

    def __init__(self, width: float, palette: Palette, measure: Measure = rough_width) -> None:
        self.width, self.height, self.palette = width, 0.0, palette
        self.shapes: list[Shape | Text] = []
        self.marks: list[Mark] = []
        self.words: list[str] = []
        self._measure = measure

    def width_of(self, text: str, *, bold: bool = False) -> float:
        return self._measure(text, self.SIZE, bold)

    def heading(self, title: str, *lines: str) -> None:
        """Begin a plot with a title and smaller lines below it; `height` is then the top of the plot."""
        top = self.height + (_GAP if self.words else 0)
        self.text(Box(0, top, self.width, _TITLE_HEIGHT), title, more=2, bold=True)
        top += _TITLE_HEIGHT
        for line in lines:
            self.text(Box(0, top, self.width, _LINE_HEIGHT), line, "muted", more=-1)
            top += _LINE_HEIGHT
        self.height = top + 8

    def text(
        self, box: Box, text: str, color: str = "text", *, more: int = 0, bold: bool = False, align: str = "left"
    ) -> None:
        """Write one line, cut with an ellipsis where it does not fit.

        Args:
            box: The text is centred vertically in it.
            text: One line.
            color: A name of the palette, or a colour.
            more: Added to the font size `SIZE`, in pixels.
            bold: Whether the text is bold.
            align: `left`, `center` or `right`.
        """
        size = self.SIZE + more
        if self._measure(text, size, bold) > box.width + 1:
            while text and self._measure(f"{text}…", size, bold) > box.width + 1:
                text = text[:-1]
            text += "…"
        self.shapes.append(Text(box, text, self._color(color), size, bold, align))

    def line(
        self,
        points: Sequence[tuple[float, float]],
        color: str = "border",
        width: float = 1.0,
        dashes: tuple[float, ...] = (),
    ) -> None:
        self.shapes.append(Shape(tuple(points), self._color(color), width, dashes))

    def area(
        self, box: Box, fill: str = "", color: str = "", width: float = 1.0, dashes: tuple[float, ...] = ()
    ) -> None:
        """Draw a rectangle, filled or framed or both."""
        x, y, right, bottom = box.x, box.y, box.right, box.y + box.height
        self.polygon(((x, y), (right, y), (right, bottom), (x, bottom)), fill, color, width, dashes)

    def polygon(
        self,
        points: Sequence[tuple[float, float]],
        fill: str = "",
        color: str = "",
        width: float = 1.0,
        dashes: tuple[float, ...] = (),
    ) -> None:
        """Draw an area between points, filled or framed or both."""
        self.shapes.append(Shape(tuple(points), self._color(color), width, dashes, self._color(fill), closed=True))

    def mark(self, box: Box, words: str) -> None:
        """Give a part of the picture a tooltip."""
        self.marks.append(Mark(box, words))

    def _color(self, name: str) -> str:
        return str(getattr(self.palette, name, name)) if name else ""


class Plot(Protocol):
    """Adds itself below what a drawing already holds."""

    def draw(self, drawing: Drawing) -> None: ...


def ink_on(ground: str) -> str:
    """Return black or white, whichever has the higher contrast: one of them always has at least 4.5 to 1."""
    return "#000000" if luminance(ground) > 0.179 else "#ffffff"


def luminance(color: str) -> float:
    """Return the relative luminance of WCAG 2, from 0 to 1."""
    shares = [channel / 255 for channel in _channels(color)]
    red, green, blue = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _channels(color: str) -> tuple[int, int, int]:
    """Return red, green and blue of `#rrggbb`, from 0 to 255."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
