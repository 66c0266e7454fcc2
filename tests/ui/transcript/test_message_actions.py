from dataclasses import replace

import pytest
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QEnterEvent
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import Drafting, MadeWith, MessageStatus
from rdchat.inference.api import HeadKind, Mode, SamplingParams, Spent, Statistics, spent_ms
from rdchat.ui.speed.sections import FigureRow
from rdchat.ui.style import DEFINITIONS, Theme
from rdchat.ui.style.formatting import duration
from rdchat.ui.transcript.message_actions import Fact, FactsLine, ReplyDetails, facts, summary
from rdchat.ui.transcript.view import TranscriptView
from tests.ui.transcript.conftest import DRAFTED, Show, answered, button, reply, widget_of

NNBSP = "\N{NARROW NO-BREAK SPACE}"


def test_a_line_says_the_most_telling_first() -> None:
    message = reply(2, "Hi", statistics=DRAFTED, drafting=Drafting(Mode.DRAFTER, drafter="/models/my drafter"))
    assert summary(message) == [
        "Drafter head",
        "30.0 tokens/s",
        "2.00 tokens per step",
        f"33{NNBSP}% acceptance",
        "steps with a draft: 30",
        "first token 120 ms",
        "reading 80 ms",
        "8 of 40 prompt tokens from memory",
        "drafter my drafter",
    ]


def test_reading_is_one_figure_in_the_panel_and_below_the_reply() -> None:
    """One reply had 979 ms in the panel, and 1.11 s below it: that was until the first token was shown."""
    slow = replace(DRAFTED, prefill_ms=95)
    assert duration(spent_ms(slow)[Spent.READING]) == "80 ms"
    assert "reading 80 ms" in summary(reply(2, "Hi", statistics=slow))
    assert not any("reading" in each for each in summary(reply(2, "Hi", statistics=replace(slow, ledger=()))))


def test_a_remote_reply_says_where_it_came_from_and_only_what_the_server_said() -> None:
    """It had "Off" in its line, which no server had said."""
    said = Statistics(generated_tokens=60, ttft_ms=300, decode_ms=2000)
    unsaid = reply(2, "Hi", statistics=said, drafting=Drafting(None, server="studio"))
    assert summary(unsaid) == ["on studio", "29.5 tokens/s", "first token 300 ms"]
    assert "Drafting" not in {fact.name for fact in facts(unsaid)}
    told = replace(unsaid, drafting=Drafting(Mode.AUTO, server="studio"))
    assert summary(told)[:2] == ["on studio", "Auto"]


def test_plain_decoding_has_no_figures_of_drafts() -> None:
    plain = replace(DRAFTED, rounds=0, drafted=0, accepted=0, target_calls=60)
    message = reply(2, "Hi", statistics=plain, drafting=Drafting(Mode.OFF, "There is no drafter."))
    assert summary(message)[:2] == ["not drafted", "30.0 tokens/s"]
    names = [fact.name for fact in facts(message)]
    assert "Acceptance" not in names
    assert facts(message)[0].definition.endswith("There is no drafter.")


def test_replies_without_statistics_or_drafting_say_what_is_known() -> None:
    assert summary(reply(2, "Hi", statistics=DRAFTED))[0] == "30.0 tokens/s"
    assert (summary(reply(2, "Hi")), facts(reply(2, "Hi"))) == ([], [])


def test_every_fact_is_defined() -> None:
    message = reply(2, "Hi", statistics=DRAFTED, drafting=Drafting(Mode.LOOKUP, drafter="prompt lookup"))
    values = {fact.name: fact.value for fact in facts(message)}
    assert values["Acceptance"] == f"33{NNBSP}%"
    assert (values["Reading time"], values["Reading speed"]) == ("80 ms", "400 tokens/s")
    assert values["Drafter"] == "prompt lookup"
    assert all(fact.definition.endswith(".") or fact.name == "Drafter" for fact in facts(message))


