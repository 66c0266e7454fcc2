from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint
from pytestqt.qtbot import QtBot

from rdchat.inference.api import BenchPiece, DraftOptions, DraftSettings, Mode, ModeOption
from rdchat.ui.benchmark.benchmark_window import BenchmarkWindow
from rdchat.ui.benchmark.race import RaceView
from rdchat.ui.window.main_window import MainWindow
from tests.services.bench_runs import EVENTS, bench_run
from tests.ui.benchmark.conftest import Run
from tests.ui.conftest import Chat


@pytest.fixture
def race(chat: Chat, bench: BenchmarkWindow) -> RaceView:
    """The page as the menu opens it, with a question."""
    chat.engine.bench_events = EVENTS
    bench.open_benchmark("Say hello")
    return bench.race


def choose(bench: BenchmarkWindow, mode: Mode) -> None:
    bench.race_form.mode.setCurrentIndex(bench.race_form.mode.findData(mode))


@pytest.mark.slow
def test_the_prompt_is_what_is_being_typed_or_was_asked_last(chat: Chat, window: MainWindow) -> None:
    chat.start()
    window.conversation.composer.set_text("Say hello")
    window.actions_.benchmark.trigger()
    bench = window.windows.benchmark_window
    prompt = bench.race_form.prompt
    assert prompt.toPlainText() == "Say hello"
    assert bench.focusWidget() is bench.start
    chat.say("What was asked")
    window.conversation.composer.set_text("")
    window.actions_.benchmark.trigger()
    assert prompt.toPlainText() == "What was asked"
    chat.qtbot.keyClicks(prompt, "Mine: ")
    bench.close()
    window.actions_.benchmark.trigger()
    assert prompt.toPlainText() == "Mine: What was asked", "what was typed was replaced"
    prompt.setPlainText("  ")
    assert (bench.start.isEnabled(), bench.status.text()) == (False, "Type a prompt first.")


def test_a_race_is_replayed_to_its_end(chat: Chat, race: RaceView, bench: BenchmarkWindow, run: Run) -> None:
    choose(bench, Mode.LOOKUP)
    run()
    (cell,) = chat.engine.plans[0].cells
    assert cell.draft.mode is Mode.LOOKUP
    assert cell.temperature == chat.settings.values.sampling.temperature
    assert race.verdict.text() == "Same text, token for token.", "it does not wait for the replay"
    race.playback.skip.click()
    assert race.playback.at_end
    assert race.accessibleDescription() == f"{race.speed_up.text()} {race.verdict.text()}", "a screen reader hears it"
    assert (race.plain.text.toPlainText(), race.drafted.text.toPlainText()) == ("Hello, you!", "Hello, you!")
    assert (race.plain.speed.text(), race.drafted.speed.text()) == ("50.0 tokens/s", "100 tokens/s")
    assert race.drafted.state.text() == "4 tokens, 0.13 s with reading"
    assert race.speed_up.text() == "Prompt lookup, 4 tokens: about 2.0 times as fast at writing."


def test_a_drafter_is_tried_that_the_chat_does_not_use(
    chat: Chat, bench: BenchmarkWindow, race: RaceView, run: Run
) -> None:
    chat.engine.options = DraftOptions(Path(), tuple(ModeOption(m, m is not Mode.DRAFTER, "None here.") for m in Mode))
    chat.controller.drafting.refresh_options()
    chat.qtbot.waitUntil(lambda: chat.controller.drafting.problem(Mode.DRAFTER) == "None here.")
    bench.open_benchmark("", DraftSettings(Mode.DRAFTER, drafter="/own/tried"))
    assert bench.race_form.mode.currentText() == "Drafter: tried"
    assert bench.start.isEnabled(), "the problem is of the chat's own drafter"
    run()
    assert chat.engine.plans[-1].cells[0].draft.drafter == "/own/tried"
    assert chat.controller.drafting.settings.drafter is None
    bench.open_benchmark("")
    assert bench.race_form.mode.findText("Drafter: tried") == -1, "it is tried once"


def test_both_replies_share_a_clock_that_can_go_back(race: RaceView, run: Run) -> None:
    run()
    race.playback.toggle()  # hold it
    for moment, plain, drafted in ((121, "Hello,", "Hello, you"), (100, "Hello", "Hello"), (99, "", "")):
        race.playback.slider.setValue(moment)
        assert (race.plain.text.toPlainText(), race.drafted.text.toPlainText()) == (plain, drafted)
    race.playback.slider.setValue(130)
    assert (race.plain.speed.text(), race.plain.state.text()) == ("33.3 tokens/s", "2 tokens, 0.13 s")


def test_tokens_of_one_round_come_together(chat: Chat, race: RaceView, run: Run) -> None:
    chat.engine.bench_events = (bench_run(0, 20), bench_run(1, 0))  # all at 100 ms
    run()
    race.playback.toggle()
    race.playback.slider.setValue(100)
    assert race.drafted.state.text() == "4 tokens, 0.10 s with reading"


