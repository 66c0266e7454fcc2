"""The newest version, as an address says that the build names."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rdchat.errors import NetworkError
from rdchat.hub import updates
from rdchat.hub.updates import Update, newer_version, updates_address
from tests.serving import in_background

PAGE = "https://example.org/rdchat"


class _Server(ThreadingHTTPServer):
    answer = b""
    asked: list[str]


@pytest.fixture
def server() -> Iterator[_Server]:
    class Handler(BaseHTTPRequestHandler):
        server: _Server

        def do_GET(self) -> None:
            self.server.asked.append(f"{self.path} {self.headers['User-Agent']}")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.server.answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with in_background(_Server(("127.0.0.1", 0), Handler)) as server:
        server.asked = []
        yield server


def address_of(server: _Server) -> str:
    return f"http://127.0.0.1:{server.server_port}/newest.json"


@pytest.mark.parametrize(
    ("own", "theirs", "newer"),
    [("0.1.0", "0.2.0", True), ("0.9.0", "0.10", True), ("0.2.0", "0.2.0", False), ("1.0", "0.9", False)],
)
def test_a_version_counts_that_is_newer(
    server: _Server, monkeypatch: pytest.MonkeyPatch, own: str, theirs: str, newer: bool
) -> None:
    monkeypatch.setattr(updates.rdchat, "__version__", own)
    server.answer = json.dumps({"version": theirs, "notes": "Faster.", "page": PAGE}).encode()
    assert newer_version(address_of(server)) == (Update(theirs, "Faster.", PAGE) if newer else None)
    (asked,) = server.asked
    assert asked.startswith("/newest.json rdchat/"), "nothing about the person is sent"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"[" * 5000,
        b"[]",
        b"7",
        b"{}",
        json.dumps({"version": "9.0", "page": "javascript:alert(1)"}).encode(),
        json.dumps({"version": "9.0", "page": "http://example.org"}).encode(),
        json.dumps({"version": "9.0", "page": 7}).encode(),
        json.dumps({"version": "newest", "page": PAGE}).encode(),
        json.dumps({"version": ["9"], "page": PAGE}).encode(),
        json.dumps({"version": "9.0", "page": PAGE, "notes": 5}).encode(),
        b"x" * 2**17,
    ],
    ids=lambda answer: repr(answer[:40]),
)
def test_an_answer_that_says_nothing_of_use_is_refused(server: _Server, answer: bytes) -> None:
    server.answer = answer
    with pytest.raises(NetworkError, match=r"127\.0\.0\.1"):
        newer_version(address_of(server))


def test_long_notes_are_cut(server: _Server) -> None:
    server.answer = json.dumps({"version": "99.0", "notes": "n" * 10_000, "page": PAGE}).encode()
    found = newer_version(address_of(server))
    assert found is not None
    assert len(found.notes) < 2000
    notes = "".join(f"\n{number}\x1b\n" for number in range(500))
    server.answer = json.dumps({"version": "99.0", "notes": notes, "page": PAGE}).encode()
    found = newer_version(address_of(server))
    assert found is not None
    assert found.notes == "0\n1\n2\n3\n4\n5"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (f"{PAGE}/newest.json\n", f"{PAGE}/newest.json"),
        ("", ""),
        ("http://example.org", ""),
        ("file:///etc/passwd", ""),
        ("https://[", ""),
        (None, ""),
    ],
)
def test_the_address_is_a_setting_of_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, address: str
) -> None:
    monkeypatch.setattr(updates, "_FILE", tmp_path / "updates_address")
    if text is not None:
        (tmp_path / "updates_address").write_text(text)
    assert updates_address() == address
