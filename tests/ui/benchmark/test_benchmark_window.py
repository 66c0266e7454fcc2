import json
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QAbstractItemModel, QModelIndex, Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QMessageBox, QPushButton
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import Drafting, Message
from rdchat.inference.api import (
    BenchProgress,
    BenchRun,
    DraftOptions,
    Dtype,
    LedgerEntry,
    Mode,
    ModeOption,
    Role,
    Statistics,
)
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.benchmark.benchmark_window import BenchmarkWindow
from rdchat.ui.benchmark.results import TableCell
from rdchat.ui.style import Theme
from rdchat.ui.window.main_window import MainWindow
from tests.grids import share
from tests.services.bench_runs import bench_run
from tests.ui.benchmark.conftest import Run
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import activate, answer_question, choose_files, close_by_hand, press_key, shown_child

EVENTS = (BenchProgress(1, 2, "Prompt lookup, 4 tokens, prompt 1 of 1", 65.0), bench_run(0, 20), bench_run(1, 10))


@pytest.fixture(autouse=True)
def several(qtbot: QtBot, chat: Chat, bench: BenchmarkWindow) -> None:
    """The page is open, and prompt lookup alone is chosen."""
    qtbot.waitUntil(lambda: chat.controller.drafting.option(Mode.LOOKUP) is not None)
    chat.engine.bench_events = EVENTS
    bench.open_benchmark("")
    bench.tabs.setCurrentIndex(1)
    for mode, box in bench.form.modes.items():
        box.setChecked(mode is Mode.LOOKUP)


def row(table: QAbstractItemModel, number: int) -> dict[str, str]:
    columns = range(table.columnCount(QModelIndex()))
    titles = [str(table.headerData(column, Qt.Orientation.Horizontal)).replace("\n", " ") for column in columns]
    return dict(zip(titles, [str(table.data(table.index(number, column))) for column in columns], strict=True))


def test_the_number_of_replies_follows_the_choices(bench: BenchmarkWindow) -> None:
    form = bench.form
    assert bench.status.text().startswith(
        "54 replies of up to 64 tokens. "
    )  # (plain, mlx-lm, lookup) x 6 prompts x 3 trials
    form.sizes["draft_tokens"].setText("2, 4, 8")
    form.trials.setValue(1)
    form.mlx_lm.setChecked(False)
    assert bench.status.text().startswith("24 replies of up to 64 tokens. ")
    form.temperatures.setText("0, 0.7")
    assert bench.status.text().startswith("48 replies of up to 64 tokens. ")
    form.dtypes[Dtype.FLOAT16].setChecked(True)
    assert bench.status.text().startswith("96 replies of up to 64 tokens. ")


@pytest.mark.parametrize(
    ("field", "text", "problem"),
    share(
        [
            ("draft_tokens", "2, many", "Draft tokens: type whole numbers separated by commas, such as 1, 4."),
            ("draft_tokens", "2, 100", "draft-tokens 100 is out of range"),
            ("beam_width", "", "Beams: type at least one number."),
            ("temperatures", "warm", "Temperature: type numbers separated by commas, such as 1, 4."),
            ("temperatures", "-1", "temperature -1.0 is out of range"),
        ],
        5,
    ),
)
def test_a_wrong_number_is_told_and_cannot_be_run(bench: BenchmarkWindow, field: str, text: str, problem: str) -> None:
    bench.form.modes[Mode.DRAFTER].setChecked(True)
    (bench.form.sizes | {"temperatures": bench.form.temperatures})[field].setText(text)
    assert bench.status.text().startswith(problem)
    assert not bench.start.isEnabled()


def test_something_must_be_chosen(bench: BenchmarkWindow) -> None:
    bench.form.modes[Mode.LOOKUP].setChecked(False)
    assert bench.status.text() == "There is nothing to measure. Choose at least one mode."
    assert not bench.start.isEnabled()
    bench.form.dtypes[Dtype.AUTO].setChecked(False)
    assert bench.status.text() == "There is nothing to measure. Choose at least one mode and one precision."
    bench.form.modes[Mode.LOOKUP].setChecked(True)
    assert bench.status.text() == "There is nothing to measure. Choose at least one precision."


