import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QHelpEvent
from PySide6.QtWidgets import QLabel, QToolTip
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import Drafting
from rdchat.inference.api import (
    AutoChoice,
    DraftOptions,
    DraftSettings,
    FinishReason,
    HeadKind,
    LedgerEntry,
    Mode,
    ModeOption,
    Role,
    Spent,
    Statistics,
)
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.models.training_control import TrainingControl, TrainingState
from rdchat.ui.models.training_page import short_text
from rdchat.ui.speed.speed_panel import SpeedPanel
from rdchat.ui.style import ENDS, STAGES, Theme, formatting
from rdchat.ui.window.main_window import MainWindow
from tests.listed_chats import listed
from tests.services.fakes import Reply
from tests.ui.conftest import Chat

_STATISTICS = Statistics(
    prompt_tokens=300,
    cached_prompt_tokens=200,
    generated_tokens=101,
    prefill_ms=500,
    ttft_ms=520,
    decode_ms=4000,
    peak_memory_bytes=812_000_000,
    context_tokens=512,
)


def _panel(chat: Chat, theme: Theme) -> SpeedPanel:
    """A panel as the window builds it."""
    controller = chat.controller
    panel = SpeedPanel(controller, theme)
    controller.chat.opened.connect(panel.show_last_reply)
    return panel


@pytest.fixture
def panel(qtbot: QtBot, theme: Theme, chat: Chat) -> SpeedPanel:
    """A panel with all its figures."""
    panel = _panel(chat, theme)
    qtbot.addWidget(panel)
    panel.resize(280, 700)
    for section in panel.sections:
        section.fold(False)
    panel.show()
    return panel


type Show = Callable[[Statistics], None]


@pytest.fixture
def show(chat: Chat, panel: SpeedPanel) -> Show:
    """Have the panel show figures of a reply; the model is loaded."""
    chat.start()

    def show(statistics: Statistics) -> None:
        chat.controller.replies.statistics_changed.emit(statistics)
        chat.qtbot.waitUntil(lambda: panel._source.statistics == statistics)

    return show


def _value(panel: SpeedPanel, name: str) -> str:
    """The text of a figure of the details."""
    return panel.details.rows[name].value.text()


def test_figures_of_a_reply(panel: SpeedPanel, show: Show) -> None:
    show(replace(_STATISTICS, speeds=(20.0, 30.0)))
    assert panel.speed.sparkline.speeds == (20.0, 30.0)
    assert _value(panel, "Tokens written") == "101"
    assert _value(panel, "Prompt tokens") == "300"
    assert _value(panel, "From memory") == "200"
    assert _value(panel, "Context") == "512 of 2,048"


def test_figures_change_at_most_ten_times_a_second(chat: Chat, panel: SpeedPanel) -> None:
    chat.start()
    chat.qtbot.waitUntil(lambda: not panel.throttle._timer.isActive())
    for tokens in range(1, 200):
        chat.controller.replies.statistics_changed.emit(Statistics(generated_tokens=tokens))
    assert _value(panel, "Tokens written") == "1"
    chat.qtbot.waitUntil(lambda: _value(panel, "Tokens written") == "199")


def test_the_finish_reason_is_told_and_stays_with_the_chat(chat: Chat, panel: SpeedPanel) -> None:
    chat.engine.replies = [Reply(finish_reason=FinishReason.LENGTH)]
    chat.start("Hello")
    words, explanation = ENDS[FinishReason.LENGTH]
    chat.qtbot.waitUntil(lambda: _value(panel, "Ended") == words)
    assert explanation in panel.details.rows["Ended"].toolTip()
    chat.open.start_new()
    assert _value(panel, "Ended") == formatting.NONE
    chat.open.open_chat(listed(chat.chats)[0].id)
    assert _value(panel, "Ended") == words
    assert _value(panel, "Tokens written") == "4"


