"""PATH of the login shell."""

import asyncio
import os
from pathlib import Path

import pytest

from rdchat.tools.tools_child import read_login_path


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "shell"
    monkeypatch.setenv("SHELL", str(script))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return script


def write(shell: Path, text: str) -> None:
    shell.write_text(f"#!/bin/sh\n{text}\n")
    shell.chmod(0o755)


def test_the_shells_folders_come_first(shell: Path) -> None:
    write(shell, 'echo Welcome; export PATH="/opt/tools:relative:/bin"; eval "$2"')
    assert asyncio.run(read_login_path()) == "/opt/tools:/bin:/usr/bin"


@pytest.mark.parametrize("text", ["sleep 600", "exit 1", "yes | head -c 200000 | tr -d '\\n'", "yes"])
def test_a_shell_that_does_not_answer_is_ended(shell: Path, text: str) -> None:
    write(shell, text)
    assert asyncio.run(read_login_path(0.2)) == "/usr/bin:/bin"


def test_without_a_shell_the_apps_own_is_used(shell: Path) -> None:
    assert asyncio.run(read_login_path()) == os.environ["PATH"]
