"""The banners over a chat: of one that is too long, with the mark where it is cut; and how banners close."""

import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.presets import LongChats
from rdchat.chat.summaries import ContextCut
from rdchat.services.chat import chat_context
from rdchat.services.chat.chat_context import SummaryProgress
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.conversation.notices import Banner, BannerArea
from rdchat.ui.style import LARGE, TEXT_WIDTH, Theme
from rdchat.ui.transcript.message_parts import CutMark
from rdchat.ui.window.main_window import MainWindow
from tests.services.fakes import Reply
from tests.stores import cut_of
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import activate, click_on, press_key

LONG = "word " * 9  # 10 tokens; the reply has 3


def press(banner: Banner, text: str) -> None:
    button = next(button for button in banner.buttons if button.text() == text)
    button.setFocus()
    press_key(button, "Space")


def mark(window: MainWindow) -> CutMark | None:
    marks = [each for each in window.conversation.transcript.findChildren(CutMark) if each.isVisibleTo(window)]
    return marks[0] if marks else None


def fill_with(qtbot: QtBot, window: MainWindow, chat: Chat, text: str) -> Banner:
    """Have three questions answered, type a fourth, which is too much, and return the banner that says so."""
    for _ in range(3):
        chat.say(text)
    window.conversation.composer.field.setPlainText(text)
    return shown(qtbot, window, chat)


@pytest.fixture
def banner(qtbot: QtBot, window: MainWindow, chat: Chat) -> Banner:
    """The banner over a chat that is too long."""
    chat.engine.context_length = 48
    chat.start()
    return fill_with(qtbot, window, chat, LONG)


def shown(qtbot: QtBot, window: MainWindow, chat: Chat) -> Banner:
    banners = window.conversation.banners
    meter = chat.controller.context.meter
    qtbot.waitUntil(
        lambda: (
            meter.use is not None
            and meter.use.typed == chat.open.typed.strip()
            and isinstance(banners.banner("context"), Banner)
        )
    )
    return banners.banner("context")


def offered(banner: Banner) -> list[str]:
    return [button.text() for button in banner.buttons if button.isVisible()]


def test_a_temporary_chat_is_offered_no_new_one(window: MainWindow, chat: Chat) -> None:
    """It would not stay as it is."""
    chat.engine.context_length = 48
    chat.start()
    window.actions_.new_temporary.trigger()
    assert offered(fill_with(chat.qtbot, window, chat, LONG)) == ["Leave Out the Oldest", "Summarise the Oldest"]


@pytest.mark.slow
def test_the_oldest_turns_are_left_out_marked_in_their_chat_and_told_again(
    qtbot: QtBot, window: MainWindow, chat: Chat, banner: Banner
) -> None:
    press(banner, "Leave Out the Oldest")
    qtbot.waitUntil(lambda: mark(window) is not None)
    cut = mark(window)
    assert cut.label.text() == "The model does not see the 2 messages above"
    first = chat.open.id
    chat.open.start_new()
    assert mark(window) is None
    chat.open.open_chat(first)
    qtbot.waitUntil(lambda: window.conversation.banners.banner("context") is None)
    window.conversation.composer.set_text(LONG)
    press_key(window.conversation.composer.field, "Return")
    qtbot.waitUntil(lambda: len(chat.path) == 8 and not chat.writing)
    assert len(chat.engine.last_request.messages) == 5
    cut = mark(window)
    click_on(cut.button)
    assert mark(window) is None
    qtbot.keyClicks(window.conversation.composer.field, "and")
    shown(qtbot, window, chat)


def test_a_message_that_is_too_long_alone_offers_nothing_to_leave_out(window: MainWindow, chat: Chat) -> None:
    chat.engine.context_length = 20
    chat.start()
    window.conversation.composer.field.setPlainText("word " * 30)
    alone = shown(chat.qtbot, window, chat)
    assert not offered(alone)
    assert alone.accessibleName().startswith("This message is too long for this model (20 tokens) It has")


def test_a_chat_that_may_be_too_long_for_a_server_is_sent_only_after_a_question(
    qtbot: QtBot, window: MainWindow, chat: Chat
) -> None:
    """It was sent unasked, and some servers leave out its beginning silently."""
    chat.engine.context_length = 20
    chat.start()
    chat.slot.load_model("remote:studio/qwen")
    qtbot.waitUntil(lambda: chat.controller.status.value.state is EngineState.IDLE)
    composer = window.conversation.composer
    composer.field.setPlainText("word " * 30)
    alone = shown(qtbot, window, chat)
    assert alone.accessibleName().startswith("This message may be too long for this model (20 tokens) It has about ")
    assert (composer.meter.text, chat.controller.status.value.state) == ("Over", EngineState.ASKING)
    press_key(composer.field, "Return")
    assert not chat.engine.requests
    again = shown(qtbot, window, chat)
    assert offered(again) == ["Send Anyway"]
    press(again, "Send Anyway")
    qtbot.waitUntil(lambda: len(chat.engine.requests) == 1)
    chat.wait_for_reply()
    assert window.conversation.banners.banner("context") is None
    assert composer.text == ""


@pytest.fixture
def larger(qtbot: QtBot, window: MainWindow, chat: Chat) -> Banner:
    """As `banner`, with a context that has room for a summary."""
    chat.engine.context_length = 400
    chat.start()
    chat.engine.replies = [*[Reply()] * 3, Reply(tokens=("They", " said words."))]
    return fill_with(qtbot, window, chat, "word " * 99)


