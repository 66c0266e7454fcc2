from dataclasses import replace

import pytest
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QHelpEvent
from PySide6.QtWidgets import QToolTip
from pytestqt.qtbot import QtBot

from rdchat.inference.api.events import FinishReason, LoadProgress, PrefillProgress
from rdchat.inference.api.reply_statistics import AutoChoice, LedgerEntry, Statistics
from rdchat.inference.api.requests import DraftSettings, Mode
from rdchat.services.engine.engine_events import EngineState
from rdchat.ui.look import formatting
from rdchat.ui.look.theme import Theme
from rdchat.ui.speed.sections import FigureRow
from rdchat.ui.speed.speed_panel import SpeedPanel
from rdchat.ui.window.main_window import MainWindow
from tests.listed import listed
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
    panel = _panel(chat, theme)
    qtbot.addWidget(panel)
    panel.resize(280, 700)
    panel.show()
    return panel


def test_loading_shows_its_progress_and_then_the_model(chat: Chat, panel: SpeedPanel) -> None:
    assert panel.status.state.text() == "Loading the model…"
    chat.controller.model_slot.load_progressed.emit(LoadProgress("Loading the weights", 0.4))
    assert panel.status.state.text().startswith("Loading the weights… 40")
    assert panel.status.progress.isVisible()
    assert panel.status.progress.value() == 400
    chat.start()
    assert panel.status.state.text() == "Idle"
    assert not panel.status.progress.isVisible()
    assert panel.model.model_name.text() == "tiny"
    assert panel.model.rows["Precision"].value.text() == "float32"
    assert panel.model.rows["Runs on"].value.text() == "CPU"


def test_prefill_shows_its_progress(chat: Chat, panel: SpeedPanel) -> None:
    chat.start()
    chat.controller.replies.prefill_progressed.emit(PrefillProgress(1, 512, 2048, 0))
    assert panel.status.state.text() == "Reading the prompt 512 of 2,048"
    assert (panel.status.progress.value(), panel.status.progress.maximum()) == (512, 2048)


def test_figures_of_a_reply(chat: Chat, panel: SpeedPanel) -> None:
    chat.start()
    chat.controller.replies.statistics_changed.emit(_STATISTICS)
    chat.qtbot.waitUntil(lambda: panel.speed.decode.text() == "25.0")
    assert panel.reply.rows["Prefill"].value.text() == "200 tokens/s"
    assert panel.reply.rows["Time to first token"].value.text() == "520 ms"
    assert panel.reply.rows["Tokens written"].value.text() == "101"
    assert panel.reply.rows["Prompt tokens"].value.text() == "300"
    assert panel.reply.rows["Kept from before"].value.text() == "200"
    assert panel.memory.rows["Peak memory"].value.text() == "812 MB"
    assert panel.memory.rows["Context"].value.text() == "512 of 2,048"
    assert panel.memory.context_bar.value() == 250


def test_figures_change_at_most_ten_times_a_second(chat: Chat, panel: SpeedPanel) -> None:
    chat.start()
    chat.qtbot.waitUntil(lambda: panel.throttle.resting)
    for tokens in range(1, 200):
        chat.controller.replies.statistics_changed.emit(Statistics(generated_tokens=tokens))
    assert panel.reply.rows["Tokens written"].value.text() == "1"
    chat.qtbot.waitUntil(lambda: panel.reply.rows["Tokens written"].value.text() == "199")


@pytest.mark.parametrize("reason", [FinishReason.EOS, FinishReason.LENGTH, FinishReason.STOP_STRING])
def test_the_finish_reason_is_told_and_stays_with_the_chat(chat: Chat, panel: SpeedPanel, reason: FinishReason) -> None:
    chat.engine.replies = [Reply(finish_reason=reason)]
    chat.start()
    chat.say("Hello")
    words = formatting.FINISH_WORDS[reason]
    chat.qtbot.waitUntil(lambda: panel.reply.finish.value.text() == words)
    assert formatting.FINISH_REASONS[reason] in panel.reply.finish.toolTip()
    chat.controller.chat.start_new()
    assert panel.reply.finish.value.text() == formatting.NONE
    chat.controller.chat.open(listed(chat.controller.chats)[0].id)
    assert panel.reply.finish.value.text() == words
    assert panel.reply.rows["Tokens written"].value.text() == "4"


def test_a_stopped_reply_says_so(chat: Chat, panel: SpeedPanel) -> None:
    chat.start()
    chat.engine.gate.shut()
    chat.controller.send("Hello")
    chat.engine.gate.allow(4)
    chat.wait_for(EngineState.WRITING)
    assert panel.status.state.text() == "Writing"
    chat.controller.stop()
    chat.qtbot.waitUntil(lambda: panel.reply.finish.value.text() == "Stopped")


