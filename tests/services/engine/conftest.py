import threading
from collections.abc import Callable

import pytest
from pytestqt.qtbot import QtBot

from rdchat.inference.api import ChatMessage, Dtype, GenerationRequest, Role
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_request import FINAL, Command, EngineEvent, EngineRequest, LoadModel, ReplyProgress

MakeClient = Callable[..., EngineClient]


def asked(request_id: int = 0) -> GenerationRequest:
    return GenerationRequest((ChatMessage(Role.USER, "Hi"),), request_id=request_id)


class Client:
    """Submits commands; `log` has the events of all in the order in which they were made or delivered."""

    def __init__(self, client: EngineClient, qtbot: QtBot) -> None:
        self.client = client
        self.qtbot = qtbot
        self.log: list[tuple[str, EngineEvent]] = []
        self.threads: dict[str, set[int]] = {}
        self.requests: dict[str, EngineRequest] = {}

    def submit(self, name: str, command: Command, *, direct: bool = False, background: bool = False) -> None:
        def take(event: EngineEvent) -> None:
            self.log.append((name, event))
            self.threads.setdefault(name, set()).add(threading.get_ident())

        if direct:
            self.requests[name] = self.client.submit_direct(command, take)
        else:
            self.requests[name] = self.client.submit(command, take, background=background)

    def load_model(self, model: str | None = None) -> None:
        self.submit("load", LoadModel(model, Dtype.AUTO))

    def ask(self, number: int, *, background: bool = False) -> None:
        """Ask for a reply of this number, which is its name too."""
        self.submit(str(number), asked(number), background=background)

    def of[E: EngineEvent](self, kind: type[E]) -> list[E]:
        return [event for _, event in tuple(self.log) if isinstance(event, kind)]

    @property
    def ended(self) -> list[str]:
        return [name for name, event in tuple(self.log) if isinstance(event, FINAL)]

    def end(self, name: str | int) -> EngineEvent:
        """Wait for a request's last event."""
        self.qtbot.waitUntil(lambda: str(name) in self.ended, timeout=60_000)
        (end,) = [event for who, event in tuple(self.log) if who == str(name) and isinstance(event, FINAL)]
        return end

    def text(self, name: str) -> str:
        events = [event for who, event in tuple(self.log) if who == name and isinstance(event, ReplyProgress)]
        return "".join(token.text for event in events for token in event.tokens)


@pytest.fixture
def client(qtbot: QtBot, make_client: MakeClient) -> Client:
    return Client(make_client(), qtbot)
