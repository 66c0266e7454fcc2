"""Finding words in the open chat: marks, counts, the next one, other versions."""

import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.storage import SearchQuery
from rdchat.chat.summaries import ContextCut
from rdchat.inference.api import Role
from rdchat.services.chat_list.chat_order import Location
from rdchat.ui.conversation.find_bar import FindBar
from rdchat.ui.transcript.message_parts import CutMark
from rdchat.ui.transcript.message_widget import MessageWidget
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import press_key, shown_child


@pytest.fixture
def bar(chat: Chat, window: MainWindow) -> FindBar:
    """A chat of 80 messages, of which the fourth has the word twice, and the last one in a thought."""
    made = chat.store.create_conversation("Baking")
    last = None
    for number in range(80):
        role = (Role.USER, Role.ASSISTANT)[number % 2]
        text = {3: "Bread, *bread*! \U0001f35e breadth Bread", 79: "<think>\nbread?\n</think>\nCrust."}.get(number)
        last = chat.store.add_message(made.id, last, role, text or f"step {number}").id
    messages = chat.store.messages(made.id)
    other = chat.store.add_message(made.id, messages[9].id, Role.USER, "Another bread")
    chat.store.select_sibling(other.id, -1)
    chat.start()
    return window.conversation.find_bar


def _type(qtbot: QtBot, window: MainWindow, words: str) -> None:
    window.actions_.find.trigger()
    bar = window.conversation.find_bar
    bar.field.clear()
    qtbot.keyClicks(bar.field, words)
    qtbot.waitUntil(lambda: " of " in bar.count.text() or bar.count.text() == "Not found")


def _widget(window: MainWindow, text: str) -> MessageWidget:
    found = [each for each in window.conversation.transcript.findChildren(MessageWidget) if text in each.message.text]
    return next(each for each in found if each.isVisible())


def _current(widget: MessageWidget) -> list[int]:
    return [number for number, (body, own) in enumerate(widget.hits) if body.marks.current == own]


@pytest.mark.slow
def test_the_newest_message_with_the_word_is_gone_to_and_its_thought_unfolded_until_escape(
    qtbot: QtBot, window: MainWindow, bar: FindBar
) -> None:
    _type(qtbot, window, "bread")
    assert bar.count.text() == "Message 2 of 2"
    widget = _widget(window, "Crust")
    assert _current(widget) == [0]
    assert widget.bodies[0].isVisible()
    assert widget.bodies[0].extraSelections()
    press_key(bar.field, "Esc")
    assert bar.isHidden()
    assert widget.bodies[0].extraSelections() == []
    window.actions_.find_next.trigger()
    assert not bar.isHidden()
    qtbot.waitUntil(lambda: bar.count.text() == "Message 2 of 2")


def test_next_and_previous_go_through_the_words_of_all_messages(qtbot: QtBot, window: MainWindow, bar: FindBar) -> None:
    _type(qtbot, window, "bread")
    window.actions_.find_next.trigger()  # begins anew, in a message that had no widget
    assert bar.count.text() == "Message 1 of 2"
    widget = _widget(window, "breadth")
    selections = widget.body.extraSelections()
    assert [each.cursor.selectedText() for each in selections] == ["Bread", "bread", "bread", "Bread"]  # type: ignore[attr-defined]
    assert _current(widget) == [0]
    view = window.conversation.transcript
    assert view.rect().contains(widget.mapTo(view, widget.body.pos()))
    for place in (1, 2, 3):
        press_key(bar.field, "Return")
        assert _current(widget) == [place]
    window.actions_.find_previous.trigger()
    assert _current(widget) == [2]
    bar.next.click()
    bar.next.click()
    assert bar.count.text() == "Message 2 of 2"
    assert _current(widget) == []
    bar.previous.click()
    assert _current(_widget(window, "breadth")) == [3]  # from behind


@pytest.mark.slow
def test_escape_closes_the_bar_wherever_the_focus_is_and_stops_no_reply(
    qtbot: QtBot, window: MainWindow, chat: Chat, bar: FindBar
) -> None:
    view = window.conversation
    for focused in (view.composer.field, window.sidebar.list, _widget(window, "Crust").body, view.transcript):
        _type(qtbot, window, "bread")
        focused.setFocus()
        press_key(focused, "Esc")
        assert bar.isHidden()
    chat.hold_reply("And now?")
    assert chat.writing
    _type(qtbot, window, "bread")
    press_key(view.composer.field, "Esc")
    assert bar.isHidden()
    assert chat.writing
    press_key(view.composer.field, "Esc")
    chat.finish_reply()


@pytest.mark.slow
def test_what_is_nowhere_is_said(qtbot: QtBot, window: MainWindow, bar: FindBar) -> None:
    _type(qtbot, window, "xyzzy")
    assert bar.count.text() == "Not found"
    assert not bar.next.isEnabled()
    bar.go_to_match(1)
    bar.field.clear()
    qtbot.waitUntil(lambda: bar.count.text() == "")


