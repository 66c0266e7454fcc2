"""The server in the app: started, stopped and watched from the main thread."""

import http.client
import json
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.settings import Settings
from rdchat.errors import ModelError, PromptTooLongError
from rdchat.inference.api import (
    DEFAULT_PORT,
    ChatMessage,
    FinishReason,
    GenerationRequest,
    ModelCard,
    ModelInfo,
    PrefillProgress,
    ReplyEnd,
    Role,
    TokenEvent,
)
from rdchat.server.interfaces.fields import ApiError
from rdchat.server.server_settings import Phase
from rdchat.services.engine.engine_client import EngineClient, ModelSlot
from rdchat.services.servers.server_control import ServerControl, SharedEngine
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.ports import any_port  # noqa: F401  a fixture of each test
from tests.services.window import WAIT_MS, Window, collected, pause_midway


class Client:
    """A program that asks for a chat completion on a thread, since the main thread has the app's events."""

    def __init__(self, server: ServerControl, key: str = "") -> None:
        self._where = urlsplit(server.address).netloc
        self._key = key or server.key
        self.status = 0  # type: tuple[int, dict[str, Any]]
        self.answer = {}
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        connection = http.client.HTTPConnection(self._where, timeout=WAIT_MS / 1000)
        body = json.dumps({"model": "", "messages": [{"role": "user", "content": "Hi"}]})
        headers = {"Authorization": f"Bearer {self._key}", "User-Agent": "agent/1", "Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", body, headers)
        response = connection.getresponse()
        self.status = response.status
        self.answer = json.loads(response.read())
        connection.close()

    @property
    def text(self) -> str:
        text: str = self.answer["choices"][0]["message"]["content"]
        return text

    def wait(self, qtbot: QtBot) -> None:
        qtbot.waitUntil(lambda: not self._thread.is_alive())


def answered(server: ServerControl, qtbot: QtBot, key: str = "") -> Client:
    """Return a client that has its answer."""
    client = Client(server, key)
    client.wait(qtbot)
    return client


def start(window: Window) -> ServerControl:
    server = window.server
    server.set_on(True)
    window.wait_until(lambda: bool(server.address))
    return server


def test_the_port_of_the_settings_is_the_server_s_own() -> None:
    assert Settings().server_port == DEFAULT_PORT


def test_server_is_off_at_first_and_answers_once_switched_on(window: Window, qtbot: QtBot) -> None:
    assert not window.server.on
    server = start(window)
    client = answered(server, qtbot)
    assert (client.status, client.text) == (200, "Hello, you!")
    qtbot.waitUntil(lambda: server.facts.answered == 1)
    server.set_on(False)
    assert (server.address, server.key, server.problem) == ("", "", "")


def test_facts_of_the_request_that_runs_and_a_stop(window: Window, engine: ScriptedEngine, qtbot: QtBot) -> None:
    server = start(window)
    engine.gate.shut()
    engine.gate.allow(3)  # two pieces of the prompt, and a token
    client = Client(server)
    qtbot.waitUntil(lambda: server.facts.running is not None and server.facts.running.tokens == 1)
    running = server.facts.running
    assert running is not None
    assert (running.user_agent, running.phase) == ("agent/1", Phase.WRITING)
    server.cancel_request(running.request_id)
    client.wait(qtbot)
    assert client.status == 503
    qtbot.waitUntil(lambda: server.facts.running is None)


def test_server_moves_to_another_port_and_stays_off_with_one_sentence_where_it_is_in_use(
    window: Window, qtbot: QtBot
) -> None:
    server = start(window)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        window.settings.change_values(server_port=port)
        qtbot.waitUntil(lambda: bool(server.problem))
    assert (server.on, server.address, window.seen.notices) == (False, "", [])
    assert f"port {port}" in server.problem
    server.set_on(True)  # the port is free now
    qtbot.waitUntil(lambda: bool(server.address))
    assert not server.problem
    assert answered(server, qtbot).status == 200


