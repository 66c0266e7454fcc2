from collections.abc import Callable

import pytest
from pytestqt.qtbot import QtBot

from rdchat.ui.benchmark.benchmark_window import BenchmarkWindow
from rdchat.ui.style import Theme
from tests.ui.conftest import Chat


@pytest.fixture
def bench(qtbot: QtBot, chat: Chat, theme: Theme) -> BenchmarkWindow:
    """The window over a loaded model, without the main one."""
    chat.start()
    bench = BenchmarkWindow(chat.controller, theme)
    qtbot.addWidget(bench)
    return bench


type Run = Callable[[], None]


@pytest.fixture
def run(qtbot: QtBot, chat: Chat, bench: BenchmarkWindow) -> Run:
    """Run a benchmark to its end, or stop the one that runs."""

    def run() -> None:
        with qtbot.waitSignal(chat.controller.benchmark.ended):
            bench.start.click()

    return run
