import pytest

from rdchat.inference.api import Role
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat
from tests.ui.transcript.conftest import wait_until_drawn


@pytest.mark.slow
def test_each_chat_opens_where_it_was_left(window: MainWindow, chat: Chat) -> None:
    first = chat.store.create_conversation("Long one")
    parent = None
    for number in range(40):
        role = Role.ASSISTANT if number % 2 else Role.USER
        parent = chat.store.add_message(first.id, parent, role, f"Text {number}\n\n" * 6).id
    other = chat.store.create_conversation("Other")
    chat.store.add_message(other.id, None, Role.USER, "Hello")
    view = window.conversation.transcript
    desk = chat.controller.chats
    desk.chat.open_chat(first.id)
    wait_until_drawn(chat.qtbot, view)
    view.scroll_to_start()
    bar = view.verticalScrollBar()
    bar.setValue(bar.value() + 300)
    wait_until_drawn(chat.qtbot, view)
    before = bar.value()
    assert before > 0
    desk.chat.open_chat(other.id)  # before its timer
    assert chat.store.reading_position(first.id) is not None
    desk.chat.open_chat(first.id)
    wait_until_drawn(chat.qtbot, view)
    assert abs(bar.value() - before) <= 2
