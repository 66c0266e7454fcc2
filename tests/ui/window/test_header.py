import pytest
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.inference.api import Dtype, LoadProgress, ModelCard
from rdchat.inference.models.model_files import display_name
from rdchat.services.background_work import FolderSearch
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.style.formatting import DEFAULT_MODEL
from rdchat.ui.window.main_window import MainWindow
from rdchat.ui.window.model_button import ModelButton
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import entries_of


@pytest.fixture
def button(qtbot: QtBot, chat: Chat) -> ModelButton:
    controller = chat.controller
    button = ModelButton(controller.model_slot, controller.status, controller.settings, controller.remote)
    qtbot.addWidget(button)
    return button


def test_the_button_tells_loading_then_the_model(chat: Chat, button: ModelButton) -> None:
    chat.slot.load_progressed.emit(LoadProgress("Reading weights", 0.4))
    assert button.toolTip().startswith("Reading weights")
    chat.start()
    assert button.text() == "tiny"


def test_typing_loads_a_model_that_is_asleep(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.settings.change_values(unload_after_minutes=5)
    engine = chat.slot.engine
    button = window.header.model
    engine._sleep.timeout.emit()
    assert button.text() == "tiny  ·  asleep"
    assert "loads again when you type" in button.toolTip()
    qtbot.waitUntil(lambda: chat.engine.naps == 1)
    qtbot.keyClicks(window.conversation.composer.field, "H")
    assert button.text() == "tiny"
    qtbot.waitUntil(lambda: chat.engine.wakings == 1)


def test_recent_models_and_the_default_can_be_chosen(chat: Chat, button: ModelButton) -> None:
    chat.start()
    assert entries_of(button.menu())[DEFAULT_MODEL].isChecked()
    chat.load("/models/other")
    entries = entries_of(button.menu())
    assert entries["other"].isChecked()
    assert not entries[DEFAULT_MODEL].isChecked()
    entries[DEFAULT_MODEL].trigger()
    chat.qtbot.waitUntil(lambda: chat.engine.loads[-1] == (None, Dtype.AUTO))
    chat.wait_for(EngineState.IDLE)


def test_the_default_has_one_name_loaded_or_not() -> None:
    assert f"{display_name(None, paths.default_model_dir())} (default)" == DEFAULT_MODEL


def test_a_folder_is_asked_for(qtbot: QtBot, button: ModelButton) -> None:
    with qtbot.waitSignal(button.folder_requested):
        entries_of(button.menu())["Open Model Folder…"].trigger()


FOUND = (
    ModelCard("org/small", "org/small", "Hugging Face"),
    ModelCard("org/painter", "org/painter", "Hugging Face", problem="The architecture 'painter' is unknown."),
    ModelCard("Tiny", "/lm/Tiny", "LM Studio"),
)


def test_models_on_this_machine_are_offered_with_their_place(qtbot: QtBot, chat: Chat, button: ModelButton) -> None:
    installed = FolderSearch(lambda: FOUND)
    button.offer_models(installed)
    chat.start()
    with qtbot.waitSignal(installed.changed):
        assert "org/small" not in entries_of(button.menu())  # they are being looked for
    names = list(entries_of(button.menu()))
    assert names[names.index("From Hugging Face") :][:3] == [
        "From Hugging Face",
        "org/small",
        "1 model that cannot be loaded",
    ]
    entries_of(button.menu())["Tiny"].trigger()
    qtbot.waitUntil(lambda: chat.engine.loads[-1][0] == "/lm/Tiny")
    chat.wait_for(EngineState.IDLE)
    entries = entries_of(button.menu())  # where it is among the recent ones now, and in its own place
    assert entries["Tiny"].isChecked()
    installed.finish_work()
