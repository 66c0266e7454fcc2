"""A real controller over a real store, with the scripted engine in place of a model."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices, QStyleHints
from PySide6.QtWidgets import QApplication, QDialog, QMessageBox
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import MessagePath
from rdchat.chat.settings import SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat_list.chat_list import ChatList
from rdchat.services.engine.engine_client import EngineClient, ModelSlot
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.models.model_sources import ModelSources
from rdchat.services.servers.tool_servers import ToolServers
from rdchat.services.storage_watch import SettingsControl
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.style import DEFAULT_TEXT, ConsentPause, Theme
from rdchat.ui.transcript.view import TranscriptView
from rdchat.ui.window.main_window import MainWindow
from tests.services.fakes import ScriptedEngine
from tests.stores import quick_stores
from tests.ui.early_presses import opening_pressed_at_once

__all__ = ["quick_stores"]


@dataclass(frozen=True)
class Chat:
    """A controller and what stands behind it."""

    controller: ChatController
    engine: ScriptedEngine
    client: EngineClient
    store: ConversationStore
    qtbot: QtBot

    def start(self, *prompts: str) -> None:
        """Load the scripted model, wait until it is there, and have it answer some prompts."""
        self.controller.open_last_chat()
        self.wait_for(EngineState.IDLE)
        self.qtbot.waitUntil(lambda: not self.controller.drafting.checking)
        for prompt in prompts:
            self.say(prompt)

    def load(self, model: str | None) -> None:
        """Load another model, and wait until it is there; None is the default one."""
        self.slot.load_model(model)
        self.wait_for(EngineState.IDLE)

    def wait_for(self, state: EngineState) -> None:
        self.qtbot.waitUntil(lambda: self.controller.replies.state is state)

    def say(self, text: str) -> None:
        """Send a prompt and wait for the whole reply."""
        self.controller.send(text)
        self.wait_for_reply()

    def write_again(self) -> None:
        """Have the last reply written again, and wait for it."""
        self.controller.regenerate(self.path[-1].id)
        self.wait_for_reply()

    def hold_reply(self, text: str) -> None:
        """Send a prompt, and wait until it is read; the reply does not begin before `finish_reply`."""
        self.engine.gate.shut()
        self.controller.send(text)
        self.wait_for(EngineState.PREFILL)

    def pause_reply(self, text: str, steps: int = 3) -> None:
        """Send a prompt, and let the engine take a few steps: two read the prompt, then each writes a token."""
        self.engine.gate.shut()
        self.engine.gate.allow(steps)
        self.controller.send(text)
        self.wait_for(EngineState.WRITING)

    def finish_reply(self) -> None:
        self.engine.gate.open()
        self.wait_for_reply()

    def wait_for_reply(self) -> None:
        self.qtbot.waitUntil(lambda: self.controller.replies.state is EngineState.IDLE and not self.writing)

    @property
    def open(self) -> OpenChat:
        """The open chat."""
        return self.controller.chat

    @property
    def chats(self) -> ChatList:
        return self.controller.chats

    @property
    def settings(self) -> SettingsControl:
        return self.controller.settings

    @property
    def slot(self) -> ModelSlot:
        return self.controller.model_slot

    @property
    def path(self) -> MessagePath:
        return self.open.path

    @property
    def writing(self) -> bool:
        return self.open.streaming_id is not None


@pytest.fixture(autouse=True)
def careful_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let much time pass before each press, so that every question was read.

    Wherever a test opens a dialog, everything in it is pressed at once, before that time passes.
    """
    monkeypatch.setattr(ConsentPause, "clock", count(step=1000).__next__)
    for kind in (QDialog, QMessageBox):
        monkeypatch.setattr(kind, "open", opening_pressed_at_once(kind.open))


@pytest.fixture(autouse=True)
def appearance_of_the_desktop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a dark desktop where SCHEME is dark: the offscreen platform has none."""
    if os.environ.get("SCHEME") == "dark":
        monkeypatch.setattr(QStyleHints, "colorScheme", lambda _hints: Qt.ColorScheme.Dark)


@pytest.fixture
def theme(qapp: QApplication) -> Iterator[Theme]:
    theme = Theme(qapp)
    yield theme
    theme.set_scheme(Qt.ColorScheme.Unknown)
    theme.set_text_size(DEFAULT_TEXT)
    theme.deleteLater()


@pytest.fixture
def tools() -> ToolServers | None:
    """The servers of tools; None for those of the settings."""
    return None


@pytest.fixture
def panel_visible() -> bool:
    """Whether the window shows the speed panel; most tests need none."""
    return False


@pytest.fixture
def chat(qtbot: QtBot, tmp_path: Path, tools: ToolServers | None, panel_visible: bool) -> Iterator[Chat]:
    """An app without its window; nothing is loaded before `start`."""
    engine = ScriptedEngine()
    store = ConversationStore(tmp_path / "conversations.db")
    client = EngineClient(lambda: engine, nullcontext)
    settings = SettingsStore(tmp_path / "settings.json")
    # Without a choice it would open after the first reply.
    settings.save_settings(replace(settings.settings, panel_visible=panel_visible))
    controller = ChatController(store, settings, client, tools=tools)
    yield Chat(controller, engine, client, store, qtbot)
    engine.gate.open()
    engine.load_gate.open()
    engine.count_gate.open()
    controller.shut_down()
    store.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would be opened in a browser or the file manager."""
    opened: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda address: opened.append(QUrl(address).toString()))
    return opened


@pytest.fixture
def sources() -> ModelSources:
    """A machine without models, of which nobody knows the memory."""
    return ModelSources()


@pytest.fixture
def window(qtbot: QtBot, theme: Theme, chat: Chat, sources: ModelSources) -> MainWindow:
    """The whole window, shown, with nothing loaded yet."""
    window = MainWindow(chat.controller, theme, TranscriptView(theme, unsent=chat.open.unsent), sources)
    qtbot.addWidget(window)
    window.resize(1200, 800)
    window.show()
    qtbot.waitExposed(window)
    return window
