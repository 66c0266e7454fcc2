import math
from itertools import count
from types import SimpleNamespace

import pytest
from PySide6.QtGui import QTextDocument
from pytestqt.qtbot import QtBot

from rdchat.ui.style.theme import LIGHT
from rdchat.ui.transcript.markdown import code_highlighter
from rdchat.ui.transcript.markdown.code_highlighter import CodeHighlighter, GrowingCode, Line, lines_of
from tests.grids import grid


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


SAMPLES = {
    "python": 'def f(x):\n    """A text\n    over lines\n    """\n    return [x, "y"]  # z\nclass A:\n    b = f\'{1}\'',
    "javascript": "/** A\n * return of\n * a/b\n */\nfunction f(x) {\n  const y = `a\n${x} b`;\n  return /x*/ // z\n}",
    "java": "/*\n * for if\n */\nclass A {\n  int x = 1; /* y */\n  String s = \"/*\";\n  int z;\n}",
    "c": "#include <x.h>\n/* one\n two */\nint main(void) {\n  return 0;\n}",
    "html": "<!-- one\ntwo -->\n<p class=\"a\">\n  text\n</p>",
    "css": "/* one\n   two */\na { color: red; }\nb { top: 1px }",
    "sql": "SELECT a -- b\nFROM c\n/* one\n two */ WHERE d = 'e'",
    "rust": 'fn f() {\n    /* one\n    two */\n    let s = "a\nb";\n}',
    "bash": "ls /tmp/* /var/*\nfor x in 1 2; do\n  echo \"$x\n\"\ndone",
    "json": '{\n  "a": [1, 2],\n  "b": null\n}',
    "go": "package a\n\n// one\nfunc f() int {\n\treturn 1\n}",
}  # fmt: skip


def grown(language: str, code: str) -> list[Line]:
    growing = GrowingCode(language)
    shown = list[Line]()
    for line in code.split("\n"):
        begin, lines = growing.read_lines([line])
        shown[begin:] = lines
    return shown


@pytest.mark.parametrize("language", SAMPLES)
def test_lines_are_coloured_as_they_come_as_in_the_whole_code(language: str) -> None:
    code = SAMPLES[language]
    assert grown(language, code) == lines_of(language, code)


@pytest.mark.parametrize("language", ["javascript", "java", "c", "html", "css", "sql"])
def test_a_comment_is_one_before_its_end_is_written(language: str) -> None:
    growing = GrowingCode(language)
    opening = "<!-- while" if language == "html" else "/* while"
    growing.read_lines([opening])
    begin, lines = growing.read_lines(["for return"])
    assert {part[2] for line in lines for part in line} == {"comment"}
    assert begin + len(lines) == 2


@pytest.mark.parametrize(
    ("language", "line"),
    grid(["python", "javascript", "java", "c", "json", "yaml", "html"], ["x = 'two'", '"""', "/*", "a: b", "<!--"]),
)
def test_each_line_costs_the_same(language: str, line: str) -> None:
    growing = GrowingCode(language)
    read = 0
    for _ in range(600):
        begin, lines = growing.read_lines([line])
        read = max(read, len(lines))
        assert begin >= 0
    assert read <= 202  # lines are read again up to a bound
