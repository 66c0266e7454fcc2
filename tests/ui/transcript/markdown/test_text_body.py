import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QGuiApplication, QTextCursor, QTextTable
from PySide6.QtWidgets import QFileDialog, QLabel
from pytestqt.qtbot import QtBot

from rdchat.chat.storage import WordMatcher
from rdchat.ui.style import Theme
from rdchat.ui.transcript.markdown.decorations import CodeHeader, ScrollBar, file_name
from rdchat.ui.transcript.markdown.parser import PlainParser
from rdchat.ui.transcript.markdown.text_body import FIRST_CHARACTERS, TextBody
from tests.links import click, collected_links
from tests.serving import in_background
from tests.ui.shown_widgets import choose_files, click_on, picture_of, press_key, shown_child, turn_wheel
from tests.ui.transcript.conftest import RICH, body_of, button, draw, new_body

MakeBody = Callable[..., TextBody]


@pytest.fixture
def make_body(qtbot: QtBot, theme: Theme) -> MakeBody:
    """Show a text, 600 pixels wide, and wait until it is drawn and coloured."""

    def make(text: str, width: int = 600) -> TextBody:
        body = body_of(qtbot, theme, text)
        for _ in range(2):
            body.resize(width, body.heightForWidth(width))
        return body

    return make


@pytest.fixture
def opened(qapp: QGuiApplication) -> Iterator[list[str]]:
    """Collect what would be opened in the browser or the mail program."""

    with collected_links() as addresses:
        yield addresses


def test_growing_text_draws_the_same_document_as_the_whole(qtbot: QtBot, theme: Theme) -> None:
    whole = new_body(qtbot, theme)
    grown = new_body(qtbot, theme)
    draw(qtbot, whole, RICH)
    for end in range(0, len(RICH), 3):
        draw(qtbot, grown, RICH[:end], final=False)
    draw(qtbot, grown, RICH)
    assert grown.document().toHtml() == whole.document().toHtml()
    assert grown.heightForWidth(500) == whole.heightForWidth(500)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_growing_text_is_made_safe_wherever_it_is_cut(step: int, qtbot: QtBot, theme: Theme) -> None:
    text = "one\r\ntwo\rthree\r\r\n\nfour\0\ud800\r\n"
    body = new_body(qtbot, theme, PlainParser())
    for end in range(0, len(text), step):
        draw(qtbot, body, text[:end], final=False)
    draw(qtbot, body, text)
    assert body.toPlainText() == "one\ntwo\nthree\n\n\nfour\ufffd\ufffd"


def test_a_web_link_opens_only_after_a_click(make_body: MakeBody, opened: list[str]) -> None:
    body = make_body("See [the page](https://example.org/page).")
    assert opened == []
    click(body, "the page")
    assert opened == ["https://example.org/page"]
    body.anchorClicked.emit(QUrl("file:///etc/passwd"))  # even if one slips in
    assert opened == ["https://example.org/page"]


def test_dangerous_links_are_text_and_say_why(make_body: MakeBody, opened: list[str]) -> None:
    body = make_body("Do [click here](javascript:alert(1)) now.")
    click(body, "click here")
    assert opened == []
    look = body.document().find("click").charFormat()
    assert not look.isAnchor()
    assert look.toolTip() == "Not a link: rdchat opens only web and mail addresses.\njavascript:alert(1)"


def test_a_remote_image_is_never_fetched(make_body: MakeBody) -> None:
    asked: list[str] = []

    class Images(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)

    with in_background(HTTPServer(("127.0.0.1", 0), Images)) as server:
        address = f"http://127.0.0.1:{server.server_port}/cat.png"
        body = make_body(f'![a cat]({address})\n\n<img src="{address}">')
        body.grab()
    assert asked == []
    assert f"a cat ({address})" in body.toPlainText()
    assert f'<img src="{address}">' in body.toPlainText()


