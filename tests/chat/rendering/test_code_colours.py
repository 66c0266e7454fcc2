"""Colours of code: as Pygments finds them, within limits, whatever the code is, and also after a kill."""

import os
import signal
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from pygments.lexers import get_all_lexers

from rdchat import host
from rdchat.chat.rendering import code_colours, lexers_child
from rdchat.chat.rendering.code_colours import COLORS, CodeReader, GrowingCode, Line, lines_of
from rdchat.work import CancelledError
from tests.grids import grid, share
from tests.growth import SHAPES, repeated
from tests.time_limits import at_most

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
# Patterns with exponential time, and one with quadratic time.
SLOW = {
    "scala": '"' + "\\" * 80 + "!",
    "fish": '"' + "\\" * 80 + "!",
    "smithy": '"' + "\\" * 120 + "!",
    "autoit": "\n".join([" " * 1900] * 90) + "!",
    "csharp": "a\n" * 4999,
}


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[CodeReader]:
    """A reader of its own, with the child that is to be killed."""
    own = CodeReader()
    monkeypatch.setattr(code_colours, "READER", own)
    monkeypatch.setattr(code_colours, "_SECONDS", 0.2)
    yield own
    own.child.close()
    own._slow_child.close()


def read_grown(language: str, code: str) -> list[Line]:
    growing = GrowingCode(language)
    shown = list[Line]()
    for line in code.split("\n"):
        found = growing.read_lines([line])
        assert found
        shown[found[0] :] = found[1]
    return shown


@pytest.mark.parametrize("language", SAMPLES)
def test_lines_are_coloured_as_they_come_as_in_the_whole_code(language: str) -> None:
    code = SAMPLES[language]
    assert read_grown(language, code) == lines_of(language, code)
    assert any(lines_of(language, code))


@pytest.mark.parametrize("language", ["javascript", "java", "c", "html", "css", "sql"])
def test_a_comment_is_one_before_its_end_is_written(language: str) -> None:
    growing = GrowingCode(language)
    growing.read_lines(["<!-- while" if language == "html" else "/* while"])
    begin, lines = growing.read_lines(["for return", ""]) or (0, [])
    assert lines[-2:] == [[(0, 10, "comment")], []]
    assert begin + len(lines) == 3


@pytest.mark.parametrize(
    ("language", "line"),
    grid(["python", "javascript", "java", "c", "json", "yaml", "html"], ["x = 'two'", '"""', "/*", "a: b", "<!--"]),
)
def test_each_line_costs_the_same(language: str, line: str) -> None:
    growing = GrowingCode(language)
    read = 0
    for _ in range(600):
        begin, lines = growing.read_lines([line]) or (-1, [])
        read = max(read, len(lines))
        assert begin >= 0
    assert read <= 202  # lines are read again up to a bound


def test_an_unknown_language_has_no_colours() -> None:
    assert lines_of("no such language", "x = 1\ny") == []
    assert GrowingCode("no such language").read_lines(["x = 1"]) == (0, [])


def test_the_colours_are_those_of_the_theme() -> None:
    assert set(lexers_child._COLORS) == COLORS


@pytest.mark.parametrize("language", share(SLOW))
def test_code_that_takes_too_long_stays_plain_and_the_child_lives(language: str, reader: CodeReader) -> None:
    assert lines_of("python", "import os")
    child = reader.child.pid
    with at_most(60):
        assert lines_of(language, SLOW[language]) == []
    assert reader.child.pid == child
    assert lines_of("python", "import os") == [[(0, 6, "keyword")]]


def test_growing_code_that_takes_too_long_stays_plain(reader: CodeReader) -> None:
    growing = GrowingCode("scala")
    assert growing.read_lines(["val x = 1"])
    assert growing.read_lines([SLOW["scala"]]) is None


