"""Draws TeX formulas in a child process, `rdchat --child formulas`, with limits of time and memory.

ziamath holds Python's lock for long, so no window could draw meanwhile.
"""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from rdchat.errors import RdchatError
from rdchat.work import ChildProcess, Job, Limits, serve

UNITS = 20.0
"""Font size of the pictures, in their own pixels."""
INK = "#010203"
"""Stands for the text's colour in a picture."""
# Drawing a matrix as long as a page takes a tenth of a second.
_SECONDS = 2.0
_MEMORY_BYTES = 512 << 20
# The child is ended after this time without a formula.
_IDLE_S = 60.0
# A picture's width limit, in its own pixels.
_WIDEST = 20_000.0
# Parts of LaTeX that ziamath does not know: `_prepared` removes or replaces them.
_LABEL = re.compile(r"\\(?:label\{[^{}]*\}|nonumber\b|notag\b)")
_TAG = re.compile(r"\\tag\*?\{([^{}]*)\}")
_ALIGNED = re.compile(r"\\(begin|end)\{(?:align|alignat|eqnarray|multline|split)\*?\}(?:\{\d\})?")
_GATHERED = re.compile(r"\\(begin|end)\{gather\*?\}")
_WRAPPER = re.compile(r"\\(?:begin|end)\{(?:equation|displaymath|math)\*?\}")
_MATRIX = re.compile(r"\\(?:(begin)|end)\{[a-zA-Z]*matrix\*?\}")
# MathML of a command that ziamath did not know: it writes its name.
_UNKNOWN = re.compile(r"<m[io][^>]*>\\[A-Za-z]+</m[io]>|<m[io]>\\</m[io]>")


@dataclass(frozen=True, slots=True)
class Formula:
    """The picture of a formula.

    Attributes:
        svg: The SVG, which has outlines only, in `INK`.
        width: Width, in the picture's own pixels.
        ascent: Height above the baseline, in the same pixels.
        depth: Height below the baseline, in the same pixels.
    """

    svg: str
    width: float
    ascent: float
    depth: float


class FormulaDrawer:
    """Draws one formula at a time, on the calling thread; the child starts with the first formula.

    Args:
        seconds: Time limit for a formula.
        memory_bytes: Memory limit of the child for a formula.
    """

    def __init__(self, seconds: float = _SECONDS, memory_bytes: int = _MEMORY_BYTES) -> None:
        self.child = ChildProcess("formulas", idle_s=_IDLE_S)
        self._limits = Limits(seconds, memory_bytes)

    def draw_formula(self, tex: str, display: bool, waiting: Callable[[], None] = lambda: None) -> Formula | None:
        """Return a formula's picture; None for one that cannot be drawn, or not within the limits.

        Args:
            tex: The formula.
            display: Whether it is on a line of its own.
            waiting: Called every 20 ms; an exception from it ends the child and is raised.
        """
        try:
            job = self.child.submit("draw", {"tex": tex, "display": display}, self._limits, read=_formula_of)
            formula: Formula | None = job.result(waiting)
        except RdchatError:
            return None
        return formula


def _formula_of(drawn: Any) -> Formula | None:
    return Formula(**drawn) if drawn else None


# The child's own side


def main() -> int:
    """Answer requests until the parent ends."""
    # The first drawing reads the font.
    return serve({"draw": _draw}, prepare=lambda: draw_formula("x", True))


def _draw(_job: Job[Any], tex: str, display: bool) -> dict[str, Any] | None:
    formula = draw_formula(tex, display)
    return asdict(formula) if formula else None


def draw_formula(tex: str, display: bool) -> Formula | None:
    """Return a formula's picture; None for one that cannot be drawn completely."""
    import ziamath  # noqa: PLC0415  only the child needs it

    # This draws glyphs as outlines, because QtSvg does not support symbols.
    ziamath.config.svg2 = False
    try:
        maths = ziamath.Latex(_prepared(tex), size=UNITS, color=INK, inline=not display, margin=0)
        if _UNKNOWN.search(maths.mathmlstr()):
            return None
        width, height = maths.getsize()
        depth = -maths.getyofst()
        svg = maths.svg()
    except Exception:
        # A model may write anything. The window then shows the source.
        return None
    if not (0 < width < _WIDEST and 0 < height < _WIDEST):
        return None
    return Formula(svg, width, height - depth, depth)


def _prepared(tex: str) -> str:
    """Return TeX that ziamath knows: without labels, a tag as text at the end, and other environments as similar ones.

    Matrices get braces around them, which ziamath needs for exponents.
    """
    tex = _TAG.sub(r"\\qquad\\text{(\1)}", _LABEL.sub("", _WRAPPER.sub("", tex)))
    tex = _MATRIX.sub(lambda edge: f"{{{edge[0]}" if edge[1] else f"{edge[0]}}}", tex)
    return _GATHERED.sub(r"\\\1{gathered}", _ALIGNED.sub(r"\\\1{aligned}", tex))
