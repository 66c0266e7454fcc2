from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import Notice
from rdchat.chat.settings import Appearance
from rdchat.errors import DoesNotFitError, ModelError
from rdchat.inference.api import Role
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.speed.speed_panel import SpeedPanel
from rdchat.ui.style import Theme
from rdchat.ui.transcript.view import TranscriptView
from rdchat.ui.window.main_window import MainWindow
from tests.listed_chats import listed
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import choose_files, click_on, focus_on, press_key
from tests.ui.transcript.conftest import button, wait_until_drawn
from tests.ui.window.message_menus import banners_of


def _send(qtbot: QtBot, window: MainWindow, text: str) -> None:
    field = window.conversation.composer.field
    qtbot.keyClicks(field, text)
    press_key(field, "Return")


def test_a_question_is_asked_and_answered(chat: Chat, window: MainWindow) -> None:
    chat.start()
    view = window.conversation
    assert view.stack.currentWidget() is view.welcome
    assert window.windowTitle() == "New chat"
    _send(chat.qtbot, window, "Hello there")
    assert view.stack.currentWidget() is view.transcript
    chat.wait_for_reply()
    assert [message.text for message in chat.path] == ["Hello there", "Hello, you!"]
    assert window.windowTitle() == "Hello there"
    row = window.sidebar.list.current_row
    assert row.conversation.id == chat.path[0].conversation_id
    assert view.composer.text == ""


