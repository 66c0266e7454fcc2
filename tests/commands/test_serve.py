"""What `rdchat serve` refuses before a model is loaded."""

import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.commands.running import Console


def test_wrong_arguments(console: Console, tmp_path: Path) -> None:
    key = tmp_path / "key"
    console.refuses(["serve", "--port", "70000", "--api-key-file", key], "port 70000 is out of range", 2)
    key.chmod(0o644)
    console.refuses(["serve", "--api-key-file", key], "Other users of this machine can read", 2)


def check_given_up(console: Console, arguments: Sequence[object], words: str) -> None:
    """Check that it says at once that it loads, and ends with one line that has these words."""
    shown = console.runs(*arguments, status=1)
    first, *_stages, last = shown.err.splitlines()
    assert (shown.out, first) == ("", "Loading the model…")
    assert words in last


def test_a_model_that_is_not_there(
    console: Console, tmp_path: Path, qapp: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["serve", "--port", "0", "--model", tmp_path / "none", "--api-key-file", tmp_path / "key"]
    check_given_up(console, words, "none")


@pytest.mark.slow
def test_a_port_in_use(console: Console, default_model: Path, tmp_path: Path, qapp: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["serve", "--port", port, "--api-key-file", tmp_path / "key"]
        check_given_up(console, words, f"cannot listen on 127.0.0.1, port {port}")
