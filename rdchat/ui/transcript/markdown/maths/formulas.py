"""The pictures of formulas: each is asked for once, drawn in a process of its own, and kept."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from rdchat.chat.formulas.formula_drawer import Formula, FormulaDrawer
from rdchat.work.job import Job, StopWork
from rdchat.work.serial_thread import SerialThread

_MOST = 4000  # pictures that are kept

Key = tuple[str, bool]  # TeX, and whether it stands on its own


class FormulaLibrary:
    """Formulas by their TeX. A text asks for them, and looks again until they are there.

    Args:
        drawer: Draws one; used on the library's own thread alone.
    """

    def __init__(self, drawer: FormulaDrawer | None = None) -> None:
        self._drawer = drawer or FormulaDrawer()
        self._thread = SerialThread("formulas")
        self._guard = threading.Lock()
        self._known: dict[Key, Formula | None] = {}
        self._wanted: OrderedDict[Key, None] = OrderedDict()  # the next one first
        self._drawn_now: Key | None = None
        self._closed = False

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

    def hurry(self, keys: Iterable[Key]) -> None:
        """Draw these before all others, in their order: they are in view."""
        with self._guard:
            for key in reversed([key for key in keys if key in self._wanted]):
                self._wanted.move_to_end(key, last=False)

    def close(self) -> None:
        """End the drawing, for the app ends. Idempotent."""
        self._closed = True
        self._thread.close()
        self._drawer.close()

    def _check(self) -> None:
        if self._closed:
            raise StopWork

    def _ask(self, key: Key) -> None:
        with self._guard:
            if key in self._wanted or key == self._drawn_now or self._closed:
                return
            self._wanted[key] = None
        self._thread.do(self._draw_next)

    def _draw_next(self, _job: Job[Any]) -> None:
        with self._guard:
            self._drawn_now = key = self._wanted.popitem(last=False)[0]
        self._check()
        formula = self._drawer.draw(*key, self._check)
        with self._guard:
            self._known[key] = formula
            self._drawn_now = None
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]


FORMULAS = FormulaLibrary()
"""One for all texts: a picture is the same in each of them."""
