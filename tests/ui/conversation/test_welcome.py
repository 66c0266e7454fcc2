from dataclasses import replace

import pytest
from pytestqt.qtbot import QtBot

from rdchat.inference.api import ranked_address
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.conversation.model_offers import SMALL_STARTERS, STARTERS, WelcomeView, starters
from rdchat.ui.style import MACHINE, Theme
from rdchat.ui.window.main_window import MainWindow
from tests.services.fakes import MODEL
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import click_on


def test_a_click_on_a_question_asks_for_it(qtbot: QtBot, theme: Theme) -> None:
    view = WelcomeView(theme)
    qtbot.addWidget(view)
    for button, question in zip(view.buttons, SMALL_STARTERS, strict=True):
        with qtbot.waitSignal(view.starter_chosen) as chosen:
            click_on(button)
        assert chosen.args == [question]


@pytest.mark.parametrize(
    ("parameters", "questions"),
    [
        (135_000_000, SMALL_STARTERS),
        (4_000_000_000, STARTERS),
        # A server does not say how large its model is.
        (0, STARTERS),
    ],
)
def test_the_questions_follow_the_model(parameters: int, questions: tuple[str, ...]) -> None:
    assert starters(replace(MODEL, parameters=parameters)) == questions


def test_a_low_window_scrolls_instead_of_squeezing(qtbot: QtBot, theme: Theme) -> None:
    view = WelcomeView(theme)
    qtbot.addWidget(view)
    view.resize(400, 120)
    view.show()
    assert view.buttons[0].height() >= 34


def test_the_greeting_says_where_the_words_go(chat: Chat, window: MainWindow) -> None:
    """It promised that nothing leaves the machine, below the name of a remote model."""
    text = window.conversation.welcome.greeting.text
    slot = chat.controller.model_slot
    here = f"Chat with a language model that runs on {MACHINE}.\nNothing you write leaves it."
    assert text() == here
    chat.start()
    assert text() == here
    chat.engine.load_gate.shut()
    slot.load_model("remote:studio/qwen")
    assert text() == "Answers come from studio.\nWhat you write is sent there."
    chat.engine.load_gate.open()
    chat.wait_for(EngineState.IDLE)
    assert text() == "Answers come from studio (https://studio.local).\nWhat you write is sent there."
    slot.load_model(ranked_address(("localhost", "mini.local"), None))
    assert text() == f"Answers come from {MACHINE} together with mini.local.\nWhat you write is sent to all of them."
    slot.load_model(ranked_address(("localhost",), None))
    assert text() == here
    slot.load_model(None)
    assert text() == here
