import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDoubleSpinBox
from pytestqt.qtbot import QtBot

from rdchat.inference.api import SamplingParams
from rdchat.ui.settings.chat_options import SamplingForm, stop_strings, stop_text
from rdchat.ui.style import Theme


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
    ("field", "typed"),
    [
        ("temperature", "11"),
        ("top_p", "0"),
        ("top_p", "2"),
        ("min_p", "2"),
        ("presence_penalty", "-3"),
        ("repetition_penalty", "0"),
        ("max_tokens", "0"),
        ("max_tokens", "-1"),
        ("top_k", "-1"),
    ],
)
def test_a_value_out_of_range_cannot_be_typed(qtbot: QtBot, form: SamplingForm, field: str, typed: str) -> None:
    form.fields[field].selectAll()
    qtbot.keyClicks(form.fields[field], typed)
    qtbot.keyClick(form.fields[field], Qt.Key.Key_Return)
    assert getattr(form.sampling(), field) != float(typed)  # and all of them are accepted


@pytest.mark.parametrize(("field", "typed"), [("top_p", "0.01"), ("top_k", "5000"), ("max_tokens", "200000")])
def test_any_value_in_range_can_be_typed(qtbot: QtBot, form: SamplingForm, field: str, typed: str) -> None:
    form.fields[field].selectAll()
    qtbot.keyClicks(form.fields[field], typed)
    qtbot.keyClick(form.fields[field], Qt.Key.Key_Return)
    assert getattr(form.sampling(), field) == float(typed)


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
    for field in (*form.findChildren(QDoubleSpinBox), form.stop):
        assert field.accessibleName()
        assert field.toolTip().removesuffix("</p>").endswith(".")
