"""Copies of selections have what is selected, and tables from the right their first column first."""

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from PySide6.QtCore import QEvent, QPointF, QRectF, Qt
from PySide6.QtGui import QClipboard, QGuiApplication, QMouseEvent, QTextTable
from pytestqt.qtbot import QtBot

from rdchat.ui.style import Theme
from rdchat.ui.transcript.markdown.copying import CopyForm, as_markdown, forms_of
from rdchat.ui.transcript.markdown.decorations import ScrollBar
from rdchat.ui.transcript.markdown.parser import PlainParser
from rdchat.ui.transcript.markdown.text_body import TextBody
from tests.ui.shown_widgets import shown_child
from tests.ui.transcript.conftest import body_of, copied, highlighted, select, select_text

# ruff: noqa: RUF001  other scripts are a part of what is tested here


TABLE = "| Fruit | Cost |\n|--|--:|\n| Fig | twelve |\n| Plum | $x^2$ |"
LIST = "- outer\n  - inner\n    1. deep\n- last"
PARTS = [
    TABLE,
    LIST,
    "| 水果 | 价格 |\n|--|--|\n| 无花果 | 十二 |",
    "| الفاكهة | السعر |\n|--|--|\n| تين | ١٢ |",
    "שלום **עולם** abc",
    "```py\nif a:\n\n    go()\n```",
    "Some *words* and $a^2$, `code`, 🎂 cake",
    "- loose\n\n  - inner\n\n    more\n- last",
    "- item\n\n  | in | list |\n  |--|--|\n  | a<br>b | c |",
    "> quoted\n>\n> - twice",
    "-\n- [x] done",
    "---",
]


def letters(text: str) -> str:
    """Return a text without blanks, bullets, numbers and rules."""
    return "".join(letter for letter in text if letter.isalpha())


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.sampled_from(PARTS), min_size=1, max_size=5), data=st.data())
def test_what_is_copied_is_what_is_selected(qtbot: QtBot, theme: Theme, parts: list[str], data: st.DataObject) -> None:
    body = body_of(qtbot, theme, "\n\nbetween\n\n".join(parts))
    places = st.integers(0, body.document().characterCount() - 1)
    cursor = select(body, data.draw(places), data.draw(places))
    text = copied(body)
    blocks = body.selected_blocks()
    body.close()
    if not cursor.hasSelection():
        return
    assert text == forms_of(blocks, CopyForm.PLAIN)[0] or not blocks
    # The document has the columns of a table from the right in the other order.
    order = sorted if any("الفاكهة" in part for part in parts) else str
    assert order(letters(text if blocks else "")) == order(letters(highlighted(cursor)))
    _, rows, _, columns = cursor.selectedTableCells()
    if rows > 0:
        assert [line.count("\t") for line in text.split("\n")] == [columns - 1] * rows


@pytest.mark.parametrize(
    ("begin", "end", "text"),
    [
        # A spreadsheet takes whole tables and parts of them.
        ("Prices", "$x", "Prices\n\nFruit\tCost\nFig\ttwelve\nPlum\t$x^2$"),
        ("Fruit", "Plum", "Fruit\nFig\nPlum"),
        ("Fig", "twelve", "Fig\ttwelve"),
        ("elv", "elv", "elv"),
        ("outer", "inner", "• outer\n  ◦ inner"),
        ("outer", "last", "• outer\n  ◦ inner\n    1. deep\n• last"),
        # A word of an item is no item.
        ("inner", "inner", "inner"),
        ("if a", "go()", "if a:\n\n    go()"),
        ("go()", "go()", "go()"),
        ("Of", "end", "Of $a^2$ the end"),
        ("水果", "水果", "水果"),
        ("无花", "十二", "无花果\t十二"),
        ("ענב", "תה", "תה\tענב"),
    ],
)
def test_a_selection_is_copied_as_one_reads_it(qtbot: QtBot, theme: Theme, begin: str, end: str, text: str) -> None:
    ours = "\n\n".join(["Prices", TABLE, "text", *PARTS[1:3], "Of $a^2$ the end", PARTS[5], "| תה | ענב |\n|--|--|"])
    body = body_of(qtbot, theme, ours)
    if "$x" in end:
        select(body, 0, body.document().find("text").selectionStart() - 1)
    else:
        select_text(body, begin, end)
    assert copied(body) == text


@pytest.mark.parametrize("text", ["a\n\n\nb\n  c", "- one\n\n| a | b |\n|--|--|", "x\ty  z\n\nשלום"])
def test_a_prompt_is_copied_as_it_was_typed(qtbot: QtBot, theme: Theme, text: str) -> None:
    body = body_of(qtbot, theme, text, PlainParser())
    assert copied_whole(body) == text


def test_a_drag_and_the_primary_selection_have_the_same_text(qtbot: QtBot, theme: Theme) -> None:
    body = body_of(qtbot, theme, TABLE)
    body.selectAll()
    data = body.createMimeDataFromSelection()
    assert data.text() == copied(body) == "Fruit\tCost\nFig\ttwelve\nPlum\t$x^2$"
    assert data.formats() == ["text/plain"]
    clipboard = QGuiApplication.clipboard()
    if clipboard.supportsSelection():
        place = QPointF(2, 2)
        for kind in (QEvent.Type.MouseButtonPress, QEvent.Type.MouseButtonRelease):
            left = Qt.MouseButton.LeftButton
            event = QMouseEvent(kind, place, body.mapToGlobal(place), left, left, Qt.KeyboardModifier.ShiftModifier)
            QGuiApplication.sendEvent(body.viewport(), event)
        assert clipboard.text(QClipboard.Mode.Selection) == forms_of(body.selected_blocks(), CopyForm.PLAIN)[0]


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
    rows = "\n".join(f"| row {number}<br>of\tmany | نص |" for number in range(400))
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