def test_the_context_has_its_limit_once_the_model_is_there(chat: Chat, panel: SpeedPanel) -> None:
    assert _value(panel, "Context") == formatting.NONE
    chat.controller.replies.statistics_changed.emit(_STATISTICS)
    assert _value(panel, "Context") == "512 tokens"
    chat.start()
    chat.controller.replies.statistics_changed.emit(_STATISTICS)
    chat.qtbot.waitUntil(lambda: _value(panel, "Context") == "512 of 2,048")
    chat.slot.retry()
    assert _value(panel, "Context") == "512 tokens"
    chat.wait_for(EngineState.IDLE)
    assert _value(panel, "Context") == "512 of 2,048"


def test_drafting_figures_stand_beside_the_plain_baseline(panel: SpeedPanel, show: Show) -> None:
    drafted = replace(
        _STATISTICS,
        rounds=40,
        target_calls=40,
        drafted=120,
        accepted=60,
        verified_nodes=480,
        host_syncs=40,
        drafted_lengths=(0, 0, 0, 40),
        accepted_lengths=(10, 10, 10, 10),
        plain_step_ms=50.0,
        others_share=0.0,
    )
    show(drafted)
    assert panel.speed.plain.value.text() == "20.0"
    assert panel.speed.reason.text() == "1.25x faster with drafting"
    assert _value(panel, "Writing time") == "4.00 s"
    assert panel.speed.acceptance.value.text() == "50\N{NARROW NO-BREAK SPACE}%"
    assert panel.speed.per_step.value.text() == "2.50"
    assert [(bar.label, bar.value, bar.share) for bar in panel.details.lengths.bars] == [
        (str(length), "10", 1.0) for length in range(4)
    ]
    assert [bar.description for bar in panel.details.positions.bars] == [
        f"Position {place}: {share}\N{NARROW NO-BREAK SPACE}% kept" for place, share in ((1, 75), (2, 50), (3, 25))
    ]
    assert panel.details.positions.accessibleDescription().startswith("Position 1: 75")
    assert panel.details.positions.isVisible()


def test_plain_decoding_shows_no_draft_figures_and_no_ratio(panel: SpeedPanel, show: Show) -> None:
    """A plain reply of 40 tokens once showed 0.87x, as its baseline was measured while the machine did nothing else."""
    show(replace(_STATISTICS, target_calls=100, host_syncs=100, plain_step_ms=34.8))
    assert not panel.speed.plain.isVisible(), "it is its own measure"
    assert panel.speed.per_step.value.text() == "1.00"
    for figure in ("Steps with a draft", "Kept per step", "Checked per step", "Drafter or draft model"):
        assert _value(panel, figure) == formatting.NONE
    assert not panel.details.lengths.isVisible()


def test_that_a_reply_was_not_drafted_is_said_once(chat: Chat, panel: SpeedPanel) -> None:
    """It stood there five times."""
    chat.start()
    chat.engine.replies = [Reply(mode_reason="There is no drafter.")]
    chat.say("Hello")
    plain = (LedgerEntry("prefill", "", 1, 50.0), LedgerEntry("wait for token", "", 100, 250.0))
    panel._note_message(replace(chat.path[-1], statistics=replace(_STATISTICS, target_calls=100, ledger=plain)))
    shown = [label.text() for label in panel.findChildren(QLabel) if label.isVisible()]
    assert [text for text in shown if "without draft" in text.lower()] == ["Written without drafting"]
    assert "There is no drafter." in panel.drafting.problem.text()


def test_the_kind_of_the_drafter_stands_in_the_details_alone(chat: Chat, panel: SpeedPanel) -> None:
    """It stood among the draft settings, where nobody could do anything with it."""
    chat.start("Hello")
    drafting = Drafting(Mode.DRAFTER, kind=HeadKind.RECURRENT)
    panel._note_message(replace(chat.path[-1], statistics=_STATISTICS, drafting=drafting))
    labels = [label for label in panel.findChildren(QLabel) if "Recurrent" in label.text()]
    assert labels == [panel.details.rows["Kind of drafter"].value]


_EXPECTED = AutoChoice("drafter", 8, 2, 1.4, 1.0, "Expected: 1.4 times as fast.", 1.4)


def _begin_auto(chat: Chat) -> None:
    """Have a reply written by Auto, up to its first token: a second one may come with figures of its own later."""
    chat.start()
    chat.controller.drafting.change(DraftSettings(mode=Mode.AUTO))
    chat.pause_reply("Hello")


