import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from PySide6.QtCore import QCoreApplication, QThread

from rdchat.inference.protocol import Engine
from rdchat.services.engine_client import EngineClient
from tests.services.fakes import Gate, ScriptedEngine


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
        factory: Callable[[], Engine] = lambda: engine, keep_awake: Callable[[], AbstractContextManager[None]] = awake
    ) -> EngineClient:
        clients.append(EngineClient(factory, keep_awake))
        return clients[-1]

    yield make
    engine.gate.open()
    engine.load_gate.open()
    for client in clients:
        assert client.shutdown()
    running = [thread for thread in gc.get_objects() if type(thread) is QThread and thread.isRunning()]
    assert not running, "an engine thread survived its client"
    assert not awake.inside


@pytest.fixture
def shut_gate(engine: ScriptedEngine) -> Gate:
    engine.gate.shut()
    return engine.gate
