"""The item in the menu bar, an app whose window is closed, and how the end of a reply is reported."""

from dataclasses import replace

import pytest
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QApplication, QMessageBox, QSystemTrayIcon

from rdchat import host
from rdchat.inference.api import Statistics
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.window.main_window import MainWindow
from rdchat.ui.window.menu_bar_item import MenuBarItem
from tests.processes import held_by_another_process
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import close_by_hand, entries_of

# The offscreen platform has no tray.
pytestmark = pytest.mark.qt_log_ignore("systemTrayWindowChanged", extend=True)


@pytest.fixture
def staying(monkeypatch: pytest.MonkeyPatch, chat: Chat, window: MainWindow) -> MainWindow:
    monkeypatch.setattr(MenuBarItem, "isSystemTrayAvailable", staticmethod(lambda: True))
    chat.settings.change_values(menu_bar_item=True, stays_open=True)
    return window


def opened(window: MainWindow) -> dict[str, QAction]:
    return {text: action for text, action in entries_of(window.menu_bar_item.menu).items() if text}


def test_the_menu_says_what_the_model_does_and_stops_it(chat: Chat, staying: MainWindow) -> None:
    chat.start()
    entries = opened(staying)
    assert (next(iter(entries)), entries["Stop Reply"].isEnabled()) == ("tiny  ·  Ready", False)
    chat.pause_reply("Hello")
    fast = replace(Statistics(), generated_tokens=101, decode_ms=2000.0)
    chat.controller.replies.statistics_changed.emit(fast)
    entries = opened(staying)
    assert next(iter(entries)) == "tiny  ·  Writing…  ·  50.0 tokens/s"
    entries["Stop Reply"].trigger()
    chat.wait_for(EngineState.IDLE)


def test_the_menu_has_entries_before_it_opens_and_no_more_afterwards(staying: MainWindow) -> None:
    """macOS may open an empty menu without asking for its entries."""
    before = [action.text() for action in staying.menu_bar_item.menu.actions()]
    assert before[-1] == "Quit rdchat"
    assert len(opened(staying)) == len(list(filter(None, before)))


