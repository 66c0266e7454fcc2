from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from rdchat.inference.api.model_address import ranked_address
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.conversation.conversation_view import EXAMPLES, WelcomeView
from rdchat.ui.style.formatting import MACHINE
from rdchat.ui.style.theme import Theme
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat


def _button(view: WelcomeView, text: str) -> QPushButton:
    return next(button for button in view.findChildren(QPushButton) if button.text() == text)


def test_examples_are_offered_with_their_prompts(qtbot: QtBot, theme: Theme) -> None:
    view = WelcomeView(theme)
    qtbot.addWidget(view)
    for name, prompt in EXAMPLES:
        with qtbot.waitSignal(view.example_chosen) as chosen:
            qtbot.mouseClick(_button(view, name), Qt.MouseButton.LeftButton)
        assert chosen.args == [prompt]
        assert _button(view, name).toolTip() == prompt


def test_a_low_window_scrolls_instead_of_squeezing(qtbot: QtBot, theme: Theme) -> None:
    view = WelcomeView(theme)
    qtbot.addWidget(view)
    view.resize(400, 120)
    view.show()
    button = _button(view, EXAMPLES[0][0])
    assert button.height() >= 34


def test_the_greeting_says_where_the_words_go(chat: Chat, window: MainWindow) -> None:
    """It promised that nothing leaves the machine, below the name of a remote model."""
    text, slot = window.conversation.welcome.greeting.text, chat.controller.model_slot
    here = f"Chat with a language model that runs on {MACHINE}.\nNothing you write leaves it."
    assert text() == here
    chat.start()
    assert text() == here
    chat.engine.load_gate.shut()
    slot.load("remote:studio/qwen")
    assert text() == "Answers come from studio.\nWhat you write is sent there."
    chat.engine.load_gate.open()
    chat.wait_for(EngineState.IDLE)
    assert text() == "Answers come from studio (https://studio.local).\nWhat you write is sent there."
    slot.load(ranked_address(("localhost", "mini.local"), None))
    assert text() == f"Answers come from {MACHINE} together with mini.local.\nWhat you write is sent to all of them."
    slot.load(ranked_address(("localhost",), None))
    assert text() == here
    slot.load(None)
    assert text() == here
