"""The examples of CommonMark and cmark-gfm, and cmark's pathological cases, in the transcript: no text is lost."""

import json
import lzma
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from html.parser import HTMLParser
from itertools import count, islice
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat.ui.style import Theme
from rdchat.ui.transcript.markdown.block_stream import BlockStream
from rdchat.ui.transcript.markdown.blocks import Block, Kind, Run, safe_text
from rdchat.ui.transcript.markdown.copying import as_markdown, as_plain, blocks_of
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from rdchat.ui.transcript.markdown.text_body import TextBody
from tests.ui.transcript.conftest import draw, highlighted


def test_no_text_of_an_example_is_lost() -> None:
    assert len(examples()) == 1398
    assert lost_examples() == []


@pytest.mark.parametrize("scale", [0.01, pytest.param(1, marks=pytest.mark.slow)])
def test_pathological_cases_take_bounded_work_and_keep_their_text(scale: float) -> None:
    for name, text, rest in pathological(scale):
        parts, steps = read(text)
        assert missing(rest, as_plain(parts)) == "", name
        assert is_bounded(text, steps), name


@pytest.mark.slow
def test_no_text_of_an_example_is_lost_in_a_copy_as_markdown() -> None:
    copied = ((each, as_markdown(all_blocks(each.markdown))) for each in examples())
    assert [each.name for each, copy in copied if missing(each.wanted, shown(all_blocks(copy)))] == []


@pytest.mark.slow
def test_examples_that_come_in_pieces_are_the_same() -> None:
    for example in examples():
        parts, steps = read(example.markdown, 1 if example.number % 2 else 7)
        assert parts == all_blocks(example.markdown), example.name
        assert max(steps) < MOST_OF_A_STEP, example.name


@pytest.mark.slow
def test_the_window_shows_all_text_of_examples_and_of_pathological_cases(qtbot: QtBot, qapp: QApplication) -> None:
    theme = Theme(qapp)
    body = TextBody(MarkdownParser(), theme)
    qtbot.addWidget(body)
    texts = [(each.name, each.markdown) for each in examples()]
    for name, text in [*texts, *((name, text[:10_000]) for name, text, _ in pathological())]:
        body.set_text(text, final=True)
        while body.hidden_characters:
            body.show_more()
        draw(qtbot, body)
        body.resize(600, body.heightForWidth(600))
        body.selectAll()
        assert missing(as_plain(all_blocks(text)), highlighted(body.textCursor())) == "", name
    theme.deleteLater()


_EXAMPLES = Path(__file__).parent / "data" / "markdown-examples.jsonl.xz"
# The HTML of these has other letters: a script holds the tags of a list; footnotes are numbered, and stand at the end.
_OF_MARKDOWN = {"cmark regression 14", "cmark-gfm extensions 23"}
_TOOL = sys.monitoring.PROFILER_ID
# One for all texts, as a window has it: to make one takes as long as to read an example.
_parser = cache(MarkdownParser)


@dataclass(frozen=True, slots=True)
class Example:
    """An example of a specification: its file and number there, what it is about, its Markdown and its HTML."""

    file: str
    number: int
    section: str
    markdown: str
    html: str
    extensions: str = ""

    @property
    def name(self) -> str:
        """Its file and number."""
        return f"{self.file} {self.number}"

    @property
    def wanted(self) -> str:
        """The text that must be shown."""
        return self.markdown if self.name in _OF_MARKDOWN else _html_text(self.html)


def examples() -> list[Example]:
    with lzma.open(_EXAMPLES, "rt", encoding="utf-8", newline="\n") as lines:
        return [Example(**json.loads(line)) for line in lines]


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # An image is shown as its text.
        self.parts += [value or "" for name, value in attrs if tag == "img" and name == "alt"]


def _html_text(html: str) -> str:
    """Return the text of HTML, with that of images."""
    parser = _Text()
    parser.feed(html)
    parser.close()
    return "".join(parser.parts)


def letters(text: str) -> str:
    """Return the letters and digits of a text."""
    return "".join(character for character in text if character.isalnum())


def missing(wanted: str, shown: str) -> str:
    """Return the letters and digits of a text, from the first on that another one lacks; both have one order."""
    rest = letters(wanted)
    given = iter(letters(shown))
    return next((rest[at:] for at, letter in enumerate(rest) if letter not in given), "")


def all_blocks(text: str) -> list[Block]:
    """Return the blocks of a text."""
    return blocks_of(text, _parser())


def shown(blocks: Iterable[Block]) -> str:
    """Return the visible text of blocks; the language of code stands above it."""
    lines: list[Block] = []
    for block in blocks:
        lines += [Block(Kind.TEXT, (Run(block.language),))] if block.language and not block.tight else []
        lines.append(block)
    return as_plain(lines)


def lost_examples() -> list[str]:
    """Return the names of the examples of which the transcript lacks a letter."""
    return [each.name for each in examples() if missing(each.wanted, shown(all_blocks(each.markdown)))]


