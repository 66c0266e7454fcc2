"""Answers that a hostile hub gives: too long, too slow, without end; and a small SOCKS5 proxy (RFC 1928)."""

import socket
import socketserver
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from tests.hub.hub_server import Fault, HubServer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
GIGABYTES = 3 * 10**9
_PIECE = 2**20


def raw(pieces: Callable[[], Iterable[bytes]]) -> Fault:
    return Fault(raw=pieces)


def long_json(status: bytes = b"200 OK") -> Fault:
    """3 GB of JSON: a list of empty objects."""

    def pieces() -> Iterator[bytes]:
        yield b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\n\r\n["
        piece = b"{}," * (_PIECE // 3)
        for _ in range(GIGABYTES // len(piece)):
            yield piece

    return Fault(raw=pieces)


def gzip_bomb() -> Fault:
    """2 GB of spaces, 2 MB as they are sent."""

    def pieces() -> Iterator[bytes]:
        pack = zlib.compressobj(9, wbits=31)
        yield HEAD + b"Content-Encoding: gzip\r\n\r\n"
        for _ in range(2 * 10**9 // _PIECE):
            yield pack.compress(b" " * _PIECE)
        yield pack.flush()

    return Fault(raw=pieces)


def slow(hub: HubServer, sent_at_once: bytes = HEAD + b"\r\n") -> Fault:
    """A byte a second, which never ends."""

    def pieces() -> Iterator[bytes]:
        yield sent_at_once
        while not hub.closing.wait(1.0):
            yield b" "

    return Fault(raw=pieces)


def slow_headers(hub: HubServer) -> Fault:
    return slow(hub, HEAD + b"X-Long: ")


def endless_list(hub: HubServer, pages: int, itself: bool) -> list[Fault]:
    """Empty pages, each of which names a next one: itself, or always another."""
    link = '<{url}/api/models?cursor={number}>; rel="next"'
    return [
        Fault(status=200, body=b"[]", headers={"Link": link.format(url=hub.url, number=0 if itself else number)})
        for number in range(pages)
    ]


class SocksServer(socketserver.ThreadingTCPServer):
    """Leads connections to where they are wanted.

    Attributes:
        greeting: What it answers first; anything but the default is no SOCKS proxy's answer.
        wanted: Hosts and ports that it was asked for.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.greeting = b"\x05\x00"
        self.wanted: list[tuple[str, int]] = []

    @property
    def url(self) -> str:
        return f"socks5://127.0.0.1:{self.server_address[1]}"


class _Handler(socketserver.StreamRequestHandler):
    server: SocksServer

    def handle(self) -> None:
        _version, methods = self.rfile.read(2)
        self.rfile.read(methods)
        self.request.sendall(self.server.greeting)
        if self.server.greeting != b"\x05\x00":
            return
        kind = self.rfile.read(4)[3]
        host = socket.inet_ntoa(self.rfile.read(4)) if kind == 1 else self.rfile.read(self.rfile.read(1)[0]).decode()
        port = int.from_bytes(self.rfile.read(2))
        self.server.wanted.append((host, port))
        with socket.create_connection((host, port)) as other:
            self.request.sendall(b"\x05\x00\x00\x01" + bytes(6))
            back = threading.Thread(target=_carry, args=(other, self.request))
            back.start()
            _carry(self.request, other)
            back.join()


def _carry(source: socket.socket, to: socket.socket) -> None:
    """Carry bytes until one side ends, and end the other."""
    with suppress(OSError):
        while data := source.recv(2**16):
            to.sendall(data)
    with suppress(OSError):
        to.shutdown(socket.SHUT_WR)
