"""The newest version, as an address says that the build names."""

import json
from pathlib import Path

import pytest

from rdchat.errors import NetworkError
from rdchat.hub import updates
from rdchat.hub.updates import Update, newer_version, updates_address
from tests.server.lying_server import answer, lying_server

PAGE = "https://example.org/rdchat"


def told(body: bytes) -> tuple[Update | None, bytes]:
    """Ask a server that answers with a body; return the newer version and the request."""
    with lying_server(answer(body)) as (address, requests):
        return newer_version(f"{address}/newest.json"), requests[0]


@pytest.mark.parametrize(
    ("own", "theirs", "newer"),
    [("0.1.0", "0.2.0", True), ("0.9.0", "0.10", True), ("0.2.0", "0.2.0", False), ("1.0", "0.9", False)],
)
def test_a_version_counts_that_is_newer(monkeypatch: pytest.MonkeyPatch, own: str, theirs: str, newer: bool) -> None:
    monkeypatch.setattr(updates.rdchat, "__version__", own)
    body = json.dumps({"version": theirs, "notes": "Faster.", "page": PAGE}).encode()
    found, request = told(body)
    assert found == (Update(theirs, "Faster.", PAGE) if newer else None)
    assert request.startswith(b"GET /newest.json ")
    assert b"user-agent: rdchat/" in request.lower()


DAMAGED: list[dict[str, object]] = [
    {"page": "javascript:alert(1)"},
    {"page": "http://example.org"},
    {"page": 7},
    {"version": "newest"},
    {"version": ["9"]},
    {"notes": 5},
]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[" * 5000,
        b"[]",
        b"7",
        b"{}",
        b"x" * 2**17,
        *(json.dumps({"version": "9.0", "page": PAGE} | each).encode() for each in DAMAGED),
    ],
    ids=lambda body: repr(body[:40]),
)
def test_an_answer_that_says_nothing_of_use_is_refused(body: bytes) -> None:
    with pytest.raises(NetworkError, match=r"127\.0\.0\.1"):
        told(body)


def test_long_notes_are_cut() -> None:
    many = "".join(f"\n{number}\x1b\n" for number in range(500))
    for notes, kept in (("n" * 10_000, "n" * 1000), (many, "0\n1\n2\n3\n4\n5")):
        found, _ = told(json.dumps({"version": "99.0", "notes": notes, "page": PAGE}).encode())
        assert found is not None
        assert found.notes.replace(" ... ", "") == kept


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