@pytest.mark.slow
def test_another_version_is_counted_apart_and_shown(qtbot: QtBot, window: MainWindow, chat: Chat, bar: FindBar) -> None:
    _type(qtbot, window, "bread")
    assert bar.versions.text() == "+1 elsewhere"
    bar.versions.click()
    assert chat.path[-1].text == "Another bread"
    qtbot.waitUntil(lambda: _current(_widget(window, "Another bread")) == [0])
    assert bar.count.text() == "Message 2 of 2"


def test_a_search_that_only_finds_the_title_opens_no_bar(qtbot: QtBot, chat: Chat, bar: FindBar) -> None:
    """It opened a bar that said "Not found"."""
    chats = chat.chats
    answered = list[str]()
    opened = chat.open.id

    def search(words: str) -> None:
        chats.list_hits(SearchQuery(words))
        chat.open.open_chat(opened)

    chats.finder.messages_matched.connect(lambda matches: answered.append(matches.text))
    search("Baking")
    qtbot.waitUntil(lambda: "Baking" in answered)
    assert bar.isHidden()
    search("bread")
    qtbot.waitUntil(bar.isVisible)
    assert bar.count.text() == "Message 2 of 2"
    bar.field.clear()
    qtbot.keyClicks(bar.field, "nowhere")
    qtbot.waitUntil(lambda: "nowhere" in answered)
    assert bar.isVisible(), "what is typed here is answered here"
    search("Baking")
    qtbot.waitUntil(bar.isHidden)


@pytest.mark.slow
def test_a_search_of_all_chats_goes_on_in_the_one_that_is_opened(
    qtbot: QtBot, window: MainWindow, chat: Chat, bar: FindBar
) -> None:
    chat.store.create_conversation("Another")
    window.actions_.search.trigger()
    qtbot.keyClicks(window.sidebar.search, "bread")
    qtbot.waitUntil(lambda: chat.chats.answer is not None)
    press_key(window.sidebar.search, "Down")  # it is open already
    qtbot.waitUntil(lambda: bar.count.text() == "Message 2 of 2")
    assert bar.field.text() == "bread"
    assert window.sidebar.list.hasFocus() or not window.isActiveWindow()
    press_key(window.sidebar.search, "Esc")
    qtbot.waitUntil(bar.isHidden)


@pytest.mark.slow
def test_the_menus_follow_the_open_chat(window: MainWindow, chat: Chat, bar: FindBar) -> None:
    actions = window.actions_
    desk = chat.chats
    actions.pin.trigger()
    assert actions.pin.text() == "Unpin Chat"
    actions.archive.trigger()
    assert desk.chat.stored_conversation is None
    assert not actions.pin.isEnabled()
    actions.find.trigger()  # there is no chat to find in
    assert bar.isHidden()
    window.sidebar.location_buttons[Location.TRASH].click()
    actions.new_folder.trigger()
    assert [folder.name for folder in desk.order.folders] == ["New folder"]
    assert window.sidebar.list.editing


@pytest.mark.slow
def test_the_words_of_a_summary_are_marked_in_its_card_and_gone_through(
    qtbot: QtBot, window: MainWindow, bar: FindBar, chat: Chat
) -> None:
    chat_id = chat.open.id
    cut = chat.store.messages(chat_id)[5]
    chat.store.set_context_cut(cut.id, ContextCut("They baked *rye*, and step by step more rye.", "tiny"))
    chat.open.open_chat(chat_id)
    _type(qtbot, window, "rye")
    assert bar.count.text() == "Message 1 of 1"
    view = window.conversation.transcript
    mark = shown_child(view, CutMark)
    assert [each.cursor.selectedText() for each in mark.summary.body.extraSelections()] == ["rye", "rye"]  # type: ignore[attr-defined]
    assert view.rect().contains(mark.summary.body.mapTo(view, mark.summary.body.rect().center()))
    assert mark.summary.body.marks.current == 0
    bar.next.click()
    assert mark.summary.body.marks.current == 1
    bar.previous.click()
    assert mark.summary.body.marks.current == 0
    _type(qtbot, window, "step")
    qtbot.waitUntil(lambda: bar.count.text().endswith(" of 78"))
    view.hits.go_to(cut.id, last=True)  # from the word of the summary to that of the message above it
    mark = shown_child(view, CutMark)
    assert mark.summary.body.marks.current == 1
    assert view.hits.go_to_next(-1)
    assert mark.summary.body.marks.current == 0
    assert view.hits.go_to_next(-1)
    assert mark.summary.body.marks.current == -1
    assert _current(_widget(window, "step 5")) == [0]
    bar.close_bar()
    assert not mark.summary.body.extraSelections()