def test_new_key_replaces_the_old_one(window: Window, engine: ScriptedEngine, qtbot: QtBot) -> None:
    server = start(window)
    old = server.key
    engine.gate.shut()
    cut = Client(server)
    qtbot.waitUntil(lambda: server.facts.running is not None)
    server.renew_key()
    assert server.key == ""
    cut.wait(qtbot)
    assert cut.status == 503
    engine.gate.open()
    qtbot.waitUntil(lambda: bool(server.key))
    assert server.key != old
    for key, status in ((old, 401), (server.key, 200)):
        assert answered(server, qtbot, key).status == status
    new = server.key
    server.set_on(False)
    server.set_on(True)
    qtbot.waitUntil(lambda: bool(server.key))
    assert server.key == new


def test_server_starts_with_the_app(unstarted: Window, qtbot: QtBot) -> None:
    unstarted.settings.change_values(server_at_start=True)
    unstarted.open_last_chat()
    qtbot.waitUntil(lambda: bool(unstarted.server.address))


def test_notice_says_that_the_server_could_not_start_with_the_app(unstarted: Window, qtbot: QtBot) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        unstarted.settings.change_values(server_at_start=True, server_port=other.getsockname()[1])
        unstarted.open_last_chat()
        qtbot.waitUntil(lambda: bool(unstarted.seen.notices))
    assert [notice.title for notice in unstarted.seen.notices] == ["The server did not start"]


@pytest.mark.parametrize("busy_with", ["the client", "the window"])
def test_closing_ends_a_client_s_reply(window: Window, engine: ScriptedEngine, qtbot: QtBot, busy_with: str) -> None:
    server = start(window)
    if busy_with == "the window":
        pause_midway(window, engine)
        client = Client(server)
        qtbot.waitUntil(lambda: server.facts.running is not None)
    else:
        engine.gate.shut()
        client = Client(server)
        qtbot.waitUntil(lambda: engine.gate.is_waiting)
    assert window.shut_down()
    client.wait(qtbot)
    assert client.status == 503
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("server")]


def test_a_prompt_of_the_window_pauses_a_client_s_reply(window: Window, engine: ScriptedEngine, qtbot: QtBot) -> None:
    server = start(window)
    engine.gate.shut()
    engine.gate.allow(3)
    client = Client(server)
    qtbot.waitUntil(lambda: server.facts.running is not None and server.facts.running.tokens == 1)
    window.send("Me first")
    live = window.replies.live
    qtbot.waitUntil(lambda: bool(live) and live[0].request is not None)
    engine.gate.allow(1)  # a token of the client's, behind which the window's prompt goes first
    qtbot.waitUntil(lambda: len(engine.requests) == 2)
    assert client.status == 0
    engine.gate.open()
    client.wait(qtbot)
    assert (client.status, client.text) == (200, "Hello, you!")
    qtbot.waitUntil(lambda: window.texts == ["Me first", "Hello, you!"] and not window.writing)


ASK = GenerationRequest((ChatMessage(Role.USER, "Hi"),))
OTHER = ModelCard("other", "folder/other", "tests", Path("folder/other"))
BROKEN = ModelCard("broken", "folder/broken", "tests", problem="It is broken.")


def find() -> Sequence[ModelCard]:
    return (OTHER, BROKEN)


@pytest.fixture
def slot(make_client: Callable[..., EngineClient], qtbot: QtBot) -> ModelSlot:
    slot = ModelSlot(make_client(), Settings())
    slot.load_model("tiny")
    qtbot.waitUntil(lambda: slot.info is not None)
    return slot


@pytest.fixture
def shared(slot: ModelSlot) -> SharedEngine:
    return SharedEngine(slot, find)


def from_a_thread(qtbot: QtBot, begin: Callable[[Callable[[Any], object]], object]) -> list[Any]:
    """Begin something from a thread, as the server does; return its events once it has ended."""
    events: list[Any] = []
    caller = threading.Thread(target=begin, args=(events.append,))
    caller.start()
    ends = (ReplyEnd, ApiError, ModelInfo)
    qtbot.waitUntil(lambda: bool(events) and isinstance(events[-1], ends))
    caller.join()
    return events


def test_a_reply(shared: SharedEngine, qtbot: QtBot) -> None:
    events = from_a_thread(qtbot, lambda take: shared.generate(ASK, take))
    assert [type(event) for event in events] == [PrefillProgress] * 2 + [TokenEvent] * 4 + [ReplyEnd]


