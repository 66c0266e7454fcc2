import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from rdchat.inference.api.requests import SamplingParams
from rdchat.ui.settings.sampling_form import SamplingForm, SpinBox, stop_strings, stop_text
from rdchat.ui.style.theme import Theme


@pytest.fixture
def form(qtbot: QtBot, theme: Theme) -> SamplingForm:
    form = SamplingForm(theme)
    qtbot.addWidget(form)
    form.set_sampling(SamplingParams())
    form.show()
    return form


def test_values_come_back_as_they_went_in(form: SamplingForm) -> None:
    sampling = SamplingParams(0.35, 0.905, 40, 0.025, 1.15, 0.6, -0.2, 300, ("END", "\n\n"))
    form.set_sampling(sampling)
    assert form.sampling() == sampling


def test_setting_values_is_no_edit_but_typing_is(qtbot: QtBot, form: SamplingForm) -> None:
    with qtbot.assertNotEmitted(form.edited):
        form.set_sampling(SamplingParams(temperature=0.2, stop=("x",)))
    with qtbot.waitSignal(form.edited) as edited:
        form.fields["top_k"].setValue(40)
    assert edited.args == [SamplingParams(temperature=0.2, top_k=40, stop=("x",))]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("temperature", 11, "Temperature 11.0 is out of range: it must be from 0 to 10."),
        ("top_p", 0, "Top-p 0.0 is out of range: it must be above 0 and at most 1."),
        ("min_p", 2, "Min-p 2.0 is out of range: it must be from 0 to 1."),
        ("max_tokens", 0, "Max-tokens 0 is out of range: it must be at least 1."),
    ],
)
def test_a_wrong_value_is_explained_and_not_passed_on(
    qtbot: QtBot, form: SamplingForm, field: str, value: float, words: str
) -> None:
    number: SpinBox = form.fields[field]
    good = number.value()
    with qtbot.assertNotEmitted(form.edited):
        number.setValue(value)
    assert form.problem.isVisible()
    assert form.problem.text() == words
    with qtbot.waitSignal(form.edited):
        number.setValue(good)
    assert not form.problem.isVisible()


def test_half_a_number_is_not_a_value(qtbot: QtBot, form: SamplingForm) -> None:
    with qtbot.assertNotEmitted(form.edited):
        form.fields["temperature"].selectAll()
        qtbot.keyClicks(form.fields["temperature"], "2.5")
    with qtbot.waitSignal(form.edited) as edited:
        form.hide()  # as when the popover closes
    assert edited.args == [SamplingParams(temperature=2.5)]


def test_arrows_stay_in_range(qtbot: QtBot, form: SamplingForm) -> None:
    form.fields["top_p"].setValue(0.98)
    qtbot.keyClick(form.fields["top_p"], Qt.Key.Key_Up)
    qtbot.keyClick(form.fields["top_p"], Qt.Key.Key_Up)
    assert form.fields["top_p"].value() == 1


def test_stop_strings_are_one_on_each_line() -> None:
    assert stop_strings("END\n\n\\n\\n\n User: ") == ("END", "\n\n", " User: ")
    assert stop_text(("END", "\n\n")) == "END\n\\n\\n"
    assert stop_strings("") == ()
    assert stop_strings(r"\d+ \q \u12 \ud83d") == (r"\d+ \q \u12 \ud83d",)  # not escapes: as they stand


@pytest.mark.parametrize(
    "stop",
    [(", ",), (" ", "\t", "a, b"), ("\\n", "\\", r"\\u00a0"), ("\r\n", "\xa0\u2028", "\x00"), ("👩‍💻", "句")],
)
def test_every_stop_string_comes_back_as_it_went_in(form: SamplingForm, stop: tuple[str, ...]) -> None:
    form.set_sampling(SamplingParams(stop=stop))
    assert form.sampling().stop == stop


def test_typing_a_line_break_keeps_the_text(qtbot: QtBot, form: SamplingForm) -> None:
    """A form that wrote its values back would eat the line break just typed."""
    form.edited.connect(form.set_sampling)
    qtbot.keyClicks(form.stop, "END")
    qtbot.keyClick(form.stop, Qt.Key.Key_Return)
    assert form.stop.toPlainText() == "END\n"
    assert form.sampling().stop == ("END",)


def test_every_field_has_a_name_and_an_explanation(form: SamplingForm) -> None:
    for field in (*form.findChildren(SpinBox), form.stop):
        assert field.accessibleName()
        assert field.toolTip().removesuffix("</p>").endswith(".")