def test_nothing_waits_for_languages_that_take_too_long(reader: CodeReader) -> None:
    read = list[str]()

    def read_code(language: str, code: str) -> None:
        lines_of(language, code)
        read.append(language)

    slow = [reader.ask("scala", lambda: read_code("scala", SLOW["scala"])) for _ in range(8)]
    quick = [reader.ask("python", lambda: read_code("python", "x = 1")) for _ in range(8)]
    for job in (*quick, *slow):
        job.result()
    assert read.index("python") < 4
    assert read.count("scala") == 8


def test_code_that_nobody_waits_for_is_not_read(reader: CodeReader) -> None:
    read = list[int]()
    first = reader.ask("scala", lambda: lines_of("scala", SLOW["scala"]))
    dropped = weakref.ref(reader.ask("python", lambda: read.append(1)))
    reader.ask("python", lambda: read.append(2)).result()
    assert first.result() == []
    assert dropped() is None
    assert read == [2]


def test_a_job_that_was_cancelled_is_not_done(reader: CodeReader) -> None:
    first = reader.ask("scala", lambda: lines_of("scala", SLOW["scala"]))
    second = reader.ask("python", lambda: lines_of("python", "x"))
    second.cancel()
    with pytest.raises(CancelledError):
        second.result()
    assert first.result() == []


@pytest.mark.parametrize("language", share(["python", "javascript", "html"]))
def test_a_kill_of_the_child_loses_nothing(language: str, reader: CodeReader) -> None:
    growing = GrowingCode(language)
    shown = list[Line]()
    for line in SAMPLES[language].split("\n"):
        begin, lines = growing.read_lines([line]) or (-1, [])
        shown[begin:] = lines
        if line.startswith((" * return", "    over", "two")):
            assert reader.child.pid
            os.kill(reader.child.pid, signal.SIGKILL)
    assert shown == lines_of(language, SAMPLES[language])


# Ends itself as the system would, at its first request of all.
_KILLED = """
import os, signal, sys
from pathlib import Path
from rdchat.work.served import serve

def read(job, language, lines, stack, seconds):
    if not Path(sys.argv[1]).exists():
        Path(sys.argv[1]).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return [[[0, 1, "name"]]], 1, ["root"], ""

serve({"read": read})
"""


def test_code_is_read_again_when_the_child_was_killed_over_it(
    reader: CodeReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "child_command", lambda _name: [sys.executable, "-c", _KILLED, str(tmp_path / "seen")])
    assert lines_of("python", "x") == [[(0, 1, "name")]]


@pytest.mark.parametrize(
    "answer",
    [
        "[[[0, 1, 'name']]], 2, [], ''",
        "[[[0, 2, 'name']]], 1, [], ''",
        "[[[-1, 2, 'name']]], 1, [], ''",
        "[[[0, 1, 'background']]], 1, [], ''",
        "[[], []], 1, [], ''",
        "[[[0, 1]]], 1, [], ''",
        "[[[0, 1, 'name']]], 1",
    ],
)
def test_an_answer_that_is_not_valid_colours_nothing(
    answer: str, reader: CodeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"from rdchat.work.served import serve\nserve({{'read': lambda job, **_: ({answer})}})"
    monkeypatch.setattr(host, "child_command", lambda _name: [sys.executable, "-c", script])
    assert lines_of("python", "x") == []
    assert reader.child.pid is None


# An eighth of the lexers; all where everything hostile is asked for.
PARTS = range(8) if os.environ.get("HOSTILE") == "all" else (0,)
BACKSLASHES = repeated("\\", '"', "!")


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("part", PARTS)
def test_each_lexer_ends_with_each_text(part: int, reader: CodeReader) -> None:
    """Within the limits, and then another language is coloured at once."""
    aliases = [aliases[0] for _, aliases, _, _ in get_all_lexers(plugins=False) if aliases]
    for language in sorted(aliases)[part::8]:
        for make in (*SHAPES.values(), BACKSLASHES):
            with at_most(60):
                growing = GrowingCode(language)
                growing.read_lines(make(160).split("\n"))
                lines_of(language, make(2000))
    child = reader.child.pid
    assert lines_of("python", "import os") == [[(0, 6, "keyword")]]
    assert reader.child.pid == child
