"""The examples of CommonMark and cmark-gfm, and cmark's pathological cases, in the transcript: no text is lost."""

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat.ui.style import Theme
from rdchat.ui.transcript.markdown.copying import as_markdown, as_plain
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from rdchat.ui.transcript.markdown.text_body import TextBody
from tests.conformance.markdown import (
    MOST_OF_A_STEP,
    all_blocks,
    examples,
    is_bounded,
    lost_examples,
    missing,
    pathological,
    read,
    shown,
)
from tests.ui.transcript.conftest import draw, highlighted


def test_no_text_of_an_example_is_lost() -> None:
    assert len(examples()) == 1398
    assert lost_examples() == []


@pytest.mark.parametrize("scale", [0.02, pytest.param(1, marks=pytest.mark.slow)])
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
        for piece in (1, 7):
            parts, steps = read(example.markdown, piece)
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
