from collections.abc import Callable

import pytest
from pytestqt.qtbot import QtBot

from rdchat.ui.benchmark.benchmark_window import BenchmarkWindow
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat


@pytest.fixture
def bench(chat: Chat, window: MainWindow) -> BenchmarkWindow:
    """The window over a loaded model."""
    chat.start()
    return window.windows.benchmark_window


type Run = Callable[[], None]


@pytest.fixture
def run(qtbot: QtBot, chat: Chat, bench: BenchmarkWindow) -> Run:
    """Run a benchmark to its end, or stop the one that runs."""

    def run() -> None:
        with qtbot.waitSignal(chat.controller.benchmark.ended):
            bench.start.click()

    return run
