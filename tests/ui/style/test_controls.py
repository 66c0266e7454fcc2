"""Buttons, fields while an input method composes, and figures as text."""

import math
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QImage, QInputMethodEvent
from PySide6.QtWidgets import (
    QApplication,
    QDialog,
    QDialogButtonBox,
    QLineEdit,
    QMenu,
    QPlainTextEdit,
    QToolButton,
    QWidget,
)
from pytestqt.qtbot import QtBot

from rdchat.ui.conversation.composer import ComposerField
from rdchat.ui.style import (
    IconButton,
    PlainField,
    TextButton,
    Theme,
    column,
    dialog_buttons,
    formatting,
    push_button,
    text_field,
)
from rdchat.ui.transcript.message_parts import PromptField
from rdchat.wording import counted, parameter_text
from tests.ui.shown_widgets import activate, picture_of, press_key

_SCHEMES = (Qt.ColorScheme.Light, Qt.ColorScheme.Dark)


def _shown(qtbot: QtBot, *widgets: QWidget) -> QWidget:
    window = QWidget()
    column(QLineEdit(), *widgets, within=window)
    qtbot.addWidget(window)
    window.show()
    activate(window)
    return window


@pytest.mark.parametrize("scheme", _SCHEMES)
def test_a_button_with_a_menu_is_as_light_as_the_window_under_the_pointer(
    qtbot: QtBot, theme: Theme, scheme: Qt.ColorScheme
) -> None:
    """The filter's button had a style sheet, and turned white under the pointer in the dark."""
    theme.set_scheme(scheme)
    button = IconButton("filter", "Filter", theme)
    button.setMenu(QMenu(button))
    button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
    window = _shown(qtbot, button)
    button.setAttribute(Qt.WidgetAttribute.WA_UnderMouse)
    image = button.grab().toImage()
    ground = theme.colors.window.lightness()
    assert abs(image.pixelColor(4, 4).lightness() - ground) < 60
    assert not button.styleSheet()
    window.close()


@pytest.mark.parametrize("scheme", _SCHEMES)
def test_the_focus_ring_is_at_the_edge(qtbot: QtBot, theme: Theme, scheme: Qt.ColorScheme) -> None:
    """Fusion draws it three pixels inside, through the text."""
    theme.set_scheme(scheme)
    button = TextButton("Show Downloads", theme)
    window = _shown(qtbot, button)
    plain = picture_of(button)
    button.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.waitUntil(button.hasFocus)
    focused = picture_of(button)
    middle = button.height() // 2
    assert focused.pixelColor(1, middle) == QColor(theme.colors.accent)
    inside = button.rect().adjusted(3, 3, -3, -3)
    assert plain.copy(inside) == focused.copy(inside)
    window.close()


def test_a_button_that_is_disabled_keeps_the_focus(qtbot: QtBot, theme: Theme) -> None:
    buttons = IconButton("send", "Send", theme), push_button("Pause")
    window = _shown(qtbot, *buttons)
    for button in buttons:
        button.setFocus()
        qtbot.waitUntil(button.hasFocus)
        button.setEnabled(False)
        assert button.hasFocus()
        button.setEnabled(True)
        assert button.hasFocus()
    window.close()


@pytest.mark.parametrize("key", ["Return", "Enter", "Space"])
def test_return_presses_the_button_with_the_focus_in_any_window(qtbot: QtBot, theme: Theme, key: str) -> None:
    """Return did nothing on a starter question, and in a dialog it pressed the default button instead."""
    presses = []
    default = push_button("Save", act=lambda: presses.append("Save"))
    default.setDefault(True)
    buttons = [
        push_button("Why is the sky blue?", act=lambda: presses.append("question")),
        TextButton("Continue", theme, lambda: presses.append("text")),
        IconButton("copy", "Copy", theme, act=lambda: presses.append("icon")),
    ]
    for window in (QWidget(), QDialog()):
        column(default, *buttons, within=window)
        qtbot.addWidget(window)
        window.show()
        activate(window)
        for button in buttons:
            button.setFocus()
            press_key(button, key)
        assert presses == ["question", "text", "icon"]
        presses.clear()


