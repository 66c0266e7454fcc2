"""Nothing leaves the machine but what the person asked for: every connection is refused and noted."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from rdchat.ui.style import show_in_front
from rdchat.ui.window.main_window import MainWindow
from tests.connections import Refused, all_refused
from tests.services.fakes import Reply
from tests.services.models.macs import sources
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import press_key

__all__ = ["sources"]

LURES = (
    "![a](https://lure.example/a.png) <img src='https://lure.example/b.png'> https://lure.example/c\n\n"
    "[d](https://lure.example/d)\n\n<script src='https://lure.example/e.js'></script>\n"
)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Refused]:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    with all_refused(monkeypatch) as refused:
        yield refused


def show(qtbot: QtBot, window: QWidget) -> None:
    show_in_front(window)
    qtbot.waitExposed(window)
    qtbot.wait(50)


@pytest.mark.slow
def test_a_whole_chat_and_every_window_ask_nobody(
    qtbot: QtBot, refused: Refused, window: MainWindow, chat: Chat
) -> None:
    chat.engine.replies = [Reply(tokens=(LURES,))]
    chat.start()
    for question in ("Hello", LURES):
        chat.say(question)
    chat.write_again()
    windows = window.windows
    show(qtbot, windows.ledger)
    windows.show_tokens(chat.path[-1].id)
    windows.open_benchmark("Who?")
    show(qtbot, windows.benchmark_window)
    show(qtbot, window.settings_window)
    for place in range(window.settings_window.tabs.count()):
        window.settings_window.tabs.setCurrentIndex(place)
        qtbot.wait(20)
    window.commands.show_versions()
    models = windows.models
    for page in (models.installed, models.discover, models.downloads, models.drafters):
        models.show_page(page)
        qtbot.waitExposed(models)
        qtbot.wait(300)  # searches on the disk end, and whatever would ask somebody begins
    models.show_page(models.discover)
    qtbot.waitUntil(lambda: models.discover.list.count() > 2)
    assert refused.all() == []
    windows.end_background_work()


@pytest.mark.slow
def test_a_search_asks_the_hub_and_nobody_else(qtbot: QtBot, refused: Refused, window: MainWindow) -> None:
    """What the other test finds none of is found here."""
    models = window.windows.models
    models.show_page(models.discover)
    field = models.discover.bar.field
    qtbot.keyClicks(field, "qwen")
    press_key(field, "Return")
    search = models.discover._models.search
    qtbot.waitUntil(lambda: not search.state.asking)
    assert search.state.trouble.message == "huggingface.co cannot be reached."
    assert set(refused.all()) == {"look up huggingface.co"}
    window.windows.end_background_work()
