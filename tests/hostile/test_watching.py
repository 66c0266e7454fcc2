"""The watchers of the corpus detect the faults they are made for."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hostile.case import Call
from tests.hostile.command_runner import environment_of
from tests.hostile.verdict import Outcome, faults
from tests.hostile.watch import has_ended, tree_bytes, watch

PLAIN = "rdchat: The model has no weights. Download it again.\n"


@pytest.mark.parametrize(
    ("outcome", "found"),
    [
        (Outcome(0), []),
        (Outcome(1, PLAIN), []),
        (Outcome(1, PLAIN, marked=True), ["its code ran"]),
        (Outcome(0, audit=("connected to ('127.0.0.1', 9)",)), ["connected to ('127.0.0.1', 9)"]),
        (Outcome(None, trouble="died: SIGSEGV"), ["died: SIGSEGV"]),
        (Outcome(130), ["exit status 130", "0 lines on standard error, not one of rdchat's"]),
        (Outcome(1), ["0 lines on standard error, not one of rdchat's"]),
        (Outcome(1, PLAIN * 2), ["2 lines on standard error, not one of rdchat's"]),
        (Outcome(1, "rdchat: Something unexpected went wrong.\n"), ["says 'something unexpected'"]),
        (Outcome(1, "rdchat: It failed: KeyError('x').\n"), ["says 'KeyError', which is no plain word"]),
        (Outcome(1, "rdchat: The model \x1b[31m is not there.\n"), ["says control characters"]),
        (Outcome(0, "Traceback (most recent call last):\n"), ["says 'traceback'"]),
        (Outcome(0, memory_bytes=9 * 10**9), ["took 9.0 GB"]),
        (Outcome(0, seconds=61.0), ["took 61 s"]),
    ],
)
def test_a_verdict_names_what_is_wrong(outcome: Outcome, found: list[str]) -> None:
    assert faults(Call(), outcome) == found


def test_a_case_may_say_which_status_and_which_words_are_right() -> None:
    call = Call(statuses=(1,), words="no weights")
    assert faults(call, Outcome(0)) == ["exit status 0"]
    assert faults(call, Outcome(1, PLAIN)) == []
    assert faults(call, Outcome(1, PLAIN.replace("weights", "config"))) == ["does not say 'no weights'"]


@contextmanager
def python(code: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, env=environment or None) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_process_that_hangs_is_killed_with_its_children() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import sys; sys.stdin.read()'])"
    with python(code) as process:
        assert watch(process, has_ended(process), time_limit_s=1.0).trouble == "killed after 1.0 s"
        assert process.returncode == -9
        assert tree_bytes(process.pid) == 0


def test_the_memory_of_children_counts() -> None:
    child = "import sys; x = bytearray(300_000_000); sys.stdin.read()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with python(code) as process:
        watched = watch(process, has_ended(process), memory_limit_bytes=200_000_000)
    assert watched.trouble.startswith("killed at 0.")


@pytest.mark.slow
def test_connections_and_commands_are_noted_and_stopped(tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    tries = [
        "import socket; socket.socket().connect(('127.0.0.1', 9))",
        "import socket; socket.getaddrinfo('example.org', 80)",
        "import os; os.system('true')",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.execv('/bin/true', ['true'])",
    ]
    for code in tries:
        with python(
            f"try:\n    {code}\nexcept PermissionError: raise SystemExit(7)", **environment_of(audit)
        ) as process:
            assert process.wait() == 7
    harmless = (
        "import socket, subprocess, sys; socket.socketpair(); subprocess.run([sys.executable, '-m', 'rdchat', '-h'])"
    )
    with python(harmless, **environment_of(audit)) as process:
        assert process.wait() == 0
    assert [line.split()[0] for line in audit.read_text().splitlines()] == ["connected", "asked", "ran", "ran", "ran"]
