"""The end of a reply is announced, and a long one is reported to a person who does something else."""

from dataclasses import replace

import pytest
from PySide6.QtWidgets import QApplication, QSystemTrayIcon

from rdchat.inference.api import Statistics
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat

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
    chat.start()
    chat.say("What is a heron?")
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
    chat.start()
    chat.say("What is a heron?")
    reply = chat.path[-1]
    chat.controller.settings.change_values(panel_visible=None)
    chat.open.start_new()
    chat.controller.replies.ended.emit(replace(reply, conversation_id=0, statistics=_LONG))
    assert not chat.controller.chats.new_replies
    assert chat.controller.settings.values.panel_visible is None
    chat.controller.replies.ended.emit(reply)
    assert chat.controller.chats.new_replies
    chat.controller.chats.delete_conversation(reply.conversation_id)
    assert not chat.controller.chats.new_replies
