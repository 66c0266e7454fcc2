import asyncio
import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import uvicorn.server

from rdchat.server.server import Server
from rdchat.server.server_settings import Limits, ServerSettings
from tests.server.fakes import KEY, ScriptedGate

if TYPE_CHECKING:
    from anthropic import Anthropic
    from openai import OpenAI

MakeServer = Callable[..., Server]
ASK = {"messages": [{"role": "user", "content": "Hi"}]}
PATH = "/v1/chat/completions"
_LIMITS = Limits()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture(autouse=True)
def frequent_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server asks every tenth of a second whether it is to stop, and each test would wait for two of them."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / 20)

    monkeypatch.setattr(uvicorn.server, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": sleep}))


@pytest.fixture
def gate() -> Iterator[ScriptedGate]:
    gate = ScriptedGate()
    yield gate
    gate.close()


@pytest.fixture
def make_server(gate: ScriptedGate) -> Iterator[MakeServer]:
    """Start servers in front of the scripted engine; their threads must end with the test."""
    servers: list[Server] = []

    def make(limits: Limits = _LIMITS, **settings: Any) -> Server:
        chosen: dict[str, Any] = {"port": 0, "limits": limits} | settings
        server = Server(ServerSettings(KEY, **chosen), gate)
        server.listen()
        servers.append(server)
        return server

    yield make
    gate.gate.open()
    for server in servers:
        assert server.stop_server(60)


@pytest.fixture
def server(make_server: MakeServer) -> Server:
    return make_server()


@pytest.fixture
def openai(server: Server) -> Iterator["OpenAI"]:
    with openai_client(server) as client:
        yield client


@pytest.fixture
def anthropic(server: Server) -> Iterator["Anthropic"]:
    with anthropic_client(server) as client:
        yield client


def openai_client(server: Server, key: str = KEY) -> "OpenAI":
    from openai import DefaultHttpxClient, OpenAI

    http = DefaultHttpxClient(verify=_no_roots())
    return OpenAI(base_url=f"{server.address}/v1", api_key=key, max_retries=0, timeout=60, http_client=http)


def anthropic_client(server: Server) -> "Anthropic":
    from anthropic import Anthropic, DefaultHttpxClient

    http = DefaultHttpxClient(verify=_no_roots())
    return Anthropic(base_url=server.address, api_key=KEY, max_retries=0, timeout=60, http_client=http)


def response_of(client: "OpenAI", asked: dict[str, Any], stream: bool) -> Any:
    """Return a response, which may be streamed."""
    if not stream:
        return client.responses.create(**asked)
    with client.responses.stream(**asked) as events:
        return events.get_final_response()


@cache
def _no_roots() -> ssl.SSLContext:
    """Return a context without certificates: reading them takes each client 40 ms, and the servers here need none."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def port_of(server: Server) -> int:
    port = urlsplit(server.address).port
    assert port
    return port


def send(
    server: Server, body: Any = ASK, path: str = PATH, method: str = "POST", key: str = KEY, **headers: str
) -> tuple[int, Any, dict[str, str]]:
    """Send a request; return the status, the body and the headers of the answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {"Authorization": f"Bearer {key}", **{name.replace("_", "-"): value for name, value in headers.items()}}
    with closing(http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=60)) as connection:
        connection.request(method, path, data, {name: value for name, value in named.items() if value})
        answer = connection.getresponse()
        text = answer.read()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, json.loads(text) if text.startswith(b"{") else text, found


@contextmanager
def streamed(
    server: Server, body: dict[str, Any], path: str = "/v1/chat/completions"
) -> Iterator[http.client.HTTPResponse]:
    """Ask for a stream; give the answer once its headers are there."""
    with closing(http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=60)) as connection:
        connection.request("POST", path, json.dumps(body | {"stream": True}), {"x-api-key": KEY})
        with connection.getresponse() as answer:
            yield answer


def wait_until(holds: Callable[[], object]) -> None:
    """Wait until a condition on another thread holds."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)