def test_a_size_that_no_chosen_mode_has_is_neither_typed_nor_read(chat: Chat, bench: BenchmarkWindow) -> None:
    form = bench.form

    def enabled() -> tuple[bool, ...]:
        return tuple(field.isEnabled() for field in form.sizes.values())

    assert enabled() == (False, False, True)
    form.modes[Mode.DRAFTER].setChecked(True)
    assert enabled() == (True, True, True)
    form.sizes["beam_width"].setText("many")
    assert not bench.start.isEnabled()
    form.modes[Mode.DRAFTER].setChecked(False)
    assert enabled() == (False, False, True)
    assert bench.start.isEnabled()
    assert bench.status.text().startswith("54 replies of up to 64 tokens. ")
    form.modes[Mode.DRAFTER].setChecked(True)
    chat.engine.options = DraftOptions(Path(), tuple(ModeOption(mode, mode is Mode.LOOKUP, "No.") for mode in Mode))
    chat.controller.drafting.refresh_options()
    chat.qtbot.waitUntil(lambda: enabled() == (False, False, True))
    assert bench.start.isEnabled()


def test_modes_that_are_not_to_be_had_say_why(chat: Chat, bench: BenchmarkWindow) -> None:
    reason = "There is no drafter for this model."
    options = tuple(ModeOption(mode, mode is not Mode.DRAFTER, reason) for mode in Mode)
    chat.engine.options = DraftOptions(Path(), options)
    chat.controller.drafting.refresh_options()
    recurrent = bench.form.modes[Mode.DRAFTER]
    chat.qtbot.waitUntil(lambda: not recurrent.isEnabled())
    assert recurrent.accessibleDescription() == reason
    recurrent.setChecked(True)
    assert {cell.draft.mode for cell in bench.form.plan().cells} == {Mode.LOOKUP}


def test_a_benchmark_says_that_the_computer_was_busy(chat: Chat, bench: BenchmarkWindow, run: Run) -> None:
    run()
    assert bench.status.text() == "Done: 2 replies."
    runs = [event for event in chat.engine.bench_events if isinstance(event, BenchRun)]
    busy = replace(runs[0], statistics=replace(runs[0].statistics, others_share=0.6))
    chat.engine.bench_events = (busy, *runs[1:])
    run()
    assert bench.status.text() == "Done: 2 replies. The computer was busy with other work in 1 of 2 replies."


def test_results_are_shown_by_setting_and_by_group(chat: Chat, bench: BenchmarkWindow, run: Run) -> None:
    run()
    assert chat.engine.plans == [bench.form.plan()]
    assert bench.status.text().startswith("Done: 2 replies")
    plain = row(bench.results.results.model(), 0)
    assert (plain["Setting"], plain["Speed-up"]) == ("Off", "1.00x")
    found = row(bench.results.results.model(), 1)
    assert found["Setting"] == "Prompt lookup, 4 tokens"
    assert (found["Tokens/s"], found["Speed-up"], found["Against mlx-lm"]) == ("100", "2.00x", "\N{EN DASH}")
    assert found["Same text"] == "Yes"
    assert row(bench.results.groups.model(), 0) | {"Group": "greetings", "Speed-up": "2.00x"} == row(
        bench.results.groups.model(), 0
    )
    assert "2.00x plain decoding" in bench.results.picture.description


def test_a_running_benchmark_shows_where_it_stands_and_can_be_stopped(
    qtbot: QtBot, chat: Chat, bench: BenchmarkWindow, run: Run, tmp_path: Path
) -> None:
    chat.engine.gate.shut()
    bench.start.click()
    assert (bench.start.text(), bench.form.isEnabled()) == ("Stop", False)
    chat.engine.gate.allow(2)
    qtbot.waitUntil(lambda: bench.status.text().startswith("1 of 2, 1 min left: Prompt lookup, 4 tokens"))
    assert (bench.progress.value(), bench.progress.maximum()) == (500, 1000)
    benchmark = chat.controller.benchmark
    benchmark.progress = replace(benchmark.progress, done=0)
    benchmark.progressed.emit()
    assert bench.progress.maximum() == 0, "nothing is done yet: it moves"
    qtbot.waitUntil(lambda: chat.engine.gate.is_waiting)  # the first reply has come
    run()
    assert bench.status.text() == "Stopped after 1 of 54 replies."
    bench.save_benchmark(str(tmp_path / "bench.json"))
    assert json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))["complete"] is False
    assert (bench.start.text(), bench.form.isEnabled()) == ("Start", True)


