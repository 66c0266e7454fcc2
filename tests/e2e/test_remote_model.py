"""A real model, served over TLS, against the same model here."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.settings import Settings
from rdchat.inference.api import (
    ChatMessage,
    DraftSettings,
    Dtype,
    Engine,
    GenerationRequest,
    Mode,
    RemoteServer,
    ReplyEnd,
    Role,
    SamplingParams,
    reply_seed,
)
from rdchat.inference.engines import EnginesByAddress
from rdchat.inference.local_engine import LocalEngine
from rdchat.server.credentials import fingerprint, own_certificate
from rdchat.server.server import Server
from rdchat.server.server_settings import ServerSettings
from rdchat.services.engine.engine_client import EngineClient, ModelSlot
from rdchat.services.servers.server_control import SharedEngine
from tests.inference.fakes import reply_end

KEY = "a-key-for-tests"
TURNS = (ChatMessage(Role.USER, "Count to five."), ChatMessage(Role.ASSISTANT, "1, 2, 3, 4, 5."),
         ChatMessage(Role.USER, "And now the same again, please."))  # fmt: skip


@pytest.fixture
def server(qtbot: QtBot, default_model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("RDCHAT_KEY_STUDIO", KEY)
    client = EngineClient(EnginesByAddress, nullcontext)
    slot = ModelSlot(client, Settings())
    server = Server(ServerSettings(KEY, port=0, certificate=own_certificate()), SharedEngine(slot, tuple))
    slot.load_model(str(default_model_folder))
    qtbot.waitUntil(lambda: slot.info is not None, timeout=120_000)
    server.listen()
    yield server
    assert server.stop_server(60)
    assert client.shutdown(60)


def end_of(engine: Engine, temperature: float, mode: Mode, seed: int) -> ReplyEnd:
    sampling = SamplingParams(temperature=temperature, max_tokens=24)
    request = GenerationRequest(TURNS, sampling, seed, draft=DraftSettings(mode))
    with closing(engine.generate(request, lambda: False)) as events:
        return reply_end(events)


@pytest.mark.slow
def test_a_served_model_writes_what_it_writes_here(qtbot: QtBot, server: Server, default_model_folder: Path) -> None:
    shown = fingerprint(own_certificate())
    remote = EnginesByAddress(lambda: [RemoteServer("studio", server.address, shown)])
    name = f"remote:studio/{default_model_folder.name}"
    ends: dict[float, ReplyEnd] = {}

    def ask(temperatures: Sequence[float]) -> None:
        with closing(remote):
            remote.load(name, Dtype.AUTO, lambda _: None)
            for temperature in temperatures:
                ends[temperature] = end_of(remote.chosen, temperature, Mode.AUTO, 7)

    thread = threading.Thread(target=ask, args=([0, 0.9],))
    thread.start()
    # The server's engine reports to this thread.
    qtbot.waitUntil(lambda: not thread.is_alive(), timeout=240_000)
    local = LocalEngine()
    local.load(str(default_model_folder), Dtype.AUTO, lambda _: None)
    for temperature, served in ends.items():
        # The server mixes the seed of a request with the number of its turns.
        here = end_of(local, temperature, Mode.OFF, reply_seed(7, len(TURNS), 0))
        assert (served.token_ids, served.text) == (here.token_ids, here.text)
        assert served.statistics.generated_tokens == len(here.token_ids)
        assert served.statistics.target_calls <= here.statistics.target_calls
        assert served.mode is Mode.AUTO
    # Closing it would take MLX from this thread, which other tests need.
    local.unload()
    assert len(ends) == 2
