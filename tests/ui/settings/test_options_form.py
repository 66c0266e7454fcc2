"""The form of options that chats, presets and Settings share."""

import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.presets import LongChats
from rdchat.inference.api import SamplingParams
from rdchat.ui.settings.options_form import OptionsForm, stop_strings, stop_text
from rdchat.ui.style import Theme
from tests.ui.shown_widgets import press_key, type_number


@pytest.fixture
def form(qtbot: QtBot, theme: Theme) -> OptionsForm:
    form = OptionsForm(theme)
    qtbot.addWidget(form)
    form.show_options("Be brief.", SamplingParams(), LongChats.ASK)
    form.show()
    return form


def test_setting_values_is_no_edit_but_typing_is(qtbot: QtBot, form: OptionsForm) -> None:
    with qtbot.assertNotEmitted(form.edited):
        form.show_options("", SamplingParams(temperature=0.2, stop=("x",)), LongChats.COMPACT)
    with qtbot.waitSignal(form.edited):
        form.fields["top_k"].setValue(40)
    assert form.sampling() == SamplingParams(temperature=0.2, top_k=40, stop=("x",))
    assert form.options()["long_chats"] is LongChats.COMPACT


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
def test_only_values_in_range_can_be_typed(form: OptionsForm, field: str, typed: str) -> None:
    type_number(form.fields[field], typed)
    press_key(form.fields[field], "Return")
    # All of the form's values are accepted.
    assert (getattr(form.sampling(), field) == float(typed)) is ((field, typed) in IN_RANGE)


def test_half_a_number_is_not_a_value(qtbot: QtBot, form: OptionsForm) -> None:
    with qtbot.assertNotEmitted(form.edited):
        type_number(form.fields["temperature"], "2.5")
    with qtbot.waitSignal(form.edited):
        form.hide()  # as when the popover closes
    assert form.sampling() == SamplingParams(temperature=2.5)


def test_stop_strings_are_one_on_each_line() -> None:
    assert stop_strings("END\n\n\\n\\n\n User: ") == ("END", "\n\n", " User: ")
    assert stop_text(("END", "\n\n")) == "END\n\\n\\n"
    assert stop_strings("") == ()
    assert stop_strings(r"\d+ \q \u12 \ud83d") == (r"\d+ \q \u12 \ud83d",)  # not escapes: as they stand


@pytest.mark.parametrize(
    "stop",
    [(", ",), (" ", "\t", "a, b"), ("\\n", "\\", r"\\u00a0"), ("\r\n", "\xa0\u2028", "\x00"), ("👩‍💻", "句")],
)
def test_values_and_stop_strings_come_back_as_they_went_in(form: OptionsForm, stop: tuple[str, ...]) -> None:
    sampling = SamplingParams(0.35, 0.905, 40, 0.025, 1.15, 0.6, -0.2, 300, stop)
    form.show_options("", sampling, LongChats.ASK)
    assert form.sampling() == sampling


def test_typing_a_line_break_keeps_the_text(qtbot: QtBot, form: OptionsForm) -> None:
    """A form that wrote its values back would eat the line break just typed."""
    form.edited.connect(lambda: form.show_options("", form.sampling(), LongChats.ASK))
    qtbot.keyClicks(form.stop, "END")
    press_key(form.stop, "Return")
    assert form.stop.toPlainText() == "END\n"
    assert form.sampling().stop == ("END",)
