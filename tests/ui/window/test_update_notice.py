"""Banners about new versions."""

import pytest
from PySide6.QtWidgets import QLabel

from rdchat.hub.updates import Update
from rdchat.services.app import update_check
from rdchat.services.app.update_check import UpdateCheck
from rdchat.ui.conversation import notices
from rdchat.ui.conversation.notices import Banner
from rdchat.ui.settings import settings_window
from rdchat.ui.settings.settings_window import SettingsWindow
from rdchat.ui.style import Theme
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat

UPDATE = Update("9.0", "<b>Faster</b> & smaller.", "https://example.org/rdchat")


def _shown(window: MainWindow) -> Banner | None:
    return window.conversation.banners.banner("update")


@pytest.mark.parametrize("yes", [True, False])
def test_the_person_is_asked_first_and_told_of_a_new_version(
    chat: Chat, window: MainWindow, monkeypatch: pytest.MonkeyPatch, yes: bool
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(notices, "open_page", opened.append)
    monkeypatch.setattr(update_check, "newer_version", lambda _address: UPDATE)
    check = UpdateCheck(chat.settings, "https://example.org/newest")
    check.update_found.connect(window.conversation.notices.show_update)
    window.conversation.notices.look_for_updates(check)
    banner = _shown(window)
    assert "example.org" in banner.accessibleName()
    look, leave = banner.buttons
    (look if yes else leave).click()
    assert chat.settings.values.looks_for_updates is yes
    if yes:
        chat.qtbot.waitUntil(lambda: _shown(window) not in (None, banner))
        found = _shown(window)
        texts = [label.text() for label in found.findChildren(QLabel)]
        assert any(text.startswith("rdchat 9.0 is available") for text in texts)
        assert UPDATE.notes in texts
        found.buttons[0].click()
        assert opened == [UPDATE.page]
    else:
        window.conversation.notices.look_for_updates(check)
        assert _shown(window) is None
    check.cancel_check()


@pytest.mark.parametrize("address", ["", "https://example.org/newest"])
def test_settings_have_the_answer_where_there_is_an_address(
    theme: Theme, chat: Chat, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr(settings_window, "updates_address", lambda: address)
    window = SettingsWindow(chat.controller, theme)
    chat.qtbot.addWidget(window)
    window.show()
    assert hasattr(window, "updates") is bool(address)
    if address:
        window.updates.click()
        assert chat.settings.values.looks_for_updates
