from math import ceil

import pytest
from hypothesis import given, settings, strategies as st
from PySide6.QtCore import QCoreApplication, QMimeData
from PySide6.QtGui import QFontMetricsF, QInputMethodEvent, QTextLayout, QTextOption
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat.chat.presets import Preset
from rdchat.inference.api import AnswerShape, ShapeKind
from rdchat.services.chat.context_meter import ContextUse
from rdchat.ui.conversation.composer import Composer, ContextRing
from rdchat.ui.style import Theme
from rdchat.ui.style.theme import DEFAULT_TEXT
from rdchat.ui.transcript.message_kinds import fenced
from rdchat.ui.transcript.message_parts import PromptField
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import click_on, forbid_nested_fits, press_key


@pytest.fixture
def composer(qtbot: QtBot, theme: Theme) -> Composer:
    composer = Composer(theme)
    qtbot.addWidget(composer)
    composer.resize(600, 300)
    composer.set_state(writing=False, sent_when="")
    composer.show()
    composer.field.setFocus()
    return composer


def test_return_sends_and_empties_the_field(qtbot: QtBot, composer: Composer) -> None:
    qtbot.keyClicks(composer.field, "  Hello ")
    with qtbot.waitSignal(composer.submitted) as sent:
        press_key(composer.field, "Return")
    assert sent.args == ["Hello"]
    assert composer.text == ""


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
    composer.set_state(writing=True, sent_when="the current reply is finished")
    assert not composer.later.isVisible()
    composer.set_text("next question")
    assert composer.button.accessibleName() == "Stop"
    assert composer.later.toolTip() == "Send (Return). Sent when the current reply is finished."
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


def test_the_ring_follows_what_is_typed(qtbot: QtBot, window: MainWindow, chat: Chat) -> None:
    chat.engine.context_length = 20
    chat.start()
    composer = window.conversation.composer
    assert not composer.meter.isVisible()
    qtbot.keyClicks(composer.field, "one two three four")
    qtbot.waitUntil(lambda: composer.meter.text == "25%")
    assert composer.meter.isVisible()
    assert "take 5 tokens of the model's 20." in composer.meter.accessibleName()
    qtbot.keyClicks(composer.field, " word" * 16)
    qtbot.waitUntil(lambda: composer.meter.text == "Too long")
    press_key(composer.field, "Ctrl+A")
    press_key(composer.field, "Del")
    qtbot.waitUntil(lambda: not composer.meter.isVisible())


def test_a_share_is_never_rounded_to_all_or_nothing(qtbot: QtBot, theme: Theme) -> None:
    ring = ContextRing(theme)
    qtbot.addWidget(ring)
    for tokens, words in ((3, "<1%"), (999, "99%"), (1000, "Too long"), (None, "Too long")):
        ring.show_use(ContextUse(tokens, 1000, "x", None))
        assert ring.text == words
    for tokens, words in ((3, "<1%"), (431, "~43%"), (999, "~99%"), (1700, "Over"), (None, "Too long")):
        ring.show_use(ContextUse(tokens, 1000, "x", None, is_estimate=True))
        assert ring.text == words, "1,700 of 1,000 tokens were about 99 %"
    ring.show_use(ContextUse(1848, 8192, "", None, is_estimate=True))
    said = "This chat takes about 1,800 tokens of the model's 8,192. The reply needs some too."
    assert ring.accessibleName() == said, "it said 1,848 tokens, where 3,557 were counted"
    ring.show_use(None)
    assert ring.isHidden()


_SCHEMA = AnswerShape(ShapeKind.SCHEMA, '{"type": "object"}')


def test_the_shape_is_named_and_ended_in_the_message_field(chat: Chat, window: MainWindow) -> None:
    chat.start()
    chip = window.conversation.composer.shape
    dot = window.header.dot
    assert not chip.isVisible()
    assert not dot.isVisible()
    chat.say("Hi")
    chat.open.set_options(answer_shape=_SCHEMA)
    assert chip.isVisible()
    assert dot.isVisible()
    assert chip.label.text() == "JSON · schema"
    with_shape = chat.open.id
    window.actions_.new_chat.trigger()
    assert not chip.isVisible()
    chat.open.open_chat(with_shape)
    assert chip.isVisible()
    click_on(chip.remove)
    assert not chip.isVisible()
    assert not dot.isVisible()
    assert chat.open.conversation.answer_shape is None


def test_the_shape_of_a_models_preset_is_named_once_it_is_loaded(chat: Chat, window: MainWindow) -> None:
    chip = window.conversation.composer.shape
    slot = chat.slot
    shaped = Preset("Data", answer_shape=AnswerShape(ShapeKind.JSON), models=("other",))
    chat.settings.change_values(presets=(shaped,))
    chat.start()
    assert not chip.isVisible()
    slot.load_model("other")
    chat.qtbot.waitUntil(chip.isVisible)