def test_the_automatic_modes_drafters_are_all_named_and_cut_where_they_are_long() -> None:
    drafting = Drafting(Mode.AUTO, drafter="/models/mine, prompt lookup")
    assert facts(reply(2, "Hi", statistics=DRAFTED, drafting=drafting))[1].value == "mine, prompt lookup"
    drafting = replace(drafting, drafter="/models/redrafter-smollm2-135m, /models/small, prompt lookup")
    fact = facts(reply(2, "Hi", statistics=DRAFTED, drafting=drafting))[1]
    assert fact.value == "redrafter-smollm2-135m…"
    assert fact.definition.endswith("/models/small, prompt lookup")


def test_the_ratio_to_plain_decoding_stands_beside_the_speed() -> None:
    measured = replace(DRAFTED, plain_step_ms=50.0)
    message = reply(2, "Hi", statistics=measured, drafting=Drafting(Mode.LOOKUP))
    assert summary(message)[:3] == ["Prompt lookup", "30.0 tokens/s", "1.50x"]
    told = {fact.name: fact for fact in facts(message)}
    assert told["Without drafting"] == Fact("Without drafting", "20.0 tokens/s", DEFINITIONS["Without drafting"])
    assert told["Speed-up"].value == "1.50x"
    plain = replace(measured, rounds=0, target_calls=60)
    assert "1.50x" not in summary(reply(2, "Hi", statistics=plain, drafting=Drafting(Mode.OFF)))


def test_all_that_the_panel_showed_of_a_reply_is_kept_with_it() -> None:
    whole = replace(
        DRAFTED,
        drafted=150,
        accepted=33,
        verified_nodes=480,
        host_syncs=33,
        drafted_lengths=(0, 0, 0, 0, 0, 30),
        accepted_lengths=(15, 5, 5, 3, 1, 1),
        context_tokens=1101,
        peak_memory_bytes=812_000_000,
        dropped_drafts=3,
    )
    told = {fact.name: fact for fact in facts(reply(2, "Hi", statistics=whole, drafting=Drafting(Mode.DRAFTER)))}
    assert told["Acceptance by position, %"].value == "50, 33, 17, 7…"
    assert told["Kept per step"].value == "1.10"
    assert told["Kept per step"].definition.endswith(
        "Steps with a draft that kept none, 1 and so on: 15, 5, 5, 3, 1, 1."
    )
    assert told["Checked per step"] == Fact("Checked per step", "16.0", DEFINITIONS["Checked per step"])
    assert told["Waits per step"].value == "1.10"
    assert told["Dropped drafts"].value == "3"
    assert told["Context"].value == "1,101 tokens"
    assert told["Peak memory"].value == "812 MB"
    names = [fact.name for fact in facts(reply(2, "Hi", statistics=DRAFTED))]
    assert "Dropped drafts" not in names
    assert "Waits per step" not in names, "a figure that nothing counted is left out"


def test_a_continued_reply_says_that_its_figures_are_of_its_last_part() -> None:
    message = reply(2, "Hi", statistics=DRAFTED, drafting=Drafting(Mode.LOOKUP, last_part=True))
    assert summary(message)[-1] == "of the last part"
    assert [fact.value for fact in facts(message) if fact.name == "Figures"] == ["of the last part"]


def test_the_kind_of_a_drafter_stands_beside_its_mode() -> None:
    drafting = Drafting(Mode.DRAFTER, drafter="some-org/eagle", kind=HeadKind.EAGLE3)
    message = reply(2, "Hi", statistics=DRAFTED, drafting=drafting)
    assert summary(message)[0] == "Drafter head, EAGLE-3"
    assert facts(message)[0].value == "Drafter head, EAGLE-3"
    assert facts(message)[1].value == "eagle"
    of_auto = reply(2, "Hi", statistics=DRAFTED, drafting=Drafting(Mode.AUTO, drafter="a", kind=HeadKind.EAGLE3))
    assert summary(of_auto)[0] == "Auto", "the drafter was one of several"


def test_what_a_reply_was_made_with_comes_first() -> None:
    made_with = MadeWith(SamplingParams(temperature=1.2), "You are a cook who likes onions.", once=True)
    message = reply(2, "Hi", statistics=DRAFTED, made_with=made_with)
    first, second = facts(message)[:2]
    assert (first.name, first.value) == ("Temperature", "1.2")
    assert (second.name, second.value) == ("System prompt", "You are a cook who like…")
    assert second.definition == "Of this reply alone: You are a cook who likes onions."
    plain = replace(message, made_with=MadeWith(SamplingParams(temperature=0.7)))
    assert [fact.value for fact in facts(plain) if fact.name in ("Temperature", "System prompt")] == ["0.7"]