def test_code_is_copied_exactly_and_the_button_says_so(
    qtbot: QtBot, make_body: MakeBody, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdchat.ui.style.buttons._COPIED_MS", 10)
    code = "def f():\n\n\treturn 'é👋'  # " + "x" * 5000 + "\n    pass"
    body = make_body(f"Look:\n\n```python\n{code}\n```\n\nDone.")
    copy = button(body, "Copy code")
    click_on(copy)
    assert QGuiApplication.clipboard().text() == code
    assert copy.accessibleName() == "Copied"
    qtbot.waitUntil(lambda: copy.accessibleName() == "Copy code")


def test_a_code_block_after_a_table_stands_below_it(make_body: MakeBody) -> None:
    body = make_body("| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nx = 1\n```\n\n| c |\n|---|\n| 3 |\n\nText")
    tables = [frame for frame in body.document().rootFrame().childFrames() if isinstance(frame, QTextTable)]
    assert len(tables) == 2
    last_cell = tables[0].cellAt(1, 1).firstCursorPosition()
    table_bottom = body.cursorRect(last_cell).bottom()
    assert body.findChild(CodeHeader).y() > table_bottom


def colours(body: TextBody) -> list[list[tuple[int, int, str]]]:
    """Return the coloured parts of each line."""
    block = body.document().begin()
    found = []
    while block.isValid():
        spans = block.layout().formats()
        found.append([(each.start, each.length, each.format.foreground().color().name()) for each in spans])
        block = block.next()
    return found


def test_code_is_coloured_line_by_line_while_it_is_written(qtbot: QtBot, theme: Theme, make_body: MakeBody) -> None:
    code = 'Text\n\n```python\nimport os\n\ndef f():\n    """Some\n    words."""\n    return 1\n```\n'
    whole = colours(make_body(code))
    body = new_body(qtbot, theme)
    for end in range(1, len(code) + 1):
        draw(qtbot, body, code[:end], final=False)
        lines = colours(body)
        complete = max(0, code[:end].count("\n") - 2)  # the fence is no line of the document, nor is the blank line
        assert lines[:complete] == whole[:complete]
    assert whole[1] == [(0, 6, theme.colors.keyword.name())]
    draw(qtbot, body, code)
    assert colours(body) == whole


def test_an_unknown_language_stays_plain(qtbot: QtBot, theme: Theme) -> None:
    body = new_body(qtbot, theme)
    for final in (False, True):
        draw(qtbot, body, "```no-such-language\nimport os\n", final=final)
        assert body.document().find("import").block().layout().formats() == []


@pytest.mark.parametrize(
    ("before", "after", "selected"),
    [
        (
            "First paragraph.\n\nSecond par",
            "First paragraph.\n\nSecond paragraph, **bold**.\n\n```c\nint a;\n```\nEnd",
            "paragraph",
        ),
        ("One two thr", "One two three *four*", "two thr"),
    ],
    ids=["in another block", "in the block that grows"],
)
def test_a_selection_survives_text_that_streams_in(
    qtbot: QtBot, theme: Theme, before: str, after: str, selected: str
) -> None:
    body = new_body(qtbot, theme)
    draw(qtbot, body, before, final=False)
    body.setTextCursor(body.document().find(selected))
    draw(qtbot, body, after, final=False)
    assert body.textCursor().selectedText() == selected


@pytest.mark.parametrize(
    "text",
    [
        "NUL \0 and \ufdd0 structure \ufffc",
        "مرحبا بالعالم\n\nשלום **עולם**",  # noqa: RUF001 - right to left
        "👩‍👩‍👧‍👦 e\u0301 你好 \ud83d",
        "```",
        "| a |\n|---|",
        "```\n" + "x" * 20_000,
        "x" * 100_000,
    ],
    ids=lambda text: ascii(text[:6]),
)
def test_odd_text_is_drawn(make_body: MakeBody, text: str) -> None:
    body = make_body(text)
    assert body.heightForWidth(400) > 0
    body.grab(body.rect() & body.rect().translated(QPoint(0, 2000 - body.height())))


@pytest.mark.slow
def test_of_a_very_long_message_the_first_part_is_shown(qtbot: QtBot, make_body: MakeBody) -> None:
    text = "A paragraph of a very long message.\n\n" * 2500
    body = make_body(text)
    shown = len(text) - body.hidden_characters
    assert 0.4 * FIRST_CHARACTERS < shown < FIRST_CHARACTERS  # its line feeds take room too
    assert body.toPlainText().strip() == text[:shown].replace("\n\n", "\n").strip()
    before = body.heightForWidth(600)
    body.show_more()
    draw(qtbot, body)
    assert body.hidden_characters == 0
    assert body.heightForWidth(600) > before


def test_code_at_the_very_start_has_room_for_its_header(qtbot: QtBot, theme: Theme, make_body: MakeBody) -> None:
    body = make_body("```python\nx = 1\n```\n\nText.")
    copy = button(body, "Copy code")
    top = copy.mapTo(body, QPoint(0, 0)).y()
    line = body.document().documentLayout().blockBoundingRect(body.document().firstBlock())
    assert 0 <= top < top + copy.height() <= line.top()
    streamed = new_body(qtbot, theme)
    for end in range(1, 26):
        streamed.set_text("```python\nx = 1\n```\n\nText."[:end], final=False)
        streamed.take_step(time.perf_counter())
        line = streamed.document().documentLayout().blockBoundingRect(streamed.document().firstBlock())
        for header in streamed.findChildren(CodeHeader):
            assert header.geometry().bottom() <= line.top()
    assert [label.text() for label in streamed.findChildren(QLabel)] == ["Python"]
    streamed.set_text("Plain text.", final=True)
    streamed.take_step(time.perf_counter())
    assert streamed.heightForWidth(600) < streamed.fontMetrics().lineSpacing() * 2  # the room goes with the code


@pytest.mark.parametrize(("first", "second"), [("עברית", "ועוד"), ("شيء", "آخر")])
def test_items_from_right_to_left_have_their_number_on_the_right(make_body: MakeBody, first: str, second: str) -> None:
    """The number was outside, and the first letter cut: Qt mirrors an indentation, but not a margin."""
    body = make_body(f"1. {first} {second}\n   - {second} x\n\n> 2. {first}")
    width = body.document().textWidth()
    layout = body.document().begin().layout().lineAt(0)
    assert layout.x() + layout.width() <= width
    number = layout.cursorToX(0)[0]
    letter = layout.cursorToX(3)[0]
    assert letter < number - 10, "there is a distance between number and text"
    inner = body.document().begin().next().layout().lineAt(0)
    assert inner.cursorToX(2)[0] < letter - 10


def test_the_bar_of_a_quotation_stands_where_its_lines_begin(theme: Theme, make_body: MakeBody) -> None:
    for text, side in (("> English", 0), ("> ציטוט", 1)):
        body = make_body(text)
        image = picture_of(body.viewport())
        x = round(body.document().textWidth()) * side + (-2 if side else 1)
        middle = body.document().documentLayout().blockBoundingRect(body.document().begin()).center().y()
        assert image.pixelColor(x, round(middle)) == theme.colors.border


LINE = "x = " + " + ".join(f"number_{place}" for place in range(40))
WIDE_TABLE = "\n".join(["|" + "|".join(f" column {n} " for n in range(14)) + "|", "|---" * 14 + "|",
                        "|" + "|".join(f" value {n} " for n in range(14)) + "|"])  # fmt: skip


def bars(body: TextBody) -> list[ScrollBar]:
    return sorted((bar for bar in body.findChildren(ScrollBar) if not bar.isHidden()), key=lambda bar: bar.y())


def test_long_code_scrolls_alone_and_the_text_keeps_its_width(make_body: MakeBody) -> None:
    shown = make_body(f"{'word ' * 60}\n\n```python\n{LINE}\n```\n\n{WIDE_TABLE}\n\n| a |\n|---|\n| 1 |")
    code, table = bars(shown)
    assert code.accessibleName() == "Scroll code sideways"
    assert table.accessibleName() == "Scroll table sideways"
    first = shown.document().firstBlock().layout()
    assert first.lineCount() > 1
    assert all(first.lineAt(n).naturalTextWidth() <= 600 for n in range(first.lineCount()))
    assert shown.horizontalScrollBar().maximum() == 0
    before = picture_of(shown)
    code.setValue(code.maximum())
    after = picture_of(shown)
    changed = [
        y for y in range(before.height()) if any(before.pixel(x, y) != after.pixel(x, y) for x in (50, 200, 400))
    ]
    assert changed
    assert all(code.y() - 40 < y < code.y() + code.height() for y in changed)


def test_the_keyboard_the_wheel_and_dragging_scroll_it(qtbot: QtBot, make_body: MakeBody) -> None:
    shown = make_body(f"```\n{LINE}\n```")
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
        assert turn_wheel(shown.viewport(), angle, place) is moved
        assert (bar.value() < before) is moved
    before = bar.value()
    qtbot.mouseClick(bar, Qt.MouseButton.LeftButton, pos=QPoint(2, 5))
    assert bar.value() == max(0, before - bar.pageStep())
    bar.setValue(0)
    qtbot.mousePress(bar, Qt.MouseButton.LeftButton, pos=QPoint(4, 5))
    qtbot.mouseMove(bar, QPoint(bar.width() - 2, 5))
    qtbot.mouseRelease(bar, Qt.MouseButton.LeftButton, pos=QPoint(bar.width() - 2, 5))
    assert bar.value() == bar.maximum()


def test_what_is_scrolled_is_selected_where_it_is_seen(qtbot: QtBot, make_body: MakeBody) -> None:
    shown = make_body(f"```\n{LINE}\n```")
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


def test_a_word_that_is_searched_for_is_scrolled_into_view(make_body: MakeBody) -> None:
    shown = make_body(f"```\n{LINE}\n```")
    (bar,) = bars(shown)
    shown.marks.set_matcher(WordMatcher("number_38"))
    rect = shown.scrolling.bring_into_view(shown.marks.go_to(0))
    assert bar.value() > 0
    assert 0 < rect.left() < rect.right() < 600


def test_long_lines_are_wrapped_on_demand_and_let_run_on_again(qtbot: QtBot, make_body: MakeBody) -> None:
    shown = make_body(f"```python\n{LINE}\n```")
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


def test_code_is_saved_as_it_is_copied(make_body: MakeBody, tmp_path: Path) -> None:
    shown = make_body("```python\ndef f():\n\treturn 'é'\n```")
    click_on(button(shown, "Save code as a file…"))
    assert Path(shown_child(shown, QFileDialog).selectedFiles()[0]).name == "code.py"
    choose_files(shown, tmp_path / "f.py")
    assert (tmp_path / "f.py").read_text(encoding="utf-8") == "def f():\n\treturn 'é'\n"


def test_a_table_grows_with_the_column_and_keeps_short_columns_short(make_body: MakeBody) -> None:
    text = "words " * 30
    shown = make_body(f"| a | b |\n|---|---|\n| 1 | {text}|", 400)
    table = shown._writer.tables[0]
    narrow = table.format().columnWidthConstraints()
    shown.resize(700, shown.heightForWidth(700))
    wide = table.format().columnWidthConstraints()
    assert narrow[0] == wide[0]
    assert narrow[1].rawValue() < wide[1].rawValue() < 700
    assert bars(shown) == []


def test_the_caret_brings_what_it_is_in_into_view(qtbot: QtBot, make_body: MakeBody) -> None:
    shown = make_body(f"```\n{LINE}\n```")
    (bar,) = bars(shown)
    shown.setFocus()
    cursor = shown.textCursor()
    cursor.movePosition(QTextCursor.MoveOperation.End)
    shown.setTextCursor(cursor)
    qtbot.waitUntil(lambda: bar.value() > 0 or not shown.hasFocus())


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "said"), [(40, 0), (60, 1)])
def test_a_table_that_is_too_large_is_rows_of_text_and_says_so_once(
    make_body: MakeBody, columns: int, said: int
) -> None:
    rows = [" x |", "---|", *[" y |"] * 50]
    text = make_body("\n".join("|" + row * columns for row in rows)).toPlainText()
    assert text.count("This table is too large to draw. Its rows:") == said
    assert text.count("y") == 50 * columns
