"""Turns TeX into pictures of formulas, in a thread of its own, each once."""

import re
import sys
import threading
from collections import deque
from dataclasses import dataclass

UNITS = 20.0  # the font size that pictures are made for, in their own pixels; rows stand 3 of them apart
INK = "#010203"  # what stands for the text's colour in a picture
_MOST = 4000  # pictures that are kept
_SWITCH_S = 0.0001
_WIDEST = 20_000.0  # of a picture, in its own pixels
_LABEL = re.compile(r"\\(?:label\{[^{}]*\}|nonumber\b|notag\b)")
_TAG = re.compile(r"\\tag\*?\{([^{}]*)\}")
_ALIGNED = re.compile(r"\\(begin|end)\{(?:align|alignat|eqnarray|multline|split)\*?\}(?:\{\d\})?")
_GATHERED = re.compile(r"\\(begin|end)\{gather\*?\}")
_WRAPPER = re.compile(r"\\(?:begin|end)\{(?:equation|displaymath|math)\*?\}")
_UNKNOWN = re.compile(r"<m[io][^>]*>\\[A-Za-z]+</m[io]>|<m[io]>\\</m[io]>")


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


Key = tuple[str, bool]  # TeX, and whether it stands on its own


class FormulaLibrary:
    """Formulas by their TeX. A text asks for them, and looks again until they are there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Key, Formula | None] = {}
        self._wanted: deque[Key] = deque()
        self._asked: set[Key] = set()
        self._running = False

    def find(self, tex: str, display: bool) -> Formula | None:
        """Return a formula's picture; None while it is not drawn, or where it cannot be. Asks for it."""
        key = tex, display
        formula = self._known.get(key)
        if formula is None and key not in self._known:
            self._ask(key)
        return formula

    def cannot_draw(self, tex: str, display: bool) -> bool:
        """Whether it was tried, in vain."""
        return self._known.get((tex, display), True) is None

    def is_known(self, tex: str, display: bool) -> bool:
        """Whether it was drawn, or tried in vain."""
        return (tex, display) in self._known

    def _ask(self, key: Key) -> None:
        with self._lock:
            if key in self._asked:
                return
            self._asked.add(key)
            self._wanted.append(key)
            if self._running:
                return
            self._running = True
        threading.Thread(target=self._work, name="formulas", daemon=True).start()

    def _work(self) -> None:
        # what else runs, above all the window, waits for Python's lock at most so long each time that it wants it
        before = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        try:
            self._draw_wanted()
        finally:
            sys.setswitchinterval(before)

    def _draw_wanted(self) -> None:
        while True:
            with self._lock:
                if not self._wanted:
                    self._running = False
                    return
                key = self._wanted.popleft()
            formula = draw_formula(*key)
            with self._lock:
                self._known[key] = formula
                self._asked.discard(key)
                if len(self._known) > _MOST:
                    del self._known[next(iter(self._known))]


def draw_formula(tex: str, display: bool) -> Formula | None:
    """Return a formula's picture; None for one that cannot be drawn whole."""
    import ziamath  # noqa: PLC0415  # takes 0.4 s

    ziamath.config.svg2 = False  # glyphs as outlines: QtSvg knows no symbols
    try:
        maths = ziamath.Latex(_prepared(tex), size=UNITS, color=INK, inline=not display, margin=0)
        if _UNKNOWN.search(maths.mathmlstr()):
            return None
        width, height = maths.getsize()
        depth = -maths.getyofst()
        svg = maths.svg()
    except Exception:  # whatever it is that a model wrote: the source is shown instead
        return None
    if not (0 < width < _WIDEST and 0 < height < _WIDEST):
        return None
    return Formula(svg, width, height - depth, depth)


def _prepared(tex: str) -> str:
    """Return TeX without what numbers equations."""
    tex = _TAG.sub(r"\\qquad\\text{(\1)}", _LABEL.sub("", _WRAPPER.sub("", tex)))
    return _GATHERED.sub(r"\\\1{gathered}", _ALIGNED.sub(r"\\\1{aligned}", tex))


FORMULAS = FormulaLibrary()
"""One for all texts: a picture is the same in each of them."""
