"""Chats that are summarised by themselves, in the window."""

import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.presets import LongChats
from rdchat.chat.summaries import ContextCut
from rdchat.services.chat import chat_context
from rdchat.ui.settings.chat_options import ChatOptions
from rdchat.ui.window.main_window import MainWindow
from tests.services.fakes import Reply
from tests.stores import cut_of
from tests.ui.conftest import Chat
from tests.ui.conversation.cut_marks import mark
from tests.ui.shown_widgets import activate, click_on, press_key, shown_child

LONG = ("word " * 1030).strip()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_context, "_CALM_MS", 20)


def fill(chat: Chat) -> None:
    """Have three questions answered that nearly fill the context."""
    chat.engine.context_length = 4096
    chat.start()
    for number in range(3):
        chat.say(f"{number} {LONG}")


@pytest.mark.slow
def test_a_summary_stands_in_the_chat_and_is_seen_edited_and_undone(
    qtbot: QtBot, window: MainWindow, chat: Chat
) -> None:
    fill(chat)
    chat.engine.replies = [Reply(("They said", " words."))]
    chat.settings.change_values(long_chats=LongChats.COMPACT)
    qtbot.waitUntil(lambda: cut_of(chat.path) is not None)
    view = window.conversation.transcript
    assert window.conversation.banners.banner("context") is None, "nobody waits for it"
    activate(window)
    assert view.show_around(3)
    cut = mark(window)
    assert cut.label.text() == "The model sees a summary of the 4 messages above"
    assert not cut.summary.unfolded
    cut.replaced.setFocus()
    press_key(cut.replaced, "Space")
    assert view.widgets[chat.path.ids[0]].body.hasFocus()
    assert view.verticalScrollBar().value() == 0
    view.show_around(3)
    cut = mark(window)
    cut.edit.setFocus()
    press_key(cut.edit, "Space")
    field = cut._editor.field
    assert field.hasFocus()
    assert field.toPlainText() == "They said words."
    press_key(field, "Escape")
    assert cut.summary.isVisible()
    assert cut.edit.hasFocus()
    press_key(cut.edit, "Space")
    cut._editor.field.selectAll()
    qtbot.keyClicks(cut._editor.field, "They baked.")
    press_key(cut._editor.field, "Ctrl+Return")
    assert cut_of(chat.path).context_cut.summary == "They baked."
    cut = mark(window)
    assert cut.summary._toggle.text().endswith("edited by you")
    click_on(cut.button)
    assert mark(window) is None
    assert cut_of(chat.path) is None
    qtbot.wait(200)
    assert cut_of(chat.path) is None, "until the next reply"


def test_a_mark_names_whose_texts_a_summary_has(window: MainWindow, chat: Chat) -> None:
    chat.start()
    chat.say("Hi")
    chat.say("And?")
    cut = ContextCut("Hello.", "qwen on studio", sources=("files__read", "studio"))
    chat.open.set_cut(chat.path.ids[1], cut)
    text = "The model sees a summary of the 2 messages above, with text from files__read, studio"
    assert mark(window).label.text() == text
    chat.open.set_cut(chat.path.ids[1], ContextCut(shortens=True))
    assert mark(window).label.text() == "Results of tools in the 2 messages above are shortened for the model"
    assert not mark(window).edit.isVisible()


def test_a_chat_has_its_own_choice_among_its_options(window: MainWindow, chat: Chat) -> None:
    chat.start()
    chat.say("Hi")
    window.actions_.options.trigger()
    options = shown_child(window, ChatOptions)
    long_chats = options.form.long_chats
    assert long_chats.currentText() == "Ask"
    long_chats.setCurrentIndex(2)
    long_chats.activated.emit(2)
    assert chat.open.conversation.own.long_chats is LongChats.COMPACT
    assert chat.store.conversation(chat.open.id).own.long_chats is LongChats.COMPACT
    assert options.form.marks["long_chats"].text() == "Changed"
    options.defaults.click()
    assert long_chats.currentText() == "Ask"
    assert chat.open.conversation.own.long_chats is None