def pathological(scale: float = 1) -> Iterator[tuple[str, str, str]]:
    """Yield cmark's and cmark-gfm's pathological cases in a share of cmark's size: name, text, and what is shown of it.

    Shown are all letters but those of link definitions and of addresses behind a text.
    """

    def times(text: str, number: int) -> str:
        return text * max(1, round(number * scale))

    root = scale**0.5
    for name, text in {
        "nested strong emph": times("*a **a ", 32_500) + "b" + times(" a** a*", 32_500),
        "many emph closers with no openers": times("a_ ", 32_500),
        "many emph openers with no closers": times("_a ", 32_500),
        "many link closers with no openers": times("a]", 32_500),
        "many link openers with no closers": times("[a", 32_500),
        "mismatched openers and closers": times("*a_ ", 25_000),
        "issue 389": times("*a ", 20_000) + times("_a*_ ", 20_000),
        "openers and closers multiple of 3": "a**b" + times("c* ", 25_000),
        "link openers and emph closers": times("[ a_", 25_000),
        "pattern [ (]( repeated": times("[ (](", 40_000),
        "pattern ![[]() repeated": times("![[]()", 160_000),
        "nested brackets": times("[", 25_000) + "a" + times("]", 25_000),
        "nested block quotes": times("> ", 25_000) + "a",
        "deeply nested lists": "".join("  " * depth + "* a\n" for depth in range(round(500 * root))),
        "U+0000 in input": "abc\0de\0",
        "backticks": "".join("e" + "`" * length for length in range(1, round(2500 * root))),
        "unclosed links A": times("[a](<b", 30_000),
        "unclosed links B": times("[a](b", 30_000),
        "unclosed <!--": "</" + times("<!--", 300_000),
        "empty lines in deeply nested lists": times("- ", 30_000) + "x" + times("\n", 30_000),
        "empty lines in nested lists in a quote": "> " + times("- ", 30_000) + "x\n" + times(">\n", 30_000),
        "emph in deep blockquote": times(">", 100_000) + times("a*", 100_000),
        "nested inlines": times("*", 20_000) + "a" + times("*", 20_000),
        "tables": times("aaa\rbbb\n-\v\n", 30_000),
    }.items():
        yield name, text, text
    yield "hard link/emph case", "**x [a*b**c*](d)", "xabc"
    # A step copies all definitions that it knows: of these two, a quarter of cmark's takes a tenth of the time.
    definitions = "".join(f"[{n}]: u\n" for n in range(round(min(80_000 * scale, 20_000))))
    uses = times("[0] ", 5000)
    yield "many references", definitions + uses, uses
    key, *others = islice(_colliding(), max(2, round(min(25_000 * scale, 6000))))
    yield "reference collisions", "".join(f"[{other}]: /url\n\n[{key}]\n\n" for other in others), key * len(others)


def _colliding() -> Iterator[str]:
    """Yield names that had one hash in cmark, of sixteen."""
    for number in count():
        total = 0
        for letter in (name := f"x{number}"):
            total = (ord(letter) + (total << 6) + (total << 16) - total) & 0xFFFFFFFF
        if total % 16 == 0:
            yield name


@contextmanager
def counted_work() -> Iterator[Callable[[], int]]:
    """Yield what tells Python's calls and jumps until now: a measure of work that knows no clock."""
    count = lru_cache(0)("".format)  # it takes any arguments, and C counts its misses, which are all calls
    events = sys.monitoring.events
    sys.monitoring.use_tool_id(_TOOL, "work")
    for event in (events.PY_START, events.PY_RESUME, events.JUMP):
        sys.monitoring.register_callback(_TOOL, event, count)
    sys.monitoring.set_events(_TOOL, events.PY_START | events.PY_RESUME | events.JUMP)
    try:
        yield lambda: count.cache_info().misses
    finally:
        sys.monitoring.set_events(_TOOL, 0)
        sys.monitoring.free_tool_id(_TOOL)


MOST_OF_A_STEP = 400_000
MOST_OF_A_CHARACTER = 60
"""Limits of work: of one step, some 15 ms, and of all steps for each character beside one step."""


def is_bounded(text: str, steps: Sequence[int]) -> bool:
    """Tell whether the work of each step and of all steps has its limit."""
    return max(steps) < MOST_OF_A_STEP and sum(steps) < MOST_OF_A_STEP + MOST_OF_A_CHARACTER * len(text)


def read(text: str, piece: int | None = None) -> tuple[list[Block], list[int]]:
    """Return the blocks of a text, and the work of each step.

    Args:
        text: The whole text.
        piece: How many characters come at once, as in a reply; None for all.
    """
    stream = BlockStream(_parser())
    blocks = list[Block]()
    steps = list[int]()
    safe = safe_text(text)
    ends = [*range(piece, len(safe), piece), len(safe)] if piece else [len(safe)]
    with counted_work() as work:  # to begin and to end it takes longer than a step
        for end in ends:
            more = True
            while more:
                before = work()
                update = stream.advance(safe[:end], end == len(safe))
                steps.append(work() - before)
                blocks[update.first :] = update.blocks
                more = update.more
    return blocks, steps
