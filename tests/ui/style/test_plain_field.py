"""What a person sees in an empty field while an input method composes."""
# ruff: noqa: RUF001  half a word of Chinese is composed in Latin letters

from collections.abc import Callable

import pytest
from PySide6.QtGui import QImage, QInputMethodEvent
from PySide6.QtWidgets import QApplication, QPlainTextEdit
from pytestqt.qtbot import QtBot

from rdchat.ui.conversation.composer import ComposerField
from rdchat.ui.style import PlainField, Theme, text_field
from rdchat.ui.transcript.message_parts import PromptField


def compose(field: QPlainTextEdit, text: str, committed: str = "") -> None:
    event = QInputMethodEvent(text, [])
    event.setCommitString(committed)
    QApplication.sendEvent(field, event)


def drawn(field: QPlainTextEdit) -> QImage:
    return field.viewport().grab().toImage()


@pytest.fixture(
    params=[
        lambda _theme: text_field(3, "Ask anything about this text"),
        lambda theme: PromptField(theme, "Message", (1, 8)),
        ComposerField,
    ],
    ids=["text field", "editor of a message", "message field"],
)
def field(request: pytest.FixtureRequest, qtbot: QtBot, theme: Theme) -> PlainField:
    make: Callable[[Theme], PlainField] = request.param
    field = make(theme)
    qtbot.addWidget(field)
    field.resize(500, 60)
    field.show()
    field.setPlaceholderText("Ask anything about this text")
    field.setFocus()
    field.setCursorWidth(0)
    return field


@pytest.mark.parametrize("text", ["nihao", "你好", "にほん", "ㅎ", "한", "´"])
def test_nothing_is_drawn_behind_what_is_composed(field: PlainField, text: str) -> None:
    empty = drawn(field)
    compose(field, text)
    composing = drawn(field)
    QPlainTextEdit.setPlaceholderText(field, "")
    assert drawn(field) == composing != empty
    # Also while the field gets another width or another placeholder.
    field.setPlaceholderText("Ask anything")
    field.resize(300, 60)
    assert field.placeholderText() == ""
    field.resize(500, 60)
    field.setPlaceholderText("Ask anything about this text")
    assert drawn(field) == composing
    compose(field, "")
    assert drawn(field) == empty


@pytest.mark.parametrize("end", ["committed", "cleared", "replaced"])
def test_the_placeholder_is_back_in_an_empty_field(field: PlainField, end: str) -> None:
    empty = drawn(field)
    compose(field, "に")
    assert field.composing
    if end == "committed":
        compose(field, "", "日本")
        assert not field.composing
        field.setPlainText("")
    elif end == "cleared":
        field.clear()
    else:
        field.setPlainText("another")
        field.setPlainText("")
    assert not field.composing
    assert drawn(field) == empty


def test_a_text_begins_on_the_side_from_which_it_is_read(field: PlainField) -> None:
    def first() -> int:
        field.moveCursor(field.textCursor().MoveOperation.Start)
        return field.cursorRect().x()

    for text, is_right in (("Hello", False), ("שלום, Mac", True), ("مرحبا", True), ("", False), ("1. 你好", False)):
        field.setPlainText(text)
        assert (first() > field.viewport().width() / 2) is is_right, text
        assert field.toPlainText() == text
