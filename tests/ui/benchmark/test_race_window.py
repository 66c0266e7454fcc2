from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from pytestqt.qtbot import QtBot

from rdchat.errors import ModelError
from rdchat.inference.api import BenchPiece, BenchProgress, Difference, DraftOptions, DraftSettings, Mode, ModeOption
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.benchmark.race_window import RaceWindow
from rdchat.ui.window.main_window import MainWindow
from tests.services.bench_runs import bench_run
from tests.ui.conftest import Chat

EVENTS = (BenchProgress(0, 2, "Off, prompt 1 of 1", label="Off"), bench_run(0, 20), bench_run(1, 10))


@pytest.fixture
def race(chat: Chat, window: MainWindow) -> RaceWindow:
    """The window as the menu opens it, over a loaded model, with a question typed into the composer."""
    chat.start()
    chat.engine.bench_events = EVENTS
    window.conversation.composer.set_text("Say hello")
    window.actions_.race.trigger()
    return window.windows.race


type Run = Callable[[], None]


@pytest.fixture
def run(qtbot: QtBot, chat: Chat, race: RaceWindow) -> Run:
    """Run a race to its end."""

    def run() -> None:
        with qtbot.waitSignal(chat.controller.race.finished):
            race.start.click()

    return run


@pytest.mark.slow
def test_the_prompt_is_what_is_being_typed_or_was_asked_last(
    qtbot: QtBot, chat: Chat, window: MainWindow, race: RaceWindow
) -> None:
    assert race.isVisible()
    assert race.prompt.toPlainText() == "Say hello"
    chat.say("What was asked")
    window.conversation.composer.set_text("")
    window.actions_.race.trigger()
    assert race.prompt.toPlainText() == "What was asked"
    qtbot.keyClicks(race.prompt, "Mine: ")
    race.close()
    window.actions_.race.trigger()
    assert race.prompt.toPlainText() == "Mine: What was asked", "what was typed was replaced"
    race.prompt.setPlainText("  ")
    assert not race.start.isEnabled()
    assert race.status.text() == "Type a prompt first."


def test_a_race_is_replayed_to_its_end(chat: Chat, race: RaceWindow, run: Run) -> None:
    race.mode.setCurrentIndex(race.mode.findData(Mode.LOOKUP))
    run()
    assert chat.engine.plans[0].cells[0].draft.mode is Mode.LOOKUP
    assert chat.engine.plans[0].cells[0].temperature == chat.controller.settings.values.sampling.temperature
    assert race.verdict.text() == "Same text, token for token.", "it does not wait for the replay"
    race.playback.skip.click()
    assert race.playback.at_end
    assert race.accessibleDescription() == f"{race.speed_up.text()} {race.verdict.text()}", "a screen reader hears it"
    assert (race.plain.text.toPlainText(), race.drafted.text.toPlainText()) == ("Hello, you!", "Hello, you!")
    assert (race.plain.speed.text(), race.drafted.speed.text()) == ("50.0", "100")
    assert race.drafted.state.text() == "4 tokens, 0.13 s with reading"
    assert race.speed_up.text().endswith(": about 2.0 times as fast at writing.")
    assert race.verdict.text() == "Same text, token for token."


def test_a_drafter_is_tried_that_the_chat_does_not_use(
    qtbot: QtBot, chat: Chat, window: MainWindow, race: RaceWindow, run: Run
) -> None:
    chat.engine.options = DraftOptions(Path(), tuple(ModeOption(m, m is not Mode.DRAFTER, "None here.") for m in Mode))
    chat.controller.drafting.refresh_options()
    qtbot.waitUntil(lambda: chat.controller.drafting.option(Mode.DRAFTER) in chat.engine.options.modes)
    window.windows.try_in_race(DraftSettings(Mode.DRAFTER, drafter="/own/tried"))
    assert race.status.text() == "With tried"
    assert race.problem.text() == "", "what is said is of the chat's own drafter"
    run()
    assert chat.engine.plans[-1].cells[0].draft.drafter == "/own/tried"
    assert chat.controller.drafting.settings.drafter is None
    window.actions_.race.trigger()
    assert race.status.text() == "", "it is tried once"


def test_both_replies_share_a_clock(race: RaceWindow, run: Run) -> None:
    run()
    race.playback.toggle()  # hold it
    race.playback.moved.emit(121.0)
    assert race.plain.text.toPlainText() == "Hello,"
    assert race.drafted.text.toPlainText() == "Hello, you"
    race.playback.moved.emit(100.0)
    assert race.drafted.text.toPlainText() == "Hello", "the clock can go back"