def test_what_auto_does_while_it_writes(chat: Chat, panel: SpeedPanel) -> None:
    _begin_auto(chat)
    panel.drafting.fold(True)
    for choice, said, folded in (
        (AutoChoice("off", 0, 0, 1.0, 1.0, "Drafting would be slower here."), "Drafting would be", "not drafting"),
        (_EXPECTED, "Auto is using the drafter: 8 beams of 2 tokens.", "8 beams of 2 tokens"),
        (replace(_EXPECTED, mode="lookup", length=7), "Auto is using prompt lookup: 6 tokens.", "6 tokens"),
        (replace(_EXPECTED, mode="lookup", length=2), "Auto is using prompt lookup: 1 token.", "1 token"),
    ):
        statistics = replace(_STATISTICS, choice=choice, others_share=0.0)
        chat.controller.replies.statistics_changed.emit(statistics)
        chat.qtbot.waitUntil(lambda statistics=statistics: panel._source.statistics == statistics)
        assert panel.drafting.explanation.text().startswith(said)
        assert panel.drafting.brief.isVisible()
        assert panel.drafting.brief.text() == f"Auto · {folded}"
        assert (choice.words in panel.drafting.explanation.toolTip()) == (choice.mode != "off")


def _texts(panel: SpeedPanel) -> str:
    """All texts of the panel and their tooltips."""
    labels = panel.findChildren(QLabel)
    return "\n".join(f"{label.text()}\n{label.toolTip()}" for label in labels if label.isVisible())


def test_a_busy_computer_gets_no_ratio_and_nothing_that_one_is_made_of(chat: Chat, panel: SpeedPanel) -> None:
    """ "No verdict" stood beside "0.14 to 0.18x", "4.08 ± 0.46" and "Expected: 4.5 times as fast"."""
    _begin_auto(chat)
    quiet = replace(_DRAFTED, choice=_EXPECTED)
    early = replace(quiet, generated_tokens=12, decode_ms=500.0)
    for statistics, compared in ((early, False), (quiet, True), (replace(quiet, others_share=0.4), False)):
        chat.controller.replies.statistics_changed.emit(statistics)
        chat.qtbot.waitUntil(lambda statistics=statistics: panel._source.statistics == statistics)
        texts = _texts(panel)
        assert panel.speed.plain.isVisible() == compared
        assert ("1.25x" in texts) == ("20.0" in texts) == ("Expected: 1.4" in texts) == compared
        assert panel.speed.decode.isVisible() != (statistics.others_share == 0.4)
    assert panel.speed.reason.text().startswith("No verdict")


def test_what_auto_was_about_to_do_is_gone_after_a_stop_in_the_prompt(panel: SpeedPanel, show: Show) -> None:
    choice = AutoChoice("off", 0, 0, 1.0, 1.0, "Not drafting yet.")
    usual = panel.drafting.explanation.text()
    show(replace(_STATISTICS, choice=choice))
    assert panel.drafting.explanation.text() == "Not drafting yet."
    show(Statistics(prompt_tokens=900, choice=choice))
    assert panel.drafting.explanation.text() == usual


def test_a_reply_that_was_stopped_in_its_prompt_owns_its_reading_time(chat: Chat, panel: SpeedPanel) -> None:
    """Its 3.5 s of reading stood below "No reply yet"."""
    chat.start()
    chat.engine.gate.shut()
    chat.controller.send("Hi")
    chat.wait_for(EngineState.PREFILL)
    chat.qtbot.waitUntil(lambda: chat.engine.gate.is_waiting)
    chat.controller.stop_reply()
    chat.finish_reply()
    chat.qtbot.waitUntil(lambda: panel.speed.owner.text().startswith("Last reply"))


