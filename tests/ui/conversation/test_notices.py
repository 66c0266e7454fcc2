import pytest
from pytestqt.qtbot import QtBot

from rdchat.services.chat.chat_context import SummaryProgress
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.conversation.notices import Banner, BannerArea
from rdchat.ui.style import LARGE, TEXT_WIDTH, Theme
from rdchat.ui.window.main_window import MainWindow
from tests.services.fakes import Reply
from tests.ui.conftest import Chat
from tests.ui.conversation.cut_marks import mark, press
from tests.ui.shown_widgets import click_on, press_key

LONG = "word " * 9  # 10 tokens; the reply has 3


@pytest.fixture
def banner(qtbot: QtBot, window: MainWindow, chat: Chat) -> Banner:
    """The banner over a chat of three turns, whose fourth question is typed and too much."""
    chat.engine.context_length = 48
    chat.start()
    for _ in range(3):
        chat.say(LONG)
    window.conversation.composer.field.setPlainText(LONG)
    return shown(qtbot, window, chat)


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


def test_a_temporary_chat_is_offered_no_new_one(qtbot: QtBot, window: MainWindow, chat: Chat) -> None:
    """It would not stay as it is."""
    chat.engine.context_length = 48
    chat.start()
    window.actions_.new_temporary.trigger()
    for _ in range(3):
        chat.say(LONG)
    window.conversation.composer.field.setPlainText(LONG)
    assert offered(shown(qtbot, window, chat)) == ["Leave Out the Oldest", "Summarise the Oldest"]


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


def test_a_message_that_is_too_long_alone_offers_nothing_to_leave_out(
    qtbot: QtBot, window: MainWindow, chat: Chat
) -> None:
    chat.engine.context_length = 20
    chat.start()
    window.conversation.composer.field.setPlainText("word " * 30)
    alone = shown(qtbot, window, chat)
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
    for _ in range(3):
        chat.say("word " * 99)
    window.conversation.composer.field.setPlainText("word " * 99)
    chat.engine.replies = [Reply(tokens=("They", " said words."))]
    return shown(qtbot, window, chat)


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
def test_a_new_chat_takes_along_what_is_typed(qtbot: QtBot, window: MainWindow, chat: Chat, larger: Banner) -> None:
    typed = window.conversation.composer.text
    first = chat.open.stored_conversation
    press(larger, "Start a New Chat")
    qtbot.waitUntil(lambda: chat.open.stored_conversation != first)
    assert window.conversation.composer.text == typed.strip()
    mark = chat.open.path[0].context_cut
    assert mark is not None
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
