"""Requests that a server must not answer, and clients that hold it up."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.inference.api import ChatMessage, GenerationRequest, Role
from rdchat.server.interfaces.reply_request import Prompt, ReplyRequest
from rdchat.server.request_queue import RequestQueue
from rdchat.server.served_models import ServedModels
from rdchat.server.server import Server
from rdchat.server.server_settings import Limits, Phase, ServerSettings, host_names
from tests.server.conftest import ASK, PATH, MakeServer, port_of, send, wait_until
from tests.server.fakes import KEY, MODEL, Script, ScriptedGate
from tests.written_log import text_of, written

__all__ = ["written"]


@contextmanager
def raw(server: Server, *texts: str) -> Iterator[socket.socket]:
    """Open a connection and send texts as they are."""
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout=60) as connection:
        for text in texts:
            connection.sendall(text.encode())
        yield connection


def head(server: Server, length: int, more: str = "") -> str:
    names = f"Host: localhost:{port_of(server)}\r\nx-api-key: {KEY}\r\ncontent-length: {length}"
    return f"POST {PATH} HTTP/1.1\r\n{names}\r\n{more}\r\n"


@contextmanager
def sending(server: Server, *agents: str) -> Iterator[list[Any]]:
    """Send requests one after another on threads of their own; give the list of their answers, and wait for them."""
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda each=each: answers.append(send(server, User_Agent=each))) for each in agents
    ]
    for thread in threads:
        thread.start()
        wait_until(lambda: server.facts.running)
    yield answers
    for thread in threads:
        thread.join(60)


def test_authorised_request_is_answered(server: Server) -> None:
    status, body, headers = send(server)
    assert (status, body["choices"][0]["message"]["content"]) == (200, "Hello, you!")
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


FOREIGN = {
    "Host": (
        "example.org",
        "example.org:PORT",
        "localhost:1",
        "localhost",
        "localhost:PORT@example.org",
        "example.org@localhost:PORT",
        "[::1",
        "localhost..:PORT",
        "evil.host.docker.internal:PORT",
        "host.docker.internal.example.org:PORT",
        "host.docker.internal:1",
    ),
    "Origin": (
        "https://example.org",
        "null",
        "http://localhost:1",
        "HTTPS://example.org",
        "http://tauri.localhost",
        "file://",
        "FILE:///tmp/page.html",
        "blob:https://example.org",
        "javascript://x",
        "ftp://example.org",
        "intent://x",
        "app://",
        "app://a b",
    ),
    "key": ("", "a-key-for-test", f"{KEY}x"),
}


@pytest.mark.parametrize(("name", "value"), [(name, each) for name, values in FOREIGN.items() for each in values])
def test_request_from_elsewhere_or_without_the_key_is_refused(
    server: Server, gate: ScriptedGate, name: str, value: str
) -> None:
    given = {name: value.replace("PORT", str(port_of(server)))}
    for path in (PATH, "/v1/messages", "/v1/models", "/", "/nothing"):
        status, body, _ = send(server, path=path, **given)
        assert status == (401 if name == "key" else 403)
        assert body["error"]["message"]
    assert not gate.requests


def test_all_names_of_this_machine_are_accepted_as_host(server: Server) -> None:
    for host in ("localhost", "127.0.0.1", "LOCALHOST", "Localhost.", "[::1]", "Host.Docker.Internal", "127.0.0.1"):
        own = f"{host}:{port_of(server)}"
        assert send(server, Host=own, Origin=f"http://{own.lower()}")[0] == 200


def test_a_server_for_other_machines_takes_addresses_but_no_foreign_names(make_server: MakeServer) -> None:
    server = make_server(host="0.0.0.0")
    port = port_of(server)
    assert send(server, Host=f"192.0.2.7:{port}")[0] == 200
    assert send(server, Host=f"example.org:{port}")[0] == 403


def test_the_key_in_either_header(server: Server) -> None:
    assert send(server, key="", x_api_key=KEY)[0] == 200
    assert send(server, key="", Authorization=KEY)[0] == 401
    assert send(server, key="", Authorization=f"Basic {KEY}")[0] == 401
    assert send(server, key="", Authorization=f"BEARER  {KEY}")[0] == 200
    assert send(server, x_api_key="left-over")[0] == 200
    assert send(server, key="left-over", x_api_key=KEY)[0] == 200
    assert send(server, key="left-over", x_api_key="another")[0] == 401
    for first, second in (("left-over", KEY), (KEY, "left-over")):
        asked = f"GET /v1/models HTTP/1.1\r\nHost: localhost:{port_of(server)}\r\n"
        with raw(server, f"{asked}x-api-key: {first}\r\nx-api-key: {second}\r\n\r\n") as connection:
            assert connection.recv(12) == b"HTTP/1.1 200"


def test_names_that_the_person_allows_are_exact(make_server: MakeServer) -> None:
    server = make_server(allowed_hosts=host_names(["My-Mac.LAN.", " nas ", "nas"]))
    assert server.settings.allowed_hosts == ("my-mac.lan", "nas")
    for host, status in (("my-mac.lan", 200), ("NAS", 200), ("x.my-mac.lan", 403), ("host.docker.internal", 403)):
        assert send(server, Host=f"{host}:{port_of(server)}")[0] == status


@pytest.mark.parametrize("name", ["*", "*.lan", "http://nas", "nas:8817", "a b", "", "a..b", "x" * 64])
def test_allowed_host_must_be_an_exact_name(name: str) -> None:
    with pytest.raises(InvalidSettingError, match="exact name"):
        host_names([name])


@pytest.mark.parametrize(
    "origin",
    [
        "app://obsidian.md",
        "vscode-webview://0a1b",
        "moz-extension://0a1b",
        "tauri://localhost",
        "capacitor://localhost",
        "chrome-extension://abcdef",
    ],
)
def test_an_app_with_a_scheme_of_its_own(server: Server, gate: ScriptedGate, origin: str) -> None:
    status, _, headers = send(server, Origin=origin)
    assert (status, headers["access-control-allow-origin"], headers["vary"]) == (200, origin, "Origin")
    exposed = set(headers["access-control-expose-headers"].split(", "))
    assert {"x-rdchat-ignored", "x-rdchat-unenforced", "x-rdchat-model-substituted"} <= exposed
    assert send(server, path="/nothing", Origin=origin)[2]["access-control-allow-origin"] == origin
    assert send(server, Origin=origin, Host=f"example.org:{port_of(server)}")[0] == 403
    status, _, refused = send(server, Origin=origin, key="another-key")
    assert (status, "access-control-allow-origin" in refused) == (401, False)
    ask = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization,x-stainless-os"}
    answers = [
        send(server, b"", path, "OPTIONS", key, Origin=origin, **ask)
        for path in (PATH, "/nothing", "/v1/models/tiny/model")
        for key in ("", "another-key", KEY)
    ]
    status, body, headers = answers[0]
    assert (status, body, headers["access-control-allow-origin"]) == (204, b"", origin)
    assert headers["access-control-allow-headers"] == "authorization,x-stainless-os"
    assert "POST" in headers["access-control-allow-methods"]
    for other in answers:
        assert (other[0], other[1]) == (status, body)
        assert {**other[2], "date": ""} == {**headers, "date": ""}
    assert len(gate.requests) == 1


def test_a_web_page_gets_no_preflight(server: Server) -> None:
    for origin in ("https://example.org", "null", "file://"):
        status, _, headers = send(server, b"", PATH, "OPTIONS", "", Origin=origin, Access_Control_Request_Method="POST")
        assert status == 403
        assert "access-control-allow-origin" not in headers
    assert send(server, b"", PATH, "OPTIONS", "", Origin="app://x", Host="example.org")[0] == 403
    assert send(server, b"", PATH, "OPTIONS", "")[0] == 401


def test_a_packed_body_is_refused(server: Server) -> None:
    assert send(server, Content_Encoding="identity")[0] == 200
    for coding in ("gzip", "GZIP", "br", "deflate", "zstd", "identity, gzip"):
        assert send(server, Content_Encoding=coding)[0] == 415


def test_paths_with_a_slash_at_their_end(server: Server) -> None:
    assert send(server, b"", "/v1/models/", "GET")[1]["data"][0]["id"] == "tiny/model"
    assert send(server, b"", "/v1/models/tiny/model", "GET")[1]["id"] == "tiny/model"
    assert send(server, path=f"{PATH}/")[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"messages":' + b'{"a":' * 100_000,
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}',
        '{"messages": [{"role": "user", "content": "\\ud800"}]}'.encode("utf-16"),
        b'{"prompt": "x", "metadata": ' + b"[" * 100 + b"]" * 100 + b"}",
        b'{"messages": {"role": "user"}}',
        b'{"messages": [7]}',
        b'{"messages": [{"role": "user", "content": 7}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "stop": {"a": 1}}',
        b'{"messages": [{"role": "user", "content": "x"}], "seed": 1e999}',
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
        b'{"messages": [{"role": "user", "content": "x"}], "tools": [[]]}',
        b'{"messages": [{"role": "user", "content": "x"}], "model": ["x"]}',
    ],
)
def test_broken_body_is_refused(server: Server, gate: ScriptedGate, body: bytes) -> None:
    for path in (PATH, "/v1/messages", "/v1/completions"):
        status, answer, _ = send(server, body, path)
        assert (status, gate.requests) == (400, [])
        assert answer["error"]["message"]


@pytest.mark.parametrize("arguments", ["[", '{"a": ' + "[" * 100 + "]" * 100 + "}", '{"a": "\\ud800"}'])
def test_arguments_beyond_the_limits_of_a_body_are_text(server: Server, gate: ScriptedGate, arguments: str) -> None:
    call = {"function": {"name": "f", "arguments": arguments}}
    body = {"messages": [{"role": "assistant", "tool_calls": [call]}, *ASK["messages"]]}
    assert send(server, body)[0] == 200
    (kept,) = gate.requests[0].messages[0].tool_calls
    assert json.loads(kept.arguments) == {"unfinished": arguments}


def test_half_a_pair_of_escapes_is_a_character(server: Server, gate: ScriptedGate) -> None:
    assert send(server, b'{"messages": [{"role": "user", "content": "\\ud83d\\ude00"}]}')[0] == 200
    assert gate.requests[0].messages[0].content == "\U0001f600"


def test_too_long_a_body_is_refused(make_server: MakeServer) -> None:
    server = make_server(Limits(body_bytes=1000))
    assert send(server, b'"' + b"x" * 998 + b'"')[0] == 400
    assert send(server, b'"' + b"x" * 5000 + b'"')[0] == 413


def test_too_long_headers_are_refused(server: Server) -> None:
    with raw(server, "GET / HTTP/1.1\r\n", "x: " + "y" * 100_000) as connection:
        assert connection.recv(12) == b"HTTP/1.1 400"


@pytest.mark.parametrize("path", [PATH, f"/nothing?{'y' * 40_000}", f"/{'y' * 40_000}"])
def test_too_long_headers_in_one_packet_are_refused(server: Server, gate: ScriptedGate, path: str) -> None:
    more = {} if len(path) > 100 else {f"X{number}": "y" * 8 for number in range(4_000)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in more.items())
    with raw(server, head(server, 0, lines).replace(PATH, path)) as connection:
        assert connection.recv(12) in {b"HTTP/1.1 431", b"HTTP/1.1 400"}
    assert not gate.requests


def test_connection_without_headers_is_closed(make_server: MakeServer) -> None:
    server = make_server(Limits(header_seconds=0.2))
    with raw(server) as silent, raw(server, "GET / HTTP/1.1\r\n") as begun:
        assert (silent.recv(1), begun.recv(1)) == (b"", b"")


def test_body_that_does_not_come_is_refused(make_server: MakeServer) -> None:
    server = make_server(Limits(body_seconds=0.2))
    with raw(server, head(server, 100)) as connection:
        answer = b"".join(iter(lambda: connection.recv(1000), b""))  # to the end: the connection is closed
    assert answer.startswith(b"HTTP/1.1 408")


def test_too_many_connections(make_server: MakeServer, gate: ScriptedGate) -> None:
    server = make_server(Limits(connections=2, header_seconds=3600))
    gate.gate.shut()
    body = json.dumps(ASK)
    with raw(server, head(server, len(body)) + body) as running:
        wait_until(lambda: bool(gate.requests))
        assert send(server)[0] == 503
        gate.gate.open()
        assert running.recv(12) == b"HTTP/1.1 200"
    wait_until(lambda: send(server)[0] == 200)


@pytest.mark.parametrize("begun", ["", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_connections_without_a_whole_request_keep_nobody_out(make_server: MakeServer, begun: str) -> None:
    """They need no key, and may be opened again and again."""
    server = make_server(Limits(connections=4, header_seconds=3600, idle_seconds=3600))
    with ExitStack() as held:
        oldest = held.enter_context(raw(server, begun))
        for _ in range(9):
            held.enter_context(raw(server, begun))
        assert send(server)[0] == 200
        with suppress(ConnectionResetError):
            while oldest.recv(1000):
                pass


def test_one_search_for_models_answers_all_who_ask_at_once(gate: ScriptedGate) -> None:
    searches: list[None] = []
    gate.installed = lambda: searches.append(None) or gate.cards  # type: ignore[method-assign, func-returns-value]
    models = ServedModels(ServerSettings(KEY), gate)

    async def ask() -> None:
        assert await asyncio.gather(*(models.installed() for _ in range(8))) == [gate.cards] * 8

    asyncio.run(ask())
    assert len(searches) == 1


def test_tokens_are_counted_one_prompt_at_a_time(gate: ScriptedGate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that counts them also makes the tokens of the person's prompt."""
    counting = threading.Lock()

    def count(_request: GenerationRequest) -> int:
        assert counting.acquire(blocking=False)
        time.sleep(0.001)
        counting.release()
        return 1

    monkeypatch.setattr(gate, "count_tokens", count)

    async def ask() -> None:
        requests = RequestQueue(ServerSettings(KEY), gate, lambda _facts: None)
        request = ReplyRequest("", (Prompt((ChatMessage(Role.USER, "Hi"),)),), {}, seed=1)
        await asyncio.gather(*(requests.count_prompt("a", request, 0, MODEL) for _ in range(8)))

    asyncio.run(ask())


