"""Signals of the terminal end the app the way its window does."""

import os
import signal

import pytest
from pytestqt.qtbot import QtBot

from rdchat.services.app.quit_signals import QuitSignals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_wakes_an_idle_event_loop(qtbot: QtBot, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    signals = QuitSignals()
    with qtbot.waitSignal(signals.quit_requested, timeout=5000):
        os.kill(os.getpid(), number)
    signals.release()
    assert signal.getsignal(number) is before
