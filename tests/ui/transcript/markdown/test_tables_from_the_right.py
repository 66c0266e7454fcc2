# ruff: noqa: RUF001  scripts from right to left are what is tested here
"""Tables whose text runs from the right have their first column at the right, and copy it first."""

import pytest
from PySide6.QtCore import QRectF
from PySide6.QtGui import QTextTable
from pytestqt.qtbot import QtBot

from rdchat.ui.style import Theme
from rdchat.ui.transcript.markdown.copying import as_markdown
from rdchat.ui.transcript.markdown.decorations import ScrollBar
from rdchat.ui.transcript.markdown.text_body import TextBody
from tests.ui.shown_widgets import shown_child
from tests.ui.transcript.conftest import body_of, copied, select, select_text

WIDTH = 500
ARABIC = "| الفاكهة | السعر |\n|--|--|\n| تين | 12 |\n| Plum | سبعة |"
HEBREW = "| פרי | מחיר |\n|--|--|\n| תאנה | 12 |"
LATIN = "| Fruit | Cost |\n|--|--|\n| تين | 12 |"


def tables(body: TextBody) -> list[QTextTable]:
    body.heightForWidth(WIDTH)
    return [frame for frame in body.document().rootFrame().childFrames() if isinstance(frame, QTextTable)]


def rect_of(body: TextBody, text: str) -> QRectF:
    """Return where the cell's line with a text is drawn, as wide as the text."""
    block = body.document().find(text).block()
    line = block.layout().lineAt(0).naturalTextRect()
    return line.translated(body.document().documentLayout().blockBoundingRect(block).topLeft())


@pytest.mark.parametrize(
    ("table", "first", "second", "runs_from_right"),
    [
        (ARABIC, "الفاكهة", "السعر", True),
        (HEBREW, "פרי", "מחיר", True),
        (LATIN, "Fruit", "Cost", False),
        ("| 1 | 2 |\n|--|--|\n| א | ב |", "א", "ב", True),
        ("| API | السعر |\n|--|--|", "API", "السعر", False),
        (f"- סעיף\n\n  {HEBREW.replace('\n', '\n  ')}", "פרי", "מחיר", True),
        (f"> {ARABIC.replace('\n', '\n> ')}", "الفاكهة", "السعر", True),
    ],
)
def test_the_first_column_is_where_the_text_begins(
    qtbot: QtBot, theme: Theme, table: str, first: str, second: str, runs_from_right: bool
) -> None:
    body = body_of(qtbot, theme, f"Before\n\n{table}\n\nAfter")
    (drawn,) = tables(body)
    assert (rect_of(body, first).left() > rect_of(body, second).left()) is runs_from_right
    frame = body.document().documentLayout().frameBoundingRect(drawn)
    assert (frame.left() > WIDTH / 3) is runs_from_right
    text = copied_whole(body)
    assert text.index(first) < text.index(second)


def copied_whole(body: TextBody) -> str:
    body.selectAll()
    return copied(body)


def test_cells_keep_their_alignment(qtbot: QtBot, theme: Theme) -> None:
    """Without one they stand at the right; `:--` is the left, whatever the direction of the text."""
    texts = ["مرحبا", "Latin", "12", "أهلا", "و"]
    wide = " | ".join(["هذا عنوان عريض"] * 5)
    body = body_of(qtbot, theme, f"| {wide} |\n|--|--|--|:--|--:|\n| {' | '.join(texts)} |")
    (table,) = tables(body)
    for column, text in enumerate(texts):
        cell = table.cellAt(1, len(texts) - 1 - column)
        block = cell.firstCursorPosition().block()
        assert block.text() == text
        line = block.layout().lineAt(0)
        room = line.width() - line.naturalTextWidth()
        assert line.naturalTextRect().left() - line.rect().left() == pytest.approx(0 if text == "أهلا" else room, abs=1)


def test_parts_of_a_table_are_copied_in_reading_order(qtbot: QtBot, theme: Theme) -> None:
    body = body_of(qtbot, theme, ARABIC)
    assert copied_whole(body) == "الفاكهة\tالسعر\nتين\t12\nPlum\tسبعة"
    select_text(body, "12", "تين")
    assert copied(body) == "تين\t12"
    assert as_markdown(body.selected_blocks()) == "| تين | 12 |\n| --- | --- |"
    select_text(body, "لفاك", "لفاك")
    assert copied(body) == "لفاك"
    found = body.document().find("السعر")
    select(body, found.selectionStart(), body.document().find("سبعة").selectionStart())
    assert copied(body) == "السعر\n12\nسبعة"


def test_a_long_table_runs_one_way_and_a_wide_one_begins_at_the_right(qtbot: QtBot, theme: Theme) -> None:
    rows = "\n".join(f"| row {number} of many | نص |" for number in range(400))
    body = body_of(qtbot, theme, f"| الاسم | القيمة |\n|--|--|\n{rows}")
    parts = tables(body)
    assert len(parts) > 1
    assert [part.cellAt(part.rows() - 1, 1).firstCursorPosition().block().text()[:3] for part in parts] == [
        "row"
    ] * len(parts)
    lines = copied_whole(body).split("\n")
    assert lines == ["الاسم\tالقيمة", *(f"row {number} of many\tنص" for number in range(400))]
    for text, begins_at_right in (("عمود طويل جدا", True), ("A column that is long", False)):
        wide = body_of(qtbot, theme, f"| {' | '.join([text] * 12)} |\n|{'--|' * 12}")
        wide.heightForWidth(WIDTH)
        bar = shown_child(wide, ScrollBar)
        assert bar.maximum() > 100
        assert bar.value() == (bar.maximum() if begins_at_right else 0)
