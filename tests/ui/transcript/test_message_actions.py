from dataclasses import replace
from typing import Any

import pytest
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QEnterEvent
from PySide6.QtWidgets import QApplication, QMenu
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import Drafting, MadeWith, MessageStatus
from rdchat.inference.api import Mode, SamplingParams, Statistics
from rdchat.ui.speed.sections import FigureRow
from rdchat.ui.style import DEFINITIONS, IconButton
from rdchat.ui.transcript.message_actions import Fact, ReplyDetails, facts, speed_line
from rdchat.ui.transcript.message_widget import MessageWidget
from rdchat.ui.transcript.view import TranscriptView
from tests.ui.transcript.conftest import DRAFTED, Show, answered, button, choose_in_menu, reply, widget_of

NNBSP = "\N{NARROW NO-BREAK SPACE}"


REMOTE = Statistics(generated_tokens=60, ttft_ms=300, decode_ms=2000)
PLAIN = replace(DRAFTED, rounds=0, drafted=0, accepted=0, target_calls=60, plain_step_ms=50.0)
COMPARED = replace(DRAFTED, plain_step_ms=50.0, others_share=0.0)


@pytest.mark.parametrize(
    ("statistics", "line"),
    [
        (COMPARED, "1.50x faster with drafting"),
        (replace(COMPARED, plain_step_ms=60.0, plain_error=0.2), "About 2x faster with drafting"),
        (replace(COMPARED, plain_step_ms=25.0), "Slower with drafting: 0.75x"),
        (replace(COMPARED, plain_step_ms=33.5), ""),
        (replace(COMPARED, plain_error=0.3), "1.1 to 2.2x faster with drafting"),
        (replace(COMPARED, plain_step_ms=36.0, plain_error=0.3), ""),
        # It had a ratio without any word on the other work of the computer.
        (replace(COMPARED, others_share=0.5), ""),
        (replace(COMPARED, others_share=None), ""),
        (DRAFTED, ""),
        (PLAIN, ""),
        (REMOTE, ""),
        (Statistics(), ""),
    ],
)
def test_a_line_says_what_drafting_gained_where_that_was_measured(statistics: Statistics, line: str) -> None:
    assert speed_line(statistics) == line


def told(statistics: Statistics | None, drafting: Drafting | None = None, **more: Any) -> dict[str, Fact]:
    return {fact.name: fact for fact in facts(reply(2, "Hi", statistics=statistics, drafting=drafting, **more))}


def test_every_fact_is_defined() -> None:
    found = told(DRAFTED, Drafting(Mode.LOOKUP, "It repeats.", "prompt lookup", last_part=True))
    values = {name: fact.value for name, fact in found.items()}
    assert values["Acceptance"] == f"33{NNBSP}%"
    assert (values["Reading time"], values["Reading speed"]) == ("80 ms", "400 tokens/s")
    assert (values["Drafted by"], values["Figures"]) == ("prompt lookup", "of the last part")
    assert found["Drafting"].definition.endswith("It repeats.")
    assert all(fact.definition.endswith(".") or name == "Drafted by" for name, fact in found.items())
    remote = told(REMOTE, Drafting(None, server="studio"))
    assert remote["Server"].value == "studio"
    assert "Drafting" not in remote


def test_the_automatic_modes_drafters_are_all_named_and_cut_where_they_are_long() -> None:
    drafting = Drafting(Mode.AUTO, drafter="/models/mine, prompt lookup")
    assert told(DRAFTED, drafting)["Drafted by"].value == "mine, prompt lookup"
    drafting = replace(drafting, drafter="/models/redrafter-smollm2-135m, /models/small, prompt lookup")
    fact = told(DRAFTED, drafting)["Drafted by"]
    assert fact.value == "redrafter-smollm2-135m…"
    assert fact.definition.endswith("/models/small, prompt lookup")


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
        plain_step_ms=50.0,
    )
    found = told(whole, Drafting(Mode.DRAFTER))
    assert found["Kept per step"].definition.endswith(
        "Steps with a draft that kept none, 1 and so on: 15, 5, 5, 3, 1, 1."
    )
    assert found["Checked per step"] == Fact("Checked per step", "16.0", DEFINITIONS["Checked per step"])
    assert {
        "Acceptance by position, %": "50, 33, 17, 7…",
        "Kept per step": "1.10",
        "Waits per step": "1.10",
        "Dropped drafts": "3",
        "Context": "1,101 tokens",
        "Peak memory": "812 MB",
        "Without drafting": "20.0 tokens/s",
        "Speed-up": "1.50x",
    }.items() <= {name: fact.value for name, fact in found.items()}.items()
    assert not {"Dropped drafts", "Waits per step", "Acceptance"} & told(PLAIN).keys(), "what nothing counted"