def test_the_icon_in_the_dock_bounces_for_a_moment_only(staying: MainWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a time macOS has it bounce until the person comes."""
    alerts: list[tuple[object, int]] = []
    monkeypatch.setattr(QApplication, "alert", lambda window, duration_ms=0: alerts.append((window, duration_ms)))
    monkeypatch.setattr(MenuBarItem, "showMessage", lambda *_: None)
    staying.menu_bar_item.notify("The reply is finished.", 1)
    ((window, duration_ms),) = alerts
    assert window is staying
    assert 0 < duration_ms <= 2000


def test_its_entries_open_chats_and_windows(chat: Chat, staying: MainWindow) -> None:
    chat.start()
    for text in ("One & two", "Three"):
        chat.open.start_new()
        chat.say(text)
    staying.hide()
    entries = opened(staying)
    assert list(entries)[2:6] == ["Quick Window", "Three", "One && two", "Server"]
    entries["One && two"].trigger()
    assert (staying.isVisible(), chat.open.conversation.title) == (True, "One & two")
    entries["Quick Window"].trigger()
    assert staying.windows.quick.isVisible()
    entries["Server"].trigger()
    chat.qtbot.waitUntil(lambda: bool(chat.controller.server.address))
    entries = opened(staying)
    name = f"Server · {chat.controller.server.address}"
    assert entries[name].isChecked()
    entries[name].trigger()
    assert not chat.controller.server.on


def test_closing_hides_the_window_and_the_reply_goes_on(chat: Chat, staying: MainWindow) -> None:
    chat.start()
    chat.hold_reply("A story")
    staying.conversation.composer.set_text("typed")
    staying.activateWindow()
    staying.actions_.close_window.trigger()
    assert not staying.isVisible()
    chat.finish_reply()
    assert chat.path[-1].text == "Hello, you!"
    opened(staying)["Open rdchat"].trigger()
    assert (staying.isVisible(), staying.conversation.composer.text) == (True, "typed")
    assert not close_by_hand(staying)
    assert not staying.isVisible()
    assert staying.menu_bar_item.isVisible()
    chat.settings.change_values(menu_bar_item=False)
    assert not staying.menu_bar_item.isVisible()
    assert staying.isVisible() is not host.MACOS, "nothing but a Dock would bring it back"
    chat.settings.change_values(menu_bar_item=True)
    with chat.qtbot.waitSignal(staying.closed):
        opened(staying)["Quit rdchat"].trigger()
    assert not staying.menu_bar_item.isVisible()


@pytest.mark.parametrize("settings", [{"menu_bar_item": False}, {"stays_open": False}])
def test_closing_quits_where_nothing_would_bring_the_window_back(
    chat: Chat, staying: MainWindow, settings: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "MACOS", False)
    chat.settings.change_values(**settings)
    with chat.qtbot.waitSignal(staying.closed):
        assert close_by_hand(staying)


def test_quitting_without_a_window_shows_it_with_the_question_until_the_text_is_stored(
    chat: Chat, staying: MainWindow
) -> None:
    chat.start()
    chat.hold_reply("A story")
    assert not close_by_hand(staying)
    with held_by_another_process(chat.store.path):
        chat.finish_reply()
        opened(staying)["Quit rdchat"].trigger()
        (box,) = staying.findChildren(QMessageBox, "unsaved")
        assert (box.isVisible(), staying.isVisible()) == (True, True)
    chat.qtbot.waitUntil(lambda: not staying.isVisible())
    assert chat.store.messages(chat.path[0].conversation_id)[-1].text == "Hello, you!"
    assert not [*chat.store.path.parent.glob("unsaved-replies-*.md")]


_LONG = Statistics(prompt_tokens=8, generated_tokens=400, ttft_ms=500, decode_ms=12_000)


def test_a_long_reply_that_ends_in_the_background_is_notified(
    chat: Chat, window: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[str, str]] = []
    monkeypatch.setattr(
        QSystemTrayIcon, "showMessage", lambda _icon, title, text, _picture: shown.append((title, text))
    )
    monkeypatch.setattr(QSystemTrayIcon, "isSystemTrayAvailable", staticmethod(lambda: True))
    monkeypatch.setattr(QSystemTrayIcon, "show", lambda _icon: None)
    chat.start("What is a heron?")
    assert window.accessibleDescription() == "The reply is finished."
    reply = chat.path[-1]
    chat.controller.replies.ended.emit(replace(reply, statistics=_LONG))
    monkeypatch.setattr(QApplication, "activeWindow", lambda: None)
    chat.controller.replies.ended.emit(replace(reply, statistics=replace(_LONG, decode_ms=9_000)))
    assert not shown, "the person sees the window, or the reply was a short one"
    chat.controller.replies.ended.emit(replace(reply, statistics=_LONG))
    assert shown == [("rdchat", "The reply is finished.")]
    chat.open.start_new()
    (item,) = window.findChildren(QSystemTrayIcon)
    item.messageClicked.emit()
    assert chat.open.id == reply.conversation_id


def test_a_quick_reply_is_no_new_reply_and_opens_no_panel(chat: Chat, window: MainWindow) -> None:
    chat.start("What is a heron?")
    reply = chat.path[-1]
    chat.settings.change_values(panel_visible=None)
    chat.open.start_new()
    chat.controller.replies.ended.emit(replace(reply, conversation_id=0, statistics=_LONG))
    assert not chat.chats.new_replies
    assert chat.settings.values.panel_visible is None
    chat.controller.replies.ended.emit(reply)
    assert chat.chats.new_replies
    chat.chats.delete_conversation(reply.conversation_id)
    assert not chat.chats.new_replies
