"""The half of the tests' surroundings that has to do with windows: a pytest plugin beside pytest-qt.

`tests/conftest.py` takes it in wherever pytest-qt is. The engine's tests run without both.
"""

import gc
import os
import sys
import threading
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QFile
from PySide6.QtGui import QCursor, QGuiApplication
from pytestqt.qtbot import QtBot

from rdchat import host
from rdchat.services.app.event_loop import collect_if_due
from tests.fonts import PACKAGES, chosen_font, take_font

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
_has_font = take_font(chosen_font())
_PATIENCE_MS = 60_000  # of what waits for a condition or a signal: only what never comes takes it


def pytest_configure() -> None:
    """Wait for long, and collect cycles between tests, as the app does it.

    The engine threads of some tests must not collect the widgets of others.
    """
    if "FONT" in os.environ and not _has_font:
        where = f"; on Debian it is in {PACKAGES[chosen_font()]}" if chosen_font() in PACKAGES else ""
        raise pytest.UsageError(f"{chosen_font()} is not installed, or fontconfig does not choose fonts here{where}")
    gc.disable()
    # PySide reads the source of each imported module, to see whether it may want names in snake case; none does.
    vars(sys.modules["shibokensupport.feature"])["_mod_uses_pyside"] = lambda _module: False
    for wait in (QtBot.waitUntil, QtBot.waitSignal, QtBot.waitSignals, QtBot.waitExposed):
        wait.__kwdefaults__["timeout"] = _PATIENCE_MS  # pytest-qt's five seconds are too few on a busy machine


def pytest_runtest_logfinish() -> None:
    """Collect what a test left."""
    collect_if_due()


def pytest_unconfigure() -> None:
    """Let go of the clipboard's content, which Qt frees at the very end, also where a test made it in Python."""
    if isinstance(QGuiApplication.instance(), QGuiApplication):
        QGuiApplication.clipboard().clear()


@pytest.fixture(autouse=True)
def no_trash_of_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what tests delete out of a Mac's Trash, which Qt moves it to."""
    if host.MACOS:
        monkeypatch.setattr(QFile, "moveToTrash", lambda *_: False)


@pytest.fixture(autouse=True)
def pointer_out_of_the_way() -> None:
    """Take the pointer from where another test left it: a window that opens under it shows what it shows on hover."""
    if isinstance(QGuiApplication.instance(), QGuiApplication):
        QCursor.setPos(QGuiApplication.primaryScreen().geometry().bottomRight())


@pytest.fixture
def collected_on() -> Iterator[set[int]]:
    """The threads that collections run on, in a Python that collects by itself, as it starts."""
    threads: set[int] = set()

    def note(_phase: str, _facts: dict[str, int]) -> None:
        threads.add(threading.get_ident())

    gc.collect()  # none is due
    gc.callbacks.append(note)
    gc.enable()
    yield threads
    gc.disable()
    gc.callbacks.remove(note)