def test_what_a_reply_was_made_with_comes_first() -> None:
    made_with = MadeWith(SamplingParams(temperature=1.2), "You are a cook who likes onions.", once=True)
    first, second, *_ = told(DRAFTED, made_with=made_with).values()
    assert (first.name, first.value) == ("Temperature", "1.2")
    assert (second.name, second.value) == ("System prompt", "You are a cook who like…")
    assert second.definition == "Of this reply alone: You are a cook who likes onions."
    plain = told(DRAFTED, made_with=MadeWith(SamplingParams(temperature=0.7)))
    assert (plain["Temperature"].value, "System prompt" in plain) == ("0.7", False)


def test_steps_in_which_prompt_lookup_found_nothing_are_no_steps_with_a_draft() -> None:
    """One draft in six steps was accepted: `5, 1` stood beside 100 % at the first place."""
    lengths = (100, 20)
    found = told(
        replace(
            DRAFTED,
            rounds=120,
            target_calls=120,
            drafted=20,
            accepted=20,
            drafted_lengths=lengths,
            accepted_lengths=lengths,
        ),
        Drafting(Mode.LOOKUP),
    )
    assert found["Steps with a draft"].value == "20 of 120"
    assert found["Acceptance by position, %"].value == "100"
    assert found["Kept per step"].value == found["Drafted per step"].value == "0.17"
    assert found["Kept per step"].definition.endswith("and so on: 0, 20.")


LOOKED_UP = Drafting(Mode.LOOKUP, drafter="prompt lookup")


@pytest.fixture
def view(show: Show) -> TranscriptView:
    return show(answered("Hello", statistics=DRAFTED, drafting=LOOKED_UP, model="tiny"))


def test_a_line_shows_under_the_pointer_and_while_the_reply_has_the_focus_and_leads_to_the_panel(
    qtbot: QtBot, show: Show
) -> None:
    view = show(answered("Hello", statistics=COMPARED, drafting=LOOKED_UP))
    place = QPointF(1, 1)
    leave = QEvent(QEvent.Type.Leave)
    actions = widget_of(view, 2).actions_row
    # The window may have come up under the pointer.
    for event, shown in ((leave, False), (QEnterEvent(place, place, place), True), (leave, False)):
        QApplication.sendEvent(widget_of(view, 2), event)
        assert actions.speed.isVisible() == shown
    view.activateWindow()
    button(widget_of(view, 2), "Copy reply").setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.waitUntil(actions.speed.isVisible)
    actions.speed.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.waitUntil(actions.speed.hasFocus)
    with qtbot.waitSignal(view.speed_requested) as asked:
        actions.speed.click()
    assert asked.args == [2]
    view.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.waitUntil(lambda: not actions.speed.isVisible())


def names_below(widget: MessageWidget) -> list[str]:
    shown = [each for each in widget.findChildren(IconButton) if not each.isHidden()]
    return [each.accessibleName() for each in sorted(shown, key=IconButton.x)]


def test_the_figures_stand_in_the_menu_and_below_a_reply_only_while_the_panel_is_open(view: TranscriptView) -> None:
    """There were five icons below each reply."""
    view.has_tokens = lambda message_id: message_id == 2
    widget = widget_of(view, 2)
    for is_open in (False, True, False):
        view.show_figures(is_open)
        view.grab()
        figures = ["Details", "Show tokens"] if is_open else []
        assert names_below(widget) == ["Copy reply", "Regenerate reply", *figures, "More"]
        menu = QMenu(view)
        widget.fill_menu(menu)
        assert {"Details", "Show Tokens"} <= {each.text() for each in menu.actions() if each.isEnabled()}
    assert names_below(widget_of(view, 1)) == ["Copy message", "Edit message", "More"]


def test_details_and_tokens_open_from_the_menu(qtbot: QtBot, view: TranscriptView) -> None:
    view.has_tokens = lambda message_id: message_id == 2
    choose_in_menu(widget_of(view, 2), "Details")
    details = view.findChild(ReplyDetails)
    qtbot.waitUntil(details.isVisible)
    told = [figure.value.accessibleName() for figure in details.findChildren(FigureRow) if figure.isVisible()]
    assert "Steps with a draft: 30 of 30" in told
    assert "Time to first token: 120 ms" in told
    details.close()
    with qtbot.waitSignal(view.tokens_requested) as asked:
        choose_in_menu(widget_of(view, 2), "Show Tokens")
    assert asked.args == [2]


def test_what_was_not_recorded_is_not_offered_and_says_so(show: Show) -> None:
    """The tokens of an imported reply opened a window that contradicted itself."""
    view = show(answered("", MessageStatus.FAILED, None, error="It broke off."))
    view.show_figures(True)
    widget = widget_of(view, 2)
    menu = QMenu(view)
    widget.fill_menu(menu)
    for name in ("Details: not recorded", "Show tokens: not recorded"):
        assert not button(widget, name).isEnabled()
        assert button(widget, name).toolTip() == name
        (action,) = [each for each in menu.actions() if each.text() == name.title()]
        assert not action.isEnabled()
