from dataclasses import replace

import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import Drafting
from rdchat.inference.api import Mode
from rdchat.ui.conversation.alternatives_window import (
    AlternativePane,
    AlternativesWindow,
    _Matcher,
    differences,
    made_text,
)
from rdchat.ui.transcript.message_kinds import ReplyMessage
from rdchat.ui.window.main_window import MainWindow
from tests.services.fakes import Reply
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import click_on, press_key, shown_child
from tests.ui.transcript.conftest import DRAFTED, choose_in_menu, reply
from tests.ui.window.message_menus import choose, texts

LONG = "\n\n".join(f"Paragraph {number} of a reply." for number in range(60))


def compared(qtbot: QtBot, chat: Chat, window: MainWindow, *replies: str) -> AlternativesWindow:
    """Open the window on the last of some replies to one prompt, and wait until the words are compared."""
    chat.engine.replies = [Reply((text,)) for text in replies]
    chat.start("Hi")
    for _ in replies[1:]:
        chat.write_again()
    choose_in_menu(window.conversation.transcript.findChildren(ReplyMessage)[-1], "Compare Versions")
    opened = shown_child(window, AlternativesWindow)
    qtbot.waitUntil(lambda: bool(opened.note.text()))
    return opened


def marked(pane: AlternativePane) -> list[str]:
    return [mark.cursor.selectedText() for mark in pane.text.body.extraSelections()]


@pytest.mark.slow
def test_two_alternatives_stand_side_by_side_with_their_differences(
    qtbot: QtBot, chat: Chat, window: MainWindow
) -> None:
    opened = compared(qtbot, chat, window, "One", "The **cat** sat.", "The dog sat.")
    left, right = opened.panes
    # The first comparison may be that of one text which is drawn with one which is not yet.
    qtbot.waitUntil(lambda: [marked(pane) for pane in opened.panes] == [["cat"], ["dog"]])
    assert [pane.position.text() for pane in opened.panes] == ["2 of 3", "3 of 3"]
    assert left.model.text() == "tiny"
    assert left.made.text().startswith("Temperature 0.7 · ")
    assert (left.use.isEnabled(), right.use.text(), right.use.isEnabled()) == (True, "In use", False)
    click_on(left.previous)
    qtbot.waitUntil(lambda: opened.note.text() == "These replies have little in common")
    assert [marked(pane) for pane in opened.panes] == [[], []]
    assert not left.previous.isEnabled()


@pytest.mark.slow
def test_the_one_that_is_chosen_is_shown_in_the_chat(chat: Chat, window: MainWindow) -> None:
    opened = compared(chat.qtbot, chat, window, "One", "Two")
    opened.panes[0].use.setFocus()
    press_key(opened.panes[0].use, "Space")
    assert texts(chat) == ["Hi", "One"]
    assert not opened.isVisible()


@pytest.mark.slow
def test_both_scroll_together_or_by_themselves(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    opened = compared(qtbot, chat, window, LONG, f"{LONG}\n\n{LONG}")
    left, right = (pane.area.verticalScrollBar() for pane in opened.panes)
    qtbot.waitUntil(lambda: right.maximum() > left.maximum() > 0)
    left.setValue(left.maximum())
    assert right.value() == right.maximum()
    opened.together.setChecked(False)
    left.setValue(0)
    assert right.value() == right.maximum()


@pytest.mark.slow
def test_the_window_follows_what_is_deleted_and_closes_with_the_chat(
    qtbot: QtBot, chat: Chat, window: MainWindow
) -> None:
    opened = compared(qtbot, chat, window, "One", "Two", "Three")
    chat.controller.delete_message(chat.path[-1].id)
    assert [pane.position.text() for pane in opened.panes] == ["1 of 2", "2 of 2"]
    chat.controller.delete_message(chat.path[-1].id)
    assert not opened.isVisible()
    again = compared(qtbot, chat, window, "One", "Two")
    chat.open.start_new()
    assert not again.isVisible()


@pytest.mark.slow
def test_an_edited_reply_says_so(chat: Chat, window: MainWindow) -> None:
    chat.start("Hi")
    chat.controller.edit_message(chat.path[-1].id, "Hello, me!")
    choose(window, -1, "Compare Versions")
    (opened,) = window.findChildren(AlternativesWindow)
    chat.qtbot.waitUntil(lambda: marked(opened.panes[1]) == ["me"])
    assert opened.panes[1].made.text() == "Edited by you"
    assert marked(opened.panes[0]) == ["you"]


def test_the_figures_of_a_continued_reply_say_that_they_are_of_its_last_part() -> None:
    whole = reply(2, "Hi", statistics=DRAFTED, drafting=Drafting(Mode.OFF))
    assert made_text(whole).endswith("61 tokens")
    continued = replace(whole, drafting=Drafting(Mode.OFF, last_part=True))
    assert made_text(continued).endswith("61 tokens in the last part")


@pytest.mark.parametrize(
    ("one", "other", "in_one", "in_other"),
    [
        ("The cat sat.", "The dog sat.", ["cat"], ["dog"]),
        ("The cat sat.", "The cat  sat.", [], []),
        ("same", "same", [], []),
        ("Well", "Well, all of it", [], [", all of it"]),
        ("a b c", "a c", ["b"], []),
        ("🎂 good cake", "🎂 bad cake", ["good"], ["bad"]),
        ("你好世界", "你们世界", ["好"], ["们"]),
        ("We don't know", "We do not know", ["don't"], ["do not"]),
    ],
)
def test_words_that_differ_are_found(one: str, other: str, in_one: list[str], in_other: list[str]) -> None:
    def cut(text: str, spans: list[tuple[int, int]]) -> list[str]:
        units = text.encode("utf-16-le")
        return [units[2 * begin : 2 * end].decode("utf-16-le") for begin, end in spans]

    spans, spans_of_other = differences(one, other)
    assert (cut(one, spans), cut(other, spans_of_other)) == (in_one, in_other)


def test_long_texts_are_compared_too() -> None:
    one = " ".join(f"word{number % 4000}" for number in range(8000))
    spans, _ = differences(one, one.replace("word7 ", "other ", 1))
    assert 0 < len(spans) < 4000


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("", "All of it"),
        ("Apples, pears and plums are fruits.", "1. Mango\n2. Kiwi"),
        ("It is a table of keys and values.", "Think of a row of drawers, each with a name on it."),
    ],
)
def test_texts_with_little_in_common_are_not_marked(one: str, other: str) -> None:
    assert differences(one, other) is None


def test_words_that_repeat_without_end_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = "a " * 100, "a b " * 50
    assert differences(*texts) is not None
    monkeypatch.setattr(_Matcher, "_left", 2_000)
    assert differences(*texts) is None