def test_tokens_are_counted(shared: SharedEngine) -> None:
    assert shared.count_tokens(ASK) == 2  # a word, and one for the message


def test_a_request_that_is_wrong_and_one_that_failed(
    shared: SharedEngine, engine: ScriptedEngine, qtbot: QtBot
) -> None:
    engine.replies = [Reply(refusal=PromptTooLongError("Long.", "Cut it.")), Reply(error=ModelError("Bad."))]
    refused = from_a_thread(qtbot, lambda take: shared.generate(ASK, take))
    assert refused == [ApiError(400, "Long. Cut it.", code="context_length_exceeded")]
    assert from_a_thread(qtbot, lambda take: shared.generate(ASK, take))[-1] == ApiError(500, "Bad.")


def test_a_reply_that_is_cancelled(shared: SharedEngine, engine: ScriptedEngine, qtbot: QtBot) -> None:
    engine.gate.shut()
    end = from_a_thread(qtbot, lambda take: shared.generate(ASK, take)())[-1]
    assert end.finish_reason is FinishReason.CANCELLED


def test_only_models_that_can_be_loaded(shared: SharedEngine) -> None:
    assert shared.installed() == (OTHER,)


def test_a_load_by_the_server_shows_in_the_window(shared: SharedEngine, slot: ModelSlot, qtbot: QtBot) -> None:
    shown: list[str] = []
    slot.load_started.connect(lambda: shown.append("started"))
    slot.loaded.connect(lambda info: shown.append(info.name))
    assert [each.name for each in from_a_thread(qtbot, lambda take: shared.load(OTHER, take))] == ["folder/other"]
    assert shared.model.name == "folder/other"
    qtbot.waitUntil(lambda: slot.name == "folder/other")
    assert (slot.name, slot.chosen, shown) == ("folder/other", "folder/other", ["started", "folder/other"])


def test_a_load_that_fails_brings_the_model_from_before_back(
    shared: SharedEngine, slot: ModelSlot, engine: ScriptedEngine, qtbot: QtBot
) -> None:
    engine.load_errors["folder/other"] = ModelError("It is damaged.")
    assert from_a_thread(qtbot, lambda take: shared.load(OTHER, take)) == [ApiError(500, "It is damaged.")]
    qtbot.waitUntil(lambda: shared.model is not None)
    assert shared.model
    assert (shared.model.name, slot.name, slot.chosen) == ("tiny", "tiny", "tiny")


def test_the_person_chooses_another_model_while_the_server_loads_one(
    shared: SharedEngine, slot: ModelSlot, engine: ScriptedEngine, qtbot: QtBot
) -> None:
    engine.load_gate.shut()
    ends: list[Any] = []
    caller = threading.Thread(target=shared.load, args=(OTHER, ends.append))
    caller.start()
    qtbot.waitUntil(lambda: slot.loading)
    failed = collected(slot.failed)
    slot.load_model("new")
    engine.load_gate.open()
    qtbot.waitUntil(lambda: slot.info is not None)
    caller.join()
    assert [type(end) for end in ends] == [ApiError]
    assert (slot.name, slot.chosen, failed) == ("new", "new", [])
    assert shared.model.name == "new"


def test_the_app_does_not_start_with_a_model_that_the_server_loaded(
    shared: SharedEngine, slot: ModelSlot, qtbot: QtBot
) -> None:
    from_a_thread(qtbot, lambda take: shared.load(OTHER, take))
    qtbot.waitUntil(lambda: slot.name == "folder/other")
    settings = Settings(model="tiny")
    assert slot.remembered_in(settings) == settings


def test_a_load_in_the_window(shared: SharedEngine, slot: ModelSlot, engine: ScriptedEngine, qtbot: QtBot) -> None:
    engine.load_gate.shut()
    slot.load_model("new")
    assert shared.model is None
    engine.load_gate.open()
    qtbot.waitUntil(lambda: shared.model is not None)
    assert shared.model.name == "new"
    slot.unload_model()
    assert shared.model is None


def test_a_remote_model_answers_no_other_programs(shared: SharedEngine, slot: ModelSlot, qtbot: QtBot) -> None:
    slot.load_model("remote:studio/qwen")
    qtbot.waitUntil(lambda: slot.info is not None)
    assert shared.model is None
