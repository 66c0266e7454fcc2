"""What is wider than the column scrolls sideways by itself; code is wrapped and saved."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QTextCursor, QWheelEvent
from PySide6.QtWidgets import QApplication, QFileDialog, QMessageBox
from pytestqt.qtbot import QtBot

from rdchat.chat.storage.search_text import WordMatcher
from rdchat.ui.style import Theme
from rdchat.ui.transcript.markdown.decorations import ScrollBar, file_name
from rdchat.ui.transcript.markdown.text_body import TextBody
from tests.ui.shown_widgets import click_on, press_key
from tests.ui.transcript.conftest import button, draw, new_body

Show = Callable[..., TextBody]
LINE = "x = " + " + ".join(f"number_{place}" for place in range(40))
WIDE_TABLE = "\n".join(["|" + "|".join(f" column {n} " for n in range(14)) + "|", "|---" * 14 + "|",
                        "|" + "|".join(f" value {n} " for n in range(14)) + "|"])  # fmt: skip


@pytest.fixture
def body(qtbot: QtBot, theme: Theme) -> Show:
    """Show a text, drawn, 600 pixels wide."""

    def show(text: str, width: int = 600) -> TextBody:
        body = new_body(qtbot, theme)
        draw(qtbot, body, text)
        body.resize(width, body.heightForWidth(width))
        body.resize(width, body.heightForWidth(width))
        body.show()
        qtbot.waitExposed(body)
        return body

    return show


def bars(body: TextBody) -> list[ScrollBar]:
    return sorted((bar for bar in body.findChildren(ScrollBar) if not bar.isHidden()), key=lambda bar: bar.y())


def test_long_code_scrolls_alone_and_the_text_keeps_its_width(body: Show) -> None:
    shown = body(f"{'word ' * 60}\n\n```python\n{LINE}\n```\n\n{WIDE_TABLE}\n\n| a |\n|---|\n| 1 |")
    code, table = bars(shown)
    assert code.accessibleName() == "Scroll code sideways"
    assert table.accessibleName() == "Scroll table sideways"
    first = shown.document().firstBlock().layout()
    assert first.lineCount() > 1
    assert all(first.lineAt(n).naturalTextWidth() <= 600 for n in range(first.lineCount()))
    assert shown.horizontalScrollBar().maximum() == 0
    before = shown.grab().toImage()
    code.setValue(code.maximum())
    after = shown.grab().toImage()
    changed = [
        y for y in range(before.height()) if any(before.pixel(x, y) != after.pixel(x, y) for x in (50, 200, 400))
    ]
    assert changed
    assert all(code.y() - 40 < y < code.y() + code.height() for y in changed)


def test_the_keyboard_the_wheel_and_dragging_scroll_it(qtbot: QtBot, body: Show) -> None:
    shown = body(f"```\n{LINE}\n```")
    (bar,) = bars(shown)
    assert bar.focusPolicy() & Qt.FocusPolicy.TabFocus
    bar.setFocus()
    press_key(bar, "Right")
    assert bar.value() == bar.singleStep()
    press_key(bar, "End")
    assert bar.value() == bar.maximum()
    place = QPointF(100, bar.y() - 10)
    for angle, moved in ((QPoint(0, 120), False), (QPoint(120, 0), True)):
        before = bar.value()
        event = QWheelEvent(place, place, QPoint(), angle, Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier,
                            Qt.ScrollPhase.NoScrollPhase, False)  # fmt: skip
        QApplication.sendEvent(shown.viewport(), event)
        assert (bar.value() < before) is moved
        assert event.isAccepted() is moved
    before = bar.value()
    qtbot.mouseClick(bar, Qt.MouseButton.LeftButton, pos=QPoint(2, 5))
    assert bar.value() == max(0, before - bar.pageStep())
    bar.setValue(0)
    qtbot.mousePress(bar, Qt.MouseButton.LeftButton, pos=QPoint(4, 5))
    qtbot.mouseMove(bar, QPoint(bar.width() - 2, 5))
    qtbot.mouseRelease(bar, Qt.MouseButton.LeftButton, pos=QPoint(bar.width() - 2, 5))
    assert bar.value() == bar.maximum()


def test_what_is_scrolled_is_selected_where_it_is_seen(qtbot: QtBot, body: Show) -> None:
    shown = body(f"```\n{LINE}\n```")
    (bar,) = bars(shown)
    cursor = shown.document().find("number_37")
    cursor.setPosition(cursor.selectionStart() + 3)
    rect = shown.cursorRect(cursor)
    assert rect.x() > 600
    bar.setValue(rect.x() - 300)
    qtbot.mouseDClick(
        shown.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(rect.x() - bar.value(), rect.center().y())
    )
    assert shown.textCursor().selectedText() == "number_37"


def test_a_word_that_is_searched_for_is_scrolled_into_view(body: Show) -> None:
    shown = body(f"```\n{LINE}\n```")
    (bar,) = bars(shown)
    shown.marks.set_matcher(WordMatcher("number_38"))
    rect = shown.scrolling.bring_into_view(shown.marks.go_to(0))
    assert bar.value() > 0
    assert 0 < rect.left() < rect.right() < 600


def test_long_lines_are_wrapped_on_demand_and_let_run_on_again(qtbot: QtBot, body: Show) -> None:
    shown = body(f"```python\n{LINE}\n```")
    low = shown.heightForWidth(600)
    with qtbot.waitSignal(shown.height_changed):
        click_on(button(shown, "Wrap long lines"))
    assert shown.heightForWidth(600) > low
    assert bars(shown) == []
    click_on(button(shown, "Don't wrap long lines"))
    assert shown.heightForWidth(600) == low
    assert len(bars(shown)) == 1


@pytest.mark.parametrize(
    ("language", "code", "name"),
    [
        ("python", "x = 1", "code.py"),
        ("Rust", "fn main() {}", "code.rs"),
        ("haskell", "main = print 1", "code.hs"),
        ("no-such-language", "x", "code.txt"),
        ("", "x", "code.txt"),
        ("dockerfile", "FROM x", "Dockerfile"),
        ("js", "// src/index.mjs\nlet x", "index.mjs"),
        ("html", "<!-- page.html -->\n<p>", "page.html"),
        ("python", "# ../../etc/evil.py\nx", "evil.py"),
        ("python:app/main.py", "x", "main.py"),
    ],
)
def test_a_file_of_code_gets_a_fitting_name(language: str, code: str, name: str) -> None:
    assert file_name(language, code) == name


def test_code_is_saved_as_it_is_copied(body: Show, tmp_path: Path) -> None:
    shown = body("```python\ndef f():\n\treturn 'é'\n```")
    click_on(button(shown, "Save code as a file…"))
    (dialog,) = shown.window().findChildren(QFileDialog)
    assert Path(dialog.selectedFiles()[0]).name == "code.py"
    dialog.fileSelected.emit(str(tmp_path / "f.py"))
    dialog.close()
    assert (tmp_path / "f.py").read_text(encoding="utf-8") == "def f():\n\treturn 'é'\n"


def test_a_file_that_cannot_be_written_is_said(body: Show, tmp_path: Path) -> None:
    shown = body("```python\nx\n```")
    click_on(button(shown, "Save code as a file…"))
    (dialog,) = shown.window().findChildren(QFileDialog)
    dialog.fileSelected.emit(str(tmp_path / "missing" / "f.py"))
    dialog.close()
    (box,) = shown.window().findChildren(QMessageBox)
    assert box.text() == "f.py cannot be written: No such file or directory."
    box.close()


def test_a_table_grows_with_the_column_and_keeps_short_columns_short(body: Show) -> None:
    text = "words " * 30
    shown = body(f"| a | b |\n|---|---|\n| 1 | {text}|", 400)
    table = shown._writer.tables[0]
    narrow = table.format().columnWidthConstraints()
    shown.resize(700, shown.heightForWidth(700))
    wide = table.format().columnWidthConstraints()
    assert narrow[0] == wide[0]
    assert narrow[1].rawValue() < wide[1].rawValue() < 700
    assert bars(shown) == []


def test_the_caret_brings_what_it_is_in_into_view(qtbot: QtBot, body: Show) -> None:
    shown = body(f"```\n{LINE}\n```")
    (bar,) = bars(shown)
    shown.setFocus()
    cursor = shown.textCursor()
    cursor.movePosition(QTextCursor.MoveOperation.End)
    shown.setTextCursor(cursor)
    qtbot.waitUntil(lambda: bar.value() > 0 or not shown.hasFocus())


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "said"), [(40, 0), (60, 1)])
def test_a_table_that_is_too_large_is_rows_of_text_and_says_so_once(body: Show, columns: int, said: int) -> None:
    rows = [" x |", "---|", *[" y |"] * 50]
    text = body("\n".join("|" + row * columns for row in rows)).toPlainText()
    assert text.count("This table is too large to draw. Its rows:") == said
    assert text.count("y") == 50 * columns


@pytest.mark.parametrize("before", [">" * 40 + " ", ">" * 10_000 + " ", "- " * 60, "> - " * 30])
def test_text_deep_in_quotes_and_lists_is_not_lost(body: Show, before: str) -> None:
    shown = body(f"{before}deep text\n\nafter").toPlainText()
    assert "deep text" in shown
    assert "after" in shown
