"""Child processes that answer garbage."""

import sys
from collections.abc import Mapping

import pytest

from rdchat import host

# Reads a request first, unless it is to speak at once.
_SCRIPT = """
import os, sys, time
kind, garbage = sys.argv[1], sys.argv[2].encode()
def put(data):
    while data:
        data = data[os.write(1, data):]
def message(content):
    return len(content).to_bytes(4, "big") + content
try:
    if kind != "garbage at once":
        put(message(b'{"ready": true}'))
        os.read(0, 1 << 20)
    if kind == "half a message and silence":
        put(message(b'{"a": 12345}')[:9])
        time.sleep(600)
    if kind == "half a message and the end":
        put(message(b'{"a": 12345}')[:9])
        sys.exit(3)
    if kind == "a length of 2**32":
        put(b"\\xff\\xff\\xff\\xff")
        time.sleep(600)
    while kind == "endless":
        put(b"\\1" * 65536)
    if kind == "two messages":
        put(message(b'{"a": 1}') + message(b'{"a": 1}'))
    if garbage and kind == "garbage":
        garbage = b'{"id": 1, "result": ' + garbage + b"}"
    put(b"[" * 200000 if kind == "deep without an end" else message(b"[" * 200000 if kind == "deep" else garbage))
    time.sleep(600)
except BrokenPipeError:
    pass
"""
_WRONG = {"no JSON": "evil", "no object": "[1]", "nothing": "{}", "numbers without end": '{"a": ' + "9" * 5000 + "}"}
KINDS: Mapping[str, tuple[str, str]] = {
    "garbage at once": ("garbage at once", "evil"),
    "half a message and the end": ("half a message and the end", ""),
    "endless": ("endless", ""),
    "deep": ("deep", ""),
    **{name: ("garbage", garbage) for name, garbage in _WRONG.items()},
}


def put_in_place(monkeypatch: pytest.MonkeyPatch, kind: str, garbage: str = "") -> None:
    """Have each child answer its first request with garbage.

    Args:
        monkeypatch: Takes it back.
        kind: What the child does; of those that it does not know, it says `garbage`.
        garbage: A message's content.
    """
    command = [sys.executable, "-S", "-c", _SCRIPT, kind, garbage]
    monkeypatch.setattr(host, "child_command", lambda _name: command)
