"""Signals of the terminal end the app as its window does; cycles are collected on the main thread alone."""

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QWidget
from pytestqt.exceptions import capture_exceptions
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import Notice
from rdchat.services.app.event_loop import GarbageCollector, QuitSignals, UnexpectedErrors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_wakes_an_idle_event_loop(qtbot: QtBot, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    signals = QuitSignals()
    with qtbot.waitSignal(signals.quit_requested):
        os.kill(os.getpid(), number)
    signals.release()
    assert signal.getsignal(number) is before


HUNG = """
import signal, sys, threading
from PySide6.QtCore import QCoreApplication
from rdchat.services.app import event_loop
event_loop._LIMIT_S = 0.2
qt = QCoreApplication(sys.argv)
signals = event_loop.QuitSignals()
print("hangs", flush=True)
while True:
    threading.Event().wait()
"""


def test_a_signal_ends_a_process_whose_main_thread_hangs() -> None:
    with subprocess.Popen([sys.executable, "-c", HUNG], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hangs\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 1


def cycle() -> "weakref.ref[QWidget]":
    widget = QWidget()
    vars(widget)["itself"] = widget
    return weakref.ref(widget)


def make_garbage() -> None:
    for _ in range(20_000):
        ring: list[object] = []
        ring.append(ring)


@pytest.fixture
def collector(qtbot: QtBot, collected_on: set[int]) -> Iterator[GarbageCollector]:
    collector = GarbageCollector()
    yield collector
    collector.release()
    assert gc.isenabled()
    gc.unfreeze()
    gc.collect()
    gc.freeze()  # as `conftest` has it


@pytest.mark.slow
def test_another_threads_garbage_is_left_to_the_main_thread(
    qtbot: QtBot, collector: GarbageCollector, collected_on: set[int]
) -> None:
    collected_on.clear()
    widget = cycle()
    thread = threading.Thread(target=make_garbage)
    thread.start()
    thread.join()
    assert not collected_on
    assert widget() is not None
    qtbot.waitUntil(lambda: widget() is None)
    assert collected_on == {threading.get_ident()}


@pytest.mark.slow
def test_only_modules_are_spared_from_collection_however_many_models_are_loaded(collector: GarbageCollector) -> None:
    """A window's cycles of an hour with 90 loads were kept for ever."""
    collector.spare_modules()
    assert len(gc.get_objects()) < 1000
    widget = cycle()
    collector.spare_modules()
    gc.collect()
    assert widget() is None


@pytest.fixture
def errors(qtbot: QtBot) -> Iterator[UnexpectedErrors]:
    errors = UnexpectedErrors()
    yield errors
    errors.release()


def fail() -> None:
    raise KeyError("shape")


def test_an_error_of_a_slot_is_shown_and_logged(
    qtbot: QtBot, errors: UnexpectedErrors, caplog: pytest.LogCaptureFixture
) -> None:
    with qtbot.waitSignal(errors.raised) as said:
        QTimer.singleShot(0, fail)
    (notice,) = said.args or ()
    assert isinstance(notice, Notice)
    assert notice.title == "Something unexpected went wrong"
    assert "KeyError" in notice.detail
    assert "shape" not in notice.detail  # an error's text may be the person's
    assert "KeyError: 'shape'" in caplog.text


def test_an_error_of_showing_it_does_not_show_it_again(qtbot: QtBot, errors: UnexpectedErrors) -> None:
    shown: list[Notice] = []

    def show(notice: Notice) -> None:
        shown.append(notice)
        fail()

    errors.raised.connect(show)
    with qtbot.waitSignal(errors.raised):
        QTimer.singleShot(0, fail)
    done: list[int] = []
    QTimer.singleShot(0, lambda: done.append(1))
    qtbot.waitUntil(lambda: done == [1])
    assert len(shown) == 1


def test_the_processes_own_hook_comes_back(qtbot: QtBot) -> None:
    with capture_exceptions():
        before = sys.excepthook
        errors = UnexpectedErrors()
        assert sys.excepthook != before
        errors.release()
        assert sys.excepthook is before
