"""Stands in the place of the window: a controller, and what it said."""

from dataclasses import dataclass, field
from pathlib import Path

from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import Message, Notice
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Statistics
from rdchat.services.chat_controller import ChatController
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.files.pending_files import PendingFile
from tests.listed_chats import listed
from tests.services.fakes import ScriptedEngine

WAIT_MS = 60_000


@dataclass
class Seen:
    """What the controller told the window."""

    refused: list[tuple[str, str]] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    storage_failures: list[Notice] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    changed: list[Message] = field(default_factory=list)
    grown: list[str] = field(default_factory=list)  # the text that replies gained
    statistics: list[Statistics] = field(default_factory=list)
    states: list[EngineState] = field(default_factory=list)


class Window(QObject):
    """Stands where the window stands: a controller, and what it said."""

    def __init__(self, controller: ChatController, store: ConversationStore, qtbot: QtBot) -> None:
        super().__init__()
        self.controller = controller
        self.store = store
        self.qtbot = qtbot
        self.seen = Seen()
        controller.prompt_refused.connect(lambda text, reason: self.seen.refused.append((text, reason)))
        controller.notice_raised.connect(self.seen.notices.append)
        controller.storage.failed.connect(self.seen.storage_failures.append)
        controller.chats.conversation_removed.connect(self.seen.removed.append)
        controller.chat.message_changed.connect(self.seen.changed.append)
        controller.chat.reply_grew.connect(lambda _id, text: self.seen.grown.append(text))
        controller.replies.statistics_changed.connect(self.seen.statistics.append)
        controller.replies.state_changed.connect(self._on_state)

    def _on_state(self) -> None:
        if not self.seen.states or self.seen.states[-1] is not self.controller.replies.state:
            self.seen.states.append(self.controller.replies.state)

    def wait_for(self, state: EngineState) -> None:
        self.qtbot.waitUntil(lambda: self.controller.replies.state is state, timeout=WAIT_MS)

    def ask(self, text: str) -> Message:
        """Send a prompt and wait for the end of its reply."""
        self.controller.send(text)
        self.wait_for(EngineState.IDLE)
        return self.controller.chat.path[-1]

    @property
    def writing(self) -> bool:
        return self.controller.chat.streaming_id is not None

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.controller.chat.path]

    @property
    def titles(self) -> list[str]:
        return [conversation.title for conversation in listed(self.controller.chats)]


def pause_in_prefill(window: Window, engine: ScriptedEngine) -> int:
    """Send a prompt and hold its reply before anything of the prompt is read; return the reply's id."""
    engine.gate.shut()
    window.controller.send("Hi")
    window.wait_for(EngineState.PREFILL)
    window.qtbot.waitUntil(lambda: engine.gate.is_waiting, timeout=WAIT_MS)
    return window.controller.chat.path[-1].id


def pause_midway(window: Window, engine: ScriptedEngine, prompt: str = "Hi") -> int:
    """Send a prompt and hold its reply after `Hello,`; return the reply's id."""
    engine.gate.shut()
    engine.gate.allow(4)
    window.controller.send(prompt)
    window.qtbot.waitUntil(lambda: window.texts[-1:] == ["Hello,"], timeout=WAIT_MS)
    assert window.controller.chat.streaming_id is not None
    return window.controller.chat.streaming_id


def bring(window: Window, *paths: Path) -> list[PendingFile]:
    """Add files and wait until they are read and counted."""
    files = window.controller.chat.files
    files.add_files([str(path) for path in paths])
    window.qtbot.waitUntil(lambda: all(file.count for file in files.files), timeout=WAIT_MS)
    return list(files.files)