def test_a_model_that_failed_leaves_no_figures_of_it(chat: Chat, panel: SpeedPanel) -> None:
    chat.engine.load_errors = {None: RuntimeError("boom")}
    chat.controller.start()
    chat.wait_for(EngineState.NO_MODEL)
    assert panel.status.state.text() == "No model is loaded"
    assert panel.model.model_name.text() == "None"
    assert panel.memory.rows["Weights"].value.text() == formatting.NONE


def test_the_context_is_shown_once_the_model_that_gives_its_length_is_there(chat: Chat, panel: SpeedPanel) -> None:
    chat.controller.replies.statistics_changed.emit(_STATISTICS)
    assert panel.memory.rows["Context"].value.text() == formatting.NONE
    chat.start()
    chat.controller.replies.statistics_changed.emit(_STATISTICS)
    chat.qtbot.waitUntil(lambda: panel.memory.rows["Context"].value.text() == "512 of 2,048")
    chat.controller.model_slot.retry()
    assert panel.memory.rows["Context"].value.text() == formatting.NONE
    chat.wait_for(EngineState.IDLE)
    assert panel.memory.rows["Context"].value.text() == "512 of 2,048"


def test_every_figure_has_its_definition(panel: SpeedPanel) -> None:
    rows = panel.findChildren(FigureRow)
    assert len(rows) >= 10
    for row in rows:
        assert row.toolTip().removesuffix("</p>").endswith(".")
        assert row.value.accessibleName().endswith(f": {formatting.NONE}")


def test_prefill_of_a_token_or_two_has_no_rate(chat: Chat, panel: SpeedPanel) -> None:
    """After a regenerate one token is read, and "4.15 tokens/s" looked like a slow machine."""
    chat.start()
    chat.controller.replies.statistics_changed.emit(replace(_STATISTICS, cached_prompt_tokens=299))
    chat.qtbot.waitUntil(lambda: panel.speed.decode.text() == "25.0")
    assert panel.reply.rows["Prefill"].value.text() == formatting.NONE


def test_drafting_figures_stand_beside_the_plain_baseline(chat: Chat, panel: SpeedPanel) -> None:
    chat.start()
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
    )
    chat.controller.replies.statistics_changed.emit(drafted)
    chat.qtbot.waitUntil(lambda: panel.speed.decode.text() == "25.0")
    assert panel.speed.plain.value.text() == "20.0 tokens/s"
    assert panel.speed.ratio.text() == "1.25x"
    assert panel.reply.rows["Decode time"].value.text() == "4.00 s"
    assert panel.speed.acceptance.value.text() == "50\N{NARROW NO-BREAK SPACE}%"
    assert panel.speed.per_call.value.text() == "2.50"
    assert panel.drafts.rows["Rounds"].value.text() == "40"
    assert panel.drafts.rows["Verified nodes per round"].value.text() == "12.0"
    assert panel.drafts.rows["Host syncs per round"].value.text() == "1.00"
    assert [(bar.label, bar.value, bar.share) for bar in panel.drafts.lengths.bars] == [
        (str(length), "10", 1.0) for length in range(4)
    ]
    assert [bar.words for bar in panel.drafts.positions.bars] == [
        f"Position {place}: {share}\N{NARROW NO-BREAK SPACE}% accepted" for place, share in ((1, 75), (2, 50), (3, 25))
    ]
    assert panel.drafts.positions.accessibleDescription().startswith("Position 1: 75")


def test_plain_decoding_shows_no_draft_figures(chat: Chat, panel: SpeedPanel) -> None:
    chat.start()
    chat.controller.replies.statistics_changed.emit(replace(_STATISTICS, target_calls=100, host_syncs=100))
    chat.qtbot.waitUntil(lambda: panel.speed.decode.text() == "25.0")
    assert panel.speed.per_call.value.text() == "1.00"
    for figure in (panel.speed.acceptance, *panel.drafts.rows.values()):
        assert figure.value.text() == formatting.NONE
    assert panel.drafts.lengths.bars == ()
    assert not panel.speed.ratio.isVisible()


