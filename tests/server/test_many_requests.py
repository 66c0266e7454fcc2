"""Many clients at once, among them some who break rules: each is answered as the interface would, and nothing stays."""

import gc
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from rdchat import paths
from rdchat.inference.api import (
    FinishReason,
    GenerationRequest,
    Piece,
    PrefillProgress,
    ReplyEnd,
    Statistics,
    TokenEvent,
)
from rdchat.server.served_models import Stop
from rdchat.server.server import Server
from rdchat.server.server_settings import Limits, ServerSettings
from tests.server.conftest import PATH, port_of, send, wait_until
from tests.server.fakes import KEY, Running, ScriptedGate
from tests.split_replies import told

AT_ONCE = 50
REQUESTS = 1000
ROUNDS = 4  # that the requests are sent in
GROWTH = 30 * 2**20  # bytes that a process may grow by in all rounds without a leak
LONG = "forever " + "x" * 500  # with 20,000 tokens, more than all buffers on the way hold
LIMITS = Limits(send_seconds=2.0, header_seconds=2.0, body_seconds=2.0, body_bytes=100_000)
PATIENT = Limits(send_seconds=10.0, header_seconds=10.0, body_seconds=10.0, body_bytes=100_000)  # with many at once

Kind = Callable[[Server, int], None]


class EchoingEngine(ScriptedGate):
    """A reply has a token for each word of the last message.

    A message that begins with "forever", or "slowly", is written again and again until the reply is cancelled or has
    its most tokens.

    Attributes:
        begun: Number of replies that began.
        max_at_once: The most replies that were asked for at the same time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.max_at_once = 0
        self._asked = 0
        self._lock = threading.Lock()

    def generate(self, request: GenerationRequest, on_event: Callable[[Any], object]) -> Stop:
        with self._lock:
            self._asked += 1
            self.max_at_once = max(self.max_at_once, self._asked)
        return super().generate(request, on_event)

    def _reply(self, request: GenerationRequest, on_event: Callable[[Any], object], running: Running) -> None:
        self.begun += 1
        said = request.messages[-1].content if request.text is None else request.text
        words = said.split(" ")
        on_event(PrefillProgress(request.request_id, len(words), len(words), 0))
        pause_s = 0.001 if words[0] == "slowly" else 0
        most = min(10**9 if pause_s or words[0] == "forever" else len(words), request.sampling.max_tokens)
        text = ""
        finish = FinishReason.EOS if most >= len(words) else FinishReason.LENGTH
        ids: list[int] = []
        for index in range(most):
            if running.cancelled.wait(pause_s):
                finish = FinishReason.CANCELLED
                self.cancelled += 1
                break
            token = words[index % len(words)] if index == 0 else f" {words[index % len(words)]}"
            text += token
            ids.append(index)
            on_event(TokenEvent(request.request_id, index, index, token, pieces=(Piece(token),)))
        with self._lock:
            self._asked -= 1
        counters = Statistics(prompt_tokens=len(words), generated_tokens=len(ids), decode_ms=1.0)
        on_event(ReplyEnd(request.request_id, text, tuple(ids), "", finish, counters, told=told(text)))


@pytest.fixture
def engine() -> Iterator[EchoingEngine]:
    engine = EchoingEngine()
    yield engine
    engine.close()


@pytest.fixture
def server(engine: EchoingEngine, request: pytest.FixtureRequest) -> Iterator[Server]:
    limits = getattr(request, "param", LIMITS)
    server = Server(ServerSettings(KEY, port=0, limits=replace(limits, queue_length=4 * AT_ONCE)), engine)
    server.listen()
    yield server
    assert server.stop_server(60)


def connected(server: Server) -> int:
    """Return the number of clients that the server is connected with."""
    return sum(
        each.laddr == ("127.0.0.1", port_of(server)) and each.status == psutil.CONN_ESTABLISHED
        for each in psutil.Process().net_connections("tcp")
    )


def chat(text: str, **fields: object) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text}], "max_tokens": 100} | fields).encode()


def opened(server: Server, body: bytes, *, promised: int | None = None, receives: int = 0) -> socket.socket:
    """Send a request by hand; `promised` is the length that it names, `receives` the size of the reader's buffer."""
    link = socket.socket()
    link.settimeout(60)
    if receives:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    link.connect(("127.0.0.1", port_of(server)))
    length = len(body) if promised is None else promised
    head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port_of(server)}\r\nAuthorization: Bearer {KEY}\r\n"
    link.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode() + body)
    return link


