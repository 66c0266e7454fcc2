"""The models window over real services, with made-up models and a hub of the test's own."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat.app import find_part
from rdchat.inference.api import MachineMemory, ModelCard
from rdchat.services.models.model_services import Models
from rdchat.services.models.model_sources import ModelSources
from rdchat.ui.models.installed_page import InstalledPage
from rdchat.ui.models.models_window import ModelsWindow
from rdchat.ui.style import Theme
from rdchat.ui.window.main_window import MainWindow
from tests.services.models.library_samples import MEMORY, library_model
from tests.ui.conftest import Chat


@dataclass
class Machine:
    """What lies on this machine, as the sources tell it."""

    models: list[ModelCard] = field(default_factory=list)
    memory: MachineMemory | None = MEMORY
    heads: tuple[ModelCard, ...] | None = ()
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def sources(self) -> ModelSources:
        return ModelSources(
            lambda _chosen: list(self.models),
            lambda: self.memory,
            lambda _folder: self.heads,
            problem=lambda path: self.problems.get(path, ""),
            original_parts=find_part,
        )


@pytest.fixture
def machine() -> Machine:
    tiny = library_model("tiny", 135_000_000, path=Path("tiny"), model="", origin="rdchat", repository="")
    return Machine([library_model("org/Alpha-8B-4bit", 8_000_000_000), library_model("org/Beta-1B-4bit"), tiny])


@pytest.fixture
def sources(machine: Machine) -> ModelSources:
    return machine.sources


@pytest.fixture
def app(chat: Chat, window: MainWindow) -> Iterator[MainWindow]:
    """The whole window with its model loaded."""
    chat.start()
    yield window
    window.windows.end_background_work()


@pytest.fixture
def models(chat: Chat, machine: Machine) -> Iterator[Models]:
    """What the window works with, with a model loaded and no main window."""
    models = Models(chat.controller, machine.sources)
    chat.start()
    yield models
    models.end_services()


@pytest.fixture
def models_window(qtbot: QtBot, theme: Theme, models: Models) -> ModelsWindow:
    window = ModelsWindow(models, theme)
    qtbot.addWidget(window)
    window.show_page(window.installed)
    qtbot.waitExposed(window)
    qtbot.waitUntil(lambda: models.library.looked and models.memory.now is not None)
    return window


@pytest.fixture
def page(models_window: ModelsWindow) -> InstalledPage:
    """The Installed page, with all that there is to see."""
    return models_window.installed
