"""Stands in the place of the window: a controller, and what it said."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, SignalInstance
from pytestqt.qtbot import QtBot

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, ReadFile, attached
from rdchat.chat.conversation import Conversation, Message, Notice
from rdchat.chat.projects import Folder, Project
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Dtype, Statistics
from rdchat.services.chat.context_meter import ContextUse
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.files.pending_files import PendingFile
from rdchat.services.window.chat_controller import ChatController
from tests.listed_chats import listed
from tests.services.fakes import ScriptedEngine
from tests.stores import written_by_hand

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

    def __init__(
        self, controller: ChatController, store: ConversationStore, qtbot: QtBot, engine: ScriptedEngine
    ) -> None:
        super().__init__()
        self.engine = engine
        self.controller = controller
        self.send = controller.send
        self.edit_message = controller.edit_message
        self.continue_reply = controller.continue_reply
        self.stop_reply = controller.stop_reply
        self.delete_message = controller.delete_message
        self.open_last_chat = controller.open_last_chat
        self.shut_down = controller.shut_down
        self.chat = controller.chat
        self.chats = controller.chats
        self.context = controller.context
        self.drafting = controller.drafting
        self.benchmark = controller.benchmark
        self.settings = controller.settings
        self.replies = controller.replies
        self.calls = controller.calls
        self.notes = controller.notes
        self.slot = controller.model_slot
        self.storage = controller.storage
        self.server = controller.server
        self.title_writer = controller.titles
        self.traces = controller.traces
        self.borrowed = controller.borrowed
        self.earlier = controller.earlier
        self.disk_caches = controller.disk_caches
        self.memory_caches = controller.memory_caches
        self.wait_until = qtbot.waitUntil
        self.store = store
        self.qtbot = qtbot
        self.seen = Seen()
        controller.prompt_refused.connect(lambda text, reason: self.seen.refused.append((text, reason)))
        for raised in (controller.notice_raised, controller.chat_notice_raised):
            raised.connect(self.seen.notices.append)
        controller.storage.failed.connect(self.seen.storage_failures.append)
        controller.chats.conversation_removed.connect(self.seen.removed.append)
        controller.chat.message_changed.connect(self.seen.changed.append)
        controller.chat.reply_grew.connect(lambda _id, text: self.seen.grown.append(text))
        controller.replies.statistics_changed.connect(self.seen.statistics.append)
        controller.replies.state_changed.connect(self._on_state)

    def _on_state(self) -> None:
        if not self.seen.states or self.seen.states[-1] is not self.replies.state:
            self.seen.states.append(self.replies.state)

    def wait_for(self, state: EngineState) -> None:
        self.wait_until(lambda: self.replies.state is state)

    def wait_until_idle(self) -> None:
        self.wait_for(EngineState.IDLE)

    def load(self, model: str | None, dtype: Dtype | None = None) -> None:
        """Load a model and wait for it."""
        self.slot.load_model(model, dtype)
        self.wait_until_idle()

    def ask(self, text: str) -> Message:
        """Send a prompt and wait for the end of its reply."""
        self.send(text)
        self.wait_until_idle()
        return self.last

    def regenerate(self, message_id: int) -> Message:
        """Have another reply written and wait for its end."""
        self.controller.regenerate(message_id)
        self.wait_until_idle()
        return self.last

    def counted(self, typed: str | None = None) -> ContextUse:
        """Wait until the chat is counted as it is now, with a typed text; return the count."""
        meter = self.context.meter
        self.wait_until(lambda: meter.current and meter.use is not None and typed in {None, meter.use.typed})
        assert meter.use is not None
        return meter.use

    def make_project(self, project: Project, *files: tuple[AttachedFile, str], name: str = "Work") -> Folder:
        """Make a folder with a project, and return it as it is listed."""
        order = self.chats.order
        folder = order.create_folder(name)
        assert folder is not None
        order.set_project(folder, project, files)
        listed_folder = order.folder(folder.id)
        assert listed_folder is not None
        return listed_folder

    @property
    def stored_chat(self) -> Conversation:
        """The open conversation, which is stored."""
        chat = self.chat.stored_conversation
        assert chat is not None
        return chat

    @property
    def last(self) -> Message:
        """The last message of the open chat."""
        return self.chat.path[-1]

    @property
    def writing(self) -> bool:
        return self.chat.streaming_id is not None

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.chat.path]

    @property
    def titles(self) -> list[str]:
        return [conversation.title for conversation in listed(self.chats)]


def text_file(name: str, text: str) -> tuple[AttachedFile, str]:
    return attached(ReadFile(name, FileKind.TEXT, (text,)), text), text


def collected(signal: SignalInstance) -> list[Any]:
    """Return a list that gets what a signal carries from now on."""
    values: list[Any] = []
    signal.connect(values.append)
    return values


def pause_in_prefill(window: Window, engine: ScriptedEngine) -> int:
    """Send a prompt and hold its reply before anything of the prompt is read; return the reply's id."""
    engine.gate.shut()
    window.send("Hi")
    window.wait_for(EngineState.PREFILL)
    window.wait_until(lambda: engine.gate.is_waiting)
    return window.last.id


def pause_midway(window: Window, engine: ScriptedEngine, prompt: str = "Hi") -> int:
    """Send a prompt and hold its reply after `Hello,`; return the reply's id."""
    engine.gate.shut()
    engine.gate.allow(4)
    window.send(prompt)
    window.wait_until(lambda: window.texts[-1:] == ["Hello,"])
    assert window.chat.streaming_id is not None
    return window.chat.streaming_id


def bring(window: Window, *paths: Path) -> list[PendingFile]:
    """Add files and wait until they are read and counted."""
    files = window.chat.files
    files.add_files([str(path) for path in paths])
    window.wait_until(lambda: all(file.count for file in files.files))
    return list(files.files)


def restarted(
    window: Window, window_on: Callable[[Path], Window], sql: str = "", rows: Sequence[tuple[object, ...]] = ((),)
) -> Window:
    """Quit an app, run a statement by hand with each of some rows, and start another app on its store."""
    assert window.shut_down()
    window.store.close()
    if sql:
        with written_by_hand(window.store) as connection:
            connection.executemany(sql, rows)
    again = window_on(window.store.path.parent)
    again.open_last_chat()
    again.wait_until_idle()
    return again