def left(link: socket.socket) -> None:
    """Leave without a farewell."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()


def whole(server: Server, number: int) -> None:
    status, body, _ = send(server, chat(f"whole reply {number}"), User_Agent=f"client-{number % 7}")
    assert (status, body["choices"][0]["message"]["content"]) == (200, f"whole reply {number}")


def streamed(server: Server, number: int) -> None:
    status, body, _ = send(server, chat(f"streamed reply {number}", stream=True))
    lines = [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]
    assert (status, lines.pop()) == (200, "[DONE]")
    deltas = [json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines]
    assert "".join(deltas) == f"streamed reply {number}"


def anthropic(server: Server, number: int) -> None:
    status, body, _ = send(server, chat(f"message {number}"), "/v1/messages")
    assert (status, body["content"][0]["text"]) == (200, f"message {number}")


def raw(server: Server, number: int) -> None:
    status, body, _ = send(server, {"prompt": f"a text {number}", "max_tokens": 9}, "/v1/completions")
    assert (status, body["choices"][0]["text"]) == (200, f"a text {number}")


def wrong_key(server: Server, number: int) -> None:
    given = (f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", "Bearer", "", f"Basic {KEY}", "Bearer \u00e9")[number % 6]
    status, body, _ = send(server, chat("secret"), Authorization=given)
    assert (status, body["error"]["code"]) == (401, "invalid_api_key")


def broken_body(server: Server, number: int) -> None:
    body = BROKEN[number % len(BROKEN)]
    status, answer, _ = send(server, body, (PATH, "/v1/messages", "/v1/completions")[number % 3])
    assert 400 <= status < 500, (body[:100], answer)
    assert isinstance(answer["error"]["message"], str)


def too_long(server: Server, _number: int) -> None:
    with closing(opened(server, b"", promised=10**12)) as link:
        link.sendall(b"x" * 50_000)
        with_rest = link.recv(1000)
    assert b" 413 " in with_rest.splitlines()[0] or b" 408 " in with_rest.splitlines()[0]


def never_whole(server: Server, _number: int) -> None:
    with closing(opened(server, b'{"messages"', promised=100)) as link:
        assert b" 408 " in link.recv(1000).splitlines()[0]


def leaves(server: Server, number: int) -> None:
    """Leave before, at, or in the middle of the reply."""
    link = opened(server, chat("slowly " + "x" * 500, stream=True, max_tokens=20_000))
    if number % 3:
        link.recv(number % 3 * 2000)
    if number % 2:
        left(link)
    else:
        link.close()


def leaves_early(server: Server, _number: int) -> None:
    left(opened(server, b'{"messages"', promised=100))


BROKEN = (
    b"", b'"text"', b"[" * 50_000, chat("")[:-1], b'{"messages": 1, "prompt": {}}', b'{"messages": [1], "prompt": 1}',
    b'{"seed": ' + b"9" * 5000 + b"}", b'{"messages": [{"role": "user", "content": {"a": 1}}], "prompt": [[{}]]}',
)  # fmt: skip
KINDS: tuple[Kind, ...] = (
    whole, streamed, whole, anthropic, whole, raw, streamed, wrong_key, whole, streamed, broken_body, whole, leaves,
    streamed, leaves_early, anthropic, whole,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("server", [PATIENT], indirect=True, ids=[""])
def test_thousand_requests_leak_no_memory(server: Server, engine: EchoingEngine) -> None:
    process = psutil.Process()
    memory = list[int]()
    with ThreadPoolExecutor(AT_ONCE) as clients:

        def send(numbers: range) -> None:
            for asked in [clients.submit(KINDS[number % len(KINDS)], server, number) for number in numbers]:
                asked.result(120)

        send(range(REQUESTS // 4))  # fills pools and buffers
        stalled = [clients.submit(too_long, server, 0), clients.submit(never_whole, server, 0)]
        for part in range(ROUNDS):
            gc.collect()
            memory.append(process.memory_info().rss)
            send(range(part * REQUESTS // ROUNDS, (part + 1) * REQUESTS // ROUNDS))
        for each in stalled:
            each.result(60)
    wait_until(lambda: server.facts.running is None and not server.facts.waiting)
    # buffers of threads may grow once; what leaks grows in each round
    assert min(after - before for before, after in pairwise(memory)) < GROWTH / ROUNDS
    assert engine.max_at_once == 1
    assert engine.begun > engine.cancelled > 0
    assert not [path for path in paths.data_dir().glob("**/*") if path.is_file()], "nothing is stored"
    whole(server, 7)


@pytest.mark.slow
def test_a_reader_that_stalls_keeps_nobody_waiting(engine: EchoingEngine) -> None:
    limits = replace(LIMITS, send_seconds=600.0)
    server = Server(ServerSettings(KEY, port=0, limits=limits), engine)
    server.listen()
    links = [opened(server, chat(LONG, stream=True, max_tokens=20_000), receives=2048) for _ in range(5)]
    wait_until(lambda: server.facts.answered == len(links))
    whole(server, 1)
    for link in links:
        left(link)
    assert server.stop_server(60)


@pytest.mark.slow
def test_a_reader_that_stalls_is_dropped(server: Server) -> None:
    with closing(opened(server, chat(LONG, stream=True, max_tokens=20_000), receives=2048)):
        wait_until(lambda: server.facts.answered == 1)
        wait_until(lambda: not connected(server))


def test_threads_end_with_the_server(engine: EchoingEngine, tmp_path: Path) -> None:
    before = set(threading.enumerate())  # those of an earlier test may end meanwhile
    server = Server(ServerSettings(KEY, port=0), engine)
    server.listen()
    links = [opened(server, chat(LONG, stream=True, max_tokens=2**20)) for _ in range(3)]
    wait_until(lambda: server.facts.running is not None)
    assert server.stop_server(60)
    assert set(threading.enumerate()) <= before
    for link in links:
        link.close()
