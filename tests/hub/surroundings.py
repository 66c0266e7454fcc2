"""Fixtures for all tests that need a hub: a local one, and no other network."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hub.hub_server import HubServer, serving


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, this_machine_only: None) -> Iterator[HubServer]:
    """A hub that serves nothing yet; the environment leads to it, and to a cache of this test's own."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with serving() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
        yield server


@pytest.fixture
def this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse connections to any other machine."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in {socket.AF_INET, socket.AF_INET6}:
            assert address[0] in {"127.0.0.1", "::1", "localhost"}, address
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)