@pytest.mark.parametrize(
    ("answer", "is_json"),
    [
        *[(answer, True) for answer in ('{"a": "*b*"}', '{\n  "a": [1]}', "{}", '{"a')],
        *[(answer, False) for answer in ("", "{", "{name}, hello", "A {x}", "[1](a)", "`{}`")],
    ],
)
def test_a_json_object_is_shown_as_code(answer: str, is_json: bool) -> None:
    assert fenced(answer) == (f"```json\n{answer}" if is_json else answer)


LOWEST = 1
HIGHEST = 8

words = st.lists(st.sampled_from(["a", "word", "sentence", "x" * 90, "ein", "日本語", "\n", "\n\n"]), max_size=130)
texts = words.map(" ".join)
numbers = st.integers(0, 130).map(lambda count: "Question 756164 " + "word " * count)
step = st.one_of(
    st.tuples(st.sampled_from(["set", "append", "paste", "type"]), st.one_of(texts, numbers)),
    st.tuples(st.just("width"), st.sampled_from([300, 480, 719, 720, 721, 900, 1280])),
    st.tuples(st.sampled_from(["undo", "redo", "remove"]), st.none()),
)


@pytest.fixture
def wide_composer(qtbot: QtBot, theme: Theme, monkeypatch: pytest.MonkeyPatch) -> Composer:
    forbid_nested_fits(monkeypatch, PromptField)
    wide_composer = Composer(theme)
    qtbot.addWidget(wide_composer)
    wide_composer.resize(720, 400)
    wide_composer.show()
    qtbot.waitExposed(wide_composer)
    return wide_composer


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
    assert field.height() == ceil(shown * ceil(QFontMetricsF(field.font()).lineSpacing()) + 2 * margin) + 2
    assert field.verticalScrollBar().isVisible() == (lines > HIGHEST)
    if lines <= HIGHEST:
        QCoreApplication.sendPostedEvents()
        assert field.verticalScrollBar().maximum() == 0, "all lines are seen"


def change(wide_composer: Composer, what: str, value: str | int | None) -> None:
    field = wide_composer.field
    match what, value:
        case "set", str(text):
            wide_composer.set_text(text)
        case "append", str(text):
            wide_composer.add_text(text)
        case "paste", str(text):
            data = QMimeData()
            data.setText(text)
            field.insertFromMimeData(data)
        case "type", str(text):
            field.textCursor().insertText(text[:5])
        case "width", int(width):
            wide_composer.resize(width, 400)
            QCoreApplication.sendPostedEvents()
        case "remove", _:
            field.textCursor().deletePreviousChar()
        case _:
            getattr(field, what)()


def settle() -> None:
    """Let a text of several lines get the whole width, or lose it again, and then its height."""
    for _ in range(5):
        QApplication.processEvents()


@settings(max_examples=25)
@given(steps=st.lists(step, min_size=1, max_size=8))
def test_the_field_is_as_high_as_its_text_at_once(wide_composer: Composer, steps: list[tuple[str, str]]) -> None:
    wide_composer.set_text("")
    settle()
    for what, value in steps:
        change(wide_composer, what, value)
        assert_fitted(wide_composer.field)
        settle()
        assert_fitted(wide_composer.field)


@pytest.mark.parametrize("size", [9, 13, 20])
def test_the_bar_goes_as_soon_as_all_lines_fit_without_it(wide_composer: Composer, theme: Theme, size: int) -> None:
    """Beside the bar the words took a ninth line, which kept it there."""
    theme.set_text_size(size)
    for width in (300, 480, 720):
        wide_composer.resize(width, 400)
        for count in range(1200 // size, 300 // size, -1):
            wide_composer.set_text("words " * count * (1 + width // 300))
            settle()
            assert_fitted(wide_composer.field)
    theme.set_text_size(DEFAULT_TEXT)


def test_a_text_that_was_appended_to_another_does_not_fit_the_field_without_end(wide_composer: Composer) -> None:
    for more in range(30, 80):
        wide_composer.set_text("Question 756164 " + "word " * 50)
        wide_composer.add_text("Question 84890 " + "word " * more)


def test_the_field_grows_with_what_an_input_method_composes(wide_composer: Composer) -> None:
    wide_composer.field.setFocus()
    before = wide_composer.field.height()
    QApplication.sendEvent(wide_composer.field, QInputMethodEvent("にほ" * 80, []))
    QApplication.processEvents()
    assert wide_composer.field.height() > before