def test_a_dialogs_buttons_have_roles_so_that_the_platform_orders_them(qtbot: QtBot) -> None:
    cancel = push_button("Cancel")
    use = push_button("Use")
    box = dialog_buttons(reject=cancel, accept=use)
    qtbot.addWidget(box)
    role = QDialogButtonBox.ButtonRole
    assert (box.buttonRole(cancel), box.buttonRole(use)) == (role.RejectRole, role.AcceptRole)


# ruff: noqa: RUF001  half a word of Chinese is composed in Latin letters


def compose(field: QPlainTextEdit, text: str, committed: str = "") -> None:
    event = QInputMethodEvent(text, [])
    event.setCommitString(committed)
    QApplication.sendEvent(field, event)


def picture(field: QPlainTextEdit) -> QImage:
    return picture_of(field.viewport())


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
    empty = picture(field)
    compose(field, text)
    composing = picture(field)
    QPlainTextEdit.setPlaceholderText(field, "")
    assert picture(field) == composing != empty
    # Also while the field gets another width or another placeholder.
    field.setPlaceholderText("Ask anything")
    field.resize(300, 60)
    assert field.placeholderText() == ""
    field.resize(500, 60)
    field.setPlaceholderText("Ask anything about this text")
    assert picture(field) == composing
    compose(field, "")
    assert picture(field) == empty


@pytest.mark.parametrize("end", ["committed", "cleared", "replaced"])
def test_the_placeholder_is_back_in_an_empty_field(field: PlainField, end: str) -> None:
    empty = picture(field)
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
    assert picture(field) == empty


def test_a_text_begins_on_the_side_from_which_it_is_read(field: PlainField) -> None:
    def first() -> int:
        field.moveCursor(field.textCursor().MoveOperation.Start)
        return field.cursorRect().x()

    for text, is_right in (("Hello", False), ("שלום, Mac", True), ("مرحبا", True), ("", False), ("1. 你好", False)):
        field.setPlainText(text)
        assert (first() > field.viewport().width() / 2) is is_right, text
        assert field.toPlainText() == text


TEXTS: dict[Callable[[Any], str], dict[object, str]] = {
    formatting.rate: {None: formatting.NONE, 0.456: "0.46", 8.314: "8.31", 42.46: "42.5", 1204.4: "1,204"},
    formatting.duration: {
        0.0: formatting.NONE, 84.6: "85 ms", 999.6: "1.00 s", 1240.0: "1.24 s", 125_000.0: "2 min 5 s",
    },
    formatting.memory: {0: formatting.NONE, 538_000_000: "538 MB", 1_240_000_000: "1.24 GB"},
    formatting.count: {2048: "2,048"},
    # 6 bits are a model's own.
    formatting.dtype_text: {"4bit": "4-bit", "6bit": "6-bit", "mxfp4": "mxfp4"},
    formatting.day_text: dict.fromkeys([None, 1e300, -1e300, 1e12, math.nan, math.inf, -math.inf], "Unknown date"),
    parameter_text: {134_515_008: "135 M", 1_540_000_000: "1.54 B"},
    partial(counted, one="token"): {0: "0 tokens", 1: "1 token", 2: "2 tokens", 12_345: "12,345 tokens"},
    partial(counted, one="reply", several="replies"): {1: "1 reply", 2: "2 replies"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [(function, value, text) for function, texts in TEXTS.items() for value, text in texts.items()],
)
def test_figures_and_states_as_text(function: Callable[[object], str], value: object, text: str) -> None:
    assert function(value) == text


@pytest.mark.parametrize(
    ("when", "text"),
    [
        ((2026, 11, 20, 9, 5), "09:05"),
        ((2026, 11, 19, 23, 59), "Yesterday"),
        ((2026, 11, 17, 12, 0), "Tuesday"),
        ((2026, 11, 3, 12, 0), "3 Nov"),
        ((2025, 11, 3, 12, 0), "3 Nov 2025"),
        ((2026, 11, 21, 1, 0), "01:00"),
        ((2026, 12, 3, 12, 0), "3 Dec"),
        ((4026, 11, 3, 12, 0), "3 Nov 4026"),
    ],
)
def test_days(when: tuple[int, int, int, int, int], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", datetime(2026, 11, 20, 14, 0).timestamp)
    assert formatting.day_text(datetime(*when).timestamp()) == text