def test_the_replay_pauses_skips_and_begins_again(qtbot: QtBot, race: RaceWindow, run: Run) -> None:
    run()
    playback = race.playback
    assert (playback.playing, playback.play.text()) == (True, "Pause")
    playback.play.click()
    assert (playback.playing, playback.play.text()) == (False, "Play")
    playback.slider.setValue(playback.slider.maximum())
    assert playback.at_end
    assert race.plain.text.toPlainText() == "Hello, you!"
    playback.play.click()
    assert playback.playing
    assert not playback.at_end
    qtbot.waitUntil(lambda: playback.at_end and not playback.playing)


def test_texts_that_part_are_shown_with_their_gap(chat: Chat, race: RaceWindow, run: Run) -> None:
    parted = bench_run(1, 10, difference=Difference(0, 3, "!", "?", 0.0002))
    chat.engine.bench_events = (bench_run(0, 20), parted)
    run()
    race.playback.skip.click()
    assert "differ from token 4 on" in race.verdict.text()
    assert "rounding in float32 decided" in race.verdict.text()


def test_a_race_can_be_stopped(qtbot: QtBot, chat: Chat, race: RaceWindow) -> None:
    chat.engine.gate.shut()
    race.start.click()
    assert (race.start.text(), race.status.text()) == ("Stop Race", "Starting…")
    assert not race.prompt.isEnabled()
    chat.engine.gate.allow(1)
    qtbot.waitUntil(lambda: race.status.text() == "Off (1 of 2)…")
    with qtbot.waitSignal(chat.controller.race.stopped):
        race.start.click()
    assert race.verdict.text() == "The race was stopped."
    assert (race.plain.progress.value(), race.plain.progress.maximum()) == (0, 1000)
    assert (race.start.text(), race.start.isEnabled()) == ("Start Race", True)
    assert not race.playback.isEnabled()


def test_both_replies_stream_while_they_are_written(qtbot: QtBot, chat: Chat, race: RaceWindow) -> None:
    """The panes stayed empty until both replies were there."""
    pieces = BenchPiece(0, "Hello"), BenchPiece(0, ","), BenchPiece(1, "Hel")
    second = BenchProgress(1, 2, "Prompt lookup, prompt 1 of 1", label="Prompt lookup")
    chat.engine.bench_events = (EVENTS[0], *pieces[:2], second, pieces[2], *EVENTS[1:])
    chat.engine.gate.shut()
    race.start.click()
    bars = race.plain.progress, race.drafted.progress
    assert [bar.maximum() for bar in bars] == [0, 0], "how long it takes to warm up is not known"
    chat.engine.gate.allow(3)
    qtbot.waitUntil(lambda: race.plain.text.toPlainText() == "Hello,")
    assert [(bar.value(), bar.maximum()) for bar in bars] == [
        (round(1000 * 2 / race.token_limit.value()), 1000),
        (0, 1000),
    ]
    assert (race.plain.state.text(), race.drafted.state.text()) == ("Writing… 2 tokens", "Waiting for its turn")
    chat.engine.gate.allow(1)
    qtbot.waitUntil(lambda: race.plain.state.text() == "Done")
    assert race.drafted.state.text() == "Reading the prompt"
    assert race.drafted.progress.maximum() == 0
    chat.engine.gate.allow(1)
    qtbot.waitUntil(lambda: race.drafted.text.toPlainText() == "Hel")
    assert (race.plain.state.text(), race.drafted.state.text()) == ("Done", "Writing… 1 token")
    assert race.plain.progress.value() == 1000
    with qtbot.waitSignal(chat.controller.race.finished):
        chat.engine.gate.open()
    assert race.plain.text.toPlainText() == "", "the replay begins"


@pytest.mark.parametrize("busy", [False, True])
def test_a_race_on_a_busy_computer_has_no_winner(chat: Chat, race: RaceWindow, run: Run, busy: bool) -> None:
    """A load of 10 was told in green behind "Same text", below "0.50 times as fast"."""
    plain = bench_run(0, 10)
    share = 0.8 if busy else 0.01
    chat.engine.bench_events = (
        replace(plain, statistics=replace(plain.statistics, others_share=share)),
        bench_run(1, 20),
    )
    run()
    usual = ": slower, about 0.5 times as fast at writing."
    hindered = ": no verdict. The computer was busy with other work."
    assert race.speed_up.text().endswith(hindered if busy else usual)
    assert race.verdict.text() == "Same text, token for token."


def test_closing_the_window_ends_the_race(qtbot: QtBot, chat: Chat, race: RaceWindow) -> None:
    chat.engine.gate.shut()
    race.start.click()
    with qtbot.waitSignal(chat.controller.race.stopped):
        qtbot.keyClick(race, Qt.Key.Key_Escape)
    assert not race.isVisible()


