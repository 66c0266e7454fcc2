"""The options of one chat, and their form for sampling."""

import pytest
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from rdchat.inference.api import AnswerShape, Role, SamplingDefaults, SamplingParams, ShapeKind, ThinkingChoice
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.settings.chat_options import COMMON, ChatOptions, SamplingForm, stop_strings, stop_text
from rdchat.ui.style import Theme
from tests.listed_chats import listed
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import click_on, press_key, type_number


def test_changes_apply_at_once_and_reach_the_engine(qtbot: QtBot, chat: Chat, options: ChatOptions) -> None:
    assert options.source.text() == "Same as in Settings"
    assert not options.thinking.isVisible(), "the model does not think"
    qtbot.keyClicks(options.prompt, "Be brief.")
    options.form.fields["temperature"].setValue(0)
    assert chat.open.conversation.system_prompt == "Be brief."
    assert options.source.text() == "Changed for this chat"
    chat.say("Hello")
    request = chat.engine.last_request
    assert (request.messages[0].role, request.messages[0].content) == (Role.SYSTEM, "Be brief.")
    assert request.sampling == SamplingParams(temperature=0)


def test_rare_sampling_is_folded_until_the_chat_has_some_and_the_sheet_fits_a_small_window(
    chat: Chat, options: ChatOptions
) -> None:
    shown = lambda: {name for name, field in options.form.fields.items() if not field.isHidden()}  # noqa: E731
    assert shown() == COMMON
    assert options.form.stop.isHidden()
    assert options.sizeHint().height() < 560
    options.more.click()
    assert shown() == options.form.fields.keys()
    assert not options.form.stop.isHidden()
    options.more.click()
    options.form.fields["temperature"].setValue(0.3)
    assert shown() == COMMON
    options.form.fields["top_k"].setValue(40)
    anchor = options.parentWidget() or QPushButton()
    options.open_below(anchor)
    assert shown() == options.form.fields.keys(), "what the chat changes is seen"
    chat.open.use_preset(None)
    options.open_below(anchor)
    assert shown() == COMMON


def test_a_sheet_that_is_higher_than_the_screen_scrolls(qtbot: QtBot, options: ChatOptions) -> None:
    """Its last buttons were below the screen, with most fonts as soon as it was unfolded."""
    screen = options.screen().availableGeometry()
    below = lambda: options.with_draft.mapTo(options, options.with_draft.rect().bottomLeft()).y()  # noqa: E731
    is_whole = lambda: 0 < options.height() - below() < 30  # noqa: E731
    qtbot.waitUntil(lambda: is_whole() and options.height() < 560)
    folded = options.size()
    options.shape.set_shape(AnswerShape(ShapeKind.SCHEMA, "{}"))
    options.more.click()
    qtbot.waitUntil(lambda: screen.contains(options.geometry()) and below() > options.height())
    options.name.setFocus()
    press_key(options.name, "Tab")
    assert options.with_draft.hasFocus()
    assert below() < options.height()
    options.shape.set_shape(None)
    options.more.click()
    qtbot.waitUntil(lambda: is_whole() and options.size() == folded)


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
    assert options.form.sources["temperature"].text() == "From the model"
    assert options.form.sources["top_p"].text() == ""
    options.form.fields["max_tokens"].setValue(5)
    assert options.form.sources["temperature"].text() == "", "the chat has its own now"


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
    chat.say("Hello")
    assert chat.engine.last_request.keep is None
    assert not listed(chat.chats)[0].own.keep_cache
    chat.settings.change_values(keep_caches=False)
    options.show_values()
    assert not options.keep_cache.isEnabled()


@pytest.fixture
def form(qtbot: QtBot, theme: Theme) -> SamplingForm:
    form = SamplingForm(theme)
    qtbot.addWidget(form)
    form.set_sampling(SamplingParams())
    form.show()
    return form


def test_setting_values_is_no_edit_but_typing_is(qtbot: QtBot, form: SamplingForm) -> None:
    with qtbot.assertNotEmitted(form.edited):
        form.set_sampling(SamplingParams(temperature=0.2, stop=("x",)))
    with qtbot.waitSignal(form.edited) as edited:
        form.fields["top_k"].setValue(40)
    assert edited.args == [SamplingParams(temperature=0.2, top_k=40, stop=("x",))]


IN_RANGE = (("top_p", "0.01"), ("top_k", "5000"), ("max_tokens", "200000"))
OUT_OF_RANGE = (
    ("temperature", "11"),
    ("top_p", "0"),
    ("top_p", "2"),
    ("min_p", "2"),
    ("presence_penalty", "-3"),
    ("repetition_penalty", "0"),
    ("max_tokens", "0"),
    ("max_tokens", "-1"),
    ("top_k", "-1"),
)


@pytest.mark.parametrize(("field", "typed"), [*IN_RANGE, *OUT_OF_RANGE])
def test_only_values_in_range_can_be_typed(form: SamplingForm, field: str, typed: str) -> None:
    type_number(form.fields[field], typed)
    press_key(form.fields[field], "Return")
    # All of the form's values are accepted.
    assert (getattr(form.sampling(), field) == float(typed)) is ((field, typed) in IN_RANGE)


def test_half_a_number_is_not_a_value(qtbot: QtBot, form: SamplingForm) -> None:
    with qtbot.assertNotEmitted(form.edited):
        type_number(form.fields["temperature"], "2.5")
    with qtbot.waitSignal(form.edited) as edited:
        form.hide()  # as when the popover closes
    assert edited.args == [SamplingParams(temperature=2.5)]


def test_stop_strings_are_one_on_each_line() -> None:
    assert stop_strings("END\n\n\\n\\n\n User: ") == ("END", "\n\n", " User: ")
    assert stop_text(("END", "\n\n")) == "END\n\\n\\n"
    assert stop_strings("") == ()
    assert stop_strings(r"\d+ \q \u12 \ud83d") == (r"\d+ \q \u12 \ud83d",)  # not escapes: as they stand


@pytest.mark.parametrize(
    "stop",
    [(", ",), (" ", "\t", "a, b"), ("\\n", "\\", r"\\u00a0"), ("\r\n", "\xa0\u2028", "\x00"), ("👩‍💻", "句")],
)
def test_values_and_stop_strings_come_back_as_they_went_in(form: SamplingForm, stop: tuple[str, ...]) -> None:
    sampling = SamplingParams(0.35, 0.905, 40, 0.025, 1.15, 0.6, -0.2, 300, stop)
    form.set_sampling(sampling)
    assert form.sampling() == sampling


def test_typing_a_line_break_keeps_the_text(qtbot: QtBot, form: SamplingForm) -> None:
    """A form that wrote its values back would eat the line break just typed."""
    form.edited.connect(form.set_sampling)
    qtbot.keyClicks(form.stop, "END")
    press_key(form.stop, "Return")
    assert form.stop.toPlainText() == "END\n"
    assert form.sampling().stop == ("END",)
