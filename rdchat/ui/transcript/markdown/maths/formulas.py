"""The pictures of formulas: each is asked for once, drawn in a process of its own, and kept."""

import atexit
import threading
from collections import OrderedDict
from collections.abc import Iterable

from rdchat.chat.formulas.formula import Formula
from rdchat.chat.formulas.formula_drawer import FormulaDrawer

_MOST = 4000  # pictures that are kept
_IDLE_S = 60.0  # without a formula, after which the process ends
_END_S = 2.0

Key = tuple[str, bool]  # TeX, and whether it stands on its own


class _ClosedError(Exception):
    """The app ends."""


class FormulaLibrary:
    """Formulas by their TeX. A text asks for them, and looks again until they are there.

    Args:
        drawer: Draws one; used on the library's own thread alone.
        idle_s: How long the drawer is kept without anything to draw.
    """

    def __init__(self, drawer: FormulaDrawer | None = None, idle_s: float = _IDLE_S) -> None:
        self._drawer = drawer or FormulaDrawer()
        self._idle_s = idle_s
        self._changed = threading.Condition()
        self._known: dict[Key, Formula | None] = {}
        self._wanted: OrderedDict[Key, None] = OrderedDict()  # the next one first
        self._drawn_now: Key | None = None
        self._thread: threading.Thread | None = None
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
        with self._changed:
            for key in reversed([key for key in keys if key in self._wanted]):
                self._wanted.move_to_end(key, last=False)

    def close(self) -> None:
        """End the drawing, for the app ends. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_END_S)

    def _ask(self, key: Key) -> None:
        with self._changed:
            if key in self._wanted or key == self._drawn_now or self._closed:
                return
            self._wanted[key] = None
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="formulas", daemon=True)
                self._thread.start()
                atexit.register(self.close)

    def _work(self) -> None:
        try:
            while True:
                key = self._next()
                formula = self._drawer.draw(*key, self._check)
                with self._changed:
                    self._known[key] = formula
                    self._drawn_now = None
                    if len(self._known) > _MOST:
                        del self._known[next(iter(self._known))]
        except _ClosedError:
            self._drawer.close()

    def _check(self) -> None:
        if self._closed:
            raise _ClosedError

    def _next(self) -> Key:
        """Wait for what is wanted next; the drawer ends where that takes long."""
        idle: float | None = self._idle_s
        while True:
            with self._changed:
                come = self._changed.wait_for(lambda: self._wanted or self._closed, idle)
                self._check()
                if self._wanted:
                    self._drawn_now, _ = self._wanted.popitem(last=False)
                    return self._drawn_now
            if not come:
                self._drawer.close()
                idle = None


FORMULAS = FormulaLibrary()
"""One for all texts: a picture is the same in each of them."""
