import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication
from pytestqt.qtbot import QtBot

from rdchat.chat.settings import SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Engines
from rdchat.services.engine.engine_client import EngineClient, _EngineThread
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.window.chat_controller import ChatController
from tests.services.fakes import Gate, ScriptedEngine
from tests.services.tool_fakes import ScriptedServers
from tests.services.window import Window
from tests.stores import quick_stores

__all__ = ["quick_stores"]


class AwakeLog:
    """A `keep_awake` that notes whether it is entered."""

    def __init__(self) -> None:
        self.inside = 0
        self.entered = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.inside += 1
        self.entered += 1
        try:
            yield
        finally:
            self.inside -= 1


@pytest.fixture
def awake() -> AwakeLog:
    return AwakeLog()


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def make_client(
    qapp: QCoreApplication, awake: AwakeLog, engine: ScriptedEngine
) -> Iterator[Callable[..., EngineClient]]:
    """Make clients that are shut down after the test; no engine thread may survive them."""
    clients: list[EngineClient] = []

    def make(
        factory: Callable[[], Engines] = lambda: engine, keep_awake: Callable[[], AbstractContextManager[None]] = awake
    ) -> EngineClient:
        def traced_factory() -> Engines:
            sys.settrace(threading.gettrace())  # coverage does not see threads that Qt starts
            return factory()

        clients.append(EngineClient(traced_factory, keep_awake))
        return clients[-1]

    yield make
    engine.gate.open()
    engine.load_gate.open()
    engine.count_gate.open()
    for client in clients:
        assert client.shutdown()
    # what this test made: between its beginning and here nobody collects, which would make them older
    young = [*gc.get_objects(generation=0), *gc.get_objects(generation=1)]
    running = [thread for thread in young if type(thread) is _EngineThread and thread.isRunning()]
    assert not running, "an engine thread survived its client"
    assert not awake.inside


@pytest.fixture
def shut_gate(engine: ScriptedEngine) -> Gate:
    engine.gate.shut()
    return engine.gate


@pytest.fixture
def settings(tmp_path: Path) -> SettingsStore:
    return SettingsStore(tmp_path / "settings.json")


@pytest.fixture
def servers(qapp: QCoreApplication) -> ScriptedServers:
    return ScriptedServers()


@pytest.fixture
def window_on(
    qtbot: QtBot,
    settings: SettingsStore,
    engine: ScriptedEngine,
    make_client: Callable[..., EngineClient],
    servers: ScriptedServers,
) -> Iterator[Callable[[Path], Window]]:
    """Make an app on a database in a folder; it is not started."""
    windows: list[Window] = []

    def make(folder: Path) -> Window:
        store = ConversationStore(folder / "conversations.db")
        controller = ChatController(store, settings, make_client(), tools=servers)
        windows.append(Window(controller, store, qtbot, engine))
        return windows[-1]

    yield make
    engine.gate.open()
    engine.load_gate.open()
    engine.count_gate.open()
    for window in windows:
        assert window.controller.shut_down()
        window.store.close()


@pytest.fixture
def unstarted(window_on: Callable[[Path], Window], tmp_path: Path) -> Window:
    return window_on(tmp_path)


@pytest.fixture
def loading(unstarted: Window, engine: ScriptedEngine) -> Window:
    """An app whose model is being loaded, and a prompt that waits for it."""
    engine.load_gate.shut()
    unstarted.open_last_chat()
    unstarted.send("Hi")
    return unstarted


@pytest.fixture
def window(unstarted: Window) -> Window:
    """A started app with its model loaded."""
    unstarted.controller.open_last_chat()
    unstarted.wait_for(EngineState.IDLE)
    return unstarted