def test_figures_say_whose_they_are(chat: Chat, panel: SpeedPanel) -> None:
    """After a reply in Auto, its figures stood below a menu that said Off."""
    assert panel.speed.owner.text() == "No reply yet"
    assert not panel.speed.figures.isVisible()
    _begin_auto(chat)
    assert panel.speed.owner.text() == "This reply · Auto"
    assert panel.speed.figures.isVisible()
    chat.controller.drafting.change(DraftSettings(mode=Mode.LOOKUP))
    assert panel.speed.owner.text() == "This reply · Auto"
    asked = chat.open.stored_conversation
    chat.open.start_new()
    assert panel.speed.owner.text() == "Reply in another chat · Auto"
    chat.finish_reply()
    assert panel.speed.owner.text() == "No reply yet"
    assert not panel.speed.figures.isVisible(), "a new chat had dashes, once another one had figures"
    chat.open.open_chat(asked.id)
    assert panel.speed.owner.text() == "Last reply", "the scripted engine has not drafted"
    chat.controller.continue_reply(chat.path[-1].id)
    chat.wait_for(EngineState.IDLE)
    assert panel.speed.owner.text() == "Last reply · last part"


def test_the_figures_of_an_earlier_reply_can_be_shown(chat: Chat, panel: SpeedPanel) -> None:
    chat.start("One", "Two")
    panel.show_reply(chat.path[1])
    assert panel.speed.owner.text() == "Earlier reply"
    panel.show_reply(chat.path[-1])
    assert panel.speed.owner.text() == "Last reply"
    panel.show_reply(chat.path[1])
    _begin_auto(chat)
    panel.show_reply(chat.path[1])
    assert panel.speed.owner.text() == "This reply · Auto"
    chat.finish_reply()
    assert panel.speed.owner.text() == "Last reply"


def test_the_figures_of_a_deleted_reply_go_with_it(chat: Chat, panel: SpeedPanel) -> None:
    chat.start()
    for length in (3, 4, 5):
        chat.engine.replies = [Reply(tokens=("a",) * length)]
        chat.say("Hello")
    first, second, third = (each.id for each in chat.path if each.role is Role.ASSISTANT)
    shown = lambda: (panel.speed.owner.text(), _value(panel, "Tokens written"))  # noqa: E731
    assert shown() == ("Last reply", "5")
    chat.controller.delete_message(third)
    assert shown() == ("Last reply", "4")
    chat.chats.undo()
    assert shown() == ("Last reply", "5")
    chat.controller.delete_message(third)
    panel.show_reply(chat.path[1])
    chat.controller.delete_message(second)
    assert shown() == ("Last reply", "3")
    chat.controller.delete_message(first)
    assert shown() == ("No reply yet", formatting.NONE)
    assert not panel.speed.figures.isVisible()


def test_a_remote_reply_shows_what_its_server_says(chat: Chat, panel: SpeedPanel) -> None:
    """Below it stood "Off", which the server had not said, and five dashes."""
    chat.start()
    chat.load("remote:studio/qwen")
    chat.say("Hello")
    last = chat.path[-1]
    assert panel.speed.owner.text() == "Last reply · on studio"
    assert panel.speed.reason.text() == "No comparison with a remote model"
    said = Statistics(generated_tokens=60, ttft_ms=300, decode_ms=2000)
    for shown, told in ((said, False), (replace(said, rounds=20, target_calls=20, drafted=40, accepted=30), True)):
        panel._note_message(replace(last, statistics=shown))
        assert panel.speed.decode.text() == "29.5"
        assert not panel.speed.times.isVisible()
        assert not panel.speed.plain.isVisible()
        assert panel.speed.acceptance.isVisible() == panel.speed.per_step.isVisible() == told
        groups = panel.details._groups
        assert (groups["Drafts"].isVisible(), groups["Reply"].isVisible()) == (told, True)
    assert panel.details.lengths.bars == ()
    panel._note_message(replace(last, statistics=Statistics(ttft_ms=300)))
    assert not panel.speed.decode.isVisible(), "it does not say how many tokens it wrote"
    chat.open.start_new()
    chat.open.open_chat(listed(chat.chats)[0].id)
    assert panel.speed.owner.text() == "Last reply · on studio", "it is stored"
    chat.load(None)
    chat.say("And here?")
    assert panel.speed.owner.text() == "Last reply"
    assert panel.speed.times.isVisible()