@pytest.mark.slow
def test_summarising_can_be_stopped(qtbot: QtBot, window: MainWindow, chat: Chat, larger: Banner) -> None:
    chat.engine.gate.shut()
    press(larger, "Summarise the Oldest")
    busy = shown(qtbot, window, chat)
    assert busy.accessibleName() == "Summarising the oldest messages…"
    chat.settings.change_values(panel_visible=True)
    assert window.panel.status.state.text(), "the panel is built meanwhile"
    chat.engine.gate.allow(2)
    qtbot.waitUntil(lambda: busy.progress.text().endswith("8 of 8 tokens read"))
    assert busy.progress.isVisible()
    assert window.panel.status.state.text() == "Summarising the oldest messages…"
    chat.controller.context.meter.changed.emit()  # the state is shown anew, and the summary is still being written
    assert window.panel.status.state.text() == "Summarising the oldest messages…"
    assert window.panel.status.progress.isVisible()
    chat.controller.context.summary_progressed.emit(SummaryProgress(1, 1, 8, 8, 1))
    assert busy.progress.text() == "1 token written"
    press(busy, "Stop")
    assert "Leave Out the Oldest" in offered(shown(qtbot, window, chat))
    assert window.panel.status.state.text() == "Waits for you"


@pytest.mark.slow
def test_a_new_chat_takes_along_what_is_typed(window: MainWindow, chat: Chat, larger: Banner) -> None:
    typed = window.conversation.composer.text
    first = chat.open.stored_conversation
    press(larger, "Start a New Chat")
    chat.qtbot.waitUntil(lambda: chat.open.stored_conversation != first)
    assert window.conversation.composer.text == typed.strip()
    mark = chat.open.path[0].context_cut
    assert mark.summary == "They said words."
    assert len(chat.store.messages(first.id)) == 6


@pytest.mark.slow
def test_a_banner_that_is_put_away_comes_back_where_it_is_sent_all_the_same(
    qtbot: QtBot, window: MainWindow, chat: Chat, banner: Banner
) -> None:
    composer = window.conversation.composer
    banners = window.conversation.banners
    click_on(banner.cross)
    qtbot.keyClicks(composer.field, "and more")
    meter = chat.controller.context.meter
    qtbot.waitUntil(lambda: meter.use is not None and meter.use.typed == chat.open.typed.strip())
    assert banners.banner("context") is None
    press_key(composer.field, "Return")
    assert isinstance(banners.banner("context"), Banner)
    assert composer.note.text().startswith("Too long for this model")
    assert composer.text.startswith("and more"), "nothing is sent"


FULL = ("word " * 1030).strip()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Summarise chats as soon as nothing happens."""
    monkeypatch.setattr(chat_context, "_CALM_MS", 20)


def fill(chat: Chat) -> None:
    """Have three questions answered that nearly fill the context."""
    chat.engine.context_length = 4096
    chat.start()
    for number in range(3):
        chat.say(f"{number} {FULL}")


@pytest.mark.slow
def test_a_summary_stands_in_the_chat_and_is_seen_edited_and_undone(
    at_once: None, qtbot: QtBot, window: MainWindow, chat: Chat
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
    chat.start("Hi", "And?")
    cut = ContextCut("Hello.", "qwen on studio", sources=("files__read", "studio"))
    chat.open.set_cut(chat.path.ids[1], cut)
    text = "The model sees a summary of the 2 messages above, with text from files__read, studio"
    assert mark(window).label.text() == text
    chat.open.set_cut(chat.path.ids[1], ContextCut(shortens=True))
    assert mark(window).label.text() == "Results of tools in the 2 messages above are shortened for the model"
    assert not mark(window).edit.isVisible()


@pytest.fixture
def area(qtbot: QtBot) -> BannerArea:
    area = BannerArea()
    qtbot.addWidget(area)
    return area


@pytest.mark.parametrize("how", ["action", "cross", "time"])
def test_a_banner_closes(qtbot: QtBot, theme: Theme, area: BannerArea, how: str) -> None:
    acts: list[str] = []
    banner = Banner(theme, "Deleted “A chat”", "It is in the bin.")
    button = banner.add_action("Undo", lambda: acts.append("undo"))
    area.show_banner(banner, "undo", 20 if how == "time" else None)
    assert area.isVisible()
    if how != "time":
        click_on(button if how == "action" else banner.cross)
    qtbot.waitUntil(lambda: not area.isVisible())
    assert acts == ["undo"] * (how == "action")


def test_one_banner_is_shown_and_the_others_follow(qtbot: QtBot, theme: Theme, area: BannerArea) -> None:
    banners = [Banner(theme, key) for key in ("one", "two", "three", "three")]
    for banner, key in zip(banners, ("one", "two", "three", "three"), strict=True):
        area.show_banner(banner, key)
    assert [banner.isVisible() for banner in banners] == [False, False, False, True], "the chat kept no room"
    for width in (1400, 500):
        area.resize(width, 100)
        qtbot.waitUntil(lambda width=width: banners[3].width() == min(TEXT_WIDTH, width - 2 * LARGE))
    area.close_banner("three")
    area.close_banner("three")
    assert [banner.isVisible() for banner in banners[:2]] == [False, True]