def test_counts_of_clients_that_left_are_not_made(
    server: Server, gate: ScriptedGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = list[str]()

    def count(request: GenerationRequest) -> int:
        counted.append(request.messages[0].content)
        gate.gate.wait()
        return 7

    monkeypatch.setattr(gate, "count_tokens", count)
    gate.gate.shut()
    path = "/v1/messages/count_tokens"
    waiting = server._queue._to_count
    with ExitStack() as stack:
        for name in "abc":
            body = json.dumps({"messages": [{"role": "user", "content": name}]})
            stack.enter_context(raw(server, head(server, len(body)).replace(PATH, path), body))
            wait_until(lambda: counted)
        wait_until(lambda: sum(map(len, waiting.values())) == 2)
    wait_until(lambda: all(tokens.cancelled() for each in [*waiting.values()] for _, tokens in each))
    gate.gate.open()
    last = json.dumps({"messages": [{"role": "user", "content": "d"}]}).encode()
    assert send(server, last, path=path)[:2] == (200, {"input_tokens": 7})
    assert counted == ["a", "d"]


def test_broken_body_after_the_answer_is_not_logged(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    begun = head(server, 5).replace(PATH, "/nothing").replace("content-length: 5", "transfer-encoding: chunked")
    with raw(server, begun) as connection:
        assert connection.recv(12) == b"HTTP/1.1 404"
        connection.sendall(b"no length\r\n")
        while connection.recv(1000):
            pass
    assert not caplog.records


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages/count_tokens"])
def test_no_word_of_a_request_that_fails_is_logged(
    server: Server, gate: ScriptedGate, monkeypatch: pytest.MonkeyPatch, written: Path, path: str
) -> None:
    word = "xylophone"

    def fail(*_arguments: object) -> None:
        raise ValueError(word)

    monkeypatch.setattr(gate, "count_tokens", fail)
    monkeypatch.setattr(gate, "generate", fail)
    body = {"max_tokens": 9, "messages": [{"role": "user", "content": word}], word: 1}
    for name in ("default", word):
        send(server, body | {"model": name}, path)
    assert word not in text_of(written)


def test_one_foreign_origin_among_several_is_refused(server: Server) -> None:
    own = f"http://localhost:{port_of(server)}"
    asked = f"GET /v1/models HTTP/1.1\r\nHost: {own[7:]}\r\nx-api-key: {KEY}\r\n"
    with raw(server, f"{asked}Origin: {own}\r\nOrigin: https://example.org\r\n\r\n") as connection:
        assert connection.recv(12) == b"HTTP/1.1 403"


@pytest.mark.slow
def test_a_reader_who_does_not_read_loses_the_reply(make_server: MakeServer, gate: ScriptedGate) -> None:
    server = make_server(Limits(send_seconds=0.3))
    gate.scripts = [Script(("x" * 2**16,) * 4000), Script()]
    body = json.dumps(ASK | {"stream": True})
    with raw(server, head(server, len(body)), body):
        wait_until(lambda: server.facts.answered == 1)
        assert send(server)[0] == 200
    assert len(gate.requests) == 2


def test_a_client_that_leaves_while_it_waits_is_forgotten(server: Server, gate: ScriptedGate) -> None:
    gate.gate.shut()
    body = json.dumps(ASK)
    with sending(server, "one"):
        with raw(server, head(server, len(body)), body):
            wait_until(lambda: len(server.facts.waiting) == 1)
        wait_until(lambda: not server.facts.waiting)
        gate.gate.open()
    assert len(gate.requests) == 1


def test_more_requests_than_may_wait(make_server: MakeServer, gate: ScriptedGate) -> None:
    server = make_server(Limits(queue_length=1))
    gate.gate.shut()
    with sending(server, "one", "two"):
        wait_until(lambda: server.facts.waiting)
        status, body, headers = send(server)
        assert (status, body["error"]["type"]) == (429, "rate_limit_error")
        assert int(headers["retry-after"]) >= 1
        gate.gate.open()


def test_facts_and_stop(server: Server, gate: ScriptedGate) -> None:
    gate.gate.shut()
    with sending(server, "one\t1", "two") as answers:
        wait_until(lambda: server.facts.waiting)
        gate.gate.allow(3)
        wait_until(lambda: server.facts.running and server.facts.running.acceptance)
        running = server.facts.running
        assert running
        assert (running.user_agent, running.phase, running.path) == ("one 1", Phase.WRITING, PATH)
        assert (running.acceptance, server.facts.waiting[0].user_agent) == (0.5, "two")
        server.cancel_request(server.facts.waiting[0].request_id)
        server.cancel_request(running.request_id)
    assert [(status, body["error"]["message"][:10]) for status, body, _ in answers] == [(503, "The person")] * 2
    wait_until(lambda: server.facts.answered == 2)
    assert server.facts.running is None


def test_stopping_ends_replies(make_server: MakeServer, gate: ScriptedGate) -> None:
    server = make_server()
    gate.gate.shut()
    with sending(server, "one") as answers:
        assert server.stop_server(60)
    assert answers[0][0] == 503
    assert server.address == ""


def test_stopping_ends_a_reply_although_the_engine_is_busy(make_server: MakeServer, gate: ScriptedGate) -> None:
    """The engine's last event comes after the server's end, and is dropped."""
    server = make_server()
    begun = threading.Event()
    busy = threading.Event()

    def stay_busy() -> None:
        begun.set()
        busy.wait()

    gate._work.put(stay_busy)
    assert begun.wait(60)
    with sending(server, "one") as answers:
        wait_until(lambda: not gate._work.empty())  # the request waits behind what the engine does
        assert server.stop_server(60)
    assert answers[0][0] == 503
    busy.set()


def test_port_in_use_raises_an_error(server: Server, make_server: MakeServer) -> None:
    with pytest.raises(RdchatError, match=r"cannot listen on 127\.0\.0\.1, port \d+: Address already in use\. Choose"):
        make_server(port=port_of(server))
