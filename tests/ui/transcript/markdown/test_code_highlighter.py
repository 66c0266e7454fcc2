import math
import threading
import time
import weakref
from itertools import count
from types import SimpleNamespace

import pytest
from PySide6.QtGui import QTextDocument
from pytestqt.qtbot import QtBot

from rdchat.chat.rendering.code_colours import READER
from rdchat.ui.style import Theme
from rdchat.ui.style.theme import LIGHT
from rdchat.ui.transcript.markdown import code_highlighter
from rdchat.ui.transcript.markdown.code_highlighter import CodeHighlighter
from tests.ui.transcript.conftest import draw, new_body


def coloured(qtbot: QtBot, language: str, code: str) -> dict[str, str]:
    """Return the colours of the words of a code text."""
    document = QTextDocument(code)
    highlighter = CodeHighlighter(document)
    highlighter.add_code(0, language, document.begin(), code.split("\n"))

    def work() -> bool:
        highlighter.colour_lines(LIGHT, math.inf)
        return not highlighter.pending

    qtbot.waitUntil(work)
    found = {}
    block = document.begin()
    while block.isValid():
        for span in block.layout().formats():
            word = block.text().encode("utf-16-le")[2 * span.start : 2 * (span.start + span.length)].decode("utf-16-le")
            found[word] = span.format.foreground().color().name()
        block = block.next()
    return found


def test_places_count_characters_outside_of_the_basic_plane_as_qt_does(qtbot: QtBot) -> None:
    found = coloured(qtbot, "python", "x = '👋👋'; import os\nreturn 1")
    assert found["import"] == LIGHT.keyword.name()
    assert found["return"] == LIGHT.keyword.name()
    assert found["1"] == LIGHT.number.name()


def test_strings_over_several_lines_are_coloured_on_each(qtbot: QtBot) -> None:
    found = coloured(qtbot, "python", 'def f():\n    """one\n    two"""')
    assert found['    two"""'] == LIGHT.string.name()


def test_much_code_is_coloured_in_short_steps(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()  # each look at it finds it one second on
    monkeypatch.setattr(code_highlighter, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    document = QTextDocument("\n".join(["x = [1, 'two', None]  # three"] * 1000))
    highlighter = CodeHighlighter(document)
    highlighter.add_code(0, "python", document.begin(), document.toPlainText().split("\n"))
    qtbot.waitUntil(lambda: highlighter.colour_lines(LIGHT, next(clock)))
    steps = 1
    while highlighter.pending:
        highlighter.colour_lines(LIGHT, next(clock) + 100)
        steps += 1
    assert steps == 11


def test_an_overlong_line_is_left_alone() -> None:
    document = QTextDocument("x" * 5000)
    highlighter = CodeHighlighter(document)
    highlighter.add_code(0, "python", document.begin(), [document.toPlainText()])
    assert not highlighter.pending


def test_code_that_takes_too_long_keeps_its_colours_and_the_next_is_coloured(qtbot: QtBot) -> None:
    """One match of Pygments held Python's lock, so that the window stood still until it was killed."""
    document = QTextDocument('val x = 1\n"' + "\\" * 80 + "!\nimport os")
    lines = document.toPlainText().split("\n")
    highlighter = CodeHighlighter(document)

    def show() -> None:
        qtbot.waitUntil(lambda: not (highlighter.colour_lines(LIGHT, math.inf) or highlighter.pending))

    highlighter.grow(0, "scala", document.begin(), lambda begin: lines[begin:1])
    show()
    before = len(document.begin().layout().formats())
    highlighter.grow(0, "scala", document.begin(), lambda begin: lines[begin:2])
    highlighter.add_code(1, "python", document.lastBlock(), lines[2:])
    show()
    highlighter.add_code(0, "scala", document.begin(), lines[:2])
    show()
    assert before == len(document.begin().layout().formats()) == 2
    assert document.lastBlock().layout().formats()


def test_code_that_is_not_shown_any_more_is_not_read() -> None:
    document = QTextDocument("x = 1")
    highlighter = CodeHighlighter(document)
    busy = threading.Event()
    before = READER.ask("python", busy.wait)
    highlighter.add_code(0, "python", document.begin(), ["x = 1"])
    job = weakref.ref(highlighter._codes[0].job)
    highlighter.clear()
    assert job() is None
    busy.set()
    assert before.result()


def test_colours_of_complete_code_stay_while_the_reply_goes_on(qtbot: QtBot, theme: Theme) -> None:
    body = new_body(qtbot, theme)
    text = "```python\nimport os\n```\n\nThen:\n\n```scala\nval x = 1\n```\n\n"
    draw(qtbot, body, text, final=False)
    shown = formats_of(body.document())
    assert any(shown)
    for more in (
        "```javascript\n",
        "const x = 1;\n",
        "/* a\n",
        "*/\n",
        "```\n",
        '```scala\n"' + "\\" * 80 + "!\n```\n",
    ):
        text += more
        body.set_text(text, False)
        for _ in range(20):
            body.take_step(time.perf_counter() + 0.01)
            assert formats_of(body.document())[: len(shown)] == shown
    draw(qtbot, body, text)
    assert formats_of(body.document())[: len(shown)] == shown


def formats_of(document: QTextDocument) -> list[list[tuple[int, int, str]]]:
    """Return the colours of each block but the last, which may be empty."""
    blocks = [document.findBlockByNumber(number) for number in range(document.blockCount() - 1)]
    spans = [block.layout().formats() for block in blocks]
    return [[(span.start, span.length, span.format.foreground().color().name()) for span in each] for each in spans]
