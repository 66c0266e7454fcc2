from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from rdchat.services.engine.engine_events import Failure
from rdchat.ui.conversation.welcome import EXAMPLES, ModelFailedView, WelcomeView
from rdchat.ui.look.theme import Theme


def _button(view: WelcomeView | ModelFailedView, text: str) -> QPushButton:
    return next(button for button in view.findChildren(QPushButton) if button.text() == text)


def test_examples_are_offered_with_their_prompts(qtbot: QtBot, theme: Theme) -> None:
    view = WelcomeView(theme)
    qtbot.addWidget(view)
    for name, prompt in EXAMPLES:
        with qtbot.waitSignal(view.example_chosen) as chosen:
            qtbot.mouseClick(_button(view, name), Qt.MouseButton.LeftButton)
        assert chosen.args == [prompt]
        assert _button(view, name).toolTip() == prompt


def test_a_failure_says_what_and_what_to_do(qtbot: QtBot, theme: Theme) -> None:
    view = ModelFailedView(theme)
    qtbot.addWidget(view)
    view.resize(500, 500)
    view.show()
    view.show_failure(Failure("The folder /models/x is empty.", "Choose another one."), readable=False)
    assert view.message.text() == "The folder /models/x is empty."
    assert view.hint.text() == "Choose another one."
    assert not view.read.isVisible()
    for text, signal in (
        ("Try again", view.retry.clicked),
        ("Choose another model…", view.choose.clicked),
        ("Use the default model", view.default.clicked),
    ):
        with qtbot.waitSignal(signal):
            qtbot.mouseClick(_button(view, text), Qt.MouseButton.LeftButton)
    view.show_failure(Failure("The default model is damaged.", ""), readable=False, of_default=True)
    assert not view.default.isVisible()


def test_what_seems_too_large_can_be_loaded_anyway(qtbot: QtBot, theme: Theme) -> None:
    view = ModelFailedView(theme)
    qtbot.addWidget(view)
    view.resize(500, 500)
    view.show()
    view.show_failure(Failure("It is damaged.", ""), readable=False)
    assert not view.anyway.isVisible()
    view.show_failure(Failure("It needs 80 GB.", "", can_load_anyway=True), readable=False)
    with qtbot.waitSignal(view.anyway.clicked):
        qtbot.mouseClick(_button(view, "Load anyway"), Qt.MouseButton.LeftButton)


def test_a_low_window_scrolls_instead_of_squeezing(qtbot: QtBot, theme: Theme) -> None:
    view = WelcomeView(theme)
    qtbot.addWidget(view)
    view.resize(400, 120)
    view.show()
    button = _button(view, EXAMPLES[0][0])
    assert button.height() >= 34