def test_steps_in_which_prompt_lookup_found_nothing_are_no_steps_with_a_draft() -> None:
    """One draft of six steps was accepted: `5, 1` stood beside 100 % at the first place."""
    found = replace(
        DRAFTED, rounds=6, target_calls=6, drafted=1, accepted=1, drafted_lengths=(5, 1), accepted_lengths=(5, 1)
    )
    told = {fact.name: fact for fact in facts(reply(2, "Hi", statistics=found, drafting=Drafting(Mode.LOOKUP)))}
    assert told["Steps with a draft"].value == "1"
    assert told["Acceptance by position, %"].value == "100"
    assert told["Kept per step"].value == told["Longest branch"].value == "0.17"
    assert told["Kept per step"].definition.endswith("and so on: 0, 1.")


def test_a_line_that_does_not_fit_ends_with_a_whole_part(theme: Theme, qtbot: QtBot) -> None:
    line = FactsLine(theme, "Draft model · 30.0 tokens/s · 1.50x")
    qtbot.addWidget(line)
    assert line.fitting_text(line.fontMetrics().horizontalAdvance("Draft model · 30.0 tokens/s · ")) == (
        "Draft model · 30.0 tokens/s"
    )
    assert line.fitting_text(9999) == line.text()


LOOKED_UP = Drafting(Mode.LOOKUP, drafter="prompt lookup")


@pytest.fixture
def view(show: Show) -> TranscriptView:
    return show(answered("Hello", statistics=DRAFTED, drafting=LOOKED_UP, model="tiny"))


def line_of(view: TranscriptView) -> QLabel:
    return widget_of(view, 2).actions_row.facts


def enter(view: TranscriptView) -> None:
    place = QPointF(1, 1)
    QApplication.sendEvent(widget_of(view, 2), QEnterEvent(place, place, place))


def leave(view: TranscriptView) -> None:
    QApplication.sendEvent(widget_of(view, 2), QEvent(QEvent.Type.Leave))


def test_a_line_shows_under_the_pointer(view: TranscriptView) -> None:
    line = line_of(view)
    leave(view)  # the window may have come up under the pointer
    assert line.text() == ""
    enter(view)
    assert line.text().startswith("Prompt lookup · 30.0 tokens/s · 2.00 tokens per step")
    leave(view)
    assert line.text() == ""


def test_and_while_a_button_of_the_reply_has_the_focus(qtbot: QtBot, view: TranscriptView) -> None:
    view.activateWindow()
    button(widget_of(view, 2), "Copy reply").setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.waitUntil(lambda: line_of(view).text() != "")


def test_details_open_with_everything_and_lead_to_the_tokens(qtbot: QtBot, view: TranscriptView) -> None:
    button(widget_of(view, 2), "Details").click()
    details = view.findChild(ReplyDetails)
    qtbot.waitUntil(details.isVisible)
    told = [figure.value.accessibleName() for figure in details.findChildren(FigureRow)]
    assert "Steps with a draft: 30" in told
    assert "Time to first token: 120 ms" in told
    shown = [figure for figure in details.findChildren(FigureRow) if figure.isVisible()]
    assert 1 <= len(shown) <= 3
    button(details, "More").click()
    assert all(figure.isVisible() for figure in details.findChildren(FigureRow))
    with qtbot.waitSignal(view.tokens_requested) as asked:
        button(details, "Show Tokens").click()
    assert asked.args == [2]
    qtbot.waitUntil(lambda: view.findChild(ReplyDetails) is None)


def test_a_reply_without_statistics_has_no_details(show: Show) -> None:
    view = show(answered("", MessageStatus.FAILED, None, error="It broke off."))
    widget = widget_of(view, 2)
    assert not button(widget, "Details").isEnabled()
    assert not button(widget, "Show tokens").isEnabled()
