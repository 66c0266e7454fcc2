import pytest
from PySide6.QtCore import QMimeData
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.conversation.composer import Composer
from rdchat.ui.style import Theme
from tests.ui.shown_widgets import click_on, press_key


@pytest.fixture
def composer(qtbot: QtBot, theme: Theme) -> Composer:
    composer = Composer(theme)
    qtbot.addWidget(composer)
    composer.resize(600, 300)
    composer.set_state(EngineState.IDLE)
    composer.show()
    composer.field.setFocus()
    return composer


def test_return_sends_and_empties_the_field(qtbot: QtBot, composer: Composer) -> None:
    qtbot.keyClicks(composer.field, "  Hello ")
    with qtbot.waitSignal(composer.submitted) as sent:
        press_key(composer.field, "Return")
    assert sent.args == ["Hello"]
    assert composer.text == ""


def test_shift_return_breaks_the_line(qtbot: QtBot, composer: Composer) -> None:
    qtbot.keyClicks(composer.field, "a")
    with qtbot.assertNotEmitted(composer.submitted):
        press_key(composer.field, "Shift+Return")
    qtbot.keyClicks(composer.field, "b")
    assert composer.text == "a\nb"


def test_return_while_an_input_method_composes_does_not_send(qtbot: QtBot, composer: Composer) -> None:
    QApplication.sendEvent(composer.field, QInputMethodEvent("にほ", []))
    with qtbot.assertNotEmitted(composer.submitted):
        press_key(composer.field, "Return")
    committed = QInputMethodEvent("", [])
    committed.setCommitString("日本")
    QApplication.sendEvent(composer.field, committed)
    composer.set_text("日本")
    with qtbot.waitSignal(composer.submitted) as sent:
        press_key(composer.field, "Return")
    assert sent.args == ["日本"]


def test_an_empty_prompt_is_not_sent_and_says_why(qtbot: QtBot, composer: Composer) -> None:
    qtbot.keyClicks(composer.field, "   ")
    with qtbot.assertNotEmitted(composer.submitted):
        press_key(composer.field, "Return")
    assert composer.note.isVisible()
    assert composer.note.text() == "Type something to ask first."
    assert not composer.button.isEnabled()
    assert composer.button.toolTip() == "Type something to send"
    qtbot.keyClicks(composer.field, "x")
    assert not composer.note.isVisible()


def test_a_text_of_several_lines_has_the_whole_width(qtbot: QtBot, composer: Composer) -> None:
    """It had the part between the buttons, which left 60 % of a small window."""
    field = composer.field
    button = composer.button

    def wide() -> bool:
        QApplication.processEvents()
        return field.geometry().right() >= button.geometry().right() and field.geometry().left() <= composer.attach.x()

    narrow = field.width()
    assert not wide()
    for text in ("a\nb", "word " * 60, "".join(f"line {number}\n" for number in range(30))):
        composer.set_text(text)
        assert wide()
        assert field.geometry().bottom() <= button.y()
        composer.set_text("word")
        assert not wide()
        assert field.width() == narrow
    qtbot.keyClicks(field, " x" * 40)
    while not wide():
        qtbot.keyClicks(field, "x")
    length = len(composer.text)
    for _letter in range(3):
        # Near the limit it does not go to and fro.
        press_key(field, "Backspace")
        qtbot.keyClicks(field, "x")
        assert wide()
    assert len(composer.text) == length
    assert field.hasFocus()
    composer.set_text("a text that fits between the buttons")
    assert not wide()
    composer.resize(300, 300)
    qtbot.waitUntil(wide)
    composer.resize(600, 300)
    composer.set_text("")
    assert not wide()
    assert field.width() == narrow


def test_while_writing_one_button_stops_and_another_sends(qtbot: QtBot, composer: Composer) -> None:
    composer.set_state(EngineState.WRITING, waits=True)
    assert not composer.later.isVisible()
    composer.set_text("next question")
    assert composer.button.accessibleName() == "Stop"
    with qtbot.waitSignal(composer.stop_requested):
        click_on(composer.button)
    assert composer.text == "next question"
    with qtbot.waitSignal(composer.submitted) as sent:
        click_on(composer.later)
    assert sent.args == ["next question"]
    composer.set_text("and another")
    with qtbot.waitSignal(composer.submitted):
        press_key(composer.field, "Return")
    assert composer.text == ""


@pytest.mark.parametrize(
    ("state", "waits", "tip"),
    [
        (EngineState.IDLE, False, "Send (Return)"),
        (EngineState.IDLE, True, "waits until the current reply is finished"),
        (EngineState.LOADING, False, "starts when the model is loaded"),
        (EngineState.NO_MODEL, False, "loads the model first"),
    ],
)
def test_the_button_says_what_sending_does(composer: Composer, state: EngineState, waits: bool, tip: str) -> None:
    composer.set_text("hello")
    composer.set_state(state, waits=waits)
    assert composer.button.isEnabled()
    assert tip in composer.button.toolTip()


def test_refused_text_comes_back_but_never_over_newer_text(composer: Composer) -> None:
    composer.give_back("the prompt", "The disk is full.")
    assert composer.text == "the prompt"
    assert composer.note.text() == "The disk is full."
    composer.set_text("newer")
    composer.give_back("the prompt", "The disk is full.")
    assert composer.text == "newer"


def test_a_narrow_field_has_a_short_placeholder(qtbot: QtBot, composer: Composer) -> None:
    assert "Shift-Return" in composer.field.placeholderText()
    composer.resize(376, 300)
    qtbot.waitUntil(lambda: composer.field.placeholderText() == "Ask anything. Return sends.")
    composer.resize(200, 300)
    qtbot.waitUntil(lambda: composer.field.placeholderText() == "Ask anything")


def pasted(**formats: bytes) -> QMimeData:
    """Return what a hostile program may have put on the clipboard; names of formats with `_` for `/`."""
    data = QMimeData()
    for name, content in formats.items():
        data.setData(name.replace("_", "/"), content)
    return data


HTML = b"<b>bold</b><img src='file:///dev/zero'><script>alert(1)</script>"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (pasted(text_html=HTML), ""),
        (pasted(text_html=HTML, text_plain=b"bold"), "bold"),
        (pasted(text_plain=b"a\0b\x1b[31mc"), "a\0b\x1b[31mc"),
        (pasted(text_plain=b"a\xff\xed\xa0\x80b"), "a\ufffd\ufffd\ufffd\ufffdb"),
        (pasted(text_plain="a\u2028b\u2029c\r\nd".encode()), "a\nb\nc\nd"),
    ],
    ids=["rich text", "rich and plain text", "a NUL and colours", "no UTF-8", "line ends"],
)
def test_only_plain_text_is_pasted(composer: Composer, data: QMimeData, text: str) -> None:
    composer.field.insertFromMimeData(data)
    assert composer.text == text


def test_a_text_that_is_too_long_is_not_pasted_and_says_what_to_do(qtbot: QtBot, composer: Composer) -> None:
    """Ten megabytes in one line held the window for sixteen seconds."""
    qtbot.keyClicks(composer.field, "Before")
    data = QMimeData()
    data.setText("x" * 8_000_001)
    composer.field.insertFromMimeData(data)
    assert composer.text == "Before"
    assert composer.note.text() == "This text is too long to be pasted. Save it as a file and attach that."
    data.setText(" and after")
    composer.field.insertFromMimeData(data)
    assert composer.text == "Before and after"
    assert not composer.note.isVisible()
