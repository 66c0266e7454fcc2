"""Requests of the server: from any thread, answered on the engine thread at once, and paused for the person's own."""

import threading
from collections.abc import Callable

import pytest
from pytestqt.qtbot import QtBot

from rdchat.inference.api import (
    BenchCell,
    BenchPlan,
    ChatMessage,
    DraftSettings,
    Dtype,
    FinishReason,
    GenerationRequest,
    Mode,
    ModelInfo,
    PrefixCacheFacts,
    Prompt,
    ReplyEnd,
    Role,
)
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_request import (
    FINAL,
    BenchEnd,
    Command,
    EngineEvent,
    EngineRequest,
    Failure,
    LimitPrefixCaches,
    LoadModel,
    ReplyProgress,
    Unloaded,
    UnloadModel,
)
from tests.services.fakes import Reply, ScriptedEngine

MakeClient = Callable[..., EngineClient]
_PLAIN = BenchCell(DraftSettings(Mode.OFF))


def ask(request_id: int = 0) -> GenerationRequest:
    return GenerationRequest((ChatMessage(Role.USER, "Hi"),), request_id=request_id)


class Client:
    """Submits commands; `log` has the events of all in the order in which they were made or delivered."""

    def __init__(self, client: EngineClient, qtbot: QtBot) -> None:
        self._client = client
        self._qtbot = qtbot
        self.log: list[tuple[str, EngineEvent]] = []
        self.threads: dict[str, set[int]] = {}
        self.requests: dict[str, EngineRequest] = {}

    def submit(self, name: str, command: Command, *, direct: bool = True) -> None:
        def take(event: EngineEvent) -> None:
            self.log.append((name, event))
            self.threads.setdefault(name, set()).add(threading.get_ident())

        self.requests[name] = self._client.submit(command, take, direct=direct)

    def end(self, name: str) -> EngineEvent:
        """Wait for a request's last event."""
        self._qtbot.waitUntil(lambda: bool(self._ends(name)), timeout=60_000)
        (end,) = self._ends(name)
        return end

    def _ends(self, name: str) -> list[EngineEvent]:
        return [event for who, event in tuple(self.log) if who == name and isinstance(event, FINAL)]

    def text(self, name: str) -> str:
        told = [event for who, event in tuple(self.log) if who == name and isinstance(event, ReplyProgress)]
        return "".join(token.text for event in told for token in event.tokens)

    def writes(self, name: str, text: str) -> None:
        """Wait until a request has written a text."""
        self._qtbot.waitUntil(lambda: self.text(name) == text, timeout=60_000)


@pytest.fixture
def client(qtbot: QtBot, make_client: MakeClient, engine: ScriptedEngine) -> Client:
    client = Client(make_client(), qtbot)
    client.submit("load", LoadModel("tiny", Dtype.AUTO), direct=False)
    client.end("load")
    return client


def begin_reply(client: Client, engine: ScriptedEngine) -> None:
    """Let the server's reply write its first token, and hold it there."""
    engine.gate.shut()
    client.submit("server", ask(1))
    engine.gate.allow(3)  # two chunks of the prompt, and a token
    client.writes("server", "Hello")


def test_events_come_on_the_engine_thread_for_a_request_of_any_thread(client: Client, engine: ScriptedEngine) -> None:
    caller = threading.Thread(target=lambda: client.submit("server", ask(1)))
    caller.start()
    end = client.end("server")
    caller.join()
    assert isinstance(end, ReplyEnd)
    assert client.text("server") == end.text == "Hello, you!"
    assert client.threads["server"] == engine.threads
    tokens = [e for _, e in client.log if isinstance(e, ReplyProgress)]
    assert [len(event.tokens) for event in tokens] == [1] * 4, "none is merged with another"


def test_a_later_reply_goes_first_and_the_servers_goes_on_after_it(client: Client, engine: ScriptedEngine) -> None:
    """The server's queue begins another reply only where the first one should wait for it."""
    begin_reply(client, engine)
    client.submit("window", ask(3), direct=False)
    client.submit("server 2", ask(2))
    engine.gate.open()
    for name in ("server", "window", "server 2"):
        end = client.end(name)
        assert isinstance(end, ReplyEnd)
        assert end.finish_reason is FinishReason.EOS
        assert client.text(name) == end.text == "Hello, you!"
    assert [each.request_id for each in engine.requests] == [1, 3, 2]


