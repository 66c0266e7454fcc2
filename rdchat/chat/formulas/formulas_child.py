"""The child process that draws formulas, `rdchat --child formulas`; ziamath holds Python's lock for long."""

import re
from dataclasses import asdict
from typing import Any

import ziamath

from rdchat.chat.formulas.formula_drawer import INK, UNITS, Formula
from rdchat.work.job import Job
from rdchat.work.served import serve

# A picture's width limit, in its own pixels.
_WIDEST = 20_000.0
_LABEL = re.compile(r"\\(?:label\{[^{}]*\}|nonumber\b|notag\b)")
_TAG = re.compile(r"\\tag\*?\{([^{}]*)\}")
_ALIGNED = re.compile(r"\\(begin|end)\{(?:align|alignat|eqnarray|multline|split)\*?\}(?:\{\d\})?")
_GATHERED = re.compile(r"\\(begin|end)\{gather\*?\}")
_WRAPPER = re.compile(r"\\(?:begin|end)\{(?:equation|displaymath|math)\*?\}")
_MATRIX = re.compile(r"\\(?:(begin)|end)\{[a-zA-Z]*matrix\*?\}")
_UNKNOWN = re.compile(r"<m[io][^>]*>\\[A-Za-z]+</m[io]>|<m[io]>\\</m[io]>")

# This draws glyphs as outlines, because QtSvg does not support symbols.
ziamath.config.svg2 = False


def draw_formula(tex: str, display: bool) -> Formula | None:
    """Return a formula's picture; None for one that cannot be drawn completely."""
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
    """Return TeX without equation numbers, and with braces around matrices: ziamath needs them for exponents."""
    tex = _TAG.sub(r"\\qquad\\text{(\1)}", _LABEL.sub("", _WRAPPER.sub("", tex)))
    tex = _MATRIX.sub(lambda edge: f"{{{edge[0]}" if edge[1] else f"{edge[0]}}}", tex)
    return _GATHERED.sub(r"\\\1{gathered}", _ALIGNED.sub(r"\\\1{aligned}", tex))


def main() -> int:
    """Answer requests until the parent ends."""
    # The first drawing reads the font.
    return serve({"draw": _draw}, prepare=lambda: draw_formula("x", True))


def _draw(_job: Job[Any], tex: str, display: bool) -> dict[str, Any] | None:
    formula = draw_formula(tex, display)
    return asdict(formula) if formula else None
