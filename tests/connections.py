"""Refuses and records every connection."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import pytest

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


class Refused:
    """What was tried.

    Attributes:
        tried: Addresses that were connected to or looked up, and children that were begun to do so.
    """

    def __init__(self) -> None:
        self.tried: list[str] = []
        self._before = _connected()  # what a test before this one keeps open

    def note(self, what: str) -> None:
        self.tried.append(what)

    def all(self) -> list[str]:
        """Return what was tried, and what is connected now past Python: by Qt, or by a child."""
        return [*self.tried, *sorted(_connected() - self._before)]


def _connected() -> set[str]:
    process = psutil.Process()
    found: set[str] = set()
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # a child that has just ended
            ends = [
                f"{connection.laddr} to {connection.raddr}"
                for connection in each.net_connections("inet")
                if connection.raddr
            ]
            found |= {f"{each.name()}: {end}" for end in ends}
    return found


@contextmanager
def all_refused(monkeypatch: pytest.MonkeyPatch) -> Iterator[Refused]:
    """Refuse every connection of this process to any machine, this one too; the hub's own settings hold."""
    for name in ("HF_ENDPOINT", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", *_PROXIES, *map(str.upper, _PROXIES)):
        monkeypatch.delenv(name, raising=False)
    refused = Refused()
    begin = subprocess.Popen.__init__

    def connect(self: socket.socket, address: Any) -> None:
        if self.family == socket.AF_UNIX:
            raise AssertionError(f"nobody here should ask {address}")
        refused.note(f"connect {address}")
        raise ConnectionRefusedError

    def look_up(host: Any, *arguments: Any, **options: Any) -> Any:
        refused.note(f"look up {host.decode() if isinstance(host, bytes) else host}")
        raise socket.gaierror(socket.EAI_NONAME, "nobody is asked")

    def send_to(self: socket.socket, *arguments: Any) -> Any:
        refused.note(f"send {arguments[-1]}")
        raise ConnectionRefusedError

    def popen(self: Any, arguments: Any, *more: Any, **options: Any) -> None:
        if "downloads" in arguments:
            refused.note("the downloading process")
        begin(self, arguments, *more, **options)

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket.socket, "connect_ex", connect)
    monkeypatch.setattr(socket.socket, "sendto", send_to)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(subprocess.Popen, "__init__", popen)
    yield refused
