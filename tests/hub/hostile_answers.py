"""Answers that a hostile hub gives: too long, too slow, without end."""

import zlib
from collections.abc import Callable, Iterable, Iterator

from tests.hub.hub_contents import Fault
from tests.hub.hub_server import HubServer

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
