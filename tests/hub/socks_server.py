"""A SOCKS5 proxy on this machine, as small as one can be (RFC 1928): CONNECT alone, without a password."""

import socket
import socketserver
import threading
from contextlib import suppress


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