def test_a_benchmark_goes_first_too_and_facts_are_told_meanwhile(client: Client, engine: ScriptedEngine) -> None:
    begin_reply(client, engine)
    client.submit("facts", LimitPrefixCaches(5000), direct=False)
    client.submit("bench", BenchPlan((_PLAIN,), (Prompt("a", "Hi"),)), direct=False)
    engine.gate.allow(2)  # a token, and the end of the benchmark, which has no runs
    assert client.end("facts") == PrefixCacheFacts(1, 1000, 5000)
    assert isinstance(client.end("bench"), BenchEnd)
    assert client.text("server") == "Hello,"
    engine.gate.open()
    assert isinstance(client.end("server"), ReplyEnd)


@pytest.mark.parametrize("command", [LoadModel("other", Dtype.AUTO), UnloadModel()], ids=["load", "unload"])
def test_changing_the_model_ends_the_servers_replies_with_a_sentence(
    client: Client, engine: ScriptedEngine, command: Command
) -> None:
    begin_reply(client, engine)
    client.submit("server 2", ask(2))
    client.submit("change", command, direct=False)
    assert isinstance(client.end("change"), ModelInfo | Unloaded)
    for name in ("server", "server 2"):
        failure = client.end(name)
        assert isinstance(failure, Failure)
        assert failure.message == "The model was changed in the window."
    assert client.text("server") == "Hello"


def test_benchmark_in_another_precision_ends_the_servers_replies_with_a_sentence(
    client: Client, engine: ScriptedEngine
) -> None:
    begin_reply(client, engine)
    cell = BenchCell(DraftSettings(Mode.OFF), dtype=Dtype.FOUR_BIT)
    client.submit("bench", BenchPlan((cell,), (Prompt("a", "Hi"),)), direct=False)
    failure = client.end("server")
    assert isinstance(failure, Failure)
    assert "another precision" in failure.message
    engine.gate.open()
    assert isinstance(client.end("bench"), BenchEnd)


def test_the_server_stops_its_own_reply_and_loading_for_it_stops_nothing(
    client: Client, engine: ScriptedEngine
) -> None:
    begin_reply(client, engine)
    client.submit("load 2", LoadModel("other", Dtype.AUTO))
    client.requests["server"].cancel()
    end = client.end("server")
    assert isinstance(end, ReplyEnd)
    assert (end.text, end.finish_reason) == ("Hello", FinishReason.CANCELLED)
    assert isinstance(client.end("load 2"), ModelInfo)
    engine.gate.shut()
    client.submit("window", ask(3), direct=False)
    client.submit("load 3", LoadModel("third", Dtype.AUTO))
    engine.gate.open()
    assert isinstance(client.end("window"), ReplyEnd)
    assert client.text("window") == "Hello, you!"
    assert isinstance(client.end("load 3"), ModelInfo)


def test_a_load_that_is_stopped_still_has_its_last_event(client: Client, engine: ScriptedEngine) -> None:
    begin_reply(client, engine)
    client.submit("load 2", LoadModel("other", Dtype.AUTO))
    client.requests["load 2"].cancel()
    engine.gate.open()
    assert isinstance(client.end("load 2"), Failure)
    assert engine.loads == [("tiny", Dtype.AUTO)]


def test_a_server_that_takes_no_events_ends_its_reply_alone(
    client: Client, engine: ScriptedEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.replies = [Reply(tokens=("word ",) * 1000), Reply()]
    taken: list[EngineEvent] = []

    def refuse(event: EngineEvent) -> None:
        taken.append(event)
        if isinstance(event, ReplyProgress):
            raise RuntimeError("its loop is closed")

    client._client.submit(ask(1), refuse, direct=True)
    client.submit("window", ask(2), direct=False)
    assert isinstance(client.end("window"), ReplyEnd)
    assert sum(isinstance(event, ReplyProgress) for event in taken) == 1
    assert "The server did not take an event" in caplog.text


def test_quitting_ends_a_reply_with_a_sentence(client: Client, engine: ScriptedEngine) -> None:
    begin_reply(client, engine)
    assert client._client.shutdown()
    failure = client.end("server")
    assert isinstance(failure, Failure)
    assert failure.message == "rdchat is closing."
    client.submit("late", ask(2))
    assert isinstance(client.end("late"), Failure)