def test_a_chat_whose_replies_were_not_measured_says_so(chat: Chat, panel: SpeedPanel) -> None:
    """An imported chat of 1,000 replies had "No reply yet"."""
    chat.start("Hello")
    last = chat.path[-1]
    chat.path.update_message(replace(last, statistics=None, drafting=None))
    panel.show_last_reply()
    assert panel.speed.owner.text() == "The last reply has no figures"
    assert not panel.speed.figures.isVisible()
    chat.engine.load_gate.shut()
    chat.slot.retry()
    chat.open.start_new()
    chat.controller.send("Hello")
    assert panel.speed.owner.text() == "No reply yet", "it waits for the model"
    chat.engine.load_gate.open()


def test_nothing_moves_when_the_scroll_bar_appears(chat: Chat, panel: SpeedPanel) -> None:
    """The figures at the right jumped by its width."""
    chat.start("Hi")
    panel.resize(300, 2000)
    chat.qtbot.waitUntil(lambda: panel.verticalScrollBar().maximum() == 0)
    right = panel.speed.times.bar
    edge = right.mapTo(panel, right.rect().topRight()).x()
    panel.resize(300, 400)
    chat.qtbot.waitUntil(lambda: panel.verticalScrollBar().maximum() > 0)
    assert right.mapTo(panel, right.rect().topRight()).x() == edge


def test_the_keyboard_goes_down_the_panel(chat: Chat, panel: SpeedPanel) -> None:
    chat.start("Hi")
    chat.controller.drafting.change(DraftSettings(mode=Mode.DRAFTER))
    focus = panel.drafting.head
    tops = []
    while True:
        if focus.isVisible() and focus.isEnabled() and focus.focusPolicy() & Qt.FocusPolicy.TabFocus:
            tops.append(focus.mapTo(panel.widget(), focus.rect().topLeft()).y())
        if focus is panel.details.ledger:
            break
        focus = focus.nextInFocusChain()
    assert len(tops) > 6
    assert tops == sorted(tops)


def test_the_folds_are_remembered(qtbot: QtBot, theme: Theme, chat: Chat) -> None:
    chat.start()
    panel = _panel(chat, theme)
    qtbot.addWidget(panel)
    panel.show()
    assert not panel.drafting.mode.isVisible()
    assert panel.details.head.accessibleName() == "Details, folded"
    panel.details.head.click()
    assert panel.details.rows["Context"].isVisible()
    again = _panel(chat, theme)
    qtbot.addWidget(again)
    assert [section.head.isChecked() for section in again.sections] == [False, True]
    panel.drafting.head.click()
    panel.details.head.click()
    assert chat.settings.values.panel_unfolded == ("Drafting settings",)


def test_folded_settings_say_the_mode_and_the_size_of_its_drafts(chat: Chat, panel: SpeedPanel) -> None:
    chat.start()
    brief = panel.drafting.brief
    assert not brief.isVisible()
    panel.drafting.fold(True)
    for settings, said in (
        (DraftSettings(), "Auto"),
        (DraftSettings(Mode.OFF), "Off"),
        (DraftSettings(Mode.DRAFTER, beam_width=3, beam_length=6), "Drafter · 3 beams of 6 tokens"),
        (DraftSettings(Mode.LOOKUP, draft_tokens=7), "Prompt lookup · 7 tokens"),
    ):
        chat.controller.drafting.change(settings)
        assert (brief.text(), brief.isVisible()) == (said, True)
    chat.engine.options = DraftOptions(Path(), (ModeOption(Mode.DRAFTER, False, "There is no drafter."),))
    chat.controller.drafting.change(DraftSettings(Mode.DRAFTER))
    chat.qtbot.waitUntil(lambda: brief.text() == "Drafter · There is no drafter. Until then drafting is off.")
    assert brief._color == "warning"


