"""Formulas are drawn once, in the background."""

import threading
from collections.abc import Callable, Iterator

import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.formulas import Formula, FormulaDrawer
from rdchat.ui.transcript.markdown.text_formats import FormulaLibrary


class Drawer(FormulaDrawer):
    """Draws nothing, and waits before each formula until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.may_draw = threading.Semaphore(0)
        self.begun: list[str] = []

    def draw_formula(self, tex: str, display: bool, waiting: Callable[[], None] = lambda: None) -> Formula | None:
        self.begun.append(tex)
        while not self.may_draw.acquire(timeout=0.01):
            waiting()
        return None if tex == "bad" else Formula("", 1, 1, 0)


@pytest.fixture
def drawer() -> Drawer:
    return Drawer()


@pytest.fixture
def library(drawer: Drawer) -> Iterator[FormulaLibrary]:
    library = FormulaLibrary(drawer)
    yield library
    for job in library._jobs.values():
        job.cancel()
    library._thread.wait_for_jobs()


def test_they_are_drawn_once_in_the_order_they_are_asked_for(
    qtbot: QtBot, drawer: Drawer, library: FormulaLibrary
) -> None:
    for tex in "abcb":
        library.find_picture(tex, True)
    drawer.may_draw.release(5)
    qtbot.waitUntil(lambda: library.is_known("c", True))
    assert drawer.begun == list("abc")


def test_what_cannot_be_drawn_is_not_tried_again(qtbot: QtBot, drawer: Drawer, library: FormulaLibrary) -> None:
    drawer.may_draw.release()
    library.find_picture("bad", True)
    qtbot.waitUntil(lambda: library.cannot_draw("bad", True))
    assert library.find_picture("bad", True) is None
    assert library.find_picture("good", True) is None
    drawer.may_draw.release()
    qtbot.waitUntil(lambda: library.find_picture("good", True) is not None)
    assert drawer.begun == ["bad", "good"]