@pytest.mark.parametrize(
    ("mode", "width", "length", "chosen"),
    [
        ("off", 0, 0, "Auto: plain decoding"),
        ("drafter", 4, 5, "Auto: Drafter, 4 x 5"),
        ("lookup", 1, 7, "Auto: Prompt lookup, 6 tokens"),
    ],
)
def test_what_auto_chose_and_why(
    chat: Chat, panel: SpeedPanel, mode: str, width: int, length: int, chosen: str
) -> None:
    chat.start()
    choice = AutoChoice(mode, width, length, 1.4, 1.7, "Drafting would be 0.82x here.")
    chat.controller.replies.statistics_changed.emit(replace(_STATISTICS, choice=choice))
    chat.qtbot.waitUntil(panel.drafting.choice.isVisible)
    assert panel.drafting.choice.text() == f"{chosen}. Drafting would be 0.82x here."


def test_the_keyboard_goes_down_the_panel(chat: Chat, panel: SpeedPanel) -> None:
    chat.start()
    chat.controller.drafting.change(DraftSettings(mode=Mode.DRAFTER))
    focus, tops = panel.drafting.head, []
    while True:
        if focus.isVisible() and focus.isEnabled() and focus.focusPolicy() & Qt.FocusPolicy.TabFocus:
            tops.append(focus.mapTo(panel.widget(), focus.rect().topLeft()).y())
        if focus is panel.model.head:
            break
        focus = focus.nextInFocusChain()
    assert len(tops) > 10
    assert tops == sorted(tops)


def test_a_folded_section_stays_folded(qtbot: QtBot, theme: Theme, chat: Chat, panel: SpeedPanel) -> None:
    folded = chat.controller.preferences.settings.panel_collapsed
    assert not panel.memory.rows["Context"].isVisible()
    assert panel.memory.head.accessibleName() == "Memory, folded"
    panel.memory.head.click()
    assert panel.memory.rows["Context"].isVisible()
    again = _panel(chat, theme)
    qtbot.addWidget(again)
    assert again.memory.head.isChecked()
    panel.time.head.click()
    assert not panel.time.bar.isVisible()
    panel.memory.head.click()
    assert set(chat.controller.preferences.settings.panel_collapsed) == {*folded, "Time"}


def test_the_smallest_panel_shows_every_figure_whole(chat: Chat, panel: SpeedPanel) -> None:
    """In the smallest window the figures at the right were cut, and going to the draft settings moved it sideways."""
    chat.start()
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
    )
    chat.controller.replies.statistics_changed.emit(large)
    chat.qtbot.waitUntil(panel.speed.ratio.isVisible)
    panel.resize(panel.minimumWidth(), 300)
    panel.show_drafting()
    content = panel.widget()
    assert content.minimumSizeHint().width() <= panel.viewport().width()
    assert panel.horizontalScrollBar().maximum() == 0


def test_a_reply_that_is_written_anew_begins_without_figures(chat: Chat, panel: SpeedPanel) -> None:
    chat.start()
    chat.say("Hello")
    chat.qtbot.waitUntil(lambda: panel.reply.finish.value.text() == "Complete")
    chat.engine.gate.shut()
    chat.controller.regenerate(chat.controller.chat.path[-1].id)
    assert panel.reply.finish.value.text() == formatting.NONE
    assert panel.reply.rows["Tokens written"].value.text() == formatting.NONE


def test_one_of_a_thing_is_not_several(chat: Chat, panel: SpeedPanel) -> None:
    chat.start()
    choice = AutoChoice("lookup", 1, 2, 1.4, 1.7, "Because.")
    one = replace(_STATISTICS, choice=choice, rounds=1, drafted_lengths=(0, 1), accepted_lengths=(1,))
    chat.controller.replies.statistics_changed.emit(one)
    chat.qtbot.waitUntil(panel.drafting.choice.isVisible)
    assert panel.drafting.choice.text() == "Auto: Prompt lookup, 1 token. Because."
    assert panel.drafts.lengths.bars[0].words.startswith("0 accepted: 1 of 1 round, ")


_DRAFTED = replace(
    _STATISTICS,
    rounds=40,
    target_calls=40,
    drafted=80,
    accepted=60,
    drafted_lengths=(0, 0, 40),
    accepted_lengths=(10, 0, 30),
    plain_step_ms=50.0,
)


@pytest.mark.parametrize(
    ("plain_step_ms", "error", "color"),
    [
        (50.0, 0.1, "success"),  # 1.25
        (50.0, 0.3, "text"),
        (41.0, 0.0, "success"),  # 1.03
        (40.4, 0.0, "text"),
        (34.8, 0.0, "warning"),  # 0.87
        (34.8, 0.1, "warning"),
        (34.8, 0.2, "text"),
    ],
)
def test_the_ratio_is_coloured_only_beyond_the_error_of_its_baseline(
    chat: Chat, panel: SpeedPanel, plain_step_ms: float, error: float, color: str
) -> None:
    chat.start()
    chat.controller.replies.statistics_changed.emit(replace(_DRAFTED, plain_step_ms=plain_step_ms, plain_error=error))
    chat.qtbot.waitUntil(panel.speed.ratio.isVisible)
    assert panel.speed.ratio._color == color
    assert ("baseline is older" in panel.speed.ratio.toolTip()) == bool(error)


