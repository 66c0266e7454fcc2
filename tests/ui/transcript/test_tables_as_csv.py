"""A table of a message is saved as CSV, which a spreadsheet reads as the values that are shown."""

import csv
import io
from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog, QMenu

from rdchat.ui.transcript.markdown.copying import blocks_of, csv_of
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from tests.ui.transcript.conftest import Show, answered, widget_of

TABLE = '| Wax | Colour |\n|---|--:|\n| **bee**, yellow | "1" |\n| seal | red |\n'


def rows(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))


def test_has_the_values_that_are_shown() -> None:
    (table,) = blocks_of(TABLE, MarkdownParser())
    assert rows(csv_of(table)) == [["Wax", "Colour"], ["bee, yellow", '"1"'], ["seal", "red"]]


@pytest.mark.parametrize("cell", ["=1+1", "@SUM(A1)", "+cmd", "-2+3", "-A1"])
def test_no_cell_becomes_a_formula(cell: str) -> None:
    (table,) = blocks_of(f"| {cell} |\n|---|\n", MarkdownParser())
    assert rows(csv_of(table)) == [[f"'{cell}"]]


@pytest.mark.parametrize("cell", ["-5", "+1.5", "-3 %", "- 1,000", "a=b"])
def test_numbers_stay_numbers(cell: str) -> None:
    (table,) = blocks_of(f"| {cell} |\n|---|\n", MarkdownParser())
    assert rows(csv_of(table)) == [[cell]]


def test_the_menu_names_each_table(show: Show) -> None:
    view = show(answered(f"{TABLE}\nand\n\n{TABLE.replace('Wax', 'Ink')}"))
    widget = widget_of(view, 2)
    menu = QMenu(widget)
    widget.fill_menu(menu)
    names = [action.text() for action in menu.actions() if "CSV" in action.text()]
    assert names == ["Save Table “Wax, Colour” as CSV…", "Save Table “Ink, Colour” as CSV…"]


def test_a_table_is_saved(show: Show, tmp_path: Path) -> None:
    widget = widget_of(show(answered(TABLE)), 2)
    menu = QMenu(widget)
    widget.fill_menu(menu)
    next(action for action in menu.actions() if "CSV" in action.text()).trigger()
    (dialog,) = widget.window().findChildren(QFileDialog)
    assert Path(dialog.selectedFiles()[0]).name == "table.csv"
    dialog.fileSelected.emit(str(tmp_path / "wax.csv"))
    dialog.close()
    assert rows((tmp_path / "wax.csv").read_bytes())[0] == ["Wax", "Colour"]


def test_a_long_table_is_one(show: Show) -> None:
    count = 700
    view = show(answered("| a | b |\n|---|---|\n" + "".join(f"| {n} | x |\n" for n in range(count))))
    (table,) = widget_of(view, 2).body.tables
    assert [row[0] for row in rows(csv_of(table))] == ["a", *map(str, range(count))]
