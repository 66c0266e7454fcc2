import math
from itertools import count
from types import SimpleNamespace

import pytest
from PySide6.QtGui import QColor, QTextDocument
from pytestqt.qtbot import QtBot

from rdchat.ui.style.theme import DARK, LIGHT, Colors
from rdchat.ui.transcript.markdown import code_highlighter
from rdchat.ui.transcript.markdown.code_highlighter import CodeHighlighter


def luminance(color: QColor) -> float:
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color.getRgbF()[:3]]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one: QColor, other: QColor) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colors", [LIGHT, DARK])
def test_every_colour_can_be_read_on_the_ground_of_code(colors: Colors) -> None:
    for name in ("keyword", "name", "builtin", "string", "number", "comment", "inserted", "deleted"):
        assert contrast(getattr(colors, name), colors.code) >= 4.5, name


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