def test_rounds_that_gained_no_token_are_no_gain_in_speed(chat: Chat, panel: SpeedPanel) -> None:
    """Prompt lookup that found nothing once showed 1.17x in green: other programs had slowed the baseline down."""
    chat.start()
    nothing = replace(_DRAFTED, target_calls=100, rounds=100, accepted=0, accepted_lengths=(100,), plain_error=0.1)
    chat.controller.replies.statistics_changed.emit(replace(nothing, plain_step_ms=46.8))
    chat.qtbot.waitUntil(panel.speed.ratio.isVisible)
    assert (panel.speed.ratio.text(), panel.speed.ratio._color) == ("1.17x", "text")


def test_a_reply_decoded_plainly_has_no_ratio_to_plain_decoding(chat: Chat, panel: SpeedPanel) -> None:
    """A plain reply of 40 tokens once showed 0.87x, as its baseline was measured while the machine did nothing else."""
    chat.start()
    chat.controller.replies.statistics_changed.emit(replace(_STATISTICS, target_calls=100, plain_step_ms=34.8))
    chat.qtbot.waitUntil(lambda: panel.speed.plain.value.text() == "28.7 tokens/s")
    assert not panel.speed.ratio.isVisible()


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


def test_where_the_time_of_the_reply_went(chat: Chat, panel: SpeedPanel) -> None:
    chat.start()
    assert panel.time.whole.value.text() == formatting.NONE
    chat.controller.replies.statistics_changed.emit(replace(_DRAFTED, ledger=_LEDGER))
    chat.qtbot.waitUntil(lambda: panel.time.whole.value.text() == "4.50 s")
    space = "\N{NARROW NO-BREAK SPACE}"
    rows = panel.time.rows
    assert {spent.value: (row.value.text(), row.share.text()) for spent, row in rows.items() if row.isVisible()} == {
        "Prompt": ("500 ms", f"11{space}%"),
        "Draft": ("200 ms", f"4.4{space}%"),
        "Draft and target call": ("3.20 s", f"71{space}%"),
        "Host work": ("599 ms", f"13{space}%"),
        "Not measured": ("1 ms", f"0.0{space}%"),
    }
    assert sum(panel.time.bar.shares.values()) == pytest.approx(1)
    assert "Draft and target call: 71%" in panel.time.bar.accessibleDescription()
    at = QPoint(panel.time.bar.width() // 2, 5)
    panel.time.bar.event(QHelpEvent(QEvent.Type.ToolTip, at, panel.time.bar.mapToGlobal(at)))
    assert "waited for once" in QToolTip.text()
    QToolTip.hideText()


@pytest.mark.parametrize("mode", list(Mode))
def test_what_the_panel_is_for_is_seen_without_scrolling(chat: Chat, window: MainWindow, mode: Mode) -> None:
    """Acceptance once began below the edge, and the time ledger was a button at the very end."""
    chat.start()
    window.resize(1180, 780)
    chat.controller.drafting.change(DraftSettings(mode=mode))
    choice = AutoChoice(
        "off", 0, 0, 1.4, 1.7, "Drafting would be 0.82x here: 1.4 tokens per call, a call of 6 costs 1.7."
    )
    statistics = replace(_DRAFTED, ledger=_LEDGER, choice=choice if mode is Mode.AUTO else None)
    chat.controller.replies.statistics_changed.emit(statistics)
    panel = window.panel
    chat.qtbot.waitUntil(panel.time.bar.isVisible)
    chat.qtbot.waitUntil(lambda: panel.speed.decode.text() == "25.0")
    seen = (
        panel.speed.decode,
        panel.speed.ratio,
        panel.speed.acceptance.value,
        panel.speed.per_call.value,
        panel.drafting.mode,
        panel.drafting.width_,
        panel.drafting.length,
        panel.time.bar,
        panel.time.whole,
    )
    for part in seen:
        assert part.isVisible()
        assert part.mapTo(panel.viewport(), part.rect().bottomLeft()).y() <= panel.viewport().height(), part
    assert panel.verticalScrollBar().value() == 0