def test_the_replay_pauses_skips_and_begins_again(qtbot: QtBot, race: RaceView, run: Run) -> None:
    run()
    playback = race.playback
    assert (playback.playing, playback.play.text()) == (True, "Pause")
    playback.play.click()
    assert (playback.playing, playback.play.text()) == (False, "Play")
    playback.slider.setValue(playback.slider.maximum())
    assert playback.at_end
    playback.play.click()
    assert playback.playing
    assert not playback.at_end
    qtbot.waitUntil(lambda: playback.at_end and not playback.playing)


def test_a_race_can_be_stopped(chat: Chat, bench: BenchmarkWindow, race: RaceView, run: Run) -> None:
    chat.engine.gate.shut()
    bench.start.click()
    assert bench.status.text() == "Measuring…"
    assert not bench.race_form.isEnabled()
    chat.engine.gate.allow(1)
    chat.qtbot.waitUntil(lambda: bench.status.text() == "0 of 2: Off, prompt 1 of 1")
    run()
    assert bench.status.text() == "Stopped after 0 of 2 replies."
    assert not race.playback.isEnabled()


def test_both_replies_stream_while_they_are_written(
    qtbot: QtBot, chat: Chat, bench: BenchmarkWindow, race: RaceView
) -> None:
    """The panes stayed empty until both replies were there."""
    pieces = BenchPiece(0, "Hello"), BenchPiece(0, ","), BenchPiece(1, "Hel")
    chat.engine.bench_events = (EVENTS[0], *pieces, *EVENTS[1:])
    chat.engine.gate.shut()
    chat.engine.gate.allow(4)
    bench.start.click()
    qtbot.waitUntil(lambda: race.drafted.text.toPlainText() == "Hel")
    assert race.plain.text.toPlainText() == "Hello,"
    assert (race.plain.state.text(), race.drafted.state.text()) == ("2 tokens", "1 token")
    with qtbot.waitSignal(chat.controller.benchmark.ended):
        chat.engine.gate.open()
    assert race.plain.text.toPlainText() == "", "the replay begins"


def test_a_race_waits_for_the_reply_that_is_being_written(chat: Chat, bench: BenchmarkWindow, race: RaceView) -> None:
    chat.pause_reply("Hello")
    bench.start.click()
    assert bench.status.text() == "Starts when the current reply is finished"
    with chat.qtbot.waitSignal(chat.controller.benchmark.ended):
        chat.engine.gate.open()


def test_a_mode_that_cannot_run_fails_the_race(chat: Chat, bench: BenchmarkWindow, race: RaceView, run: Run) -> None:
    chat.engine.bench_events = (bench_run(1, 0, pieces=(), mode_reason="There is no drafter for this model."),)
    run()
    assert bench.status.text() == "There is no drafter for this model. Choose another drafting mode."


def test_no_race_begins_with_an_unavailable_mode(chat: Chat, bench: BenchmarkWindow, race: RaceView) -> None:
    reason = "There is no drafter for tiny on this machine."
    chat.engine.options = DraftOptions(Path(), tuple(ModeOption(m, m is not Mode.DRAFTER, reason) for m in Mode))
    bench.open_benchmark("")
    choose(bench, Mode.DRAFTER)
    chat.qtbot.waitUntil(lambda: not bench.start.isEnabled())
    assert bench.status.text() == f"{reason} Choose another drafting mode."
    choose(bench, Mode.LOOKUP)
    assert bench.start.isEnabled()


def test_the_race_takes_the_mode_of_the_chat(chat: Chat, bench: BenchmarkWindow) -> None:
    drafting = chat.controller.drafting
    for mode, raced in ((Mode.DRAFTER, Mode.DRAFTER), (Mode.OFF, Mode.AUTO)):
        drafting.change(replace(drafting.settings, mode=mode))
        bench.close()
        bench.open_benchmark("")
        assert bench.race_form.draft.mode is raced, "a race against plain decoding itself would show nothing"
    choose(bench, Mode.LOOKUP)
    bench.open_benchmark("Another prompt")
    assert bench.race_form.draft.mode is Mode.LOOKUP, "what was chosen in the open window stays"


def test_everything_fits_into_the_smallest_window(bench: BenchmarkWindow, race: RaceView, run: Run) -> None:
    bench.resize(bench.minimumSize())
    run()
    race.playback.skip.click()
    assert bench.size() == bench.minimumSize()
    for part in (bench.start, race.plain, race.drafted, race.playback, race.verdict):
        corner = part.mapTo(bench, QPoint(part.width(), part.height()))
        assert corner.x() <= bench.width()
        assert corner.y() <= bench.height()


def test_nothing_plays_in_a_closed_window(bench: BenchmarkWindow, race: RaceView, run: Run) -> None:
    run()
    assert race.playback.playing
    race.playback.slider.setValue(121)
    bench.close()
    assert not race.playback.playing
    bench.open_benchmark("")
    assert race.plain.text.toPlainText() == "Hello,", "the race is still there"
    assert race.playback.isEnabled()
    bench.close()
    run()  # It ends while the window is closed.
    assert not race.playback.playing


def test_who_has_no_prompt_yet_can_type_one(bench: BenchmarkWindow) -> None:
    bench.open_benchmark("")
    assert bench.focusWidget() is bench.race_form.prompt
    bench.open_benchmark("Say hello")
    assert bench.focusWidget() is bench.start
