from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from rdchat.ui.conversation.conversation_view import EXAMPLES, WelcomeView
from rdchat.ui.style.theme import Theme


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
