"""The time ledger's tree, its switch and its export."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QAbstractItemModel, QModelIndex, Qt
from PySide6.QtWidgets import QMessageBox
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import Drafting, Message, MessageStatus
from rdchat.inference.api import LedgerEntry, Statistics, grouped_entries, ledger_rows
from rdchat.inference.api.requests import Mode, Role
from rdchat.ui.speed.ledger_window import LedgerTree, LedgerWindow
from rdchat.ui.style import Theme
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import choose_files, shown_child

_ENTRIES = (
    LedgerEntry("prefill", "", 1, 50.0),
    LedgerEntry("round", "", 4, 200.0),
    LedgerEntry("draft", "round", 4, 40.0),
    LedgerEntry("verify", "round", 4, 150.0),
)
_RECORDED = (*_ENTRIES, LedgerEntry("wait", "round/verify", 4, 150.0))


def _table(model: QAbstractItemModel, parent: QModelIndex = QModelIndex()) -> list[object]:  # noqa: B008
    """Return the display texts, with the children of a row behind it in a list of their own."""
    found: list[object] = []
    for row in range(model.rowCount(parent)):
        found.append([model.index(row, column, parent).data() for column in range(model.columnCount(parent))])
        if below := _table(model, model.index(row, 0, parent)):
            found.append(below)
    return found


@pytest.fixture
def tree(qtbot: QtBot, theme: Theme) -> LedgerTree:
    tree = LedgerTree(theme)
    qtbot.addWidget(tree)
    return tree


def test_the_tree_follows_the_rows(tree: LedgerTree) -> None:
    model = tree.model()
    tree.show_rows(ledger_rows(_ENTRIES[:3]))
    tree.show_rows(ledger_rows(_ENTRIES))
    assert _table(model) == [
        ["prefill", "1", "50.00 ms", "50.0 ms", ""],
        ["round", "4", "50.00 ms", "200.0 ms", ""],
        [["draft", "4", "10.00 ms", "40.0 ms", "20.0"], ["verify", "4", "37.50 ms", "150.0 ms", "75.0"]],
    ]
    verify = model.index(1, 4, model.index(1, 0))
    bar = verify.data(Qt.ItemDataRole.BackgroundRole).gradient().stops()
    assert bar[1][0] == pytest.approx(0.75), "as long as its share"
    assert model.headerData(0, Qt.Orientation.Horizontal) == "Stage"
    tree.show_rows(ledger_rows(_ENTRIES[1:2]))
    assert _table(model) == [["round", "4", "50.00 ms", "200.0 ms", ""]]
    tree.show_rows(ledger_rows([LedgerEntry("round", "", 4, 172_989.2)]))
    assert _table(model) == [["round", "4", "43,247.30 ms", "2 min 53 s", ""]], "a total of minutes"


def test_new_figures_keep_what_is_selected(qtbot: QtBot, tree: LedgerTree) -> None:
    model = tree.model()
    tree.show_rows(ledger_rows(_ENTRIES))
    verify = model.index(1, 0, model.index(1, 0))
    with qtbot.waitSignal(model.dataChanged):
        tree.show_rows(ledger_rows((*_ENTRIES[:3], replace(_ENTRIES[3], calls=9))))
    assert verify.data() == "verify"
    assert verify.siblingAtColumn(1).data() == "9"


@pytest.fixture
def ledger(chat: Chat, window: MainWindow) -> LedgerWindow:
    chat.start()
    window.panel.details.ledger.click()
    assert window.windows.ledger.isVisible()
    return window.windows.ledger


def _measure(chat: Chat) -> None:
    chat.controller.replies.statistics_changed.emit(Statistics(ledger=_RECORDED))


def _end(chat: Chat, tps: float) -> None:
    statistics = Statistics(generated_tokens=11, target_calls=10, decode_ms=10_000 / tps, ledger=_RECORDED)
    drafting = Drafting(Mode.OFF)
    reply = Message(2, 1, 1, Role.ASSISTANT, "", MessageStatus.COMPLETE, 0.0, statistics=statistics, drafting=drafting)
    chat.controller.replies.statistics_changed.emit(statistics)
    chat.controller.time_ledger.add_end(reply)


def test_it_fills_while_a_reply_is_written_and_empties_on_reset(chat: Chat, ledger: LedgerWindow) -> None:
    assert ledger.note.text().startswith("The times of the next reply")
    assert not ledger.export.isEnabled()
    _measure(chat)
    chat.qtbot.waitUntil(lambda: len(ledger.tree.rows) == 5)
    assert ledger.note.text().startswith("The sum of 1 reply since rdchat started. Stages that MLX computes together")
    assert [row.name for row in ledger.tree.rows] == ["reply", "reading", "drafting", "checking", "other"]
    assert ledger.tree.isExpanded(ledger.tree.model().index(0, 0))
    _end(chat, tps=30.0)
    _measure(chat)
    chat.qtbot.waitUntil(lambda: ledger.note.text().startswith("The sum of 2 replies since rdchat started."))
    ledger.reset.click()
    chat.qtbot.waitUntil(lambda: ledger.tree.rows == ())


def test_what_exact_times_cost_is_told(chat: Chat, ledger: LedgerWindow) -> None:
    assert "one without" in ledger.cost.text()
    chat.controller.drafting.set_exact_times(True)
    _measure(chat)
    chat.qtbot.waitUntil(lambda: ledger.note.text().startswith("The sum of 1 reply since the last reset. Exact times"))
    _end(chat, tps=30.0)
    chat.controller.drafting.set_exact_times(False)
    _end(chat, tps=40.0)
    told = "With exact times, the last replies ran at 30.0 instead of 40.0 tokens/s."
    chat.qtbot.waitUntil(lambda: ledger.cost.text() == told)


def test_the_saved_table_has_what_was_measured_while_the_file_was_chosen(
    chat: Chat, ledger: LedgerWindow, tmp_path: Path
) -> None:
    ledger.export.setEnabled(True)
    ledger.export.click()
    _measure(chat)
    chat.qtbot.waitUntil(lambda: len(ledger.tree.rows) == 5)
    choose_files(ledger, tmp_path / "ledger.csv")
    with (tmp_path / "ledger.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == ["reply", "reading", "drafting", "checking", "other"]
    assert float(rows[3]["percent_of_parent"]) == pytest.approx(60.0)


def test_a_file_that_cannot_be_written_gives_an_error(
    ledger: LedgerWindow, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.export.setEnabled(True)
    ledger.export.click()
    choose_files(ledger, tmp_path / "missing" / "ledger.csv")
    box = shown_child(ledger, QMessageBox)
    assert box.text() == "ledger.csv cannot be written: No such file or directory."
    assert box.informativeText() == "Choose another folder or name."
    assert "ledger.csv" not in caplog.text, "the person chose the name"
    box.close()


def test_names_can_be_read_in_a_small_window(chat: Chat, ledger: LedgerWindow) -> None:
    _measure(chat)
    chat.qtbot.waitUntil(lambda: len(ledger.tree.rows) == 5)
    ledger.resize(ledger.minimumSize())
    longest = ledger.tree.fontMetrics().horizontalAdvance("Checking") + 2 * ledger.tree.indentation()
    ledger.tree.setColumnWidth(1, 50)
    ledger.resize(ledger.width() + 5, ledger.height())
    assert ledger.tree.columnWidth(1) == 50, "what the person drew otherwise stays"
    sideways = ledger.tree.horizontalScrollBar()
    chat.qtbot.waitUntil(lambda: ledger.tree.columnWidth(0) > longest and sideways.maximum() == 0)


def test_stages_say_what_they_are(tree: LedgerTree) -> None:
    model = tree.model()
    tree.show_rows(ledger_rows(grouped_entries((*_RECORDED, LedgerEntry("new stage", "", 1, 1.0)))))
    assert "The model checks drafted tokens" in model.index(2, 0, model.index(0, 0)).data(Qt.ItemDataRole.ToolTipRole)
    host = model.index(3, 0, model.index(0, 0))
    assert "new stage" in model.index(1, 0, host).data(Qt.ItemDataRole.ToolTipRole)
