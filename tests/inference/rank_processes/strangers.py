"""Programs that connect to a rank's port before its neighbour does, and what a stranger may write into its pipe."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random

_PIECE = 2**16


def silence(one: socket.socket, other: socket.socket) -> None:
    """Send nothing until the rank ends."""
    del one
    while other.recv(_PIECE):
        pass


def garbage(one: socket.socket, other: socket.socket) -> None:
    draw = Random(0)
    while True:
        for each in (one, other):
            each.sendall(draw.randbytes(_PIECE))


def zeros(one: socket.socket, other: socket.socket) -> None:
    """Take part as a rank that adds nothing."""
    while True:
        for each in (one, other):
            each.sendall(bytes(_PIECE))


def echo(one: socket.socket, other: socket.socket) -> None:
    """Send back what the rank sends."""
    while data := other.recv(_PIECE):
        one.sendall(data)


def end(one: socket.socket, other: socket.socket) -> None:
    one.close()
    other.close()


Stranger = Callable[[socket.socket, socket.socket], None]
STRANGERS: tuple[Stranger, ...] = (garbage, zeros, echo, end)


@contextmanager
def stranger(behave: Stranger, rank: int, address: str) -> Iterator[str]:
    """Be the other one of two ranks; yield its address.

    Args:
        behave: What is done with the connections: the one that the stranger made, and the one that the rank made.
        rank: The rank that is to be deceived.
        address: Where that one listens, sooner or later.
    """
    ip, port = address.split(":")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def meet() -> None:
            with suppress(OSError):
                # The last rank connects first, and then listens.
                accepted = server.accept()[0] if rank else None
                with _connected(ip, int(port)) as made, accepted or server.accept()[0] as other:
                    behave(made, other)

        threading.Thread(target=meet, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def _connected(ip: str, port: int) -> socket.socket:
    while True:
        with suppress(ConnectionRefusedError):
            return socket.create_connection((ip, port))
        threading.Event().wait(0.01)