def test_it_is_exported(bench: BenchmarkWindow, run: Run, tmp_path: Path) -> None:
    assert not bench.export.isVisible()
    run()
    assert bench.export.isVisible()
    for kind in ("csv", "json", "png", "pdf"):
        bench.save_benchmark(str(tmp_path / f"bench.{kind}"))
        assert bench.status.text() == f"Saved as bench.{kind}"
    assert not QImage(str(tmp_path / "bench.png")).isNull()
    assert json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))["complete"] is True
    assert (tmp_path / "bench.csv").read_text(encoding="utf-8").count("\n") == 3


def test_files_that_cannot_be_are_told(bench: BenchmarkWindow, run: Run, tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text("{broken\n", encoding="utf-8")
    bench.form.read_prompts(str(tmp_path / "prompts.jsonl"))
    assert bench.status.text().startswith("Line 1 of")
    run()
    bench.save_benchmark(str(tmp_path / "missing" / "bench.csv"))
    assert "cannot be written" in bench.status.text()
    bench.save_benchmark(str(tmp_path / "x.txt"))
    words = "x.txt cannot be exported: its name must end in .csv, .json, .png or .pdf."
    assert bench.status.text() == words


def test_the_form_is_not_cut(bench: BenchmarkWindow) -> None:
    viewport = bench.form.parentWidget()
    assert bench.form.minimumSizeHint().width() <= viewport.width()


def test_what_is_looked_at_stays_while_results_come(qtbot: QtBot, chat: Chat, bench: BenchmarkWindow) -> None:
    bench.form.sizes["draft_tokens"].setText("2, 4")
    chat.engine.bench_events = tuple(bench_run(cell, 20 - 5 * cell) for cell in range(3))
    chat.engine.gate.shut()
    bench.start.click()
    chat.engine.gate.allow(2)
    table = bench.results.results
    picture = bench.results.picture
    qtbot.waitUntil(lambda: table.rowCount() == 3)
    table.selectRow(2)
    press_key(picture, "Right")
    first = picture.accessibleDescription()
    with qtbot.waitSignal(chat.controller.benchmark.ended):
        chat.engine.gate.open()
    assert row(table.model(), 2)["Speed-up"] == "2.00x"
    assert [index.row() for index in table.selectionModel().selectedRows()] == [2]
    press_key(picture, "Right")
    assert picture.accessibleDescription() != first


@pytest.mark.slow
def test_what_came_of_it_is_told_until_something_else_is_chosen(chat: Chat, bench: BenchmarkWindow, run: Run) -> None:
    run()
    chat.say("Hello")
    chat.controller.drafting.changed.emit()
    assert bench.status.text().startswith("Done: 2 replies")
    bench.form.trials.setValue(2)
    assert bench.status.text().startswith("36 replies of up to 64 tokens. ")


def test_no_benchmark_begins_while_a_model_is_loading(chat: Chat, bench: BenchmarkWindow) -> None:
    """It would have been exported with the environment of no model."""
    chat.engine.load_gate.shut()
    chat.slot.load_model("other")
    assert (bench.start.isEnabled(), bench.status.text()) == (False, "Getting ready…")
    chat.engine.load_gate.open()
    chat.wait_for(EngineState.IDLE)
    chat.qtbot.waitUntil(bench.start.isEnabled)


def test_the_menu_opens_the_page_shown_last_and_quitting_asks_first(chat: Chat, window: MainWindow) -> None:
    bench = window.windows.benchmark_window
    assert [bench.tabs.tabText(each) for each in range(bench.tabs.count())] == ["One Prompt", "Several Prompts"]
    bench.tabs.setCurrentIndex(1)
    window.conversation.composer.set_text("Say hello")
    window.actions_.benchmark.trigger()
    assert bench.form.isVisible()
    bench.tabs.setCurrentIndex(0)
    assert bench.race.isVisible()
    assert bench.race_form.prompt.toPlainText() == "Say hello"
    chat.engine.gate.shut()
    bench.start.click()
    for quit_ in (window.actions_.quit.trigger, window.commands.close_front, lambda: close_by_hand(window)):
        activate(window)
        quit_()
        assert window.isVisible()
        box = shown_child(bench, QMessageBox)
        assert box.text() == "Stop the benchmark and quit?"
        box.close()
    window.actions_.quit.trigger()
    answer_question(bench, "Stop and Quit")
    assert not window.isVisible()


def test_the_question_goes_away_with_the_benchmark(chat: Chat, bench: BenchmarkWindow) -> None:
    chat.engine.gate.shut()
    bench.start.click()
    bench.close()
    with chat.qtbot.waitSignal(shown_child(bench, QMessageBox).finished):
        chat.engine.gate.open()


def test_names_and_their_heading_stand_at_the_same_edge(bench: BenchmarkWindow) -> None:
    table = bench.results.results.model()
    bench.results.results.show_rows(
        [TableCell("Setting"), TableCell("Tokens/s")], [[TableCell("Auto"), TableCell("1")]]
    )
    for column in (0, 1):
        heading = table.headerData(column, Qt.Orientation.Horizontal, Qt.ItemDataRole.TextAlignmentRole)
        assert Qt.AlignmentFlag(heading) == Qt.AlignmentFlag(
            table.data(table.index(0, column), Qt.ItemDataRole.TextAlignmentRole)
        )


def test_how_long_it_takes_is_told_before_it_starts(chat: Chat, bench: BenchmarkWindow) -> None:
    assert bench.status.text().endswith("The time left is shown after the first reply.")
    statistics = Statistics(generated_tokens=33, target_calls=32, decode_ms=1000)
    chat.controller.time_ledger.add_statistics(Statistics(ledger=(LedgerEntry("decode", "", 1, 1.0),)))
    reply = Message(2, 1, 1, Role.ASSISTANT, "", statistics=statistics, drafting=Drafting(Mode.AUTO))
    chat.controller.time_ledger.add_end(reply)
    bench.form.changed.emit()
    assert bench.status.text() == "54 replies of up to 64 tokens. That takes 2 min to 7 min."


@pytest.mark.slow
def test_the_tables_take_another_appearance(qtbot: QtBot, bench: BenchmarkWindow, run: Run, theme: Theme) -> None:
    """They stayed white in the dark."""
    run()
    for scheme in (Qt.ColorScheme.Dark, Qt.ColorScheme.Light):
        theme.set_scheme(scheme)
        qtbot.waitUntil(lambda: bench.results.results.palette().base().color() == theme.colors.surface)


def test_prompts_come_from_a_file(bench: BenchmarkWindow, tmp_path: Path) -> None:
    lines = [{"prompt": f"Question {number}", "category": f"group {number % 2}"} for number in range(6)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    form = bench.form
    next(button for button in form.findChildren(QPushButton) if "File" in button.text()).click()
    choose_files(form, tmp_path / "prompts.jsonl")
    assert form.source.currentText() == "prompts.jsonl (6)"
    assert len(form.plan().prompts) == 6
    form.limit.setValue(1)
    assert [prompt.group for prompt in form.plan().prompts] == ["group 0", "group 1"]
    form.source.setCurrentIndex(1)
    assert len(form.plan().prompts) == 6, "each everyday question is a group of its own"


def test_one_benchmark_runs_at_a_time(chat: Chat, bench: BenchmarkWindow, run: Run) -> None:
    chat.engine.gate.shut()
    bench.start.click()
    assert not bench.tabs.isEnabled()
    bench.open_benchmark("Who?")
    assert bench.race_form.prompt.toPlainText() == ""
    run()
    bench.open_benchmark("Who?")
    assert bench.race_form.prompt.toPlainText() == "Who?"
    assert bench.form.isVisible(), "the page of before"


def test_closing_while_it_runs_asks_first(chat: Chat, bench: BenchmarkWindow) -> None:
    chat.engine.gate.shut()
    bench.start.click()
    bench.close()
    assert bench.isVisible()
    with chat.qtbot.waitSignal(chat.controller.benchmark.ended):
        answer_question(bench, "Stop and Close")
    assert not bench.isVisible()