def test_a_race_waits_for_the_reply_that_is_being_written(qtbot: QtBot, chat: Chat, race: RaceWindow) -> None:
    chat.engine.gate.shut()
    chat.engine.gate.allow(3)
    chat.controller.send("Hello")
    chat.wait_for(EngineState.WRITING)
    race.start.click()
    assert race.status.text() == "Waiting for the reply that is being written…"
    with qtbot.waitSignal(chat.controller.race.finished):
        chat.engine.gate.open()


def test_what_stands_in_the_way_is_told(qtbot: QtBot, chat: Chat, race: RaceWindow) -> None:
    reason = "There is no drafter for this model."
    chat.engine.bench_events = (bench_run(1, 0, pieces=(), mode_reason=reason),)
    with qtbot.waitSignal(chat.controller.race.failed):
        race.start.click()
    assert race.verdict.text() == f"{reason} Choose another drafting mode."
    chat.engine.load_errors["broken"] = ModelError("The model is broken.")
    chat.controller.model_slot.load_model("broken")
    chat.wait_for(EngineState.NO_MODEL)
    assert (race.start.isEnabled(), race.status.text()) == (False, "No model is loaded. Choose one first.")


def test_no_race_begins_with_a_mode_that_is_not_to_be_had(
    qtbot: QtBot, chat: Chat, window: MainWindow, race: RaceWindow
) -> None:
    reason = "There is no drafter for tiny on this machine."
    chat.engine.options = DraftOptions(Path(), tuple(ModeOption(m, m is not Mode.DRAFTER, reason) for m in Mode))
    window.actions_.race.trigger()
    race.mode.setCurrentIndex(race.mode.findData(Mode.DRAFTER))
    qtbot.waitUntil(lambda: not race.start.isEnabled())
    assert race.problem.isVisible()
    assert race.problem.text() == f"{reason} Choose another drafting mode."
    race.resize(race.minimumSize())
    qtbot.waitUntil(lambda: race.verdict.geometry().bottom() <= race.height())
    race.mode.setCurrentIndex(race.mode.findData(Mode.LOOKUP))
    assert (race.start.isEnabled(), race.problem.isVisible()) == (True, False)


def test_the_race_takes_the_mode_of_the_chat(chat: Chat, window: MainWindow) -> None:
    chat.start()
    drafting = chat.controller.drafting
    drafting.change(replace(drafting.settings, mode=Mode.DRAFTER))
    window.actions_.race.trigger()
    assert window.windows.race.mode.currentData() == Mode.DRAFTER
    window.windows.race.close()
    drafting.change(replace(drafting.settings, mode=Mode.OFF))
    window.actions_.race.trigger()
    assert window.windows.race.mode.currentData() == Mode.AUTO, (
        "a race against plain decoding itself would show nothing"
    )


def test_everything_fits_into_the_smallest_window(race: RaceWindow, run: Run) -> None:
    race.resize(race.minimumSize())
    run()
    race.playback.skip.click()
    assert race.size() == race.minimumSize()
    for part in (race.start, race.plain, race.drafted, race.playback, race.verdict):
        corner = part.mapTo(race, QPoint(part.width(), part.height()))
        assert corner.x() <= race.width()
        assert corner.y() <= race.height()


def test_a_race_that_was_seen_is_still_there_when_the_window_is_opened_again(
    window: MainWindow, race: RaceWindow, run: Run
) -> None:
    run()
    race.playback.skip.click()
    race.close()
    window.actions_.race.trigger()
    assert race.plain.text.toPlainText() == "Hello, you!"
    assert race.verdict.text() == "Same text, token for token."
    assert race.playback.isEnabled()


def test_nothing_plays_in_a_closed_window(race: RaceWindow, run: Run) -> None:
    run()
    assert race.playback.playing
    race.close()
    assert not race.playback.playing
    result = race._result
    assert result is not None
    race.show_result(result)  # of a race that ended as the window was closed
    assert not race.playback.playing
    assert race.playback.isEnabled()


def test_who_has_no_prompt_yet_can_type_one(chat: Chat, window: MainWindow) -> None:
    chat.start()
    window.actions_.race.trigger()
    race = window.windows.race
    assert race.focusWidget() is race.prompt
    window.conversation.composer.set_text("Say hello")
    window.actions_.race.trigger()
    assert race.focusWidget() is race.start


def test_no_race_begins_while_a_model_is_loading(chat: Chat, race: RaceWindow) -> None:
    """A reply that waits for the model would have waited, unseen, for the race's end."""
    chat.engine.load_gate.shut()
    chat.controller.model_slot.load_model("other")
    assert (race.start.isEnabled(), race.status.text()) == (False, "The model is still loading.")
    chat.engine.load_gate.open()
    chat.wait_for(EngineState.IDLE)
    assert race.start.isEnabled()
