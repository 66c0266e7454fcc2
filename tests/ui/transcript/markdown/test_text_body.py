import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from PySide6.QtCore import QPoint, Qt, QUrl
from PySide6.QtGui import QGuiApplication, QTextCursor, QTextTable
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from rdchat.ui.style import Theme
from rdchat.ui.transcript.markdown.decorations import CodeHeader
from rdchat.ui.transcript.markdown.parser import PlainParser
from rdchat.ui.transcript.markdown.text_body import FIRST_CHARACTERS, TextBody
from tests.links import click, collected_links
from tests.serving import in_background
from tests.ui.shown_widgets import click_on, press_key
from tests.ui.transcript.conftest import button, draw, new_body
from tests.ui.transcript.samples import RICH

MakeBody = Callable[[str], TextBody]


@pytest.fixture
def make_body(qtbot: QtBot, theme: Theme) -> MakeBody:
    """Show a text and wait until it is drawn and coloured."""

    def make(text: str) -> TextBody:
        body = new_body(qtbot, theme)
        draw(qtbot, body, text)
        body.resize(600, body.heightForWidth(600))
        body.show()
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


@pytest.mark.parametrize("address", ["javascript:alert(1)", "file:///etc/passwd"])
def test_dangerous_links_are_text_and_say_why(make_body: MakeBody, opened: list[str], address: str) -> None:
    body = make_body(f"Do [click here]({address}) now.")
    click(body, "click here")
    assert opened == []
    look = body.document().find("click").charFormat()
    assert not look.isAnchor()
    assert look.toolTip() == f"Not a link: rdchat opens only web and mail addresses.\n{address}"


def test_an_anchor_that_is_no_web_address_is_not_opened_even_if_one_slips_in(
    make_body: MakeBody, opened: list[str]
) -> None:
    body = make_body("x")
    body.anchorClicked.emit(QUrl("file:///etc/passwd"))
    assert opened == []


def test_a_remote_image_is_never_fetched(qtbot: QtBot, make_body: MakeBody) -> None:
    asked: list[str] = []

    class Images(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)

    with in_background(HTTPServer(("127.0.0.1", 0), Images)) as server:
        address = f"http://127.0.0.1:{server.server_port}/cat.png"
        body = make_body(f'![a cat]({address})\n\n<img src="{address}">')
        qtbot.waitExposed(body)
        body.grab()
    assert asked == []
    assert f"a cat ({address})" in body.toPlainText()
    assert f'<img src="{address}">' in body.toPlainText()


def test_code_is_copied_exactly_and_the_button_says_so(qtbot: QtBot, make_body: MakeBody) -> None:
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


def test_an_unknown_language_stays_plain(make_body: MakeBody) -> None:
    body = make_body("```no-such-language\nimport os\n```")
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


def test_text_is_selected_and_copied_with_the_keyboard(make_body: MakeBody) -> None:
    body = make_body("- one\n- two")
    body.setFocus()
    body.moveCursor(QTextCursor.MoveOperation.Start)
    press_key(body, "Ctrl+Shift+End")
    press_key(body, "Ctrl+C")
    assert QGuiApplication.clipboard().text() == "• one\n• two"
    assert not QGuiApplication.clipboard().mimeData().hasHtml()


@pytest.mark.parametrize(
    "text",
    [
        "NUL \0 and \ufdd0 structure \ufffc",
        "مرحبا بالعالم\n\nשלום **עולם**",  # noqa: RUF001 - right to left
        "👩‍👩‍👧‍👦 e\u0301 你好 \ud83d",
        "> " * 10_000,
        "[" * 10_000,
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


def test_dark_and_larger_text_restyle_what_is_shown(qtbot: QtBot, theme: Theme, make_body: MakeBody) -> None:
    body = make_body("Some text.\n\n```python\nimport os\n```")
    height = body.heightForWidth(600)
    theme.set_text_size(20)
    theme.set_scheme(Qt.ColorScheme.Dark)
    body.restyle()
    draw(qtbot, body)
    assert body.heightForWidth(600) > height
    assert body.document().find("Some").charFormat().foreground().color() == theme.colors.text
    assert body.document().find("import").block().layout().formats()


def test_code_at_the_very_start_has_room_for_its_header(qtbot: QtBot, theme: Theme, make_body: MakeBody) -> None:
    body = make_body("```python\nx = 1\n```\n\nText.")
    copy = button(body, "Copy code")
    top = copy.mapTo(body, QPoint(0, 0)).y()
    assert (
        0
        <= top
        < top + copy.height()
        <= body.document().documentLayout().blockBoundingRect(body.document().firstBlock()).top()
    )
    streamed = new_body(qtbot, theme)
    for end in range(1, 26):
        streamed.set_text("```python\nx = 1\n```\n\nText."[:end], final=False)
        streamed.take_step(time.perf_counter())
    streamed.set_text("Plain text.", final=True)
    streamed.take_step(time.perf_counter())
    assert streamed.heightForWidth(600) < streamed.fontMetrics().lineSpacing() * 2  # the room goes with the code


def test_the_language_of_code_is_named_as_soon_as_it_is_known(qtbot: QtBot, theme: Theme) -> None:
    text = "```python\nx = 1\n"
    body = new_body(qtbot, theme)
    for end in range(1, len(text) + 1):
        body.set_text(text[:end], final=False)
        body.take_step(time.perf_counter())
    assert [label.text() for label in body.findChildren(QLabel)] == ["Python"]


def first_letter(body: TextBody, text: str) -> float:
    """Return where the text is, from the left, of the caret before a text."""
    cursor = body.document().find(text)
    cursor.setPosition(cursor.selectionStart())
    return body.cursorRect(cursor).left()


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
        image = body.viewport().grab().toImage()
        x = round(body.document().textWidth()) * side + (-2 if side else 1)
        middle = body.document().documentLayout().blockBoundingRect(body.document().begin()).center().y()
        assert image.pixelColor(x, round(middle)) == theme.colors.border
