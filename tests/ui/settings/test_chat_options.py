"""The options of one chat."""

import pytest
from PySide6.QtWidgets import QScrollArea
from pytestqt.qtbot import QtBot

from rdchat.chat.presets import LongChats
from rdchat.inference.api import AnswerShape, Role, SamplingDefaults, SamplingParams, ShapeKind, ThinkingChoice
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.settings.chat_options import ChatOptions
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import click_on, press_key


def test_changes_apply_at_once_and_reach_the_engine(chat: Chat, options: ChatOptions) -> None:
    assert options.source.text() == "Same as in Settings"
    assert not options.thinking.isVisible(), "the model does not think"
    chat.qtbot.keyClicks(options.form.prompt, "Be brief.")
    options.form.fields["temperature"].setValue(0)
    assert chat.open.conversation.system_prompt == "Be brief."
    assert options.source.text() == "Changed for this chat"
    chat.say("Hello")
    request = chat.engine.last_request
    assert (request.messages[0].role, request.messages[0].content) == (Role.SYSTEM, "Be brief.")
    assert request.sampling == SamplingParams(temperature=0)


@pytest.mark.parametrize(
    "own",
    [
        {"thinking_tokens": 5},
        {"answer_shape": AnswerShape(ShapeKind.JSON)},
        {"long_chats": LongChats.COMPACT},
        {"sampling": SamplingParams(top_k=40)},
    ],
)
def test_all_but_four_options_are_folded_until_the_chat_has_others(
    chat: Chat, options: ChatOptions, own: dict[str, object]
) -> None:
    form = options.form
    in_sight = options.preset, form.prompt, form.fields["temperature"], form.more
    rare = options.shape.kind, form.long_chats, form.fields["max_tokens"], form.stop, options.save
    chat.open.set_options(system_prompt="Be brief.", sampling=SamplingParams(temperature=0.3))
    options.open_below()
    assert all(each.isVisible() for each in in_sight)
    assert not any(each.isVisible() for each in rare)
    assert options.sizeHint().height() < 300
    click_on(form.more)
    assert all(each.isVisible() for each in rare)
    chat.open.set_options(**own)
    options.open_below()
    assert all(each.isVisible() for each in rare), "what the chat changes is seen"
    chat.open.use_preset(None)
    options.open_below()
    assert not any(each.isVisible() for each in rare)


def test_a_sheet_that_is_higher_than_the_screen_scrolls(qtbot: QtBot, options: ChatOptions) -> None:
    """Its last buttons were below the screen, with most fonts as soon as it was unfolded."""
    screen = options.screen().availableGeometry()
    below = lambda: options.with_draft.mapTo(options, options.with_draft.rect().bottomLeft()).y()  # noqa: E731
    folded = options.size()
    options.form.more.click()
    qtbot.waitUntil(lambda: screen.contains(options.geometry()) and 0 < options.height() - below() < 30)
    options.form.stop.setFixedHeight(screen.height() // 2)
    qtbot.waitUntil(lambda: screen.contains(options.geometry()) and below() > options.height())
    options.name.setFocus()
    press_key(options.name, "Tab")
    assert options.with_draft.hasFocus()
    assert below() < options.height()
    options.form.more.click()
    qtbot.waitUntil(lambda: options.size() == folded)


def test_it_is_no_higher_than_the_window_that_it_belongs_to(qtbot: QtBot, options: ChatOptions) -> None:
    """Unfolded it was some 850 pixels high, more than a small window shows."""
    window = options.parentWidget().window()
    window.resize(900, 560)
    options.open_below()
    area = options.findChild(QScrollArea)
    options.form.more.click()
    qtbot.waitUntil(lambda: area.verticalScrollBar().maximum() > 0)
    assert options.form.long_chats.isVisible()
    assert 400 < options.height() < window.height()
    assert area.horizontalScrollBar().maximum() == 0, "nothing is cut at its side"


def test_use_defaults_forgets_the_chats_own(chat: Chat, options: ChatOptions) -> None:
    options.form.fields["top_k"].setValue(40)
    click_on(options.defaults)
    assert chat.open.conversation.sampling is None
    assert options.form.fields["top_k"].value() == 0
    assert not options.defaults.isEnabled()
    options.form.fields["top_k"].setValue(40)
    options.form.fields["top_k"].setValue(0)
    assert chat.open.conversation.sampling is None, "the usual value is not the chat's own"


def test_a_choice_for_another_model_is_not_asked_of_one_that_has_no_such_switch(chat: Chat) -> None:
    chat.start()
    chat.open.set_options(thinking_choice=ThinkingChoice.HIGH)
    chat.say("Hello")
    assert chat.engine.last_request.thinking is None
    assert chat.open.conversation.thinking_choice is ThinkingChoice.HIGH


def test_a_value_says_that_it_comes_from_the_model_until_the_person_chooses(chat: Chat, options: ChatOptions) -> None:
    chat.engine.sampling = SamplingDefaults(SamplingParams(temperature=0.6), frozenset({"temperature"}))
    chat.slot.retry()
    chat.wait_for(EngineState.IDLE)
    options.show_values()
    assert options.form.fields["temperature"].value() == 0.6
    assert options.form.marks["temperature"].text() == "From the model"
    assert options.form.marks["top_p"].text() == ""
    options.form.fields["max_tokens"].setValue(5)
    assert options.form.marks["temperature"].text() == "", "the chat has its own now"


def test_answers_as_json_are_kept_with_the_chat_and_reach_the_engine(chat: Chat, options: ChatOptions) -> None:
    form = options.shape
    chats = chat.chats
    form.kind.setCurrentIndex(1)
    form.kind.activated.emit(1)
    chat.say("Hello")
    assert chat.engine.last_request.shape == AnswerShape(ShapeKind.JSON)
    form.kind.setCurrentIndex(2)
    form.kind.activated.emit(2)
    form.schema.setPlainText('{"type": "object"}')
    wanted = AnswerShape(ShapeKind.SCHEMA, '{"type": "object"}')
    assert chats.chat.conversation.answer_shape == wanted
    form.schema.setPlainText('{"type": ')
    assert form.problem.text() == "The JSON schema is not JSON yet."
    assert chats.chat.conversation.answer_shape == wanted
    chats.chat.start_new()
    options.show_values()
    assert form.shape is None


def test_one_chat_can_keep_no_cache_on_disk(chat: Chat, options: ChatOptions) -> None:
    assert options.keep_cache.isChecked()
    press_key(options.keep_cache, "Space")
    assert not chat.open.conversation.own.keep_cache
    chat.settings.change_values(keep_caches=False)
    options.show_values()
    assert not options.keep_cache.isEnabled()


def test_a_chat_has_its_own_choice_for_when_it_is_long(chat: Chat, options: ChatOptions) -> None:
    chat.say("Hi")
    long_chats = options.form.long_chats
    assert long_chats.currentText() == "Ask"
    long_chats.setCurrentIndex(2)
    long_chats.activated.emit(2)
    assert chat.store.conversation(chat.open.id).own.long_chats is LongChats.COMPACT
    assert options.form.marks["long_chats"].text() == "Changed"
    options.defaults.click()
    assert (long_chats.currentText(), chat.open.conversation.own.long_chats) == ("Ask", None)
