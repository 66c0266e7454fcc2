from PySide6.QtWidgets import QFileDialog, QWidget
from pytestqt.qtbot import QtBot

from rdchat.ui.style import FileMode, ask_to_open, ask_to_save


def test_a_name_without_an_ending_gets_that_of_the_chosen_kind(qtbot: QtBot) -> None:
    parent = QWidget()
    saved = list[str]()
    qtbot.addWidget(parent)
    dialog = ask_to_save(parent, "Export", "benchmark.csv", ["CSV (*.csv)", "PNG (*.png)"], saved.append)
    assert dialog.acceptMode() is QFileDialog.AcceptMode.AcceptSave
    assert dialog.defaultSuffix() == "csv"
    dialog.filterSelected.emit("PNG (*.png)")
    assert dialog.defaultSuffix() == "png"
    dialog.fileSelected.emit("/tmp/benchmark.png")
    assert saved == ["/tmp/benchmark.png"]
    dialog.close()


def test_files_are_opened_as_asked_for(qtbot: QtBot) -> None:
    parent = QWidget()
    opened = list[list[str]]()
    qtbot.addWidget(parent)
    dialog = ask_to_open(parent, "Open", FileMode.ExistingFiles, opened.append, ["CSV (*.csv)"])
    assert (dialog.fileMode(), dialog.nameFilters()) == (FileMode.ExistingFiles, ["CSV (*.csv)"])
    dialog.filesSelected.emit(["/tmp/a.csv", "/tmp/b.csv"])
    assert opened == [["/tmp/a.csv", "/tmp/b.csv"]]
    dialog.close()
