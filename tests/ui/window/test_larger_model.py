"""The line that offers a larger model: at the first starts, until one was loaded or the person declined."""

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton
from pytestqt.qtbot import QtBot

from rdchat.chat.settings import SettingsStore
from rdchat.services.models.newcomers import LargerModel
from rdchat.services.models.service_base import DeviceMemory
from rdchat.ui.conversation.banner import Banner
from rdchat.ui.window.main_window import MainWindow
from tests.services.models.macs import mac, sources
from tests.ui.conftest import Chat

__all__ = ["sources"]

WORDS = "The default model is small. Gemma 4 12B, a download of 7.59 GB, fits this machine."


def offered(window: MainWindow) -> Banner | None:
    return window.conversation.banners.banner("larger model")


def wait_for_offer(qtbot: QtBot, window: MainWindow) -> Banner:
    qtbot.waitUntil(lambda: offered(window) is not None)
    banner = offered(window)
    assert banner is not None
    assert banner.accessibleName() == WORDS
    return banner


def press(qtbot: QtBot, banner: Banner, name: str) -> None:
    buttons = banner.findChildren(QAbstractButton)
    button = next(each for each in buttons if name in (each.text(), each.accessibleName()))
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def test_the_default_model_is_said_to_be_small(qtbot: QtBot, window: MainWindow, chat: Chat) -> None:
    window.conversation.notices.offer_larger_model(window.windows.memory, window.windows.open_discover)
    assert offered(window) is None
    chat.start()
    wait_for_offer(qtbot, window)
    chat.say("Hello")
    assert offered(window) is not None


@pytest.mark.slow
def test_its_button_opens_discover_at_the_model(
    qtbot: QtBot, window: MainWindow, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    window.conversation.notices.offer_larger_model(window.windows.memory, window.windows.open_discover)
    chat.start()
    press(qtbot, wait_for_offer(qtbot, window), "Get a Larger One…")
    models = window.windows.models
    qtbot.waitUntil(models.isVisible)
    assert models.discover.isVisible()
    details = models.discover._models.details
    qtbot.waitUntil(lambda: details.model is not None and details.model.trouble is not None)
    assert details.model is not None
    assert details.model.repository == "mlx-community/gemma-4-12B-it-4bit"
    assert not chat.controller.settings.values.larger_model_declined
    assert offered(window) is not None, "nothing was downloaded yet"
    window.windows.close()


def test_put_away_it_stays_away(qtbot: QtBot, window: MainWindow, chat: Chat) -> None:
    window.conversation.notices.offer_larger_model(window.windows.memory, window.windows.open_discover)
    chat.start()
    press(qtbot, wait_for_offer(qtbot, window), "Close this notice")
    assert offered(window) is None
    assert chat.controller.settings.values.larger_model_declined
    chat.controller.model_slot.load(None)
    qtbot.waitUntil(lambda: chat.controller.model_slot.info is not None)
    qtbot.wait(20)
    assert offered(window) is None


def test_it_is_remembered_that_it_was_put_away(chat: Chat) -> None:
    settings = chat.controller.settings
    settings.change(replace(settings.values, larger_model_declined=True))
    path = chat.store.path.parent / "settings.json"
    assert SettingsStore(path).settings.larger_model_declined


def test_another_model_ends_it_for_good(qtbot: QtBot, window: MainWindow, chat: Chat) -> None:
    window.conversation.notices.offer_larger_model(window.windows.memory, window.windows.open_discover)
    chat.start()
    wait_for_offer(qtbot, window)
    chat.controller.model_slot.load("better")
    assert offered(window) is None
    qtbot.waitUntil(lambda: chat.controller.model_slot.info is not None)
    chat.controller.model_slot.load(None)
    qtbot.waitUntil(lambda: chat.controller.model_slot.info is not None)
    assert offered(window) is None


def test_a_machine_that_no_larger_model_fits_is_offered_none(qtbot: QtBot, chat: Chat) -> None:
    tiny = DeviceMemory(lambda: mac(2).memory)
    larger = LargerModel(chat.controller, tiny)
    chat.start()
    qtbot.waitUntil(lambda: tiny.now is not None)
    assert larger.offered is None
    tiny.close()
