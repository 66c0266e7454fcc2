"""The height of the fields that are as high as their text."""

from collections.abc import Callable, Iterator
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QCoreApplication, QMimeData
from PySide6.QtGui import QFontMetricsF, QInputMethodEvent, QTextLayout, QTextOption
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat.ui.conversation.composer import Composer
from rdchat.ui.style import Theme
from rdchat.ui.transcript.message_parts import PromptField

LOWEST = 1
HIGHEST = 8
MOST_FITS = 8  # of one change; without a limit it is called until the stack ends

words = st.lists(st.sampled_from(["a", "word", "sentence", "x" * 90, "ein", "日本語", "\n", "\n\n"]), max_size=130)
texts = words.map(" ".join)
numbers = st.integers(0, 130).map(lambda count: "Question 756164 " + "word " * count)
step = st.one_of(
    st.tuples(st.sampled_from(["set", "append", "paste", "type"]), st.one_of(texts, numbers)),
    st.tuples(st.just("width"), st.sampled_from([300, 480, 719, 720, 721, 900, 1280])),
    st.tuples(st.sampled_from(["undo", "redo", "remove"]), st.none()),
)


class Fits:
    """Counts the calls of `PromptField._fit`."""

    def __init__(self) -> None:
        self.calls = 0
        self.depth = 0
        self.deepest = 0

    def around(self, fit: Callable[[PromptField], None]) -> Callable[[PromptField], None]:
        def counted(field: PromptField) -> None:
            self.calls = self.calls + 1
            self.depth = self.depth + 1
            self.deepest = max(self.deepest, self.depth)
            if self.depth < MOST_FITS:
                fit(field)
            self.depth -= 1

        return counted


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fits]:
    fits = Fits()
    monkeypatch.setattr(PromptField, "_fit", fits.around(PromptField._fit))
    return fits


@pytest.fixture
def composer(fits: Fits, qtbot: QtBot, theme: Theme) -> Composer:
    composer = Composer(theme)
    qtbot.addWidget(composer)
    composer.resize(720, 400)
    composer.show()
    qtbot.waitExposed(composer)
    return composer


def lines_of(text: str, width: float, field: PromptField) -> int:
    """Return the lines of a text at a width, laid out without a document."""
    count = 0
    for paragraph in text.split("\n"):
        layout = QTextLayout(paragraph, field.font())
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        layout.setTextOption(option)
        layout.beginLayout()
        while (line := layout.createLine()).isValid():
            line.setLineWidth(width)
        layout.endLayout()
        count += max(layout.lineCount(), 1)
    return count


def assert_fitted(field: PromptField) -> None:
    margin = field.document().documentMargin()
    lines = lines_of(field.toPlainText(), field.width() - 2 * margin, field)
    shown = min(max(lines, LOWEST), HIGHEST)
    assert field.height() == ceil(shown * QFontMetricsF(field.font()).lineSpacing() + 2 * margin) + 2
    assert field.verticalScrollBar().isVisible() == (lines > HIGHEST)


def change(composer: Composer, what: str, value: str | int | None) -> None:
    field = composer.field
    match what, value:
        case "set", str(text):
            composer.set_text(text)
        case "append", str(text):
            composer.add_text(text)
        case "paste", str(text):
            data = QMimeData()
            data.setText(text)
            field.insertFromMimeData(data)
        case "type", str(text):
            field.textCursor().insertText(text[:5])
        case "width", int(width):
            composer.resize(width, 400)
            QCoreApplication.sendPostedEvents()
        case "remove", _:
            field.textCursor().deletePreviousChar()
        case _:
            getattr(field, what)()


def settle() -> None:
    """Let a text of several lines get the whole width, or lose it again, and then its height."""
    for _ in range(5):
        QApplication.processEvents()


@settings(max_examples=150)
@given(steps=st.lists(step, min_size=1, max_size=8))
def test_the_field_is_as_high_as_its_text_at_once(composer: Composer, fits: Fits, steps: list[tuple[str, str]]) -> None:
    composer.set_text("")
    settle()
    for what, value in steps:
        fits.calls = 0
        fits.deepest = 0
        change(composer, what, value)
        assert_fitted(composer.field)
        settle()
        assert_fitted(composer.field)
        assert fits.deepest <= 1
        assert fits.calls <= MOST_FITS


def test_a_text_that_was_appended_to_another_does_not_fit_the_field_without_end(composer: Composer, fits: Fits) -> None:
    for more in range(30, 80):
        composer.set_text("Question 756164 " + "word " * 50)
        composer.add_text("Question 84890 " + "word " * more)
    assert fits.deepest == 1


def test_the_field_grows_with_what_an_input_method_composes(composer: Composer) -> None:
    composer.field.setFocus()
    before = composer.field.height()
    QApplication.sendEvent(composer.field, QInputMethodEvent("にほ" * 80, []))
    QApplication.processEvents()
    assert composer.field.height() > before