def test_figures_are_there_when_the_details_are_unfolded(qtbot: QtBot, theme: Theme, chat: Chat) -> None:
    """Their rows are built then."""
    panel = _panel(chat, theme)
    qtbot.addWidget(panel)
    panel.show()
    chat.start()
    chat.controller.replies.statistics_changed.emit(_STATISTICS)
    qtbot.waitUntil(lambda: panel.speed.decode.text() != formatting.NONE)
    assert not panel.details.rows
    panel.details.head.click()
    assert panel.details.rows["Tokens written"].isVisible()
    assert _value(panel, "Tokens written") == "101"
    assert (_value(panel, "Precision"), _value(panel, "Runs on")) == ("float32", "CPU")
    panel.details.head.click()
    chat.controller.replies.statistics_changed.emit(replace(_STATISTICS, generated_tokens=102))
    qtbot.waitUntil(lambda: panel._source.statistics.generated_tokens == 102)
    panel.details.head.click()
    assert _value(panel, "Tokens written") == "102", "they follow the reply"


def test_headings_can_be_read_after_a_change_to_dark(theme: Theme, panel: SpeedPanel) -> None:
    """They stayed as dark as in the light scheme."""
    theme.set_scheme(Qt.ColorScheme.Dark)
    image = panel.details.head.grab().toImage()
    brightest = max(image.pixelColor(x, y).value() for x in range(image.width()) for y in range(image.height()))
    assert brightest > 200


def test_the_smallest_panel_shows_every_figure_whole(panel: SpeedPanel, show: Show) -> None:
    """In the smallest window the figures at the right were cut, and going to the draft settings moved it sideways."""
    large = replace(
        _STATISTICS,
        prompt_tokens=123_456,
        decode_ms=200,
        rounds=1000,
        drafted=9,
        drafted_lengths=(0, 1000),
        accepted_lengths=(500, 500),
        plain_step_ms=3.0,
        context_tokens=9999,
        others_share=0.0,
    )
    show(large)
    assert panel.speed.plain.isVisible()
    panel.resize(panel.minimumWidth(), 300)
    panel.show_drafting()
    content = panel.widget()
    assert content.minimumSizeHint().width() <= panel.viewport().width()
    assert panel.horizontalScrollBar().maximum() == 0


def test_a_reply_that_is_written_anew_begins_without_figures_and_can_be_stopped(chat: Chat, panel: SpeedPanel) -> None:
    chat.start("Hello")
    chat.qtbot.waitUntil(lambda: _value(panel, "Ended") == "Complete")
    chat.engine.gate.shut()
    chat.controller.regenerate(chat.path[-1].id)
    assert _value(panel, "Ended") == formatting.NONE
    assert _value(panel, "Tokens written") == formatting.NONE
    chat.engine.gate.allow(4)
    chat.wait_for(EngineState.WRITING)
    assert panel.status.state.text() == "Writing…"
    chat.controller.stop_reply()
    chat.qtbot.waitUntil(lambda: _value(panel, "Ended") == "Stopped")


_DRAFTED = replace(
    _STATISTICS,
    rounds=40,
    target_calls=40,
    drafted=80,
    accepted=60,
    drafted_lengths=(0, 0, 40),
    accepted_lengths=(10, 0, 30),
    plain_step_ms=50.0,
    others_share=0.0,
)


def test_the_ratio_is_shown_as_far_as_it_is_known(panel: SpeedPanel, show: Show) -> None:
    """It was shown after three tokens, and climbed from 0.66x to 1.47x."""
    for plain_step_ms, error, tokens, said, color in (
        (50.0, 0.1, 101, "1.1 to 1.4x faster with drafting", "success"),
        (41.0, 0.0, 101, "1.02x faster with drafting", "success"),
        (40.4, 0.0, 101, "As fast as without drafting", "text"),
        (34.8, 0.0, 101, "Slower with drafting: 0.87x", "warning"),
        # 0.81 stood in amber beside a baseline whose ± reached below the speed.
        (32.4, 0.2, 101, "Faster or slower with drafting: 0.67 to 1.02x", "text"),
        # While other programs were busy, 0.33x of a speed that was measured before.
        (20.0, 0.38, 101, "No verdict: the speed of the computer changed", "text"),
        (50.0, 0.1, 29, "Too short to compare", "text"),
    ):
        decode_ms = 40.0 * (tokens - 1)
        measured = replace(_DRAFTED, generated_tokens=tokens, decode_ms=decode_ms, plain_step_ms=plain_step_ms)
        show(replace(measured, plain_error=error))
        assert (panel.speed.reason.text(), panel.speed.reason._color) == (said, color)
        assert panel.speed.plain.isVisible() == said.endswith(("drafting", "x"))