def _pause_midway(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    """Have a reply written as far as four of its tokens."""
    chat.start()
    chat.engine.gate.shut()
    _send(qtbot, window, "Hello")
    chat.engine.gate.allow(4)
    chat.wait_for(EngineState.WRITING)


def test_escape_leaves_the_reply_of_another_chat_alone(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    _pause_midway(qtbot, chat, window)
    written = chat.path[-1].id
    chat.open.open_chat(chat.store.create_conversation("Other").id)
    qtbot.waitUntil(lambda: not window.actions_.stop.isEnabled())
    window.activateWindow()
    press_key(window.conversation.composer.field, "Esc")
    chat.engine.gate.open()
    qtbot.waitUntil(lambda: chat.store.message(written).text == "Hello, you!")


def test_escape_closes_what_is_open_before_it_stops_the_reply(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    _pause_midway(qtbot, chat, window)
    popup = QWidget(window, Qt.WindowType.Popup)
    popup.show()
    qtbot.waitUntil(window.actions_.stop.isEnabled)
    window.actions_.stop.trigger()
    assert not popup.isVisible()
    assert chat.writing
    window.activateWindow()
    press_key(window.conversation.composer.field, "Esc")
    chat.wait_for_reply()


def test_drafts_stay_with_their_chats(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    first, second = (chat.store.create_conversation(title) for title in ("First", "Second"))
    chat.start()
    composer = window.conversation.composer
    qtbot.keyClicks(composer.field, "for the second")
    chat.open.open_chat(first.id)
    assert composer.text == ""
    qtbot.keyClicks(composer.field, "for the first")
    window.actions_.new_chat.trigger()
    assert composer.text == ""
    chat.open.open_chat(second.id)
    assert composer.text == "for the second"
    chat.open.open_chat(first.id)
    assert composer.text == "for the first"
    window.actions_.new_chat.trigger()
    _send(qtbot, window, "Hello")
    chat.wait_for_reply()
    begun = chat.open.id
    qtbot.keyClicks(composer.field, "for the one just begun")
    window.actions_.new_chat.trigger()
    assert composer.text == ""
    chat.open.open_chat(begun or 0)
    assert composer.text == "for the one just begun"


def test_a_draft_is_of_no_chat_of_another_store(chat: Chat, window: MainWindow) -> None:
    first, second = (chat.store.create_conversation(title) for title in ("First", "Second"))
    chat.store.add_message(first.id, None, Role.USER, "Hi")
    chat.start()
    composer = window.conversation.composer
    desk = chat.chats
    desk.chat.open_chat(second.id)
    composer.set_text("for the second")
    desk.chat.open_chat(first.id)
    composer.set_text("typed now")
    told: list[object] = []
    window.conversation.transcript.reader_moved.connect(lambda *place: told.append(place))
    desk.begin_anew()
    assert not told
    for each in (first, second):
        desk.chat.open_chat(each.id)
        assert composer.text == ""
    desk.chat.start_new()
    assert composer.text == "typed now"


def test_a_starter_fills_the_composer(chat: Chat, window: MainWindow) -> None:
    chat.start()
    window.conversation.welcome.starter_chosen.emit("Give me five ideas.")
    assert window.conversation.composer.text == "Give me five ideas."


def _press(window: MainWindow, text: str) -> None:
    """Press a button of the banner that says that the model did not load."""
    click_on(button(window.conversation.banners.banner("model"), text))


def test_a_model_that_fails_is_said_until_another_one_is_loaded(chat: Chat, window: MainWindow) -> None:
    chat.start("Hello")
    view = window.conversation
    chat.qtbot.keyClicks(view.composer.field, "Anyone?")
    chat.engine.load_errors = {"/bad": ModelError("No such folder.")}
    chat.slot.load_model("/bad")
    for again in (False, True):
        if again:
            _press(window, "Try Again")
        chat.wait_for(EngineState.NO_MODEL)
        assert banners_of(window) == ["The model did not load No such folder."]
    assert view.composer.button.toolTip() == "Send (Return). Sent when the model is loaded."
    _press(window, "Use the Default Model")
    chat.wait_for(EngineState.IDLE)
    assert banners_of(window) == []
    assert view.composer.text == "Anyone?"


def test_a_model_that_seems_too_large_is_loaded_by_a_click(chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.engine.load_errors = {"/big": DoesNotFitError("It needs 80 GB.")}
    for _ in range(2):
        chat.slot.load_model("/big")
        chat.wait_for(EngineState.NO_MODEL)
        _press(window, "Load Anyway")
        chat.wait_for(EngineState.IDLE)
        chat.say("Hello")
    assert chat.engine.loaded_anyway == ["/big"] * 2


def test_a_deleted_chat_can_be_brought_back(chat: Chat, window: MainWindow) -> None:
    chat.store.create_conversation("Keep me")
    chat.start()
    window.actions_.delete.trigger()
    assert banners_of(window) == ["Deleted “Keep me”"]
    assert listed(chat.chats) == []
    click_on(button(window.conversation.banners.banner("undo"), "Undo"))
    assert [row.title for row in listed(chat.chats)] == ["Keep me"]
    assert banners_of(window) == []
    window.actions_.delete.trigger()
    focus_on(window.conversation.composer.field)
    window.actions_.undo.trigger()
    assert listed(chat.chats) == [], "a text field undoes typing"
    window.sidebar.list.setFocus()
    window.actions_.undo.trigger()
    assert [row.title for row in listed(chat.chats)] == ["Keep me"]
    chat.qtbot.waitUntil(lambda: not banners_of(window))


def test_closing_in_a_reply_hides_the_window_first(chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.pause_reply("Hello")
    shown: list[bool] = []
    chat.open.message_changed.connect(lambda _message: shown.append(window.isVisible()))
    window.close()  # the end of the reply comes with the end of the engine thread
    assert shown == [False]


def test_notices_and_storage_failures_are_told_until_they_are_over(chat: Chat, window: MainWindow) -> None:
    chat.controller.notice_raised.emit(Notice("The database was damaged.", "It was moved aside."))
    chat.controller.storage.failed.emit(Notice("The disk is full.", "Free some space."))
    assert banners_of(window) == ["The disk is full. Free some space."], "they were shown at once, and took much room"
    chat.controller.storage.recovered.emit()
    assert banners_of(window) == ["The database was damaged. It was moved aside."]


def test_a_notice_of_a_chat_goes_with_it(chat: Chat, window: MainWindow) -> None:
    """It stayed from chat to chat."""
    chat.start("Hi")
    chat.controller.notice_raised.emit(Notice("The database was damaged."))
    chat.controller.chat_notice_raised.emit(Notice("The summary was stopped", "The chat is unchanged."))
    assert banners_of(window) == ["The summary was stopped The chat is unchanged."]
    chat.open.start_new()
    assert banners_of(window) == ["The database was damaged."]


def test_a_narrow_window_folds_its_sides_away_and_shows_one_when_asked(
    qtbot: QtBot, chat: Chat, window: MainWindow
) -> None:
    chat.settings.change_values(panel_visible=True)
    assert window.sidebar.isVisible()
    assert window.panel.isVisible()
    window.resize(900, 560)
    qtbot.waitUntil(lambda: not window.panel.isVisible())
    assert window.sidebar.isVisible()
    sides = lambda: (window.sidebar.isVisible(), window.panel.isVisible())  # noqa: E731
    for action, shown in (
        (window.actions_.panel, (False, True)),
        (window.actions_.sidebar, (True, False)),
        (window.actions_.panel, (False, True)),
        (window.actions_.sidebar, (True, False)),
        (window.actions_.sidebar, (False, True)),
        (window.actions_.sidebar, (True, False)),
    ):
        action.trigger()
        assert sides() == shown
    window.resize(560, 520)
    qtbot.waitUntil(lambda: not window.sidebar.isVisible())
    window.resize(1200, 800)
    qtbot.waitUntil(lambda: sides() == (True, True))


def test_the_panel_opens_with_the_question_after_the_first_reply(chat: Chat, window: MainWindow) -> None:
    """Its dashes were the first that one saw; later it wrapped the first reply again while it was read."""
    chat.settings.change_values(panel_visible=None)
    assert not window.panel.isVisible()
    chat.start()
    transcript = window.conversation.transcript
    chat.hold_reply("Hello")
    chat.engine.gate.allow(4)
    chat.wait_for(EngineState.WRITING)
    QApplication.sendPostedEvents()
    width = transcript.viewport().width()
    chat.finish_reply()
    QApplication.sendPostedEvents()
    assert not window.panel.isVisible()
    assert transcript.viewport().width() == width, "the reply keeps its lines"
    chat.say("More")
    assert window.panel.isVisible()
    window.actions_.panel.trigger()
    chat.say("Again")
    assert not window.panel.isVisible(), "the person does not want it"


def test_the_panel_does_not_open_for_a_question_that_waited(chat: Chat, window: MainWindow) -> None:
    """It is sent the moment that the first reply ends: the panel opened while that reply was read."""
    chat.settings.change_values(panel_visible=None)
    chat.start()
    chat.hold_reply("Hello")
    chat.controller.send("More")
    chat.finish_reply()
    chat.qtbot.waitUntil(lambda: len(chat.path) == 4)
    chat.wait_for_reply()
    assert not window.panel.isVisible()
    chat.say("Again")
    assert window.panel.isVisible()


def test_a_panel_that_was_closed_in_a_narrow_window_stays_closed(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    """Closing it there was not remembered, so it opened when the window was made wider."""
    chat.settings.change_values(panel_visible=None)
    chat.start()
    window.resize(900, 560)
    qtbot.waitUntil(lambda: window.width() == 900)
    for shown in (True, False):
        window.actions_.panel.trigger()
        assert window.panel.isVisible() == shown
    for text in ("Hello", "More"):
        chat.say(text)
    window.resize(1200, 800)
    qtbot.waitUntil(lambda: window.width() == 1200)
    assert not window.panel.isVisible()


def test_the_line_under_a_reply_opens_the_panel_on_it(chat: Chat, window: MainWindow) -> None:
    chat.start("One", "Two")
    window.conversation.transcript.speed_requested.emit(chat.path[1].id)
    assert window.panel.isVisible()
    assert window.panel.speed.owner.text() == "Earlier reply"


def test_a_panel_that_is_first_shown_during_a_reply_follows_it(chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.hold_reply("Hello")
    assert not window.findChildren(SpeedPanel), "it is built when it is first shown"
    window.actions_.panel.trigger()
    assert window.panel.isVisible()
    assert window.panel.speed.owner.text().startswith("This reply")
    chat.finish_reply()
    assert window.panel.speed.owner.text().startswith("Last reply")
    chat.open.start_new()
    assert window.panel.speed.owner.text() == "No reply yet"


def test_sides_can_be_hidden_and_that_is_remembered(chat: Chat, window: MainWindow) -> None:
    chat.settings.change_values(panel_visible=True)
    window.actions_.panel.trigger()
    window.resize(760, 520)
    assert (window.sidebar.isVisible(), window.panel.isVisible()) == (True, False)
    window.resize(1200, 800)
    window.actions_.sidebar.trigger()
    assert (window.sidebar.isVisible(), window.panel.isVisible()) == (False, False)
    settings = chat.settings.values
    assert (settings.panel_visible, settings.sidebar_visible) == (False, False)
    window.actions_.find.trigger()
    assert window.sidebar.isVisible()


def test_the_window_comes_back_as_it_was_left(qtbot: QtBot, theme: Theme, chat: Chat, window: MainWindow) -> None:
    chat.settings.change_values(panel_visible=True)
    window.actions_.panel.trigger()
    window.resize(780, 560)  # less than the offscreen screen, which Qt would fit the window into
    window._splitter.setSizes([300, 480, 0])
    sidebar = window.sidebar.width()
    window.close()
    again = MainWindow(chat.controller, theme, TranscriptView(theme))
    qtbot.addWidget(again)
    again.show()
    qtbot.waitExposed(again)
    assert (again.width(), again.height()) == (780, 560)
    assert again.sidebar.width() == sidebar == 300


def test_a_damaged_geometry_is_ignored(theme: Theme, chat: Chat) -> None:
    chat.settings.change_values(window_geometry="no base64", window_state="ÿ")
    window = MainWindow(chat.controller, theme, TranscriptView(theme))
    chat.qtbot.addWidget(window)
    assert window.width() > 400


def test_appearance_follows_the_settings(chat: Chat, window: MainWindow, theme: Theme) -> None:
    chat.settings.change_values(appearance=Appearance.DARK)
    assert theme.colors.dark
    assert window.sidebar.grab().toImage().pixelColor(2, 300) == theme.colors.window
    chat.settings.change_values(appearance=Appearance.LIGHT)
    assert not theme.colors.dark


def test_a_model_folder_is_chosen_in_a_dialog(qtbot: QtBot, chat: Chat, window: MainWindow, tmp_path: Path) -> None:
    chat.start()
    folder = tmp_path / "models" / "mine"
    folder.mkdir(parents=True)
    window.actions_.open_folder.trigger()
    choose_files(window, folder)
    qtbot.waitUntil(lambda: chat.engine.loads[-1][0] == str(folder))
    chat.wait_for(EngineState.IDLE)
    qtbot.waitUntil(lambda: chat.settings.values.models_folder == str(folder.parent))


def test_after_asking_anew_one_can_type(chat: Chat, window: MainWindow) -> None:
    chat.start("Hello")
    focus_on(window.sidebar.list)
    window.conversation.transcript.regenerate_requested.emit(chat.path[-1].id)
    assert window.conversation.composer.field.hasFocus()
    chat.wait_for_reply()


def test_the_panel_fits_into_the_smallest_window(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.settings.change_values(panel_visible=True)
    window.resize(window.minimumSize())
    window.actions_.panel.trigger()
    qtbot.waitUntil(window.panel.isVisible)
    qtbot.waitUntil(lambda: window.panel_side.x() > window.conversation.geometry().right())
    assert window.width() == window.minimumWidth()


def test_that_the_model_was_unloaded_is_said_once_not_in_every_chat(chat: Chat, window: MainWindow) -> None:
    first = chat.store.create_conversation("First")
    chat.start()
    chat.slot.unload_model()
    chat.wait_for(EngineState.NO_MODEL)
    banner = window.conversation.banners.banner("model")
    banner.closed.emit()
    chat.open.start_new()
    chat.open.open_chat(first.id)
    assert window.conversation.banners.banner("model") is None


def test_the_engine_is_told_whether_any_window_is_seen(qtbot: QtBot, window: MainWindow) -> None:
    """On a Mac a window that is hidden, minimised or covered is not exposed; then only the quick window may be used."""
    told: list[bool] = []
    client = window._controller.model_slot.engine
    client.set_hidden = told.append  # type: ignore[method-assign]
    window.hide()
    qtbot.waitUntil(lambda: told[-1:] == [True])
    window.windows.quick.open_here()
    qtbot.waitUntil(lambda: told[-1:] == [False])
    window.windows.quick.close()
    qtbot.waitUntil(lambda: told[-1:] == [True])
    window.show()
    qtbot.waitUntil(lambda: told[-1:] == [False])
    window.windows.quick.open_here()
    qtbot.waitUntil(window.windows.quick.isActiveWindow)
    told.clear()
    window.windows.quick.close()
    qtbot.waitUntil(lambda: bool(told))
    assert told == [False] * len(told), "the main window is still seen"


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
    desk = chat.chats
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