def test_rounds_that_gained_no_token_are_no_gain_in_speed(panel: SpeedPanel, show: Show) -> None:
    """Prompt lookup that found nothing once showed 1.17x in green: other programs had slowed the baseline down."""
    nothing = replace(_DRAFTED, target_calls=100, rounds=100, accepted=0, accepted_lengths=(100,), plain_error=0.1)
    show(replace(nothing, plain_step_ms=46.8))
    assert panel.speed.reason.text() == "Faster or slower with drafting: 0.85 to 1.2x"
    assert panel.speed.reason._color == "text"


_LEDGER = (
    LedgerEntry("template and tokenize", "", 1, 20.0),
    LedgerEntry("prefill", "", 1, 480.0),
    LedgerEntry("round", "", 40, 3900.0),
    LedgerEntry("draft", "round", 40, 200.0),
    LedgerEntry("verify", "round", 40, 300.0),
    LedgerEntry("choose", "round", 40, 3300.0),
    LedgerEntry("wait with draft", "round/choose", 40, 3200.0),
    LedgerEntry("hand over", "", 100, 99.0),
    LedgerEntry("not measured", "", 1, 1.0),
)


def test_where_the_time_of_the_reply_went(chat: Chat, panel: SpeedPanel, show: Show) -> None:
    shares = panel.speed.times
    assert not panel.details.times.isVisible()
    show(replace(_DRAFTED, ledger=_LEDGER))
    space = "\N{NARROW NO-BREAK SPACE}"
    chat.qtbot.waitUntil(lambda: panel.speed.height() >= panel.speed.heightForWidth(panel.speed.width()))
    place = panel.drafting.pos()
    assert {STAGES[spent][0]: row.value.text() for spent, row in shares.rows.items() if row.isVisible()} == {
        "Reading": f"11{space}%",
        "Drafting": f"4.4{space}%",
        "Checking": f"71{space}%",
        "Token by token": formatting.NONE,
        "Other": f"13{space}%",
    }
    assert shares.rows[Spent.SEEING].isHidden()
    assert sum(shares.bar.shares.values()) == pytest.approx(1)
    times = lambda: [(row.name, row.value.text()) for row in panel.details.times.rows.values()]  # noqa: E731
    assert times()[:3] == [
        ("Reply", "4.50 s"),
        ("Reading", "500 ms"),
        ("Chat template and tokens", "20 ms"),
    ]
    show(_DRAFTED)  # no times yet
    assert times() == []
    assert panel.drafting.pos() == place, "the draft controls jumped when a row of times appeared"
    show(replace(_DRAFTED, ledger=_LEDGER))
    assert f"Checking: 71{space}%" in shares.bar.accessibleDescription()
    at = QPoint(shares.bar.width() // 2, 5)
    shares.bar.event(QHelpEvent(QEvent.Type.ToolTip, at, shares.bar.mapToGlobal(at)))
    assert "exact times separate the two" in QToolTip.text()
    QToolTip.hideText()
    show(replace(_DRAFTED, ledger=(LedgerEntry("see", "", 1, 300.0), *_LEDGER)))
    assert times()[:2] == [("Reply", "4.80 s"), ("Seeing", "300 ms")]
    assert shares.rows[Spent.SEEING].isVisible()


def test_folded_it_shows_at_most_twelve_figures(panel: SpeedPanel, show: Show) -> None:
    """There were some forty, in seven sections."""
    for section in panel.sections:
        section.fold(True)
    show(replace(_DRAFTED, ledger=_LEDGER, choice=_EXPECTED, plain_error=0.2, speeds=(20.0, 30.0)))
    labels = [label.text() for label in panel.findChildren(QLabel) if label.isVisible()]
    figures = [text for text in labels if re.search(rf"\d|^{formatting.NONE}$", text)]
    assert "1.04 to 1.6x faster with drafting" in figures
    assert len([*figures, panel.speed.sparkline]) <= 12


def test_what_the_panel_is_for_is_seen_without_scrolling(chat: Chat, window: MainWindow) -> None:
    """Acceptance once began below the edge, and the time ledger was a button at the very end."""
    chat.start()
    panel = window.panel
    chat.controller.drafting.change(DraftSettings(mode=Mode.DRAFTER))
    chat.controller.replies.statistics_changed.emit(replace(_DRAFTED, ledger=_LEDGER))
    chat.qtbot.waitUntil(lambda: panel.speed.decode.text() == "25.0")
    seen = (
        panel.speed.reason, panel.speed.decode, panel.speed.plain, panel.speed.acceptance, panel.speed.per_step,
        panel.speed.sparkline, panel.speed.times, panel.drafting.brief, panel.details.head,
    )  # fmt: skip
    for size in ((900, 560), (1180, 780)):
        window.resize(*size)
        chat.qtbot.waitUntil(lambda size=size: (window.width(), window.height()) == size)
        window.show_side(window.panel_side)  # the smaller window has room for one side
        for part in seen:
            assert part.isVisible()
            assert part.mapTo(panel.viewport(), part.rect().bottomLeft()).y() <= panel.viewport().height(), part
        assert panel.verticalScrollBar().value() == 0


def test_it_opens_at_its_top(chat: Chat, window: MainWindow) -> None:
    chat.start()
    panel = window.panel
    window.resize(900, 560)
    chat.qtbot.waitUntil(lambda: window.height() == 560)
    window.show_side(window.panel_side)
    for section in panel.sections:
        section.fold(False)
    bar = panel.verticalScrollBar()
    chat.qtbot.waitUntil(lambda: bar.maximum() > 0, timeout=2000)
    bar.setValue(bar.maximum())
    window.toggle(window.panel_side)
    assert not panel.isVisible()
    window.toggle(window.panel_side)
    assert panel.isVisible()
    assert bar.value() == 0


def test_a_slow_reply_is_not_blamed_while_a_training_runs(chat: Chat, panel: SpeedPanel, show: Show) -> None:
    """The laws of `verdict` are about other work of the computer."""
    training = TrainingControl(panel)
    chat.qtbot.waitUntil(lambda: training.state is TrainingState.NOTHING)
    panel.follow_training(training, short_text)
    slow = replace(_DRAFTED, plain_step_ms=_DRAFTED.plain_step_ms / 3)
    training.state = TrainingState.TRAINING
    training.changed.emit()
    assert panel.training.text() == "Training a drafter"
    for statistics in (slow, _DRAFTED):
        show(statistics)
        assert panel.speed.reason.text() == "No verdict: a training is running"
        assert panel.speed.reason._color == "text"
        assert not panel.speed.plain.isVisible()
    training.state = TrainingState.NOTHING
    for statistics, said, color in (
        (slow, "Slower with drafting: 0.42x", "warning"),
        (_DRAFTED, "1.25x faster with drafting", "success"),
    ):
        show(statistics)
        assert (panel.speed.reason.text(), panel.speed.reason._color) == (said, color)
    training.save_and_end()


def test_one_line_says_what_the_figures_mean(chat: Chat, panel: SpeedPanel) -> None:
    """A model was "too small to gain" before anything was measured. `verdict` has tests of its own."""
    chat.start("Hello")
    reply = chat.path[-1]
    slot = chat.slot
    slot.info = replace(slot.info, parameters=135_000_000)
    lost = AutoChoice("off", 0, 0, 1.0, 1.0, "Drafting would be slower here.", 0.8)
    plainly, unmeasured = (replace(_STATISTICS, choice=choice) for choice in (lost, replace(lost, speedup=None)))
    for statistics, stored, now in (
        (plainly, "Nothing was worth drafting", "Too small to gain: measured"),
        (
            replace(unmeasured, others_share=0.0),
            "Written without drafting",
            "Not compared yet: rdchat measures while it is idle",
        ),
    ):
        chat.path.update_message(replace(reply, statistics=statistics))
        panel.show_last_reply()
        assert panel.speed.reason.text() == stored
        panel._note_message(replace(reply, statistics=statistics))
        assert panel.speed.reason.text() == now
